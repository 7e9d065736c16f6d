"""Gradients over time: the usual loop, which keeps all of them, beside a backward that is a generator."""

from __future__ import annotations

from typing import NamedTuple

from drawings.svg import WIDTH, Drawing

LAYERS = ("loss layer", "dense", "conv")
MOMENTS = 2 * len(LAYERS)
LEFT, CELL, ROW, BAR = 92, 56, 26, 20


class Gradient(NamedTuple):
    """When the gradient of a layer is made, applied and freed, in moments from the begin of backward."""

    made: int
    applied: int
    freed: int


#: All gradients are made, then all are applied; they are freed together.
USUAL = [Gradient(place, len(LAYERS) + place, MOMENTS) for place in range(len(LAYERS))]
#: Each is made, applied and freed before the next one is made.
GENERATOR = [Gradient(2 * place, 2 * place + 1, 2 * place + 2) for place in range(len(LAYERS))]


def drawing() -> Drawing:
    """Returns both walks, one above the other."""
    words = "In the usual loop three gradients exist at once. A generator makes, applies and frees one after the other."
    made = Drawing("Backward as a generator", words, 352)
    _panel(made, 22, "The usual loop", USUAL)
    _panel(made, 186, "backward() as a generator", GENERATOR)
    made.label(WIDTH / 2, 340, "time: backward walks from the last layer to the first", "soft", "middle")
    return made


def _panel(made: Drawing, top: float, title: str, gradients: list[Gradient]) -> None:
    made.label(8, top, title, "strong", size=14)
    for place, (layer, gradient) in enumerate(zip(LAYERS, gradients, strict=True)):
        base = top + 16 + ROW * place
        made.label(LEFT - 8, base + 15, layer, anchor="end")
        for moment in range(gradient.made, gradient.freed):
            word, color = _state(gradient, moment)
            made.frame(LEFT + CELL * moment, base, CELL - 2, BAR, color)
            made.label(LEFT + CELL * (moment + 0.5) - 1, base + 14, word, "on", "middle", size=11.5)
        if gradient.freed < MOMENTS:
            made.label(LEFT + CELL * gradient.freed + 4, base + 14, "gone", "soft", size=11.5)
    bottom = top + 16 + ROW * len(LAYERS)
    made.line([(LEFT, bottom + 2), (LEFT + CELL * MOMENTS, bottom + 2)], "guide")
    made.label(LEFT - 8, bottom + 20, "gradients", "soft", "end")
    for moment in range(MOMENTS):
        alive = sum(one.made <= moment < one.freed for one in gradients)
        made.label(LEFT + CELL * (moment + 0.5) - 1, bottom + 20, str(alive), "soft", "middle")


def _state(gradient: Gradient, moment: int) -> tuple[str, str]:
    if moment == gradient.made:
        return "made", "blue"
    if moment == gradient.applied:
        return "applied", "green"
    return "waits" if moment < gradient.applied else "kept", "gray"
