"""Writing text id by id beside PyTorch with a cache of keys and values: milliseconds an id, and for the prompt.

    pip install ".[onednn]" torch && python benchmarks/generation.py [--texts 1 8] [--prompt 64] [--ids 200]

A GPT of 11 million parameters: 6 blocks of 384 features, 6 heads, 256 ids. Each measurement is a process of its own,
the sides in turn: a few texts are written, of which the fastest counts. PyTorch's side joins queries, keys and values
in one product, appends to its cache by `torch.cat`, and draws by `torch.multinomial`; ours is net.generate. Seconds are
of the process, over all of its threads, with --threads 1, the default: these count no other work.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import quiet
from peers.process import environment
from tiny import parsed, size

IDS, POSITIONS = 256, 1024
FEATURES, HEADS, BLOCKS = size((384, 6, 6), (8, 2, 1))
ROUNDS, TEXTS = size((3, 4), (1, 1))
SIDES = "singa_lite", "torch"

#: Writes so many ids behind a prompt.
Write = Callable[[int], object]


def of_singa_lite(prompt: np.ndarray) -> Write:
    """net.generate."""
    from singa_lite import models, optimizer

    net = models.gpt2(IDS, POSITIONS, FEATURES, HEADS, BLOCKS, tied=False, seed=0)
    net.compile(optimizer.SGD())  # which records steps; nothing is trained
    return lambda count: net.generate(prompt, count)


def of_torch(prompt: np.ndarray) -> Write:
    """The same net in PyTorch's modules."""
    import torch
    from torch import nn

    functional = nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(FEATURES) for _ in range(2))
            self.joined, self.output = nn.Linear(FEATURES, 3 * FEATURES), nn.Linear(FEATURES, FEATURES)
            self.hidden, self.back = nn.Linear(FEATURES, 4 * FEATURES), nn.Linear(4 * FEATURES, FEATURES)

        def forward(self, x: Any, cache: list[Any]) -> Any:
            n, m, _ = x.shape
            parts = self.joined(self.norms[0](x)).split(FEATURES, 2)
            q, k, v = (part.view(n, m, HEADS, -1).transpose(1, 2) for part in parts)
            cache[:] = [torch.cat([old, new], 2) for old, new in zip(cache, (k, v), strict=True)] if cache else [k, v]
            y = functional.scaled_dot_product_attention(q, *cache, is_causal=m > 1)
            x = x + self.output(y.transpose(1, 2).reshape(n, m, FEATURES))
            return x + self.back(functional.gelu(self.hidden(self.norms[1](x)), approximate="tanh"))

    tokens, positions = nn.Embedding(IDS, FEATURES), nn.Embedding(POSITIONS, FEATURES)
    blocks, norm, head = [Block() for _ in range(BLOCKS)], nn.LayerNorm(FEATURES), nn.Linear(FEATURES, IDS, bias=False)

    def scores(ids: Any, caches: list[list[Any]], at: int) -> Any:
        x = tokens(ids) + positions(torch.arange(at, at + ids.shape[1]))
        for block, cache in zip(blocks, caches, strict=True):
            x = block(x, cache)
        return head(norm(x[:, -1]))

    @torch.inference_mode()
    def write(count: int) -> Any:
        ids, caches = torch.from_numpy(prompt), [list[Any]() for _ in blocks]
        found = scores(ids, caches, 0)
        for number in range(count):
            new = torch.multinomial(functional.softmax(found, -1), 1)
            ids = torch.cat([ids, new], 1)
            if number < count - 1:
                found = scores(new, caches, ids.shape[1] - 1)
        return ids

    return write


def measured(side: str, texts: int, prompt: int, ids: int, threads: int) -> dict[str, float]:
    """Of one process: milliseconds an id behind the first, and for the prompt with the first."""
    given = np.random.default_rng(0).integers(0, IDS, (texts, prompt))
    write = (of_singa_lite if side == "singa_lite" else of_torch)(given)
    clock = time.process_time if threads == 1 else time.perf_counter

    def best(count: int) -> float:
        write(count)
        seconds = []
        for _ in range(TEXTS):
            start = clock()
            write(count)
            seconds.append(clock() - start)
        return 1e3 * min(seconds)

    whole = best(ids)
    first = best(1)
    return {"id": (whole - first) / (ids - 1), "prompt": first}


def one(side: str, options: argparse.Namespace, texts: int) -> dict[str, float]:
    """`measured`, in a process of its own."""
    command = [sys.executable, str(Path(__file__)), "--one", side, "--texts", str(texts)]
    command += [f"--{name}={getattr(options, name)}" for name in ("prompt", "ids", "threads")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment(options.threads))
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> int:
    """Print a row for each number of texts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--ids", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--one", choices=SIDES, help="this side in this process, as JSON")
    quiet.add_option(parser)
    options = parsed(parser, texts=[2], prompt=3, ids=4)
    if options.one:
        print(json.dumps(measured(options.one, options.texts[0], options.prompt, options.ids, options.threads)))
        return 0
    watch = quiet.Watch(options.anyway or options.threads == 1)
    print("texts   ms an id: ours  torch  ours / torch   ms the prompt: ours  torch")
    for texts in options.texts:
        rounds = [{side: one(side, options, texts) for side in SIDES} for _ in range(options.rounds)]
        best = {side: {what: min(each[side][what] for each in rounds) for what in ("id", "prompt")} for side in SIDES}
        ours, theirs = (best[side] for side in SIDES)
        line = (
            f"{texts:5} {ours['id']:16.2f} {theirs['id']:6.2f} {ours['id'] / theirs['id']:13.2f} "
            f"{ours['prompt']:21.1f} {theirs['prompt']:6.1f}"
        )
        watch.row(line, *([] if options.threads == 1 else [[each[side]["id"] for each in rounds] for side in SIDES]))
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
