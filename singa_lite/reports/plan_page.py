"""A memory plan as one HTML page that needs nothing else: the arena over time, the live bytes, the peak."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Protocol

from singa_lite.operation import Role
from singa_lite.passes.placed import Placed
from singa_lite.passes.program import live_bytes
from singa_lite.placed_row import PlacedRow
from singa_lite.repeat_row import RepeatRow
from singa_lite.reports.colors import COLORS, EDGES

#: Plain data, as plotly's figures are made of.
Data = dict[str, object]

_AT_PEAK = 20
_BLOCK_HOVER = (
    "<b>%{customdata[0]}</b><br>layer %{customdata[1]}<br>%{customdata[2]}, %{customdata[3]} bytes<br>"
    "steps %{customdata[4]}<br>offset %{customdata[5]} bytes<extra></extra>"
)
_LIVE_HOVER = "step %{x}: %{customdata[0]}<br>layer %{customdata[1]}<br>%{customdata[2]} bytes live<extra></extra>"
# The page sends nothing anywhere: the button that uploads the chart is left out.
_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["sendChartToCloud", "select2d", "lasso2d"],
}


class Plan(Protocol):
    """What the page shows of a plan; `MemoryPlan` says what each fact is."""

    placed: Placed
    arena_bytes: int
    floor_bytes: int
    unshared_bytes: int
    eager_bytes: int
    operations: int
    order: str
    proved: bool
    estimated_slowdown: float
    repeats_are_paid_for: bool

    @property
    def repeats(self) -> Sequence[RepeatRow]: ...

    @property
    def rows(self) -> Sequence[PlacedRow]: ...

    @property
    def by_role(self) -> Mapping[str, int]: ...

    @property
    def gap_bytes(self) -> int: ...

    @property
    def total_bytes(self) -> int: ...

    @property
    def peak_step(self) -> int: ...

    def at_peak(self) -> list[PlacedRow]: ...


def write(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the page. ImportError where plotly is not installed; OSError where the file cannot be written."""
    try:
        from plotly.io import to_html
    except ImportError as error:
        raise ImportError("to_html: wanted plotly, which is not installed; pip install 'singa-lite[report]'") from error
    chart = to_html(figure(plan), config=_CONFIG, include_plotlyjs=True, full_html=False, div_id="plan")
    page = _PAGE.substitute(
        title=f"Memory plan: {_size(plan.arena_bytes)}",
        facts=_facts(plan),
        outside=_outside(plan),
        chart=chart,
        peak=_peak_title(plan),
        rows="\n".join(_table_row(row) for row in plan.at_peak()[:_AT_PEAK]),
        rest=_rest(plan.at_peak()[_AT_PEAK:]),
        repeated=_repeated(plan),
    )
    Path(path).write_text(page, encoding="utf-8")


def figure(plan: Plan) -> Data:
    """The plotly figure as plain data: one trace of bars a kind, the curve of live bytes, the two lines.

    x: steps; y: offset, and y2: live bytes, both in KiB, or MiB where the arena has at least one.
    """
    unit, scale = _unit(plan.arena_bytes)
    rows = {kind: [row for row in plan.rows if row.kind == kind] for kind in COLORS}
    blocks = [_blocks(kind, of_kind, scale) for kind, of_kind in rows.items() if of_kind]
    return {"data": [*blocks, *_curves(plan, scale)], "layout": _layout(plan, unit, scale)}


def _blocks(kind: str, rows: Sequence[PlacedRow], scale: int) -> Data:
    """Each block a bar from its first step to its last, and from its offset up: drawn, and hovered, as a rectangle."""
    return {
        "type": "bar",
        "name": kind,
        "x": [row.lower for row in rows],
        "width": [row.upper - row.lower for row in rows],
        "offset": 0,
        "base": [row.offset / scale for row in rows],
        "y": [row.nbytes / scale for row in rows],
        "customdata": [_shown(row) for row in rows],
        "hovertemplate": _BLOCK_HOVER,
        "marker": {"color": COLORS[kind], "line": {"width": 0.5, "color": EDGES[kind]}},
    }


