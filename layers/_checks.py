"""Checks of a layer's arguments and input shapes; errors name the layer, what was wanted and received."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from singa_lite.common.checks import is_int as is_int
from singa_lite.common.checks import real
from singa_lite.common.errors import ShapeError
from singa_lite.layer import initializer
from singa_lite.layer.layer import Layer, check_new
from singa_lite.tensor import Shape

#: Behind the largest extent that an array may have.
MOST = 2**63


def label(layer: Layer) -> str:
    """What an error of a layer begins with: which layer it is."""
    return f"layer {layer.path!r}"


def positive_int(layer: Layer, what: str, value: object) -> int:
    """The value as an int. ValueError unless it is an integer of at least 1."""
    if not is_int(value) or not 1 <= value < MOST:
        raise ValueError(f"{label(layer)}: wanted {what} to be an integer of at least 1, received {value!r}")
    return int(value)


def number(layer: Layer, what: str, value: object, low: float = -np.inf, high: float = np.inf) -> float:
    """The value as a float. ValueError unless it is a finite number from `low` to `high`, both included."""
    found = real(value)
    if found is None or not np.isfinite(found) or not low <= found <= high:
        wanted = f" of at least {low:g}" if high == np.inf else f" from {low:g} to {high:g}"
        wanted = wanted if low > -np.inf else ", finite"
        raise ValueError(f"{label(layer)}: wanted {what} to be a number{wanted}, received {value!r}")
    return found


def dropout_share(layer: Layer, what: str, value: object) -> float:
    """The value as a float. ValueError unless it is a number from 0 to below 1."""
    found = number(layer, what, value, 0, 1)
    if found == 1:
        raise ValueError(f"{label(layer)}: wanted {what}, the share to drop, below 1, received {value!r}")
    return found


def flag(layer: Layer, what: str, value: object) -> bool:
    """The value as a bool. ValueError unless it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{label(layer)}: wanted {what} to be True or False, received {value!r}")
    return bool(value)


def check_choice(layer: Layer, what: str, value: object, names: Collection[str]) -> str:
    """The value itself. ValueError unless it is one of the names."""
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{label(layer)}: wanted {what} to be one of {', '.join(names)}, received {value!r}")
    return value


def init(layer: Layer, what: str, spec: initializer.Spec) -> initializer.Initializer:
    """The initializer that `spec` stands for; ValueError or TypeError names the layer and the option."""
    return initializer.get(spec, f"{label(layer)}: {what}")


def bias_init(layer: Layer, spec: initializer.Spec, use_bias: bool) -> initializer.Initializer:
    """The initializer of a layer's bias. ValueError for one beside use_bias=False, which would do nothing."""
    found = init(layer, "bias_init", spec)
    if not use_bias and found != initializer.get(0.0):
        raise ValueError(f"{label(layer)}: wanted bias_init with use_bias=True only, received {spec!r} with False")
    return found


def positive(layer: Layer, what: str, value: object) -> float:
    """The value as a float. ValueError unless it is a finite number above 0."""
    found = number(layer, what, value, 0.0)
    if found == 0:
        raise ValueError(f"{label(layer)}: wanted {what} to be a number above 0, received {value!r}")
    return found


def one_input(layer: Layer, shapes: Sequence[Shape]) -> Shape:
    """The only input's sample shape. ShapeError for another number of inputs."""
    if len(shapes) != 1:
        raise ShapeError(f"{label(layer)}: wanted one input, received {len(shapes)} of shapes {list(shapes)}")
    return shapes[0]


def features_of(layer: Layer, shapes: Sequence[Shape]) -> Shape:
    """The only input's sample shape, whose last axis are features. ShapeError where it has no axis."""
    shape = one_input(layer, shapes)
    if not shape:
        raise ShapeError(f"{label(layer)}: wanted an input sample (..., features), received {shape}")
    return shape


def input_axes(layer: Layer, shapes: Sequence[Shape], axes: Sequence[str], hint: str = "") -> Shape:
    """The only input's sample shape, which has these axes; "..." at the end stands for any more."""
    shape = one_input(layer, shapes)
    least = len(axes) - (axes[-1] == "...")
    if len(shape) < least or (len(shape) > least and axes[-1] != "..."):
        wanted = f"({axes[0]},)" if len(axes) == 1 else f"({', '.join(axes)})"
        raise ShapeError(
            f"{label(layer)}: wanted an input sample of shape {wanted}, received {shape}{hint and '; '}{hint}"
        )
    return shape


def several_inputs(layer: Layer, shapes: Sequence[Shape]) -> Sequence[Shape]:
    """All inputs' sample shapes. ShapeError for fewer than two."""
    if len(shapes) < 2:
        raise ShapeError(f"{label(layer)}: wanted two inputs or more, received {len(shapes)}")
    return shapes


def equal_inputs(layer: Layer, shapes: Sequence[Shape]) -> Shape:
    """The sample shape that all of the two or more inputs have."""
    if len(set(several_inputs(layer, shapes))) > 1:
        raise ShapeError(f"{label(layer)}: wanted inputs of equal sample shapes, received {list(shapes)}")
    return shapes[0]


def not_the_batch(layer: Layer, axis: object) -> int:
    """The axis as an int. ValueError unless it is an integer other than 0, the batch axis."""
    if not is_int(axis) or axis == 0:
        raise ValueError(f"{label(layer)}: wanted an integer axis other than 0, the batch, received {axis!r}")
    return int(axis)


def axis_of(layer: Layer, axis: int, shape: Shape) -> int:
    """The axis counted from 0, the batch, for samples of this shape; negative ones count from the end."""
    found = axis + len(shape) + 1 if axis < 0 else axis
    if not 1 <= found <= len(shape):
        raise ShapeError(
            f"{label(layer)}: wanted an axis from 1 to {len(shape)} or from -{len(shape)} to -1 "
            f"(0 is the batch) for input samples of shape {shape}, received {axis}"
        )
    return found


def leaves_time(axis: int, shape: Shape) -> bool:
    """Whether what goes along an axis, counted from 0, the batch, leaves the positions of samples (time, ...) be."""
    return axis > 1 or len(shape) == 1


def held_layers(layer: Layer, given: object) -> list[Layer]:
    """The layers that a layer is to hold. TypeError unless they stand in a sequence, ValueError for none."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise TypeError(f"{label(layer)}: wanted layers in a list, received {given!r:.100}")
    for entry in given:
        check_new(f"{label(layer)}: layers", entry)
    if not given:
        raise ValueError(f"{label(layer)}: wanted one layer or more, received {given!r}")
    return list(given)
