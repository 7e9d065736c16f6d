"""The tables of a profile's text: times, rates and shares of the peaks, by phase, kernel, layer and operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

Cells = tuple[str, ...]

_FIGURES = ("ms", "share", "GFLOP/s", "bytes read", "bytes written", "GB/s")
_OF_PEAKS = ("ms", "share", "GFLOP/s", "of peak", "bytes read", "bytes written", "GB/s", "of peak")


class Rates(Protocol):
    """The rates that a device reaches alone: floating-point operations and bytes a second."""

    @property
    def flops(self) -> float: ...

    @property
    def nbytes(self) -> float: ...


class Figures(Protocol):
    """Measurements of some operations."""

    @property
    def seconds(self) -> float: ...

    @property
    def share(self) -> float: ...

    @property
    def bytes_read(self) -> int: ...

    @property
    def bytes_written(self) -> int: ...

    @property
    def flops(self) -> int: ...


class SumFigures(Figures, Protocol):
    """Measurements of all operations of one name."""

    @property
    def name(self) -> str: ...

    @property
    def operations(self) -> int: ...


class OperationFigures(Figures, Protocol):
    """Measurements of one operation."""

    @property
    def number(self) -> int: ...

    @property
    def kernel(self) -> str: ...

    @property
    def layer(self) -> str: ...

    @property
    def phase(self) -> str: ...

    @property
    def variant(self) -> str: ...


def profile_tables(
    sums: Mapping[str, Sequence[SumFigures]], slowest: Sequence[OperationFigures], peaks: Rates | None
) -> list[str]:
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


def _figures(cost: Figures, peaks: Rates | None) -> Cells:
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
    names_head: Cells, figures_head: Cells, names: Sequence[Cells], costs: Sequence[Figures], peaks: Rates | None
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
