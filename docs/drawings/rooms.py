"""The rooms of the package by floors, from the table that holds its imports, in tests/test_imports.py."""

from __future__ import annotations

import ast
from pathlib import Path

from drawings.svg import WIDTH, Drawing, width

TABLE = Path(__file__).resolve().parents[2] / "tests" / "test_imports.py"
#: What is in a room that has a floor for itself.
CONTENTS = {
    "common": "errors, checks, files, threads",
    "runtime": "pools, streams, replay",
    "compiler": "passes, placement, proof",
    "graph": "a recorded step, its plan and arena",
    "device": "memory, kernels and runtime in one",
    "autograd": "operations, tape, walk back",
    "training": "recorded steps, their cache, fit",
    "snapshots": "files of nets, checkpoints",
    "net": "FeedForwardNet",
    "singa_lite": "the public names",
    "__main__": "the command line",
}
LEFT, ROW, HEIGHT, TOP, GAP = 34, 32, 24, 34, 6


def floors() -> list[tuple[str, ...]]:
    """Returns the rooms of each floor, the lowest floor first."""
    for node in ast.parse(TABLE.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FLOORS":
            return [tuple(name or "singa_lite" for name in names) for names in ast.literal_eval(node.value)]
    raise LookupError(f"{TABLE}: wanted FLOORS")


def drawing() -> Drawing:
    """Returns a row of boxes for each floor, the highest at the top."""
    found = floors()
    if strangers := set(CONTENTS) - {name for names in found for name in names}:
        raise LookupError(f"{Path(__file__).name}: no room is called {', '.join(sorted(strangers))}")
    words = "Rooms of the package by floors. A room imports only from floors below its own."
    made = Drawing("The rooms", words, TOP + len(found) * ROW + 6)
    made.label(LEFT, 20, "Imports run down only.", "soft")
    made.arrow([(16, TOP), (16, TOP + len(found) * ROW - 8)])
    for place, names in enumerate(reversed(found)):
        top, left = TOP + place * ROW, float(LEFT)
        for name in names:
            wide = width(name, 13) + 8
            made.frame(left, top, wide, HEIGHT)
            made.label(left + wide / 2, top + 16.5, name, anchor="middle")
            left += wide + GAP
        if len(names) == 1 and names[0] in CONTENTS:
            made.label(left + 4, top + 16.5, CONTENTS[names[0]], "soft", size=12)
        if left > WIDTH:
            raise ValueError(f"the rooms {', '.join(names)} are wider than the page: draw them in two rows")
    return made
