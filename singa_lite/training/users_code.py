"""Code of the user's that a built-in step runs, of layers, losses and metrics: whether it does the same at each call.

A record is replayed without Python, so that what such code draws from NumPy, or counts, would be frozen silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from singa_lite.described import is_ours
from singa_lite.device import Device
from singa_lite.layer import Layer
from singa_lite.training.same_twice import check_same

_INSTEAD = (
    "draw by an operation such as autograd.normal, keep what changes in a tensor, as add_state() makes it, or "
    "compile(graph=False)"
)


def is_there(layers: Iterable[Layer], criteria: Iterable[object]) -> bool:
    """Whether one of the layers, or of those in them, or of the losses and metrics runs code of the user's."""
    within = (each for layer in layers for each in layer.with_sublayers())
    return any(each.runs_users_code for each in within) or not all(is_ours(type(each)) for each in criteria)


def check_repeats(forward: Callable[[], object], device: Device) -> None:
    """GraphError unless two recordings of a forward, with its losses and metrics, do the same operations over the same
    numbers. Nothing of them is run or kept.
    """
    with device.recording() as one:
        forward()
    with device.recording() as other:
        forward()
    try:
        check_same(one, other, device, "forward", _INSTEAD)
    finally:
        one.let_go()
        other.let_go()
