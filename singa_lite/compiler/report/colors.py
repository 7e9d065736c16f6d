"""The colors of phases and scratch, the same in every picture."""

from __future__ import annotations

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