def _shown(row: PlacedRow) -> list[str]:
    """What `_BLOCK_HOVER` shows of the row, in its order."""
    names = [escape(row.name), escape(row.layer) or "none", row.kind]
    return [*names, f"{row.nbytes:,}", _steps(row), f"{row.offset:,}"]


def _curves(plan: Plan, scale: int) -> list[Data]:
    live, steps = live_bytes(plan.placed.planned), len(plan.placed.planned.instructions)
    shown = [
        [i.kernel, escape(i.layer) or "none", f"{level:,}"]
        for i, level in zip(plan.placed.planned.instructions, live, strict=True)
    ]
    curve: Data = {
        "type": "scatter",
        "mode": "lines",
        "name": "live bytes",
        # Once more at the end, since a step lasts from its number to the next.
        "x": list(range(steps + 1)),
        "y": [level / scale for level in live + live[-1:]],
        "customdata": shown + shown[-1:],
        "hovertemplate": _LIVE_HOVER,
        "line": {"shape": "hv", "width": 1.5, "color": "#333333"},
        "fill": "tozeroy",
        "fillcolor": "rgba(0, 0, 0, 0.08)",
        "yaxis": "y2",
    }
    arena = _level("arena", plan.arena_bytes, steps, scale, {"color": "#D55E00", "width": 2})
    floor = _level("floor", plan.floor_bytes, steps, scale, {"color": "#0072B2", "width": 2, "dash": "dash"})
    return [curve, arena, floor]


def _level(name: str, nbytes: int, steps: int, scale: int, line: Data) -> Data:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [0, steps],
        "y": [nbytes / scale] * 2,
        "line": line,
        "hovertemplate": f"{name} {nbytes:,} bytes<extra></extra>",
        "yaxis": "y2",
    }


def _layout(plan: Plan, unit: str, scale: int) -> Data:
    steps, top = len(plan.placed.planned.instructions), max(plan.arena_bytes, 1) / scale
    axis = {"exponentformat": "none", "zeroline": False, "showgrid": True, "gridcolor": "#eeeeee"}
    return {
        "barmode": "overlay",
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "white", "font": {"color": "#222222"}},
        "template": "none",
        "height": 760,
        "margin": {"l": 80, "r": 20, "t": 76, "b": 50},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "xaxis": {**axis, "title": {"text": "step", "standoff": 6}, "range": [0, max(steps, 1)], "anchor": "y"},
        "yaxis": {**axis, "title": {"text": f"offset ({unit})"}, "range": [0, top], "domain": [0, 0.68]},
        "yaxis2": {**axis, "title": {"text": f"live ({unit})"}, "range": [0, top * 1.08], "domain": [0.73, 1]},
        "shapes": [_peak_line(plan.peak_step)] if plan.rows else [],
    }


