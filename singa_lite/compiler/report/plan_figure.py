"""Figures of a step: its plan, blocks as rectangles of time and offset, as plain data; its record for Graphviz."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Protocol

from singa_lite.compiler.ir.operation import Instruction, blocks_of
from singa_lite.compiler.ir.program import live_bytes
from singa_lite.compiler.ir.uses import Uses, predecessors
from singa_lite.compiler.placed import Placed
from singa_lite.compiler.report.plan_rows import PlacedRow, RepeatRow

#: {phase, "again" for what repeats make, or "scratch": color}, told apart by the color-blind too (Okabe and Ito,
#: "Color universal design", 2008).
COLORS = {
    "forward": "#56B4E9",
    "again": "#F0E442",
    "derivative": "#E69F00",
    "gradient": "#009E73",
    "update": "#CC79A7",
    "scratch": "#999999",
}

#: Darker shades of the same, for edges: blocks too thin to show anything else keep their hue.
EDGES = {
    "forward": "#2E86B8",
    "again": "#9C9420",
    "derivative": "#A87300",
    "gradient": "#006B4E",
    "update": "#9A4C77",
    "scratch": "#666666",
}


#: Plain data, as plotly's figures are made of.
Data = dict[str, object]

_BLOCK_HOVER = (
    "<b>%{customdata[0]}</b><br>layer %{customdata[1]}<br>%{customdata[2]}, %{customdata[3]} bytes<br>"
    "steps %{customdata[4]}<br>offset %{customdata[5]} bytes<extra></extra>"
)
_LIVE_HOVER = "step %{x}: %{customdata[0]}<br>layer %{customdata[1]}<br>%{customdata[2]} bytes live<extra></extra>"


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


class Links:
    """Anchors of layers, "layer-<number>", numbered as they are first met: names may be anything, anchors may not."""

    def __init__(self, layers: Iterable[str]) -> None:
        self.anchors = {name: f"layer-{number}" for number, name in enumerate(dict.fromkeys(layers)) if name}

    def anchor(self, layer: str) -> str:
        """ "" for what is of no layer."""
        return self.anchors.get(layer, "")

    def first_anchor(self, layer: str) -> str:
        """The anchor of a layer, or of the first of those that it holds."""
        return next((a for name, a in self.anchors.items() if name == layer or name.startswith(f"{layer}/")), "")

    def to_row(self, layer: str) -> str:
        """The layer's name as a link to its row of the table."""
        anchor = self.anchor(layer)
        return f'<a href="#{anchor}">{escape(layer)}</a>' if anchor else escape(layer)

    def to_rectangles(self, layer: str) -> str:
        """The layer's name as a link to the chart, which shows its rectangles alone."""
        return f'<a href="#plan" data-layer="{self.anchor(layer)}">{escape(layer)}</a>'


def figure(plan: Plan) -> Data:
    """The plotly figure as plain data: one trace of bars a kind, the curve of live bytes, the two lines.

    x: steps; y: offset, and y2: live bytes, both in KiB, or MiB where the arena has at least one.
    """
    unit, scale = unit_of(plan.arena_bytes)
    links = links_of(plan)
    rows = {kind: [row for row in plan.rows if row.kind == kind] for kind in COLORS}
    blocks = [_blocks(kind, of_kind, scale, links) for kind, of_kind in rows.items() if of_kind]
    return {"data": [*blocks, *_curves(plan, scale, links)], "layout": _layout(plan, unit, scale)}


def links_of(plan: Plan) -> Links:
    """Those of the layers, in the order of their first steps."""
    first = [instruction.layer for instruction in plan.placed.planned.instructions]
    return Links([*first, *(row.layer for row in plan.rows)])


def _blocks(kind: str, rows: Sequence[PlacedRow], scale: int, links: Links) -> Data:
    """Each block a bar from its first step to its last, and from its offset up: drawn, and hovered, as a rectangle."""
    return {
        "type": "bar",
        "name": kind,
        "x": [row.lower for row in rows],
        "width": [row.upper - row.lower for row in rows],
        "offset": 0,
        "base": [row.offset / scale for row in rows],
        "y": [row.nbytes / scale for row in rows],
        "customdata": [[*_hover_fields(row), links.anchor(row.layer)] for row in rows],
        "hovertemplate": _BLOCK_HOVER,
        "marker": {"color": COLORS[kind], "line": {"width": 0.5, "color": EDGES[kind]}},
        "unselected": {"marker": {"opacity": 0.12}},
    }


def _hover_fields(row: PlacedRow) -> list[str]:
    """What `_BLOCK_HOVER` shows of the row, in its order."""
    names = [escape(row.name), escape(row.layer) or "none", row.kind]
    return [*names, f"{row.nbytes:,}", steps_of(row), f"{row.offset:,}"]


def _curves(plan: Plan, scale: int, links: Links) -> list[Data]:
    live, steps = live_bytes(plan.placed.planned), len(plan.placed.planned.instructions)
    shown = [
        [i.kernel, escape(i.layer) or "none", f"{level:,}", links.anchor(i.layer)]
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


def steps_of(row: PlacedRow) -> str:
    """From the first step to the last, in words."""
    last = row.upper - 1
    return f"{row.lower} to {last}" if last > row.lower else f"{last}"


def unit_of(nbytes: int) -> tuple[str, int]:
    """The unit that so many bytes are told in, and its bytes."""
    return ("MiB", 2**20) if nbytes >= 2**20 else ("KiB", 2**10)


_HEAD = (
    "digraph step {",
    '  node [shape=box, style="rounded,filled", fontname="sans-serif"];',
    '  edge [fontname="sans-serif", fontsize=10, color="#666666"];',
)


def to_dot(instructions: Sequence[Instruction], names: Sequence[str]) -> str:
    """A record in the language of Graphviz: a node for each instruction, an edge for each direct dependency.

    Nodes are colored by phase. An edge has the blocks that both use, one writes, and no third writes between them.
    names: of the blocks, by number. Nodes are called `o<number of the instruction>`.
    """
    lines = [*_HEAD, *map(_node, instructions)]
    uses = Uses(instructions)
    for later, before in enumerate(predecessors(instructions)):
        for earlier in before:
            shared = set(blocks_of(instructions[earlier])).intersection(blocks_of(instructions[later]))
            written = [block for block in sorted(shared) if not {earlier, later}.isdisjoint(uses.writers[block])]
            causes = [names[block] for block in written if not uses.is_changed(block, earlier + 1, later - 1)]
            ends = f"o{instructions[earlier].number} -> o{instructions[later].number}"
            lines.append(f"  {ends} [label={_quoted(', '.join(causes))}];")
    return "\n".join([*lines, "}", ""])


def _node(instruction: Instruction) -> str:
    label = _quoted("\n".join(filter(None, [instruction.kernel, instruction.layer])))
    phase = str(instruction.phase)
    return f'  o{instruction.number} [label={label}, fillcolor="{COLORS[phase]}", tooltip="{phase}"];'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
