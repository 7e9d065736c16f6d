"""Where a recorded step spends its time, what its operations compute and touch, and how near to the peaks that is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from singa_lite.common.checks import integer
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.time_model import flops
from singa_lite.kernels.kernel_set import Launch

#: The slowest operations that the text lists.
SLOWEST = 20


class Peaks(NamedTuple):
    """The rates that a device reaches alone, a second. flops: of a float32 product; nbytes: of a copy, read and
    written.
    """

    flops: float
    nbytes: float


class OperationCost(NamedTuple):
    """One operation. number: its index in the record; seconds: median over the runs; share: of all seconds.

    bytes_read, bytes_written: of the elements of its operands; what it updates counts in both. flops: two for each
    multiply-add of a convolution or a product of matrices, 0 of all else. variant: the way in which it is done, where
    its kernel has several, else "".
    """

    number: int
    kernel: str
    layer: str
    phase: str
    seconds: float
    share: float
    bytes_read: int
    bytes_written: int
    flops: int
    variant: str = ""


class Cost(NamedTuple):
    """The sums over all operations of one layer, phase or kernel."""

    name: str
    operations: int
    seconds: float
    share: float
    bytes_read: int
    bytes_written: int
    flops: int


@dataclass(frozen=True)
class Profile:
    """The measurements of `graph.profile(runs)`. operations: in the order of running. peaks: None if they were not
    measured.

    The text (`str(profile)`) has a table by phase, by kernel, by layer, and one of the 20 slowest operations: time, and
    beside it the rate of multiply-adds and of bytes, each also as a share of its peak. What is near to neither peak has
    something to gain; bytes that lie in a cache may pass theirs.
    """

    operations: tuple[OperationCost, ...]
    runs: int
    peaks: Peaks | None = None

    @property
    def seconds(self) -> float:
        """The sum over all operations."""
        return sum(operation.seconds for operation in self.operations)

    def by_layer(self) -> list[Cost]:
        """The sums by layer, slowest first; "" is outside any layer."""
        return self._summed_by("layer")

    def by_phase(self) -> list[Cost]:
        """The sums by phase, slowest first."""
        return self._summed_by("phase")

    def by_kernel(self) -> list[Cost]:
        """The sums by kernel, slowest first."""
        return self._summed_by("kernel")

    def _summed_by(self, field: str) -> list[Cost]:
        groups: dict[str, list[OperationCost]] = {}
        for operation in self.operations:
            groups.setdefault(getattr(operation, field), []).append(operation)
        return sorted((_sum(name, group) for name, group in groups.items()), key=lambda c: (-c.seconds, c.name))

    def __str__(self) -> str:
        head = f"{len(self.operations)} operations, {self.seconds * 1e3:.3f} ms, medians over {self.runs} runs"
        if self.peaks is not None:
            head += f"; peaks: {self.peaks.flops / 1e9:.1f} GFLOP/s in float32, {self.peaks.nbytes / 1e9:.1f} GB/s"
        sums = {"phase": self.by_phase(), "kernel": self.by_kernel(), "layer": self.by_layer()}
        slowest = sorted(self.operations, key=lambda o: (-o.seconds, o.number))[:SLOWEST]
        return "\n\n".join([head, *_tables(sums, slowest, self.peaks)])


def measure(
    instructions: Sequence[Instruction],
    launches: Sequence[Launch],
    runs: int = 10,
    wait: Callable[[], None] | None = None,
    peaks: Peaks | None = None,
    variants: Sequence[str] = (),
) -> Profile:
    """Do the launches in order `runs` times, each timed alone. launches: one an instruction.

    wait: returns when all launches are done, where they are done later; each is waited for, so that one counts with
    what a launch and a wait cost. Without it, a launch counts with the clock's own cost, some 0.1 microseconds.
    peaks: what the figures are told as shares of. variants: the way in which each is done, where that is known.
    ValueError unless runs is at least 1.
    """
    from statistics import median  # here, as it loads fractions and decimals that `import singa_lite` needs not

    runs = integer("profile: runs", runs, 1)
    ready = launches if wait is None else [waited(launch, wait) for launch in launches]
    times = [[timed(launch) for launch in ready] for _ in range(runs)]
    medians = [median(of_one) for of_one in zip(*times, strict=True)]
    total = sum(medians)
    named = zip(instructions, medians, variants or [""] * len(instructions), strict=True)
    costs = [_cost(i, seconds, total)._replace(variant=variant) for i, seconds, variant in named]
    return Profile(tuple(costs), runs, peaks)


def waited(launch: Launch, wait: Callable[[], None]) -> Launch:
    """The launch, and a wait until it is done."""

    def run() -> None:
        launch()
        wait()

    return run


def timed(launch: Launch) -> float:
    """Seconds of one run."""
    start = time.perf_counter()
    launch()
    return time.perf_counter() - start


def _cost(instruction: Instruction, seconds: float, total: float) -> OperationCost:
    return OperationCost(
        instruction.number,
        instruction.kernel,
        instruction.layer,
        str(instruction.phase),
        seconds,
        seconds / total if total else 0.0,
        _bytes(instruction.reads),
        _bytes(instruction.writes),
        flops(instruction),
    )


def _bytes(operands: Sequence[Operand]) -> int:
    return sum(operand.nbytes for operand in operands)


def _sum(name: str, group: Sequence[OperationCost]) -> Cost:
    return Cost(name, len(group), *(sum(getattr(one, field) for one in group) for field in Cost._fields[2:]))


Cells = tuple[str, ...]
_Row = Cost | OperationCost

_FIGURES = ("ms", "share", "GFLOP/s", "bytes read", "bytes written", "GB/s")
_OF_PEAKS = ("ms", "share", "GFLOP/s", "of peak", "bytes read", "bytes written", "GB/s", "of peak")


def _tables(sums: Mapping[str, Sequence[Cost]], slowest: Sequence[OperationCost], peaks: Peaks | None) -> list[str]:
    """A table of each of `sums`, by what they were added up, and one of single operations."""
    head = _FIGURES if peaks is None else _OF_PEAKS
    tables = [
        _table(
            (title, "operations"), head, [(one.name or "(none)", str(one.operations)) for one in group], group, peaks
        )
        for title, group in sums.items()
    ]
    names = [
        (f"{one.number} {one.kernel}" + (f" ({one.variant})" if one.variant else ""), one.layer or "(none)", one.phase)
        for one in slowest
    ]
    return [*tables, _table(("slowest operations", "layer", "phase"), head, names, slowest, peaks)]


def _figures(cost: _Row, peaks: Peaks | None) -> Cells:
    """Rates are left empty where nothing was multiplied, or took no time."""
    moved = cost.bytes_read + cost.bytes_written
    computed = _rate(cost.flops, cost.seconds, None if peaks is None else peaks.flops)
    bytes_ = _rate(moved, cost.seconds, None if peaks is None else peaks.nbytes)
    time = f"{cost.seconds * 1e3:.3f}", f"{cost.share:.1%}"
    return (*time, *computed, f"{cost.bytes_read:,}", f"{cost.bytes_written:,}", *bytes_)


def _rate(amount: int, seconds: float, peak: float | None) -> Cells:
    """Of so much in this time: billions a second, and its share of the peak where there is one."""
    rate = amount / seconds if amount and seconds else None
    cells = "" if rate is None else f"{rate / 1e9:.1f}"
    if peak is None:
        return (cells,)
    return cells, "" if rate is None else f"{rate / peak:.0%}"


def _table(
    names_head: Cells, figures_head: Cells, names: Sequence[Cells], costs: Sequence[_Row], peaks: Peaks | None
) -> str:
    """Columns as wide as their widest cell; names stand left, figures right."""
    rows = [(*name, *_figures(cost, peaks)) for name, cost in zip(names, costs, strict=True)]
    head = (*names_head, *figures_head)
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    texts = len(names_head)

    def line(cells: Cells) -> str:
        padded = [c.ljust(w) if i < texts else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return "  ".join(padded).rstrip()

    return "\n".join([line(head), "  ".join("─" * width for width in widths), *map(line, rows)])
