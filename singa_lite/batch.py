"""What the user hands to a net, checked against what the net wants, as tensors on its device."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from singa_lite.errors import GraphError, ShapeError
from singa_lite.tensor import Shape, Tensor, as_tensor


def by_name(given: Any, names: list[str], what: str) -> dict[str, Any]:
    """`given` as {name: value}: a dict with exactly these names, or one value where there is one name."""
    if not isinstance(given, Mapping):
        if len(names) != 1:
            raise GraphError(f"{what}: wanted a dict for {names}, received one {type(given).__name__}")
        return {names[0]: given}
    if set(given) != set(names):
        raise GraphError(f"{what}: wanted a dict for {names}, received one for {sorted(map(str, given))}")
    return dict(given)


def as_array(given: Any) -> Any:
    """`given` as something with shape and dtype: itself if it has both, else a NumPy array."""
    return given if hasattr(given, "shape") and hasattr(given, "dtype") else np.asarray(given)


def check_input(name: str, given: Any, sample_shape: Shape, dtype: np.dtype[Any]) -> None:
    """ShapeError or TypeError unless `given` is a batch of at least one sample of this shape and dtype."""
    shape = tuple(given.shape)
    if shape[1:] != sample_shape or not shape:
        raise ShapeError(
            f"input of layer {name!r}: wanted a batch of samples {sample_shape}, that is shape "
            f"{('n', *sample_shape)}, received {shape}"
        )
    if shape[0] == 0:
        raise ShapeError(f"input of layer {name!r}: wanted at least one sample, received an empty batch {shape}")
    if str(given.dtype).removeprefix("torch.") != str(dtype):
        raise TypeError(f"input of layer {name!r}: wanted {dtype}, received {given.dtype}; convert it first")


def checked_inputs(x: Any, sample_shapes: Mapping[str, Shape], dtype: np.dtype[Any]) -> dict[str, Any]:
    """The batch as one array an input layer, each checked. x: one array, or {input layer: array}."""
    arrays = {name: as_array(v) for name, v in by_name(x, list(sample_shapes), "inputs of the net").items()}
    for name, array in arrays.items():
        check_input(name, array, sample_shapes[name], dtype)
    counts = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        raise ShapeError(f"inputs of the net: wanted equally many samples in each, received {counts}")
    return arrays


def as_tensors(arrays: Mapping[str, Any], device: Any) -> dict[str, Tensor]:
    """Each array as a tensor on the device; one that is there already is not copied."""
    return {name: as_tensor(array, device) for name, array in arrays.items()}


def warn_of_nan(named: Mapping[str, Any]) -> None:
    """Warn of arrays that hold NaN or infinity; integers cannot."""
    for name, given in named.items():
        array = np.asarray(given)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            warnings.warn(f"{name} holds NaN or infinity in its first batch", RuntimeWarning, stacklevel=4)
