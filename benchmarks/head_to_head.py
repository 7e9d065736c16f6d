"""Our byte budgets against PyTorch's own: twenty budgets of each, peaks, losses and times, on three nets.

    pip install ".[onednn,peer]"
    python benchmarks/head_to_head.py --json points.json                     # bytes and losses; needs no quiet machine
    python benchmarks/head_to_head.py --json points.json --timed 5           # times of five budgets a side; does
    python benchmarks/head_to_head.py --json points.json --gradients 4       # whether PyTorch's are those of its loss
    python benchmarks/head_to_head.py --json points.json --tell --write docs/figures/head_to_head.json

Six Llama-like blocks with dropout (384 features, 4 texts of 256 ids), ResNet-50 (8 images of 128 x 128) and U-Net
(4 images of 128 x 160), by SGD without momentum, from equal weights over an equal batch. The sides: ours within bytes,
from no budget to the least; `torch.compile` with `torch._functorch.config.activation_memory_budget`, from 1 down in
equal parts; and `checkpoint_sequential`, from one segment up (a U-Net is no sequence: so many of its seven stages by
`checkpoint`, the largest first). PyTorch's images lie channels last.

Each point is a process of its own. Bytes are VmHWM over what it had after importing its framework and using it once,
and over the batch: of ours and of checkpoints of the whole process, planning included; of compiled nets of the steps
behind the warm-up alone, in a process that finds all compiled already. A peak rises where it is more than `NOISE` above
the smallest of all larger budgets. Losses of the first steps are compared with those of the same side's free run: equal
are those of equal bits. Times: the processes of a side take turns with our free plan's, `Measuring` of
budgets/turns.py; told are the fastest and the median step of all quiet turns, or of all steps if no turn was quiet.

With dropout a repeated forward must draw the same numbers again. Whether it does is seen by --gradients: the squared
length of the compiled net's first gradient, and the slope of the loss along it by central differences, each forward
from one seed. They are equal where the gradient is that of the loss.

The file of --json is written after each point, and a further run does what it lacks. Exit status 1 if a point failed.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

import quiet
from budgets import files
from budgets.about import about, origin
from budgets.head_to_head import COMPILED, LONGEST, NETS, SIDES, evenly, measured, points
from budgets.head_to_head_report import tables
from budgets.options import CACHE
from budgets.turns import Measuring
from figure_file import add_option, write
from peers.worker import asked_once
from tiny import parsed


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", nargs="+", choices=list(NETS), default=list(NETS))
    parser.add_argument("--side", nargs="+", choices=SIDES, default=list(SIDES), help="those that are measured")
    parser.add_argument("--budgets", type=int, default=20, help="of each side (%(default)s)")
    parser.add_argument("--part", type=int, metavar="N", help="measure so many of each side, evenly, not all")
    parser.add_argument("--steps", type=int, default=4, help="of a point at least, after two others")
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument("--timed", type=int, default=0, metavar="N", help="measure times of so many points a side")
    parser.add_argument("--rounds", type=int, default=3, help="of --timed")
    parser.add_argument("--gradients", type=int, default=0, metavar="N", help="check those of so many compiled points")
    parser.add_argument("--tell", action="store_true", help="measure nothing")
    parser.add_argument("--json", metavar="FILE", help="all points; those that are there are not measured again")
    parser.add_argument("--cache", default=CACHE, help="where the peer's compiler keeps what it made (%(default)s)")
    add_option(parser)
    quiet.add_option(parser)
    side = ["singa_lite"]
    options = parsed(parser, net=["unet"], side=side, budgets=3, steps=1, threads=1, timed=2, rounds=1)
    if options.budgets < 2:
        parser.error(f"--budgets: wanted at least 2, received {options.budgets}")
    return options


def planned(options: argparse.Namespace) -> files.Nets:
    """The points of each net, nothing measured."""
    nets = []
    for net in options.net:
        folder = Path(options.cache) / f"weights_{net}"
        folder.mkdir(parents=True, exist_ok=True)
        nets.append(points(net, options.budgets, options.threads, str(folder)))
    return nets


def measure(nets: files.Nets, options: argparse.Namespace) -> None:
    """All points of the sides that are asked for which were not measured; times, if they are."""
    told = about(options)

    def save() -> None:
        if options.json:
            files.write(options.json, nets, told)

    asked = [cases for cases in nets if cases[0].task.net in options.net]
    found = [[case for case in cases if case is cases[0] or case.task.way in options.side] for cases in asked]
    for cases in found:
        for case in evenly(cases, options.part or options.budgets):
            if case.able and not case.turns:
                measured(case, options.steps, options.cache)
                print(f"{case.task.net}, {case.setting}: {case.why or 'measured'}", file=sys.stderr, flush=True)
                save()
    for cases in found if options.gradients else []:
        for case in evenly([case for case in cases if case.task.way == COMPILED], options.gradients):
            case.point["gradient"] = asked_once(replace(case.task, way="torch-gradient"), options.cache, LONGEST)
            save()
    if options.timed:
        rounds = options.rounds + options.anyway  # then a point's own process counts as one
        measuring = Measuring(quiet.Watch(options.anyway), rounds, 1, float("inf"), options.cache, save)
        for _ in measuring.nets([evenly([case for case in cases if case.turns], options.timed) for cases in found]):
            pass


def main() -> int:
    """Measure, print, write."""
    options = arguments()
    known = bool(options.json) and os.path.isfile(options.json)
    nets = files.read(options.json)[0] if known else planned(options)
    if not options.tell:
        for cases in nets:
            asked_once(replace(cases[0].task, way="write"))
        measure(nets, options)
    made = tables(nets)
    for name, table in made.items():
        print(f"{name}\n\n{table.markdown()}\n")
    if options.write:
        write(options.write, origin(about(options), "head_to_head.py"), made)
    return int(any(case.why.startswith("failed") for cases in nets for case in cases))


if __name__ == "__main__":
    sys.exit(main())
