"""Targets of losses and metrics: class ids or rows, on the host or on a device, and how they are checked."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.array_types import DType
from singa_lite.common.arrays import host_array, is_plain, on_host
from singa_lite.common.checks import is_int
from singa_lite.common.described import Described
from singa_lite.common.errors import ShapeError
from singa_lite.common.value_checks import ClassIds, ValuesCheck
from singa_lite.device import device_of
from singa_lite.tensor import Array, Shape, Tensor, as_tensor, to_numpy

Target = Array | Tensor

#: Methods of a criterion by which targets are checked.
_CHECKS = frozenset({"check", "check_target", "_check"})


class Criterion(Described):
    """Base of losses and metrics: how a target is checked and brought to the scores' device."""

    #: Whether a mean over a batch, if it is of the whole one, is of the positions whose id is not `ignore_index`.
    is_counted: ClassVar[bool] = False
    ignore_index: int | None = None

    @property
    def of_whole_batch(self) -> bool:
        """Whether a sample's value depends on the other samples of its batch, so that pieces of it give others."""
        return False

    def check(self, x_shape: Shape, dtype: DType, target: object) -> None:
        """Raise unless `target` fits scores of this shape (batch first) and dtype. Runs no kernel.

        target: Tensor, NumPy, or anything that holds an array. ShapeError, TypeError, or ValueError for values
        that make no sense; those of a Tensor are looked at on the CPU only, so as not to wait for a device.
        """
        target = received(target, f"{self._name}: target")
        if not x_shape or 0 in x_shape:
            raise ShapeError(f"{self._name}: wanted scores of at least one sample, received {x_shape}")
        if np.dtype(dtype).kind != "f":
            raise TypeError(f"{self._name}: wanted scores of a float dtype, received {np.dtype(dtype)}")
        if target.shape[:1] != x_shape[:1]:
            raise ShapeError(f"{self._name}: wanted {x_shape[0]} targets, received shape {target.shape}")
        self.check_target(x_shape, np.dtype(dtype), target)

    def check_target(self, x_shape: Shape, dtype: DType, target: Target) -> None:
        """For a subclass that accepts only some targets: raise, as `check` does. This one accepts all."""

    def values_check(self, x_shape: Shape, dtype: DType, target: Array) -> ValuesCheck | None:
        """What `check` would still ask of targets of this one's form, which it let through; None: all of it.

        A subclass whose `check_target` asks for more than that of its base gives its own: see `check_left`.
        """
        return None

    def check_left(self, x_shape: Shape, dtype: DType, target: Array) -> ValuesCheck | None:
        """`values_check`, unless `check` was written anew since, in a subclass or for this object: None then."""
        if not _CHECKS.isdisjoint(vars(self)):
            return None
        for kind in type(self).__mro__:
            if "values_check" in vars(kind):
                return self.values_check(x_shape, dtype, target)
            if not _CHECKS.isdisjoint(vars(kind)):
                return None
        return None

    def _beside(self, x: Tensor, y: object) -> Tensor:
        """y as a checked Tensor on the device of x."""
        if not isinstance(x, Tensor):
            raise TypeError(f"{self._name}: wanted scores as a Tensor, received {type(x).__name__}")
        target = received(y, f"{self._name}: target")
        self.check(x.shape, x.dtype, target)
        graph = device_of(x).graph
        if graph is not None:
            graph.options.note(self)
        return as_tensor(target, x.device)

    def _check_values(self, x: Tensor, values: Tensor) -> Tensor:
        if not isinstance(values, Tensor):
            raise TypeError(f"{self._name}: wanted a Tensor of compute(x, target), received {values!r:.100}")
        if values.shape[:1] != x.shape[:1]:
            raise ShapeError(f"{self._name}: wanted {x.shape[0]} computed values, received {values.shape}")
        return values

    @property
    def _name(self) -> str:
        return type(self).__name__


def received(given: object, where: str = "target") -> Target:
    """`given` itself if it is a Tensor, else a NumPy array of it (from a list, CuPy, DLPack), in native byte order."""
    if is_plain(given) or isinstance(given, Tensor):
        return given
    return host_array(where, given) if on_host(given) else to_numpy(as_tensor(given))


def readable(target: Target) -> Array | None:
    """The values, if they can be had without waiting for a device; else None."""
    if not isinstance(target, Tensor):
        return target
    on_host = target.device.name.startswith("cpu") and target.block.memory is not None
    return np.array(target.array) if on_host else None


def checked_class_axis(where: str, axis: object) -> int | None:
    """The axis as an int, or None. ValueError for what is no integer, and for 0, the batch."""
    if axis is None:
        return None
    if not is_int(axis) or axis == 0:
        raise ValueError(f"{where} axis: wanted an integer other than 0, the batch, or None, received {axis!r}")
    return int(axis)


