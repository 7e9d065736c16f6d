"""Lambda: a function over operations of `autograd`, as a layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from singa_lite import autograd
from singa_lite.common.errors import ShapeError
from singa_lite.layer.layer import Layer, SampleShape
from singa_lite.layers._checks import label
from singa_lite.tensor import Shape, Tensor

#: What a function may give: a tensor, or several.
Given = Tensor | Sequence[Tensor]


class Lambda(Layer):
    """Computes y = function(x), of operations of `autograd`, or of the operators of tensors: Lambda(name, lambda x: x *
    x).

    Input samples of any shape, of one input or several, which the function gets as so many tensors (n, ...); it returns
    a tensor (n, ...), or a list of them for several outputs. It does the same in training and in evaluation. Their
    shapes are found by recording the function once, on two samples without values. It has no parameters: what trains
    is a Layer of one's own (docs/layers_of_layers.md). A function is no value that a file could hold: snapshots hold
    the net's tensors, and the script makes the layer again.

    >>> net = Sequential([layers.Input((3,)), layers.Lambda("square", lambda x: x * x)])
    >>> print(net.predict([[-1.0, 2.0, 3.0]]))
    [[1. 4. 9.]]
    """

    def __init__(self, name: str, function: Callable[..., Given], **options: Any) -> None:
        super().__init__(name, **options)
        if not callable(function) or isinstance(function, type):
            raise TypeError(f"{label(self)}: wanted a function of tensors, received {function!r:.100}")
        self.function = function

    def setup(self, *shapes: Shape) -> SampleShape:
        """The sample shape of what the function returns, a list of them for several tensors."""
        device = self._placed().device
        with device.recording(), autograd.no_grad():
            inputs = [device.empty((2, *shape), self.dtype) for shape in shapes]
            found = self.forward(False, *inputs)
            outputs = found if isinstance(found, list) else [found]
            if any(output.shape[:1] != (2,) for output in outputs):
                raise ShapeError(
                    f"{label(self)}: wanted a function that keeps the batch as the first axis, received "
                    f"{[output.shape for output in outputs]} for two samples of shapes {list(shapes)}"
                )
            made = [output.shape[1:] for output in outputs]
        return made if isinstance(found, list) else made[0]

    def forward(self, training: bool, *xs: Tensor) -> Tensor | list[Tensor]:
        """xs, each (n, ...) -> what the function returns."""
        given = self.function(*xs)
        outputs = [given] if isinstance(given, Tensor) else given
        if not isinstance(outputs, list | tuple) or not outputs or not all(isinstance(y, Tensor) for y in outputs):
            raise TypeError(
                f"{label(self)}: wanted a function that returns a Tensor or a list of them, received {given!r:.100}"
            )
        fresh = [autograd.identity(y) if any(y is x for x in xs) else y for y in outputs]
        return fresh[0] if isinstance(given, Tensor) else fresh
