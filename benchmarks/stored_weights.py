"""Losses of nets whose weights are stored in float32 and in bfloat16, from equal first weights and equal batches.

    pip install ".[onednn]" scikit-learn && python benchmarks/stored_weights.py [--seeds N] [--write FILE]

AdamW trains the net of examples/digits_cnn.py on scikit-learn's digits, and a GPT of 4 blocks of 128 features on the
characters of the docstrings of Python's standard library. A loss is the mean of the last `LAST` of `STEPS` batches.
Wanted: bfloat16's mean over the seeds within the spread of float32's seeds. Off: the most that the loss of a seed
differs from float32's, as a share of it. Digits take a minute on two cores, characters ten on busy ones.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import numpy as np

from accuracy import BATCH, Array, digits_data, shuffled, trained
from figure_file import Cell, Table, add_option, line, origin, write
from full_training import docstrings
from nets.small import digits_cnn
from singa_lite import FeedForwardNet, device, models, optimizer
from tiny import TINY, parsed, size

STORED: dict[str, dict[str, str]] = {
    "float32": {},
    "bfloat16, stochastic": {"parameter_dtype": "bfloat16"},
    "bfloat16, compensated": {"parameter_dtype": "bfloat16", "rounding": "compensated"},
}
STEPS, LAST = size((300, 50), (4, 2))
#: Texts of a batch, and their length.
TEXTS, LENGTH = size((4, 128), (2, 16))
COLUMNS = [("net, weights", ""), ("losses", ""), ("mean", ".4f"), ("off", ".1%"), ("within float32's spread", "")]


@dataclass(frozen=True)
class Task:
    """A net of a seed, the batches of a seed, AdamW's rate."""

    build: Callable[[Any, int], FeedForwardNet]
    batches: Callable[[int], Iterator[tuple[Array, Array]]]
    lr: float

    def loss(self, seed: int, options: dict[str, str]) -> float:
        """The mean loss of the last batches."""
        net = self.build(device.new_cpu(), seed)
        net.compile(optimizer.AdamW(self.lr), **options)
        return float(np.mean(trained(net, list(islice(self.batches(seed), STEPS)))[-LAST:]))


def pictures(seed: int) -> Iterator[tuple[Array, Array]]:
    """Batches of digits."""
    x, y = digits_data()
    return shuffled(x, y, seed, -(-STEPS // (len(x) // BATCH)))


def characters(seed: int) -> Iterator[tuple[Array, Array]]:
    """Batches of ids of characters, and of those that follow each."""
    codes, random = text(), np.random.default_rng(seed)
    while True:
        places = random.integers(0, len(codes) - LENGTH, TEXTS)[:, None] + np.arange(LENGTH)
        yield codes[places], codes[places + 1]


@cache
def text() -> Array:
    """The docstrings' characters."""
    return np.frombuffer("\n\n".join(docstrings()).encode("ascii", "replace"), np.uint8).astype(np.int64)


def character_gpt(on: Any, seed: int) -> FeedForwardNet:
    """A GPT over the characters of ASCII."""
    return models.gpt2(128, LENGTH, *size((128, 4, 4), (16, 1, 2)), tied=False, device=on, seed=seed)


TASKS = {"digits CNN": Task(digits_cnn, pictures, 1e-3), "character GPT": Task(character_gpt, characters, 1e-3)}


def rows(name: str, seeds: int) -> Iterator[list[Cell]]:
    """A net's rows, float32's first."""
    wide = [TASKS[name].loss(seed, STORED["float32"]) for seed in range(seeds)]
    for stored, options in STORED.items():
        found = [TASKS[name].loss(seed, options) for seed in range(seeds)] if options else wide
        mean, off = float(np.mean(found)), float(max(abs(np.divide(found, wide) - 1)))
        within = "yes" if min(wide) <= mean <= max(wide) else "no"
        yield [f"{name}, {stored}", ", ".join(f"{loss:.4f}" for loss in found), mean, off, within]


def main() -> int:
    """Print the table; 1 if a mean lies outside the spread."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    add_option(parser)
    options = parsed(parser, seeds=2)
    table = Table(COLUMNS, [])
    print(table.markdown(), flush=True)
    for name in TASKS:
        for row in rows(name, options.seeds):
            table.rows.append(row)
            print(line([table.text(row, place) for place in range(len(row))]), flush=True)
    if options.write:
        command = f"python benchmarks/stored_weights.py --seeds {options.seeds}"
        write(options.write, origin(command, ("NumPy", "oneDNN's wheel")), {"losses": table})
    return int(not TINY and any(row[-1] == "no" for row in table.rows))


if __name__ == "__main__":
    sys.exit(main())
