"""A memory plan as one HTML page that needs nothing else: the arena over time, the live bytes, the peak, the layers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from string import Template

from singa_lite.common.atomic import write_anew
from singa_lite.compiler.ir.operation import Role
from singa_lite.compiler.report.net_drawing import Drawable, drawing
from singa_lite.compiler.report.plan_figure import COLORS, Links, Plan, figure, links_of, steps_of, unit_of
from singa_lite.compiler.report.plan_rows import PlacedRow, RepeatRow


def layer_rows(links: Links, rows: Sequence[PlacedRow], peak: int) -> str:
    """The rows of the table of layers: what lies in the arena of each, at any time, and at the step of the peak."""
    of_layer: dict[str, list[PlacedRow]] = {name: [] for name in links.anchors}
    for row in rows:
        if row.layer:
            of_layer[row.layer].append(row)
    return "\n".join(_cells(links, name, own, peak) for name, own in of_layer.items())


def _cells(links: Links, name: str, rows: Sequence[PlacedRow], peak: int) -> str:
    at_peak = sum(row.nbytes for row in rows if row.lower <= peak < row.upper)
    largest = max((row.nbytes for row in rows), default=0)
    numbers = [f"{len(rows):,}", f"{sum(row.nbytes for row in rows):,}", f"{largest:,}", f"{at_peak:,}", _steps(rows)]
    cells = "".join(f"<td class=n>{number}</td>" for number in numbers)
    return f'<tr id="{links.anchor(name)}"><td>{links.to_rectangles(name)}</td>{cells}'


def _steps(rows: Sequence[PlacedRow]) -> str:
    """From the first to the last in which something of the layer lives."""
    return f"{min(row.lower for row in rows)} to {max(row.upper for row in rows) - 1}" if rows else "none"


#: A click on a rectangle goes to its layer's row; a row, a box of the drawing or an address that ends in an anchor
#: shows the layer's rectangles alone; a link of no layer shows all. The anchor is the last of a point's customdata.
SCRIPT = """<script>
(() => {
  const plan = document.getElementById("plan");
  const show = (anchor) => {
    const chosen = plan.data.map((trace) => trace.type !== "bar" ? null
      : trace.customdata.flatMap((told, index) => told[told.length - 1] === anchor ? [index] : []));
    Plotly.restyle(plan, { selectedpoints: anchor ? chosen : [null] });
  };
  const follow = () => {
    if (location.hash.startsWith("#layer-")) show(location.hash.slice(1));
  };
  plan.on("plotly_click", ({ points }) => {
    const told = points[0].customdata, anchor = told && told[told.length - 1];
    if (anchor && location.hash !== "#" + anchor) location.hash = anchor;
    else if (anchor) document.getElementById(anchor).scrollIntoView();
  });
  for (const link of document.querySelectorAll("a[data-layer]"))
    link.addEventListener("click", () => show(link.dataset.layer));
  addEventListener("hashchange", follow);
  follow();
})();
</script>"""


_AT_PEAK = 20
# The page sends nothing anywhere: the button that uploads the chart is left out.
_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["sendChartToCloud", "select2d", "lasso2d"],
}


def write(plan: Plan, path: str | os.PathLike[str], net: Drawable | None = None) -> None:
    """Write the page. net: is drawn below, each box with a link.

    ImportError where plotly is not installed; OSError where the file cannot be written.
    """
    try:
        from plotly.io import to_html
    except ImportError as error:
        raise ImportError("to_html: wanted plotly, which is not installed; pip install 'singa-lite[report]'") from error
    links = links_of(plan)
    chart = to_html(figure(plan), config=_CONFIG, include_plotlyjs=True, full_html=False, div_id="plan")
    page = _PAGE.substitute(
        title=f"Memory plan: {_size(plan.arena_bytes)}",
        facts=_facts(plan),
        outside=_held_text(plan),
        chart=chart,
        peak=_peak_title(plan),
        rows="\n".join(_table_row(row, links) for row in plan.at_peak()[:_AT_PEAK]),
        rest=_remaining_text(plan.at_peak()[_AT_PEAK:]),
        repeated=_repeated(plan, links),
        layers=layer_rows(links, plan.rows, plan.peak_step),
        net="" if net is None else _drawn(net, links),
        script=SCRIPT,
    )
    write_anew(path, page)


def _drawn(net: Drawable, links: Links) -> str:
    rows = [row for row in net.layer_rows() if not row.depth]
    drawn = drawing(rows, {row.name: links.first_anchor(row.name) for row in rows})
    return f'<h2>The net</h2>\n<div class="net">\n{drawn}</div>'


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


def _held_text(plan: Plan) -> str:
    shown = {role: n for role, n in plan.by_role.items() if role != Role.INTERMEDIATE and (n or "frozen" not in role)}
    held = [f"{role} {_size(nbytes)}" for role, nbytes in shown.items()]
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


def _table_row(row: PlacedRow, links: Links) -> str:
    color = f'<i style="background:{COLORS[row.kind]}"></i>'
    cells = [escape(row.name), links.to_row(row.layer), f"{color}{row.kind}"]
    numbers = [_size(row.nbytes), f"{row.nbytes:,}", steps_of(row), f"{row.offset:,}"]
    return "<tr>" + "".join(f"<td>{c}</td>" for c in cells) + "".join(f"<td class=n>{c}</td>" for c in numbers)


def _repeated(plan: Plan, links: Links) -> str:
    """The table of what is done again; nothing where nothing is."""
    rows = plan.repeats
    if not rows:
        return ""
    freed, time = _size(sum(row.nbytes for row in rows)), sum(row.seconds for row in rows) * 1e3
    share = "no more than fused ones save" if plan.repeats_are_paid_for else f"{plan.estimated_slowdown:.1%} slower"
    cost = f"{time:,.2f} ms, {share}"
    told = f"{len(rows):,} repeated operations make {freed} again in estimated {cost}"
    return _REPEATED.substitute(told=told, rows="\n".join(_repeat_cells(row, links) for row in rows))


def _repeat_cells(row: RepeatRow, links: Links) -> str:
    numbers = [str(row.of_step), str(row.step), row.free_steps, f"{row.nbytes:,}"]
    cells = [*numbers, f"{row.seconds * 1e3:,.3f}"]
    named = f"<td>{links.to_row(row.layer)}</td><td>{escape(row.kernel)}</td>"
    return f"<tr>{named}" + "".join(f"<td class=n>{cell}</td>" for cell in cells)


def _remaining_text(rows: Sequence[PlacedRow]) -> str:
    return f"and {len(rows)} more, {_size(sum(row.nbytes for row in rows))} together" if rows else ""


def _size(nbytes: int) -> str:
    unit, scale = unit_of(nbytes)
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
table { border-collapse: collapse; display: block; overflow-x: auto; }
.net { overflow-x: auto; }
th, td { text-align: left; padding: 2px 16px 2px 0; border-bottom: 1px solid #ddd; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
tr:target { background: #fff3c4; }
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
<h2>Layers</h2>
<p>A click on a rectangle leads here, a layer's name to its rectangles; <a href="#plan" data-layer="">show all</a>.</p>
<table>
<thead><tr>
<th>layer<th class=n>blocks<th class=n>their bytes<th class=n>largest<th class=n>at the peak<th class=n>steps
</tr></thead>
<tbody>
$layers
</tbody>
</table>
$net
$script
</body>
</html>
""")
