"""A training step from its record to its replay."""

from __future__ import annotations

from typing import NamedTuple

from drawings.svg import WIDTH, Drawing


class Stage(NamedTuple):
    """A stage of a step's way: its name, what it does, the folder of its code, and what it hands on."""

    name: str
    does: str
    code: str
    result: str


STAGES = (
    Stage("Record", "notes each kernel call and computes nothing", "graph/", "calls over numbered blocks"),
    Stage("Passes", "fuse, share bytes, sort, keep a budget", "compiler/", "fewer bytes, a better order"),
    Stage("Placement", "gives each block an offset in one arena", "compiler/placement/", "a plan and its bytes"),
    Stage("Proof", "follows each value: equal to the record", "compiler/proof/", "a plan that is proved"),
    Stage("Replay", "runs the calls over the arena", "graph/, runtime/", ""),
)
LEFT, BOX, HEIGHT, GAP, TOP = 62, 326, 56, 34, 12


def drawing() -> Drawing:
    """Returns the stages as boxes from top to bottom."""
    words = "A step is recorded, rewritten by passes, placed into one arena, proved, and then replayed for each batch."
    made = Drawing("From record to replay", words, TOP + len(STAGES) * (HEIGHT + GAP) - GAP + 40)
    middle = LEFT + BOX / 2
    for place, stage in enumerate(STAGES):
        top = TOP + place * (HEIGHT + GAP)
        made.frame(LEFT, top, BOX, HEIGHT)
        made.label(LEFT + 12, top + 22, stage.name, "strong", size=15)
        made.label(LEFT + BOX - 12, top + 22, stage.code, "soft", "end", size=12)
        made.label(LEFT + 12, top + 44, stage.does)
        if stage.result:
            made.arrow([(middle, top + HEIGHT), (middle, top + HEIGHT + GAP)])
            made.label(middle + 12, top + HEIGHT + 21, stage.result, "soft", size=12)
    last = TOP + (len(STAGES) - 1) * (HEIGHT + GAP)
    _once(made, last - GAP)
    right = LEFT + BOX
    made.arrow([(right, last + 40), (right + 24, last + 40), (right + 24, last + 16), (right, last + 16)])
    made.label(middle, last + HEIGHT + 22, "the next batch of this shape: replay alone", "soft", "middle")
    proof = last - GAP - HEIGHT / 2
    made.arrow([(right, proof), (right + 24, proof), (right + 24, proof - 40)], dashed=True)
    made.label(WIDTH - 4, proof - 46, "or error", "soft", "end", size=12)
    return made


def _once(made: Drawing, bottom: float) -> None:
    """Adds the bracket around what is done once for a shape of batch."""
    made.line([(LEFT - 8, TOP), (LEFT - 16, TOP), (LEFT - 16, bottom), (LEFT - 8, bottom)])
    made.label(4, (TOP + bottom) / 2 - 4, "once")
    made.label(4, (TOP + bottom) / 2 + 12, "each")
    made.label(4, (TOP + bottom) / 2 + 28, "shape")
