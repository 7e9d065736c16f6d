"""Tables of what `gpu_first.py` measured, as a file of figures for the manual.

    python benchmarks/gpu_figures.py out/results.jsonl out4/results.jsonl --write docs/figures/gpu.json

Of an item that several files have, the last line counts. A side's time is the least of its rounds' medians, its bytes
are the least of its rounds' peaks. PyTorch's step is the fastest of its ways, and its bytes are of that way.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import figure_file
from figure_file import Cell, Table
from first_run.item import written

MIB = 1 << 20
#: How the names of PyTorch's sides begin.
TORCH = "torch"
#: Kinds of items that check results.
CHECKS = ("contract", "losses", "memcheck", "racecheck")


class Step(NamedTuple):
    """A step of one side: milliseconds, and MiB at the peak."""

    milliseconds: float
    peak: float


def results(paths: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """{item: its last line}."""
    return {line["item"]: line for path in paths for line in written(path) if "status" in line}


def steps(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Step]]:
    """{net: {side: the least of its rounds}}."""
    rounds: dict[str, dict[str, list[Step]]] = {}
    for item, line in found.items():
        values = line.get("values", {})
        if line["status"] != "ok" or "high_water_bytes" not in values:
            continue
        net, side = _named(item)
        step = Step(median(values["milliseconds"]), values["high_water_bytes"] / MIB)
        rounds.setdefault(net, {}).setdefault(side, []).append(step)
    return {net: {side: _least(each) for side, each in sides.items()} for net, sides in rounds.items()}


def _named(item: str) -> tuple[str, str]:
    """The net and the side of `table/1/lenet/torch-tf32`, `torch/lenet/tf32`, `step/lenet/tf32` or `gpt/1/ours`."""
    kind, *rest = item.split("/")
    rest = [part for part in rest if not part.isdigit()]
    if kind == "gpt":
        return "gpt2_small_1024", rest[0]
    return rest[0], f"{TORCH}-{rest[1]}" if kind == TORCH else rest[1]


def _least(each: Sequence[Step]) -> Step:
    return Step(min(step.milliseconds for step in each), min(step.peak for step in each))


def comparison(sides: dict[str, dict[str, Step]]) -> Table:
    """Each of our sides beside the fastest of PyTorch's ways in the same precision."""
    columns = [("net, step", ""), ("ms", ",.2f"), ("PyTorch's ms", ",.2f"), ("PyTorch's way", ""), ("time", ".2f")]
    columns += [("peak, MiB", ",.0f"), ("PyTorch's peak, MiB", ",.0f"), ("bytes", ".2f")]
    return Table(columns, [*_rows(sides)])


def _rows(sides: dict[str, dict[str, Step]]) -> Iterator[list[Cell]]:
    for net, steps_of in sides.items():
        for side, ours in steps_of.items():
            precision = "bfloat16" if side.startswith("ours") else side
            theirs = {way: step for way, step in steps_of.items() if way.startswith(f"{TORCH}-{precision}")}
            if side.startswith(TORCH) or not theirs:
                continue
            way, peer = min(theirs.items(), key=lambda one: one[1].milliseconds)
            times = [ours.milliseconds, peer.milliseconds, way, ours.milliseconds / peer.milliseconds]
            yield [f"{net}, {side}", *times, ours.peak, peer.peak, ours.peak / peer.peak]


def checks(found: dict[str, dict[str, Any]]) -> Table:
    """Items of each kind: how many, and how many are right."""
    kinds = {kind: [line["status"] for item, line in found.items() if item.startswith(f"{kind}/")] for kind in CHECKS}
    rows: list[Sequence[Cell]] = [[kind, len(each), each.count("ok")] for kind, each in kinds.items() if each]
    return Table([("items", ""), ("number", ",.0f"), ("right", ",.0f")], rows)


def origin(found: dict[str, dict[str, Any]], command: str) -> figure_file.Origin:
    """The GPU and the versions that the run found."""
    said = found["versions"]["values"]
    versions = {name: said[name].split(",")[0].split(" (")[0] for name in ("Python", "CuPy", "cuBLASLt", "cuDNN")}
    torch = next((v["torch"] for line in found.values() if "torch" in (v := line.get("values", {}))), "")
    return figure_file.Origin(command, said["GPU"], versions | ({"PyTorch": torch} if torch else {}), str(date.today()))


def main() -> int:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS", help="results.jsonl of a part")
    figure_file.add_option(parser)
    options = parser.parse_args()
    found = results(options.results)
    if "versions" not in found:
        parser.error("wanted results of part 1 among the files, received none with the item `versions`")
    tables = {"steps": comparison(steps(found)), "checks": checks(found)}
    if options.write:
        figure_file.write(options.write, origin(found, "python benchmarks/gpu_first.py"), tables)
    print("\n\n".join(table.markdown() for table in tables.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
