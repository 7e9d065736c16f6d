"""Functions of each element, fixed or with trained slopes, and softmax."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from singa_lite import autograd
from singa_lite.common.described import Arguments
from singa_lite.common.errors import ShapeError
from singa_lite.layer import initializer
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import (
    axis_of,
    check_choice,
    init,
    is_int,
    label,
    leaves_time,
    not_the_batch,
    one_input,
    positive,
)
from singa_lite.layers.elementwise import Elementwise
from singa_lite.tensor import Shape, Tensor

#: {mode: the operation}
MODES: dict[str, Callable[..., Tensor]] = {
    "relu": autograd.relu,
    "relu6": autograd.relu6,
    "leaky_relu": autograd.leaky_relu,
    "elu": autograd.elu,
    "sigmoid": autograd.sigmoid,
    "tanh": autograd.tanh,
    "gelu": autograd.gelu,
    "gelu_tanh": autograd.gelu_tanh,
    "silu": autograd.silu,
    "softplus": autograd.softplus,
}

#: Options of one mode each.
_OF_MODES = ("slope", "alpha")

#: Functions of the field that a name may ask for, and no mode does.
_OTHERS = (
    "softmax",
    "log_softmax",
    "swish",
    "selu",
    "prelu",
    "mish",
    "linear",
    "identity",
    "hard_sigmoid",
    "hard_swish",
)


class Activation(Elementwise):
    """Applies one function to each element, chosen by `mode`. Input and output samples of any shape.

    mode: "relu" max(x, 0); "relu6" min(max(x, 0), 6); "leaky_relu" x where x > 0, else slope * x; "elu" x
    where x > 0, else alpha * (e**x - 1); "sigmoid" 1 / (1 + e**-x); "tanh"; "gelu" x * (1 + erf(x / sqrt 2))
    / 2; "gelu_tanh" x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2, which is near it; "silu" x *
    sigmoid(x); "softplus" log(1 + e**x). Default "relu", but beside a name that is another function's the mode
    is wanted: Activation("tanh") is refused, Activation("tanh", "tanh") is not. slope: of "leaky_relu" only,
    above 0, default 0.01. alpha: of "elu" only, above 0, default 1.

    >>> net = Sequential([layers.Input((3,)), layers.Activation("act", "leaky_relu", slope=0.5)])
    >>> print(net.predict([[-1.0, 0.0, 2.0]]))
    [[-0.5  0.   2. ]]
    """

    def __init__(
        self,
        name: str,
        mode: str | None = None,
        *,
        slope: float | None = None,
        alpha: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.mode = self._default_mode() if mode is None else check_choice(self, "mode", mode, MODES)
        self.gives = "sigmoid" if self.mode == "sigmoid" else ""
        self.options: dict[str, float] = {}
        for owner, what, value in (("leaky_relu", "slope", slope), ("elu", "alpha", alpha)):
            if value is None:
                continue
            if self.mode != owner:
                raise ValueError(
                    f"{label(self)}: wanted {what} with mode {owner!r} only, received it with mode {self.mode!r}"
                )
            self.options[what] = positive(self, what, value)

    def change_options(self, changes: Mapping[str, object]) -> None:
        """`options` without slope or alpha leaves them out: another mode may follow then."""
        left = {key: each for key, each in self.given_arguments.items() if key in self.options or key not in _OF_MODES}
        if len(left) < len(self.given_arguments):
            self._given = Arguments(left, True)
        super().change_options(changes)

    def _default_mode(self) -> str:
        """ "relu". ValueError for a name that is another function's, such as "tanh" or "Tanh_2": it was meant."""
        letters = re.sub("[^a-z0-9]", "", self.name.lower())
        known = {name.replace("_", ""): name for name in (*MODES, *_OTHERS)}
        meant = known.get(letters, known.get(letters.rstrip("0123456789"), "relu"))
        if meant == "relu":
            return meant
        hint = f"Activation({self.name!r}, {meant!r})"
        if meant not in MODES:
            hint = "layers.Softmax(name)" if meant == "softmax" else f"there is none for {meant!r}"
        raise ValueError(
            f"{label(self)}: wanted a mode of {', '.join(MODES)} beside a name that is a function's, received none, "
            f"which is 'relu'; {hint}"
        )

    def summary_note(self) -> str:
        """The mode."""
        return self.mode

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape."""
        return MODES[self.mode](x, **self.options)


class Softmax(Layer):
    """Computes the softmax, y = e**x / sum of e**x along `axis`.

    Input and output samples of any shape with that axis.

    axis: counts the batch as 0, negative from the end; never the batch.

    >>> net = Sequential([layers.Input((3,)), layers.Softmax()])
    >>> print(net.predict([[0.0, 1.0, 2.0]]).round(3))
    [[0.09  0.245 0.665]]
    """

    gives = "softmax"

    def __init__(self, name: str, axis: int = 1, **options: Any) -> None:
        super().__init__(name, **options)
        self.axis = not_the_batch(self, axis)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = one_input(self, shapes)
        self.positionwise = leaves_time(axis_of(self, self.axis, shape), shape)
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape."""
        return autograd.softmax(x, self.axis)


class PReLU(Layer):
    """Computes y = x where x > 0, else alpha * x, with trained slopes alpha (He and others, arXiv 1502.01852).

    Input and output samples of any shape with an axis. Parameters: alpha, of the sample's shape with 1 for the axes
    that share it; by default one for each channel, (channels, 1, 1) for images.

    shared_axes: axes along which one alpha serves all, counted from 1, the channels, as 0 is the batch; None for all
    but the channels, () for an alpha for each element, (1, 2, 3) for one alpha for all of an image. alpha_init: an
    Initializer, its name, or a number.

    >>> net = Sequential([layers.Input((3, 4, 5)), layers.PReLU("act")])
    >>> net.parameters()["act/alpha"].shape
    (3, 1, 1)
    """

    def __init__(
        self,
        name: str,
        shared_axes: Sequence[int] | None = None,
        *,
        alpha_init: initializer.Spec = 0.25,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.shared_axes = None if shared_axes is None else self._axes(shared_axes)
        self.alpha_init = init(self, "alpha_init", alpha_init)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        shape = one_input(self, shapes)
        shared = range(2, len(shape) + 1) if self.shared_axes is None else self.shared_axes
        if not shape or max(shared, default=1) > len(shape):
            raise ShapeError(
                f"{label(self)}: wanted input samples that have the shared axes {tuple(shared)}, received {shape}"
            )
        self.positionwise = self.any_length = len(shape) > 1 and 1 in shared
        self.add_parameter(
            "alpha", [1 if axis in shared else extent for axis, extent in enumerate(shape, 1)], self.alpha_init
        )
        return shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) -> the same shape."""
        return autograd.prelu(x, self.parameters["alpha"])

    def _axes(self, given: object) -> tuple[int, ...]:
        if not isinstance(given, Sequence) or not all(is_int(axis) and axis >= 1 for axis in given):
            raise ValueError(
                f"{label(self)}: wanted shared_axes, a tuple of axes of at least 1 (0 is the batch), received {given!r}"
            )
        return tuple(sorted({int(axis) for axis in given}))
