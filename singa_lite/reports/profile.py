"""Where a recorded step spends its time, and how many bytes its operations touch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from singa_lite.checks import whole
from singa_lite.kernels.kernel_set import Launch
from singa_lite.operation import Instruction, Operand

Columns = tuple[str, ...]

_SUM_HEAD = ("operations", "ms", "share", "bytes read", "bytes written")
_ROW_HEAD = ("layer", "phase", "ms", "share", "bytes read", "bytes written")


class OperationCost(NamedTuple):
    """One operation. number: its index in the record; seconds: median over the runs; share: of all seconds.

    bytes_read, bytes_written: of the elements of its operands; what it updates counts in both.
    """

    number: int
    kernel: str
    layer: str
    phase: str
    seconds: float
    share: float
    bytes_read: int
    bytes_written: int


class Cost(NamedTuple):
    """The sums over all operations of one layer, phase or kernel."""

    name: str
    operations: int
    seconds: float
    share: float
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True)
class Profile:
    """What `graph.profile(runs)` measured. operations: in the order of running.

    The text (`str(profile)`) has a table by phase, by kernel, by layer, and one of the 20 slowest operations.
    """

    operations: tuple[OperationCost, ...]
    runs: int

    @property
    def seconds(self) -> float:
        """The sum over all operations."""
        return sum(operation.seconds for operation in self.operations)

    def by_layer(self) -> list[Cost]:
        """The sums by layer, slowest first; "" is outside any layer."""
        return self._by("layer")

    def by_phase(self) -> list[Cost]:
        """The sums by phase, slowest first."""
        return self._by("phase")

    def by_kernel(self) -> list[Cost]:
        """The sums by kernel, slowest first."""
        return self._by("kernel")

    def _by(self, field: str) -> list[Cost]:
        groups: dict[str, list[OperationCost]] = {}
        for operation in self.operations:
            groups.setdefault(getattr(operation, field), []).append(operation)
        return sorted((_sum(name, group) for name, group in groups.items()), key=lambda c: (-c.seconds, c.name))

    def __str__(self) -> str:
        slowest = sorted(self.operations, key=lambda o: (-o.seconds, o.number))[:20]
        head = f"{len(self.operations)} operations, {_ms(self.seconds)} ms, medians over {self.runs} runs"
        tables = [
            _table(("phase", *_SUM_HEAD), [_sum_cells(cost) for cost in self.by_phase()]),
            _table(("kernel", *_SUM_HEAD), [_sum_cells(cost) for cost in self.by_kernel()]),
            _table(("layer", *_SUM_HEAD), [_sum_cells(cost) for cost in self.by_layer()]),
            _table(("slowest operations", *_ROW_HEAD), [_operation_cells(cost) for cost in slowest]),
        ]
        return "\n\n".join([head, *tables])


def measure(
    instructions: Sequence[Instruction],
    launches: Sequence[Launch],
    runs: int = 10,
    wait: Callable[[], None] | None = None,
) -> Profile:
    """Do the launches in order `runs` times, each timed alone. launches: one an instruction.

    wait: returns when all launches are done, where they are done later; each is waited for, so that one counts with
    what a launch and a wait cost. Without it, a launch counts with the clock's own cost, some 0.1 microseconds.
    ValueError unless runs is at least 1.
    """
    runs = whole("profile: runs", runs, 1)
    waited = launches if wait is None else [_waited(launch, wait) for launch in launches]
    times = [[timed(launch) for launch in waited] for _ in range(runs)]
    medians = [median(of_one) for of_one in zip(*times, strict=True)]
    total = sum(medians)
    costs = [_cost(i, seconds, total) for i, seconds in zip(instructions, medians, strict=True)]
    return Profile(tuple(costs), runs)


def _waited(launch: Launch, wait: Callable[[], None]) -> Launch:
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
    )


def _bytes(operands: Sequence[Operand]) -> int:
    return sum(operand.nbytes for operand in operands)


def _sum(name: str, group: Sequence[OperationCost]) -> Cost:
    seconds, share = sum(o.seconds for o in group), sum(o.share for o in group)
    return Cost(name, len(group), seconds, share, sum(o.bytes_read for o in group), sum(o.bytes_written for o in group))


def _sum_cells(cost: Cost) -> Columns:
    return (cost.name or "(none)", str(cost.operations), *_numbers(cost))


def _operation_cells(cost: OperationCost) -> Columns:
    return (f"{cost.number} {cost.kernel}", cost.layer or "(none)", cost.phase, *_numbers(cost))


def _numbers(cost: Cost | OperationCost) -> Columns:
    return _ms(cost.seconds), f"{cost.share:.1%}", f"{cost.bytes_read:,}", f"{cost.bytes_written:,}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _table(head: Columns, rows: Sequence[Columns]) -> str:
    """Columns as wide as their widest cell; the last four hold numbers and stand right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    texts = len(head) - 4

    def line(cells: Columns) -> str:
        padded = [c.ljust(w) if i < texts else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return "  ".join(padded).rstrip()

    return "\n".join([line(head), "  ".join("─" * width for width in widths), *map(line, rows)])