def _peak_line(peak: int) -> Data:
    middle = peak + 0.5
    line = {"color": "#333333", "width": 1, "dash": "dot"}
    return {"type": "line", "x0": middle, "x1": middle, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def _facts(plan: Plan) -> str:
    proof = "proved least for this order" if plan.proved else "not proved least"
    facts = [
        ("arena", _size(plan.arena_bytes)),
        ("floor", _size(plan.floor_bytes)),
        ("gap", f"{plan.gap_bytes:,} bytes"),
        ("unshared", _size(plan.unshared_bytes)),
        ("eager", _size(plan.eager_bytes)),
    ]
    sizes = [f"{name} <b>{value}</b>" for name, value in facts]
    return " · ".join([*sizes, f"<b>{proof}</b>"])


def _outside(plan: Plan) -> str:
    held = [f"{role} {_size(nbytes)}" for role, nbytes in plan.by_role.items() if role != Role.INTERMEDIATE]
    return (
        f"{plan.operations:,} operations in {escape(plan.order)} order, {len(plan.rows):,} blocks in the arena; "
        f"outside it {', '.join(held)}; together {_size(plan.total_bytes)}"
    )


def _peak_title(plan: Plan) -> str:
    if not plan.rows:
        return "Nothing lies in the arena"
    at = plan.placed.planned.instructions[plan.peak_step]
    layer = f", layer {escape(at.layer)}" if at.layer else ""
    return f"Live at the peak: step {plan.peak_step} ({at.kernel}{layer}), the dotted line"


def _table_row(row: PlacedRow) -> str:
    color = f'<i style="background:{COLORS[row.kind]}"></i>'
    cells = [escape(row.name), escape(row.layer), f"{color}{row.kind}"]
    numbers = [_size(row.nbytes), f"{row.nbytes:,}", _steps(row), f"{row.offset:,}"]
    return "<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "".join(f"<td class=n>{c}</td>" for c in numbers)


def _repeated(plan: Plan) -> str:
    """The table of what is done again; nothing where nothing is."""
    rows = plan.repeats
    if not rows:
        return ""
    freed, time = _size(sum(row.nbytes for row in rows)), sum(row.seconds for row in rows) * 1e3
    share = "no more than fused ones save" if plan.repeats_are_paid_for else f"{plan.estimated_slowdown:.1%} slower"
    cost = f"{time:,.2f} ms, {share}"
    told = f"{len(rows):,} repeated operations make {freed} again in estimated {cost}"
    return _REPEATED.substitute(told=told, rows="\n".join(map(_repeat_cells, rows)))


def _repeat_cells(row: RepeatRow) -> str:
    numbers = [str(row.of_step), str(row.step), row.free_steps, f"{row.nbytes:,}"]
    cells = [*numbers, f"{row.seconds * 1e3:,.3f}"]
    named = "".join(f"<td>{escape(text)}</td>" for text in (row.layer, row.kernel))
    return f"<tr>{named}" + "".join(f"<td class=n>{cell}</td>" for cell in cells)


def _rest(rows: Sequence[PlacedRow]) -> str:
    return f"and {len(rows)} more, {_size(sum(row.nbytes for row in rows))} together" if rows else ""


def _steps(row: PlacedRow) -> str:
    last = row.upper - 1
    return f"{row.lower} to {last}" if last > row.lower else f"{last}"


def _unit(nbytes: int) -> tuple[str, int]:
    return ("MiB", 2**20) if nbytes >= 2**20 else ("KiB", 2**10)


def _size(nbytes: int) -> str:
    unit, scale = _unit(nbytes)
    return f"{nbytes / scale:,.2f} {unit}" if nbytes >= scale else f"{nbytes} bytes"


_REPEATED = Template("""<h2>Done again</h2>
<p>$told</p>
<table>
<thead><tr>
<th>layer<th>operation<th class=n>first at step<th class=n>again at step
<th class=n>free in steps<th class=n>bytes freed<th class=n>estimated ms
</tr></thead>
<tbody>
$rows
</tbody>
</table>""")

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>$title</title>
<style>
body { font: 14px/1.45 system-ui, sans-serif; color: #222; margin: 16px 24px; }
h1 { font-size: 20px; margin: 0 0 4px; }
h2 { font-size: 16px; margin: 12px 0 6px; }
p { margin: 0 0 4px; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: 2px 16px 2px 0; border-bottom: 1px solid #ddd; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
i { display: inline-block; width: 10px; height: 10px; margin-right: 6px; }
</style>
</head>
<body>
<h1>Memory plan</h1>
<p>$facts</p>
<p>$outside</p>
$chart
<h2>$peak</h2>
<table>
<thead><tr>
<th>name<th>layer<th>kind<th class=n>size<th class=n>bytes<th class=n>steps<th class=n>offset in bytes
</tr></thead>
<tbody>
$rows
</tbody>
</table>
<p>$rest</p>
$repeated
</body>
</html>
""")
