"""A net as a picture: its layers as boxes with shapes and bytes, in SVG, which needs no other program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import prod
from os import PathLike
from typing import NamedTuple, Protocol

from singa_lite.common.atomic import write_anew
from singa_lite.compiler.report.net_text import LayerRow

#: How often rows are put into order, and boxes are moved towards their neighbours.
_SWEEPS = 8


class Passing(NamedTuple):
    """A line's place in a row that it passes. source, target: between which boxes; row: which one."""

    source: str
    target: str
    row: int


#: What stands in a row: a box, or a line that passes.
Entry = str | Passing


def rows_of(sources: Mapping[str, Sequence[str]]) -> list[list[Entry]]:
    """The entries of each row. sources: what feeds each box, all of them above it in the mapping's order."""
    rank: dict[str, int] = {}
    for name, feeding in sources.items():
        rank[name] = 1 + max((rank[source] for source in feeding), default=-1)
    rows: list[list[Entry]] = [[] for _ in range(1 + max(rank.values(), default=-1))]
    for name in sources:
        rows[rank[name]].append(name)
    for name, feeding in sources.items():
        for source in dict.fromkeys(feeding):
            for number in range(rank[source] + 1, rank[name]):
                rows[number].append(Passing(source, name, number))
    above = feeders(rows, sources)
    for row, before in zip(rows[1:], rows, strict=False):
        order = {entry: number for number, entry in enumerate(before)}
        row.sort(key=lambda entry: _mean([order[other] for other in above[entry] if other in order]))
    return rows


def feeders(rows: Sequence[Sequence[Entry]], sources: Mapping[str, Sequence[str]]) -> dict[Entry, list[Entry]]:
    """For each entry those in the row above that a line comes from."""
    found: dict[Entry, list[Entry]] = {}
    for number, row in enumerate(rows):
        there = set(rows[number - 1]) if number else set()
        for entry in row:
            wanted = sources[entry] if isinstance(entry, str) else [entry.source]
            target = entry if isinstance(entry, str) else entry.target
            passing = [Passing(source, target, number - 1) for source in dict.fromkeys(wanted)]
            found[entry] = [p if p in there else p.source for p in passing]
    return found


def centers(
    rows: Sequence[Sequence[Entry]], above: Mapping[Entry, Sequence[Entry]], widths: Mapping[Entry, float], gap: float
) -> dict[Entry, float]:
    """The middle of each entry, from 0 on; none lies over another of its row."""
    at: dict[Entry, float] = {}
    for row in rows:
        at |= _spread(row, [0.0] * len(row), widths, gap)
    below: dict[Entry, list[Entry]] = {}
    for entry, others in above.items():
        for other in others:
            below.setdefault(other, []).append(entry)
    for sweep in range(_SWEEPS):
        near, order = (above, rows) if sweep % 2 == 0 else (below, list(reversed(rows)))
        for row in order:
            wished = [_mean([at[other] for other in near.get(entry, ())], at[entry]) for entry in row]
            at |= _spread(row, wished, widths, gap)
    left = min((at[entry] - widths[entry] / 2 for entry in at), default=0.0)
    return {entry: place - left for entry, place in at.items()}


def _spread(
    row: Sequence[Entry], wished: Sequence[float], widths: Mapping[Entry, float], gap: float
) -> dict[Entry, float]:
    """Places in this order, as near to the wishes as they can be with the row's mean kept."""
    placed: list[float] = []
    for number, (entry, wish) in enumerate(zip(row, wished, strict=True)):
        before = row[number - 1]
        least = placed[-1] + (widths[before] + widths[entry]) / 2 + gap if placed else wish
        placed.append(max(wish, least))
    shift = _mean([wish - place for wish, place in zip(wished, placed, strict=True)])
    return {entry: place + shift for entry, place in zip(row, placed, strict=True)}


def _mean(values: Sequence[float], otherwise: float = 0.0) -> float:
    return sum(values) / len(values) if values else otherwise


_HEIGHT, _BETWEEN, _GAP, _MARGIN = 58, 34, 26, 14
#: Width of a character in the pictures' type, and of a line that passes a row.
_CHARACTER, _LINE = 7.2, 12
#: Of the first line of a box, and of the others.
_WEIGHTS = (' font-weight="bold"', "")


