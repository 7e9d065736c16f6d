"""Links within the plan's page: from a rectangle to its layer's row, and from there to the layer's rectangles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from singa_lite.compiler.report.rows.placed_row import PlacedRow


class Links:
    """Anchors of layers, "layer-<number>", numbered as they are first met: names may be anything, anchors may not."""

    def __init__(self, layers: Iterable[str]) -> None:
        self.anchors = {name: f"layer-{number}" for number, name in enumerate(dict.fromkeys(layers)) if name}

    def anchor(self, layer: str) -> str:
        """ "" for what is of no layer."""
        return self.anchors.get(layer, "")

    def within(self, layer: str) -> str:
        """The anchor of a layer, or of the first of those that it holds."""
        return next((a for name, a in self.anchors.items() if name == layer or name.startswith(f"{layer}/")), "")

    def to_row(self, layer: str) -> str:
        """The layer's name as a link to its row of the table."""
        anchor = self.anchor(layer)
        return f'<a href="#{anchor}">{escape(layer)}</a>' if anchor else escape(layer)

    def to_rectangles(self, layer: str) -> str:
        """The layer's name as a link to the chart, which shows its rectangles alone."""
        return f'<a href="#plan" data-layer="{self.anchor(layer)}">{escape(layer)}</a>'


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
