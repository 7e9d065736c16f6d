"""Results of one side of a rule: those of its function, and the derivatives by its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from singa_lite.autograd import identity
from singa_lite.autograd.backward_pass import BackwardPass
from singa_lite.autograd.ops.op import Edge, no_grad
from singa_lite.tensor import Tensor

#: A side of a rule: tensors in, one or a tuple of them out.
Function = Callable[..., object]


def results(function: Function, inputs: Sequence[Tensor], needs: Sequence[bool], dy: Tensor | None) -> list[Tensor]:
    """The function's results, and behind them the derivatives by the inputs that need one.

    dy: the derivative by the one result, where any does; None where none does. TypeError for what are no tensors, and
    where a derivative is needed and there is none.
    """
    if dy is None:
        with no_grad():
            return _tensors(function(*inputs))
    given = [_on_tape(tensor) if needed else tensor for tensor, needed in zip(inputs, needs, strict=True)]
    (y,) = _tensors(function(*given))
    nodes = [tensor.creator for tensor, needed in zip(given, needs, strict=True) if needed]
    if y.creator is None or y.creator in nodes:
        raise TypeError("wanted a result that derivatives pass through, received one that is no operation's")
    walk = BackwardPass([(Edge(y.creator, y.output_index, None), dy)], wanted=nodes, ends=nodes)
    while walk.next_sequence >= 0:
        walk.step()
    if len(walk.captured) < len(nodes):
        raise TypeError("wanted a result that goes by all inputs, received one without a derivative by some")
    return [y.detach(), *(walk.captured[node] for node in nodes)]


def _on_tape(tensor: Tensor) -> Tensor:
    """The tensor, as if an operation before the function had made it."""
    leaf = tensor.detach()
    leaf.stores_grad = True
    return identity(leaf)


def _tensors(made: object) -> list[Tensor]:
    found = list(made) if isinstance(made, tuple) else [made]
    wrong = [one for one in found if not isinstance(one, Tensor)]
    if wrong or not found:
        raise TypeError(f"wanted a Tensor or a tuple of them, received {type(wrong[0]).__name__ if wrong else 'none'}")
    return [one for one in found if isinstance(one, Tensor)]
