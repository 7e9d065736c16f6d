"""The process that runs items: it is told names, and writes what came out to results.jsonl."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from first_run.catalogue import items_of
from first_run.item import Context, Item, Options, Skipped, Values, Wrong

#: The file descriptor that a worker answers on.
ANSWERS = "GPU_FIRST_ANSWERS"


def run_requested(options: Options, side: str) -> int:
    """Do the items that standard input names, a line each, and answer each with its status."""
    answers = os.fdopen(int(os.environ[ANSWERS]), "w")
    known = {item.name: item for item in items_of(options)}
    context = Context(options, lambda values: append(Path(options.out), values))
    _import(side)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        result = done(known[line.strip()], context)
        append(Path(options.out), result)
        print(result["status"], file=answers, flush=True)
    return 0


def run_named(options: Options, names: Sequence[str]) -> int:
    """Do the named items in this process and print their lines; 1 if one failed. For tools that watch a process."""
    known = {item.name: item for item in items_of(options)}
    context = Context(options, lambda values: print(json.dumps(values, default=str), flush=True))
    failed = False
    for name in names:
        result = done(known[name], context)
        context.write(result)
        failed |= result["status"] != "ok"
    return int(failed)


def append(out: Path, values: Values) -> None:
    """Add a line to results.jsonl, flushed to the disk: the machine may be gone the next moment."""
    with (out / "results.jsonl").open("a") as file:
        file.write(json.dumps(values, default=str) + "\n")
        file.flush()
        os.fsync(file.fileno())


def done(item: Item, context: Context) -> Values:
    """The line of an item. status: ok, wrong, failed, poisoned (no kernel runs in this process any more), skipped."""
    context.item = item.name
    start = time.perf_counter()
    result: Values = {"item": item.name, "status": "ok"}
    try:
        result["values"] = item.run(context)
    except Skipped as why:
        result |= {"status": "skipped", "error": str(why)}
    except Wrong as wrong:
        result |= {"status": "wrong", "error": str(wrong), "values": wrong.values}
    except Exception as error:
        poisoned = "machine" in vars(context) and not context.machine.is_alive()
        status = "poisoned" if poisoned else "failed"
        result |= {"status": status, "error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
    return result | {"seconds": round(time.perf_counter() - start, 4)}


def _import(side: str) -> None:
    """Load what the side needs, so that the first item is not charged for it."""
    if side == "torch":
        import torch  # noqa: F401
    elif side == "singa_lite":
        import singa_lite  # noqa: F401