class Drawable(Protocol):
    """A net that can be drawn."""

    def layer_rows(self) -> Sequence[LayerRow]: ...


def plot_net(net: Drawable, path: str | PathLike[str] | None = None) -> str:
    """Returns the net's layers as an SVG picture, inputs above: name and kind, output sample shapes, parameters and
    bytes.

    Layers within others are not drawn; their parameters count in the layer that holds them. path: where it is also
    written. Returns the picture's text, which notebooks show by IPython.display.SVG.

    >>> from singa_lite import reports
    >>> net = Sequential([layers.Input((5,)), layers.Dense(3)])
    >>> reports.plot_net(net, "net.svg")[:4]
    '<svg'
    """
    text = drawing([row for row in net.layer_rows() if not row.depth])
    if path is not None:
        write_anew(path, text)
    return text


def drawing(layers: Sequence[LayerRow], anchors: Mapping[str, str] | None = None) -> str:
    """As `plot_net`. layers: in topological order; anchors: {layer: of the page around, where its box leads}."""
    sources = {layer.name: [source.partition("[")[0] for source in layer.sources] for layer in layers}
    texts = {layer.name: _lines(layer) for layer in layers}
    rows = rows_of(sources)
    widths: dict[Entry, float] = {
        entry: _LINE if isinstance(entry, Passing) else 20 + _CHARACTER * max(map(len, texts[entry]))
        for row in rows
        for entry in row
    }
    above = feeders(rows, sources)
    at = centers(rows, above, widths, _GAP)
    heights = {entry: number * (_HEIGHT + _BETWEEN) for number, row in enumerate(rows) for entry in row}
    lines = [_line(at, heights, other, entry) for entry, others in above.items() for other in others]
    boxes = [
        _linked(_box(at[name], heights[name], widths[name], text), (anchors or {}).get(name, ""))
        for name, text in texts.items()
    ]
    width = 2 * _MARGIN + max((at[entry] + widths[entry] / 2 for entry in at), default=0)
    height = 2 * _MARGIN + len(rows) * (_HEIGHT + _BETWEEN) - _BETWEEN
    return "\n".join([_head(width, height), *lines, *boxes, "</g>", "</svg>", ""])


def _lines(layer: LayerRow) -> list[str]:
    shapes = ", ".join(map(str, layer.shapes))
    values = sum(prod(shape) for shape in layer.shapes)
    owned = f"{layer.parameters:,} parameters, {layer.nbytes:,} bytes" if layer.parameters else "no parameters"
    return [f"{layer.name} ({layer.kind})", f"{shapes}: {values:,} a sample", owned]


def _head(width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="monospace" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n<g transform="translate({_MARGIN} {_MARGIN})">'
    )


def _box(middle: float, top: float, width: float, lines: Sequence[str]) -> str:
    texts = "".join(
        f'<text x="{middle:.1f}" y="{top + 18 + 16 * number:.1f}" text-anchor="middle"'
        f"{_WEIGHTS[bool(number)]}>{escape(line)}</text>"
        for number, line in enumerate(lines)
    )
    return (
        f'<rect x="{middle - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_HEIGHT}" rx="5" '
        f'fill="#eef3fb" stroke="#3b6db3"/>{texts}'
    )


def _linked(box: str, anchor: str) -> str:
    return f'<a href="#{escape(anchor)}">{box}</a>' if anchor else box


def _line(at: Mapping[Entry, float], tops: Mapping[Entry, float], source: Entry, target: Entry) -> str:
    """From the lower edge of one entry to the upper edge of the next; through the row of one that passes."""
    x, y = at[source], tops[source] + _HEIGHT
    to, end = at[target], tops[target]
    bend = (y + end) / 2
    path = f"M{x:.1f} {y:.1f}C{x:.1f} {bend:.1f} {to:.1f} {bend:.1f} {to:.1f} {end:.1f}"
    path += f"V{end + _HEIGHT:.1f}" if isinstance(target, Passing) else ""
    return f'<path d="{path}" fill="none" stroke="#777777"/>'
