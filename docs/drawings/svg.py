"""A drawing as SVG: boxes, bars, arrows and labels, with colors for light and for dark screens.

It is 440 units wide, so that labels can be read at a phone's width. `Drawing.text` refuses a drawing whose labels
touch each other, leave the page, or cross the edge of a frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH = 440
#: Widths of letters in the font's size, a little more than those of wide sans-serif fonts.
WIDE, NARROW, OTHERS = 0.92, 0.36, 0.6
#: Of the field's wheel for the color-blind (Okabe and Ito, "Color universal design", 2008).
COLORS = {
    "blue": "#56B4E9",
    "orange": "#E69F00",
    "green": "#009E73",
    "pink": "#CC79A7",
    "gray": "#A0A7AE",
    "yellow": "#F0E442",
}
STYLE = """
    text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #1f2328; }
    .strong { font-weight: 600; }
    .soft { fill: #59636e; }
    .page { fill: #ffffff; }
    .frame { fill: #f3f5f7; stroke: #818b98; }
    .line { fill: none; stroke: #59636e; }
    .head { fill: #59636e; }
    .guide { stroke: #d1d9e0; }
    .on { fill: #10151a; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .soft { fill: #9da7b1; }
      .page { fill: #0d1117; }
      .frame { fill: #1a212a; stroke: #6e7781; }
      .line { stroke: #9da7b1; }
      .head { fill: #9da7b1; }
      .guide { stroke: #30363d; }
      .on { fill: #10151a; }
    }
"""


def width(words: str, size: float) -> float:
    """Returns the most that a line of text takes."""
    letters = ((WIDE if one in "mwMW@" else NARROW if one in "iljtfI.,:;'()/ " else OTHERS) for one in words)
    return size * sum(letters)


class Box(NamedTuple):
    """A rectangle by its corners."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        """Returns whether both have points in common."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def contains(self, other: Box) -> bool:
        """Returns whether the other lies in this one."""
        across = self.left <= other.left and other.right <= self.right
        return across and self.top <= other.top and other.bottom <= self.bottom


class Drawing:
    """A page of shapes in the order in which they are added. title, description: for those who cannot see it."""

    def __init__(self, title: str, description: str, height: int) -> None:
        self._page = Box(0, 0, WIDTH, height)
        self._shapes: list[str] = []
        self._labels: list[tuple[str, Box]] = []
        self._frames: list[Box] = []
        self._title, self._description = title, description

    def frame(self, left: float, top: float, wide: float, height: float, kind: str = "frame") -> None:
        """Adds a frame that labels lie in or outside of. kind: frame, or a color of COLORS."""
        self._frames.append(Box(left, top, left + wide, top + height))
        fill = f'fill="{COLORS[kind]}"' if kind in COLORS else f'class="{kind}"'
        self._shapes.append(
            f'<rect x="{left:g}" y="{top:g}" width="{wide:g}" height="{height:g}" rx="3" {fill}/>',
        )

    def label(
        self, left: float, base: float, words: str, kind: str = "", anchor: str = "start", size: float = 13
    ) -> None:
        """Adds a line of text on a base line. kind: strong, soft, or on (a color). anchor: start, middle or end."""
        wide = width(words, size)
        begin = left - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
        self._labels.append((words, Box(begin, base - 0.8 * size, begin + wide, base + 0.22 * size)))
        self._shapes.append(
            f'<text x="{left:g}" y="{base:g}" font-size="{size:g}" text-anchor="{anchor}" class="{kind}">'
            f"{escape(words)}</text>"
        )

    def line(self, points: Sequence[tuple[float, float]], kind: str = "line", dashed: bool = False) -> None:
        """Adds a line through these points. kind: line, guide, or a color of COLORS, whose lines are wide."""
        place = " ".join(f"{x:g},{y:g}" for x, y in points)
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        drawn = f'stroke="{COLORS[kind]}"' if kind in COLORS else f'class="{kind}"'
        wide = 2 if kind in COLORS else 1.2
        self._shapes.append(f'<polyline points="{place}" {drawn} fill="none" stroke-width="{wide}"{dash}/>')

    def dot(self, x: float, y: float, color: str) -> None:
        """Adds a point of a curve. color: of COLORS."""
        self._shapes.append(f'<circle cx="{x:g}" cy="{y:g}" r="3" fill="{COLORS[color]}"/>')

    def arrow(self, points: Sequence[tuple[float, float]], dashed: bool = False) -> None:
        """Adds a line with a head at its end, whose last part is horizontal or vertical."""
        (before_x, before_y), (x, y) = points[-2:]
        across, down = (x > before_x) - (x < before_x), (y > before_y) - (y < before_y)
        self.line([*points[:-1], (x - 6 * across, y - 6 * down)], dashed=dashed)
        corners = [(x, y), *((x - 7 * across + side * 4 * down, y - 7 * down + side * 4 * across) for side in (1, -1))]
        self._shapes.append(f'<polygon points="{" ".join(f"{a:g},{b:g}" for a, b in corners)}" class="head"/>')

    def text(self) -> str:
        """Returns the SVG. ValueError where labels overlap, leave the page, or cross a frame's edge."""
        for place, (words, box) in enumerate(self._labels):
            if not self._page.contains(box):
                raise ValueError(f"{self._title}: the label {words!r} leaves the page")
            for other, taken in self._labels[:place]:
                if box.overlaps(taken):
                    raise ValueError(f"{self._title}: the labels {words!r} and {other!r} overlap")
            for frame in self._frames:
                if box.overlaps(frame) and not frame.contains(box):
                    raise ValueError(f"{self._title}: the label {words!r} crosses the edge of a frame")
        height = int(self._page.bottom)
        shapes = "\n".join(f"  {shape}" for shape in self._shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * 3 // 2}" height="{height * 3 // 2}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img">\n'
            f"  <title>{escape(self._title)}</title>\n  <desc>{escape(self._description)}</desc>\n"
            f"  <style>{STYLE}  </style>\n"
            f'  <rect width="{WIDTH}" height="{height}" class="page"/>\n{shapes}\n</svg>\n'
        )
