"""Steps in float32 and in bfloat16, ours and PyTorch's: the usual loop, channels last and compiled, each in both.

    pip install ".[onednn,peer]" ml_dtypes
    python benchmarks/precision.py  # all nets, on a machine that is quiet
    python benchmarks/precision.py --net resnet50 --minutes 20 --json precision.json
    python benchmarks/precision.py --net lenet --image 0 --quick --anyway --no-peers

PyTorch's bfloat16 is its autocast. As in budget.py each case has a process of its own, the cases take turns (A B A B),
a round is a turn of each, and time is the ratio to our float32 step of the same round, of these the median; beside it
the fastest step of all rounds. Memory is VmHWM over what the process had after importing its framework and using it
once. Turns that were taken beside other work do not count, unless --anyway is given (quiet.py). The best peer is the
one with the least median ratio. Exit status: 1 if a case failed, 4 if something that was wanted has no quiet round.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import quiet
from budgets import files
from budgets.about import about, origin, where
from budgets.cases import Case, obstacle
from budgets.figures import Figure, figures
from budgets.options import CACHE
from budgets.report import heading, line
from budgets.turns import Measuring
from figure_file import add_option, of_lines, write
from peers.budget_task import BudgetTask
from report import MIB
from tiny import parsed

#: Nets and batches, with what is wanted of our step: the most it may take of the best peer's time, in float32 and in
#: bfloat16; MiB.
GOALS = {
    ("resnet50", 16): "0.80, 1450 MiB; 0.55, 850 MiB",
    ("mobilenet_v2", 32): "0.50, 1650 MiB; 0.40, 900 MiB",
    ("vgg16", 8): "0.65, 1390 MiB; 0.45, 1280 MiB",
    ("densenet121", 16): "0.75; 0.50",
    ("unet", 8): "0.75; 0.50",
    ("lenet", 64): "0.35",
    ("lenet", 256): "0.70",
    ("mlp", 64): "0.40",
    ("mlp", 512): "0.45; its own in float32",
}
ROWS = (
    "net, batch", "system", "ms a step: fastest", "median", "by our float32 (spread)", "by the best peer",
    "process MiB", "rounds that count",
)  # fmt: skip
PRECISIONS = ("float32", "bfloat16")
#: Settings of the peer: its way, its images' layout, its name.
PEERS = (("torch", False, "torch"), ("torch", True, "torch, channels last"), ("torch-compile", True, "torch, compiled"))


def cases(task: BudgetTask, peers: bool) -> list[Case]:
    """All cases of a net, our step in float32 before all others."""
    ours = [Case(replace(task, way="singa_lite", precision=one), f"ours, {one}") for one in PRECISIONS]
    return [*ours, *(_peers(task) if peers else [])]


def _peers(task: BudgetTask) -> Iterator[Case]:
    for way, channels_last, name in PEERS:
        for precision in PRECISIONS:
            own = replace(task, way=way, value=1.0, channels_last=channels_last, precision=precision)
            words = f"{name}, autocast" if precision == "bfloat16" else name
            yield Case(own, words, why=obstacle(way))


def rows(found: Sequence[Case], known: Sequence[Figure], anyway: bool) -> list[str]:
    """A line a case."""
    best, by_case = best_peer(known), {id(one.case): one for one in known}
    return [_row(case, by_case.get(id(case)), best, anyway) for case in found]


def best_peer(known: Sequence[Figure]) -> Figure | None:
    """The peer with the least median ratio; None if none was measured."""
    return min((one for one in known if not one.case.ours), key=lambda one: one.ratio.median, default=None)


def _row(case: Case, found: Figure | None, best: Figure | None, anyway: bool) -> str:
    head = [f"{case.task.net}, {case.task.batch}", case.setting]
    if found is None:
        return line([*head, "", "", case.why or ("no round was quiet" if case.turns else "not measured"), "", "", ""])
    fastest = min(second for turn in case.turns if anyway or not turn["why"] for second in turn["seconds"])
    share = f"{found.ratio.median / best.ratio.median:.2f}" if best else ""
    times = [f"{fastest * 1e3:.1f}", f"{found.seconds * 1e3:.1f}", str(found.ratio), share]
    return line([*head, *times, f"{found.nbytes / MIB:.0f}", f"{found.rounds} of {found.tried}"])


def summary(known: Sequence[Figure]) -> str:
    """Our steps by the best peer's, and what is wanted, in words; "" where there is nothing to compare."""
    best = best_peer(known)
    ours = [one for one in known if one.case.ours]
    if best is None or not ours:
        return ""
    task = best.case.task
    told = ", ".join(
        f"{one.case.task.precision} {one.ratio.median / best.ratio.median:.2f} ({one.nbytes / MIB:.0f} MiB)"
        for one in ours
    )
    goal = GOALS.get((task.net, task.batch), "nothing")
    return f"{task.net}, {task.batch}: {told} of the time of {best.case.setting}; wanted: {goal}"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = list(dict.fromkeys(net for net, _ in GOALS))
    parser.add_argument("--net", action="append", choices=names, help="may be repeated; default all")
    parser.add_argument("--batch", type=int, help="default those of the net")
    parser.add_argument("--image", type=int, default=0, help="height and width; default the net's own")
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument("--rounds", type=int, default=5, help="quiet ones that are wanted")
    parser.add_argument("--steps", type=int, default=1, help="of a turn at least")
    parser.add_argument("--warmup", type=int, default=2, help="steps of each process that are not timed")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="in all; each net gets an equal part")
    parser.add_argument("--no-peers", action="store_true", help="ours alone")
    parser.add_argument("--cache", default=CACHE, help="where the peer's compiler keeps what it made (%(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write all turns, the machine and the options there")
    quiet.add_option(parser)
    add_option(parser)
    options = parsed(parser, net=["lenet"], batch=4, quick=True, warmup=1, threads=1, no_peers=True)
    options.rounds = 1 if options.quick else options.rounds
    return options


def tasks(options: argparse.Namespace) -> list[BudgetTask]:
    """What is asked for."""
    wanted = [(net, batch) for net, batch in GOALS if not options.net or net in options.net]
    if options.batch:
        wanted = [(net, options.batch) for net in dict.fromkeys(net for net, _ in wanted)]
    return [
        BudgetTask("", net, batch, options.image, warmup=options.warmup, threads=options.threads)
        for net, batch in wanted
    ]


def main() -> int:
    """Measure, print."""
    options = arguments()
    end = time.monotonic() + 60 * options.minutes
    watch, told = quiet.Watch(options.anyway), about(options)
    nets = [cases(task, not options.no_peers) for task in tasks(options)]
    print(where(told), flush=True)

    def save() -> None:
        if options.json:
            files.write(options.json, nets, told)

    measuring = Measuring(watch, options.rounds, options.steps, end, options.cache, save)
    for found in measuring.nets(nets):
        print(f"{found[0].task.net}: {len(found[0].turns)} turns of our float32 step", file=sys.stderr, flush=True)
    known = [figures(found, options.anyway) for found in nets]
    lines = [text for found, own in zip(nets, known, strict=True) for text in rows(found, own, options.anyway)]
    print("\n".join([*heading(ROWS), *lines, "", *filter(None, map(summary, known))]))
    if options.write:
        write(options.write, origin(told, "precision.py"), {"steps": of_lines(ROWS, lines)})
    every = [case for found in nets for case in found]
    if any(case.why.startswith("failed") for case in every):
        return 1
    return quiet.BUSY if sum(bool(case.turns) for case in every) > sum(map(len, known)) else 0


if __name__ == "__main__":
    sys.exit(main())