def checked_id(where: str, given: object) -> int | None:
    """The id as an int, or None. ValueError for anything else."""
    if given is None:
        return None
    if not is_int(given):
        raise ValueError(f"{where}: wanted an integer or None, received {given!r}")
    return int(given)


def class_axis(where: str, given: int | None, x_shape: Shape, target_shape: Shape) -> int:
    """The axis of the classes of scores of this shape, counted from 0.

    given: as the user said it. None: 1, or the last where only that goes with the shape of class ids. ShapeError for
    an axis that there is not, ValueError where ids go with both.
    """
    axes = len(x_shape)
    if given is not None:
        if not -axes < given < axes:
            raise ShapeError(f"{where}: wanted scores with an axis {given} beside the batch, received {x_shape}")
        return given % axes
    if axes < 3 or target_shape != ids_shape(x_shape, -1):
        return 1
    if target_shape == ids_shape(x_shape, 1):
        raise ValueError(
            f"{where}: wanted to be told the axis of the classes, axis=1 or axis=-1, as ids of shape {target_shape} go "
            f"with both in scores {x_shape}"
        )
    return axes - 1


def ids_shape(x_shape: Shape, axis: int) -> Shape:
    """The shape of class ids for scores of this shape, the classes along `axis`."""
    axis %= max(len(x_shape), 1)
    return x_shape[:axis] + x_shape[axis + 1 :]


def check_classes(where: str, x_shape: Shape, for_one: str, axis: int = 1) -> None:
    """ShapeError for scores without at least two classes along `axis`, of which one alone is always right.

    for_one: what to take for one score a sample.
    """
    if len(x_shape) < 2:
        raise ShapeError(f"{where}: wanted scores (n, classes, ...), received {x_shape}")
    if x_shape[axis] < 2:
        raise ShapeError(
            f"{where}: wanted scores of at least 2 classes, received {x_shape}; for one score, of yes or no, take "
            f"{for_one} and targets of 0 and 1 in the scores' shape and dtype"
        )


def check_same_shape_and_dtype(where: str, x_shape: Shape, dtype: DType, target: Target) -> None:
    """ShapeError or TypeError unless the target has the scores' shape and dtype."""
    if target.shape != x_shape:
        hint = "; y[:, None] has it" if x_shape == (*target.shape, 1) else ""
        raise ShapeError(f"{where}: wanted a target of shape {x_shape}, received {target.shape}{hint}")
    if target.dtype != dtype:
        raise TypeError(f"{where}: wanted a target of {dtype}, received {target.dtype}; convert it first")


def check_probabilities(where: str, target: Target) -> None:
    """ValueError for a value that is not from 0 to 1."""
    values = readable(target)
    if values is not None:
        refuse(where, "values from 0 to 1", values, ~((values >= 0) & (values <= 1)))


def check_labels(where: str, x_shape: Shape, target: Target, axis: int = 1, ignored: int | None = None) -> bool:
    """True for class ids, of the shape of the scores without `axis`, False for rows of their shape.

    ignored: an id that may be no class. ShapeError if it has neither shape, TypeError for ids that are not integers,
    and for rows beside `ignored`, ValueError for an id that is not a class; the message names the first, its index, and
    the classes.
    """
    if target.shape == x_shape:
        if ignored is not None:
            raise TypeError(f"{where} ignore_index: wanted class ids, received rows of weights {target.shape}")
        return False
    wanted_shape = ids_shape(x_shape, axis)
    if target.shape != wanted_shape:
        raise ShapeError(
            f"{where}: wanted class ids of shape {wanted_shape} or rows of the scores' shape {x_shape}, "
            f"received {target.shape} {target.dtype}"
        )
    if target.dtype.kind not in "iu":
        raise TypeError(f"{where}: wanted class ids of an integer dtype, received {target.dtype}")
    ids = readable(target)
    if ids is not None:
        bad = (ids < 0) | (ids >= x_shape[axis])
        if ignored is not None:
            bad &= ids != ignored
        beside = "" if ignored is None else f", or {ignored}, which does not count"
        refuse(where, f"class ids from 0 to {x_shape[axis] - 1}{beside}", ids, bad)
    return True


def ids_check(x_shape: Shape, target: Array, axis: int = 1, ignored: int | None = None) -> ValuesCheck | None:
    """Of class ids that `check_labels` let through, what it would still ask of others; None: they are rows."""
    return None if target.shape == x_shape else ClassIds(x_shape[axis], ignored)


def refuse(where: str, wanted: str, values: Array, bad: NDArray[np.bool_]) -> None:
    """ValueError if anything is bad, which names the first bad value and its index. bad: of values' shape."""
    if bad.any():
        index = tuple(int(number) for number in np.unravel_index(int(bad.argmax()), bad.shape))
        raise ValueError(f"{where}: wanted {wanted}, received {values[index]} at {list(index)} of the target")
