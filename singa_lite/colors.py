"""The colors of phases and scratch, the same in every picture."""

from __future__ import annotations

#: {phase or "scratch": color}, told apart by the color-blind too (Okabe and Ito, "Color universal design", 2008).
COLORS = {
    "forward": "#56B4E9",
    "derivative": "#E69F00",
    "gradient": "#009E73",
    "update": "#CC79A7",
    "scratch": "#999999",
}
