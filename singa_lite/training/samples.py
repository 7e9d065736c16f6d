"""A data set: arrays by layer, checked before anything runs, and read by batches from wherever they are."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from singa_lite.arrays import check_detached, dtype_of, host_array, is_lazy, native, numbers, on_host, says_form, sliced
from singa_lite.errors import ShapeError
from singa_lite.tensor import Shape, Tensor, to_numpy
from singa_lite.training.batch import by_name, check_input, check_value, same_counts
from singa_lite.training.prefetch import ahead

#: Most elements that are looked at in one go, so that checking a large array takes little memory.
_LOOK = 2**20


class Rows:
    """One array of a data set, by samples.

    shape: samples first; dtype: NumPy's; held: whether its values are in memory, so that looking at them reads nothing.
    """

    held = True

    def __init__(self, where: str, array: Any) -> None:
        self._where = where
        self._array = array
        self.shape: Shape = tuple(array.shape)
        if not self.shape or not self.shape[0]:
            raise ShapeError(f"{where}: wanted at least one sample, received shape {self.shape}")
        dtype = dtype_of(array)
        self.dtype = self.take(slice(0, 1)).dtype if dtype is None else dtype

    def take(self, index: Any, copy: bool = False) -> Any:
        """The samples at `index`: a slice, or an array of numbers. copy: of a slice too, which is a view otherwise."""
        taken = self._array[index]
        if not isinstance(taken, np.ndarray):  # a GPU's
            return taken
        return native(taken.copy() if copy and isinstance(index, slice) else taken)

    def looks(self, batch_size: int) -> Iterator[slice]:
        """Where to look at values beforehand: all held ones, in pieces of whole batches; of others the first batch."""
        step = batch_size * max(1, _LOOK // (batch_size * prod(self.shape[1:]) or 1))
        end = self.shape[0] if self.held else 1
        return (slice(first, first + (step if self.held else batch_size)) for first in range(0, end, step))


class Mapped(Rows):
    """A `numpy.memmap`, whose samples are read from the disk when they are looked at."""

    held = False


class Frame(Rows):
    """A pandas Series or DataFrame."""

    def take(self, index: Any, copy: bool = False) -> Any:
        """By number, counted from 0, whatever the pandas index is."""
        return host_array(self._where, self._array.iloc[index].to_numpy(copy=copy))


class Lazy(Rows):
    """What is read by slices: an HDF5 or a zarr set."""

    held = False

    def __init__(self, where: str, array: Any) -> None:
        super().__init__(where, array)
        self.take(slice(0, 1))  # whether it can be read, before anything depends on it

    def take(self, index: Any, copy: bool = False) -> Any:
        """Only these samples are read, in rising order and each once, as HDF5 wants it; then put in the order asked."""
        if isinstance(index, slice):
            return self._read(index, len(range(*index.indices(self.shape[0]))))
        rising, back = np.unique(index, return_inverse=True)
        return self._read(rising, len(rising))[back]

    def _read(self, index: Any, count: int) -> Any:
        read = sliced(self._where, self._array, index)
        if read.shape[:1] != (count,):
            raise ShapeError(f"{self._where}: wanted {count} samples of {self.shape}, received {read.shape}")
        return read


def rows(where: str, given: Any) -> Rows:
    """The samples of anything that holds an array; nothing is copied, but for tensors in a GPU's memory.

    TypeError for what is no array, ShapeError for one without samples. where: what messages begin with.
    """
    if isinstance(given, Tensor):
        check_value(where, given)
        return Rows(where, numbers(where, given) if on_host(given) else to_numpy(given))
    if hasattr(given, "iloc") and hasattr(given, "to_numpy"):
        return Frame(where, given)
    if is_lazy(where, given):
        return Lazy(where, given)
    if not on_host(given):
        check_detached(where, given)
        return Rows(where, given)
    return (Mapped if isinstance(given, np.memmap) else Rows)(where, numbers(where, given))


def checked_inputs(where: str, x: Any, sample_shapes: Mapping[str, Shape], dtype: np.dtype[Any]) -> dict[str, Rows]:
    """A data set's inputs by layer, checked without reading them. x: one array, or {input layer: array}."""
    inputs = {}
    for name, given in by_name(x, list(sample_shapes), f"{where}: inputs of the net").items():
        here = f"{where}: input of layer {name!r}"
        if says_form(here, given):
            check_input(here, given, sample_shapes[name], dtype)
        inputs[name] = rows(here, given)
        check_input(here, inputs[name], sample_shapes[name], dtype)
    same_counts(where, inputs)
    return inputs


def checked_targets(where: str, y: Any, outputs: list[str], count: int) -> dict[str, Rows]:
    """A data set's targets by layer, as many as there are samples. y: one array, or {output layer: array}."""
    named = by_name(y, outputs, f"{where}: targets of the net")
    targets = {name: rows(f"{where}: target of layer {name!r}", given) for name, given in named.items()}
    for name, found in targets.items():
        if found.shape[:1] != (count,):
            raise ShapeError(
                f"{where}: target of layer {name!r}: wanted as many targets as samples, received {found.shape[0]} for "
                f"{count}"
            )
    return targets


class Samples:
    """What `fit`, `evaluate` and `predict` go through. inputs, targets: by layer; targets None for `predict`.

    alone: whether batches are one array, or dicts by layer, as the user gave them: (inputs, targets).
    """

    def __init__(
        self, inputs: dict[str, Rows], targets: dict[str, Rows] | None, batch_size: int, alone: tuple[bool, bool]
    ) -> None:
        self.inputs = inputs
        self.targets = targets
        self.batch_size = batch_size
        self.count = next(iter(inputs.values())).shape[0]
        self._alone = alone

    def indices(self, order: Any = None, start: int = 0) -> Iterator[Any]:
        """Indices of each batch from number `start`: slices, or pieces of `order`. The last one may be shorter."""
        for first in range(start * self.batch_size, self.count, self.batch_size):
            piece = slice(first, min(first + self.batch_size, self.count))
            yield piece if order is None else order[piece]

    def batches(self, indices: Iterable[Any], prefetch: int = 0) -> Generator[tuple[Any, Any], None, None]:
        """Samples and targets at each of the indices; so many batches are copied ahead, in a thread, until closed."""
        return ahead(((self.take(index, prefetch > 0)) for index in indices), prefetch)

    def take(self, index: Any, copy: bool = False) -> tuple[Any, Any]:
        """(samples, targets) at `index`, see `Rows.take`; targets None where there are none."""
        x = _taken(self.inputs, index, copy, self._alone[0])
        return x, None if self.targets is None else _taken(self.targets, index, copy, self._alone[1])


def _taken(named: Mapping[str, Rows], index: Any, copy: bool, alone: bool) -> Any:
    taken = {name: found.take(index, copy) for name, found in named.items()}
    return next(iter(taken.values())) if alone else taken
