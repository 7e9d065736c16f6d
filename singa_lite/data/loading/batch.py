"""Checks a batch of the user's against what the net wants, and gives tensors on its device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

import numpy as np

from singa_lite.common.array_types import DType, Shaped
from singa_lite.common.arrays import check_detached, dtype_of, host_array, is_plain, may_convert, on_host, says_form
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.common.notice import warn
from singa_lite.device import Device
from singa_lite.layer.criterion import readable
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.tensor import Shape, Tensor, as_tensor, to_numpy


def by_name(given: object, names: list[str], what: str) -> dict[str, object]:
    """`given` as {name: value}: a dict with exactly these names, or one value where there is one name."""
    if not isinstance(given, Mapping):
        if len(names) != 1:
            raise GraphError(f"{what}: wanted a dict for {names}, received one {type(given).__name__}")
        return {names[0]: given}
    if set(given) != set(names):
        raise GraphError(f"{what}: wanted a dict for {names}, received one for {sorted(map(str, given))}")
    return dict(given)


def as_array(where: str, given: object) -> Shaped:
    """`given` as what a step is fed with: a Tensor, an array in a GPU's memory, or NumPy's in native byte order.

    TypeError for what is no array, GraphError for a Tensor without a value. where: what messages begin with.
    """
    if is_plain(given):
        return given
    if isinstance(given, Tensor):
        check_value(where, given)
        return given
    if on_host(given):
        return host_array(where, given)
    check_detached(where, given)
    if not _has_dtype(given):
        dtype = getattr(given, "dtype", None)
        raise TypeError(f"{where}: wanted an array of NumPy's dtypes, received {dtype}; convert it first")
    return given


def _has_dtype(given: object) -> TypeGuard[Shaped]:
    return dtype_of(given) is not None


def says_shape(given: object, where: str) -> TypeGuard[Shaped]:
    """Whether it says shape and dtype without being read. ValueError if it cannot, as of a file that was closed."""
    return is_plain(given) or says_form(where, given)


def check_value(where: str, given: Tensor) -> None:
    """GraphError for a tensor of a recording that has no value, unless this is recorded too."""
    if given.block.memory is None and given.device.graph is None:
        raise GraphError(f"{where}: wanted a tensor with a value, received {given!r}, which was recorded and never run")


def check_input(
    where: str, given: Shaped, sample_shape: Shape, dtype: DType, ids: int | None = None, converts: bool = False
) -> None:
    """ShapeError or TypeError unless `given` is a batch of at least one sample of this shape and dtype.

    ids: how many there are, for a batch of ids: any integer dtype will do then. converts: whether real numbers of
    another dtype will do as well, as each batch of them is converted.
    """
    shape = tuple(given.shape)
    if shape[1:] != sample_shape or not shape:
        raise ShapeError(
            f"{where}: wanted a batch of samples {sample_shape}, that is shape {('n', *sample_shape)}, received {shape}"
        )
    if shape[0] == 0:
        raise ShapeError(f"{where}: wanted at least one sample, received an empty batch {shape}")
    found = dtype_of(given)
    if ids is not None:
        if found is None or found.kind not in "iu":
            raise TypeError(
                f"{where}: wanted ids, integers from 0 to {ids - 1}, received {given.dtype}; convert them first, as "
                "x.astype('int64') does"
            )
    elif given.dtype != dtype and found != dtype and not (converts and may_convert(given)):
        raise TypeError(
            f"{where}: wanted {dtype}, received {given.dtype}; convert it first, as x.astype({str(dtype)!r}) does"
            + ("" if converts else "; fit(), evaluate() and predict() convert batch by batch")
        )


def check_ids(where: str, given: object, ids: int, first: int = 0) -> None:
    """ValueError for an id that is not from 0 to below `ids`: which, and where. first: the number of the first sample.

    Those in a GPU's memory are not looked at, so as not to wait for it: its kernels make NaN of a wrong one.
    """
    values = readable(given) if isinstance(given, np.ndarray | Tensor) else None
    if values is None or not values.size or (values.min() >= 0 and values.max() < ids):
        return
    bad = (values < 0) | (values >= ids)
    sample, *position = (int(number) for number in np.unravel_index(int(bad.argmax()), bad.shape))
    at = f", position {position[0] if len(position) == 1 else tuple(position)}" if position else ""
    found = values[(sample, *position)]
    raise ValueError(f"{where}: wanted ids from 0 to {ids - 1}, received {found} in sample {first + sample}{at}")


def same_counts(where: str, inputs: Mapping[str, Shaped]) -> None:
    """ShapeError unless there are equally many samples for each input."""
    counts = {name: array.shape[0] for name, array in inputs.items()}
    if len(set(counts.values())) != 1:
        raise ShapeError(f"{where}: wanted equally many samples in each input, received {counts}")


def checked_inputs(layers: LayerGraph, x: object) -> dict[str, Shaped]:
    """The batch as one array an input layer, each checked. x: one array, or {input layer: array}."""
    layers.check_usable()
    arrays, dtype, ids = {}, layers.dtype, layers.input_ids()
    for name, given in by_name(x, list(layers.input_shapes()), "inputs of the net").items():
        where = f"input of layer {name!r}"
        shaped: Shaped = given if says_shape(given, where) else as_array(where, given)
        wanted = layers.fitting(name, tuple(shaped.shape))
        check_input(where, shaped, wanted, dtype, ids.get(name))  # before anything is read from a file
        arrays[name] = as_array(where, shaped)
        if name in ids:
            check_ids(where, arrays[name], ids[name])
    same_counts("inputs of the net", arrays)
    return arrays


def as_tensors(arrays: Mapping[str, object], device: Device) -> dict[str, Tensor]:
    """Each array as a tensor on the device; one that is there already is not copied."""
    return {name: as_tensor(array, device) for name, array in arrays.items()}


def untaped(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, apart from any tape: for a step of one net, which walks back to its inputs and no further."""
    return {name: tensor.detach() for name, tensor in tensors.items()}


def warn_of_nan(named: Mapping[str, object]) -> None:
    """Warn of arrays that hold NaN or infinity; integers cannot."""
    for name, given in named.items():
        array = given if isinstance(given, np.ndarray) else to_numpy(as_tensor(given))
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            warn(f"{name} holds NaN or infinity in its first batch", RuntimeWarning)
