"""The command line of `budget.py`, and what it asks for."""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile

import quiet
from figure_file import add_option
from peers.budget_task import BudgetTask
from tiny import parsed

from .cases import BATCHES, FEW_TARGETS, TARGETS, USUAL

#: Where the peer's compiler keeps what it made.
CACHE = os.path.join(tempfile.gettempdir(), f"singa_lite_budget_{os.getuid()}")


def arguments(words: str | None) -> argparse.Namespace:
    """The command line. words: what --help says first."""
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", action="append", choices=list(BATCHES), help=f"may be repeated; default {USUAL}")
    parser.add_argument("--batch", type=int, help="default that of the net")
    parser.add_argument("--image", type=int, default=0, help="height and width; default the net's own")
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument("--rounds", type=int, default=5, help="quiet ones of each group, with those of --resume")
    parser.add_argument("--steps", type=int, default=1, help="of a turn at least")
    parser.add_argument("--warmup", type=int, default=1, help="steps of each process that are not timed")
    parser.add_argument("--quick", action="store_true", help="fewer cases, one round")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="in all; each net gets an equal part")
    parser.add_argument("--no-bound", action="store_true", help="without the linear program")
    parser.add_argument("--no-peers", action="store_true", help="ours alone")
    parser.add_argument("--cache", default=CACHE, help="where the peer's compiler keeps what it made (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write all turns, the machine and the options there")
    add_option(parser)
    parser.add_argument("--prepare", metavar="FILE", help="as --json, but only plan")
    parser.add_argument("--compile", action="store_true", help="only fill the caches of the peer's compiler")
    parser.add_argument("--resume", metavar="FILE", help="measure what is wanted there, and go on writing it")
    parser.add_argument("--from-json", metavar="FILE", action="append", help="measure nothing; may be repeated")
    parser.add_argument("--picture", metavar="FILE", help="draw bytes against time there")
    parser.add_argument("--check", type=int, nargs="?", const=20, metavar="N", help="plan N budgets a net (default 20)")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    quiet.add_option(parser)
    options = parsed(parser, net=["unet"], batch=2, image=16, quick=True, threads=1, no_peers=True)
    if sum(map(bool, (options.compile, options.prepare, options.resume, options.from_json, options.check))) > 1:
        parser.error("wanted one of --compile, --prepare, --resume, --from-json and --check")
    if options.picture and importlib.util.find_spec("matplotlib") is None:
        parser.error("--picture: wanted matplotlib, which is not installed")
    options.rounds = 1 if options.quick else options.rounds
    return options


def tasks(options: argparse.Namespace, way: str) -> list[BudgetTask]:
    """What is asked for, a task a net."""
    targets = FEW_TARGETS if options.quick else TARGETS
    return [
        BudgetTask(
            way, net, options.batch or BATCHES[net], options.image, warmup=options.warmup, threads=options.threads,
            targets=targets, budgets=options.check or 0, bound=not options.no_bound,
        )
        for net in options.net or USUAL
    ]  # fmt: skip
