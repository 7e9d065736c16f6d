"""Code of the user's that a built-in step runs, of layers, losses and metrics: whether it does the same at each call.

A record is replayed without Python, so that what such code draws from NumPy, or counts, would be frozen silently.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from types import FunctionType

from singa_lite.described import is_ours
from singa_lite.device import Device
from singa_lite.layer import Layer
from singa_lite.training.same_twice import check_same
from singa_lite.watching.closed_over import closed_over

_INSTEAD = (
    "draw by an operation such as autograd.normal, keep what changes in a tensor, as add_state() makes it, or "
    "compile(graph=False)"
)


def is_there(layers: Iterable[Layer], criteria: Iterable[object]) -> bool:
    """Whether one of the layers, or of those in them, or of the losses and metrics runs code of the user's."""
    return any(True for _ in _owners(layers, criteria))


def read_outside(layers: Iterable[Layer], criteria: Iterable[object]) -> Callable[[], Hashable] | None:
    """What tells the plain values that such code reads from outside, as they are when it is called; None: there is no
    such code.
    """
    functions = [function for owner in _owners(layers, criteria) for function in _functions(owner)]
    return partial(_read, functions) if functions else None


def _read(functions: Iterable[Callable[..., object]]) -> Hashable:
    return tuple(map(closed_over, functions))


def _owners(layers: Iterable[Layer], criteria: Iterable[object]) -> Iterator[object]:
    for layer in layers:
        yield from (each for each in layer.with_sublayers() if each.runs_users_code)
    yield from (each for each in criteria if not is_ours(type(each)))


def _functions(owner: object) -> Iterator[Callable[..., object]]:
    """The user's functions among an object's methods; those among its attributes are watched as these are."""
    for kind in type(owner).__mro__:
        if not is_ours(kind):
            yield from (each for each in vars(kind).values() if isinstance(each, FunctionType) and not is_ours(each))


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
