"""A data set: arrays by layer, checked before anything runs, and read by batches from wherever they are."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np

from singa_lite.common.array_types import Array, DType, Shaped
from singa_lite.common.arrays import (
    check_detached,
    converted,
    dtype_of,
    is_lazy,
    is_table,
    native,
    numbers,
    on_host,
    sliced,
    table_array,
    table_dtype,
)
from singa_lite.common.errors import DataFileError, ShapeError
from singa_lite.data.loading.batch import by_name, check_ids, check_input, check_value, same_counts, says_shape
from singa_lite.data.loading.data_set import Batch, Batches, DataSet, Share, emptied
from singa_lite.data.loading.workers import prefetched
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.tensor import Shape, Tensor, to_numpy

#: Most elements that are looked at in one go, so that checking a large array takes little memory.
_LOOK = 2**20

#: How many samples are looked at to tell other data from these, and how many elements of each.
_TELLING, _BEGINNING = 16, 4096

#: Before an output's name among targets: the weights of its samples.
WEIGHT = "weight/"

#: Which samples: a slice, or their numbers in any order.
Index: TypeAlias = slice | Array


class HasShape(Protocol):
    """What samples are read from."""

    @property
    def shape(self) -> Shape: ...


class Sliceable(Shaped, Protocol):
    """Arrays, and sets that are read by slices."""

    def __getitem__(self, index: Index, /) -> Shaped: ...


class ArraySource(ABC):
    """One array of a data set, by samples.

    shape: samples first; dtype: NumPy's; held: whether its values are in memory, so that looking at them reads nothing;
    starts: the first sample of each chunk of a set on disk, best read whole; None: any samples are read alike.
    is_chunked: whether it is in chunks; else it is in one piece, which may be cut anywhere.
    one_by_one: whether samples are made one by one, as images are decoded, so that any thread or process may make some:
    those of `part`.
    """

    held = True
    starts: Array | None = None
    is_chunked = True
    one_by_one = False

    def __init__(self, where: str, source: HasShape) -> None:
        self._where = where
        self.shape: Shape = tuple(source.shape)
        if not self.shape or not self.shape[0]:
            raise ShapeError(f"{where}: wanted at least one sample, received shape {self.shape}")
        dtype = dtype_of(source)
        self.dtype: object = self.take(slice(0, 1)).dtype if dtype is None else dtype

    @abstractmethod
    def take(self, index: Index, copy: bool = False) -> Shaped:
        """The samples at `index`. copy: of a slice too, which is a view otherwise."""

    def part(self, numbers: Array) -> Sliceable:
        """What makes these samples as it is sliced, and holds nothing of the others. numbers: int (n,)."""
        raise NotImplementedError(f"{type(self).__name__} makes no samples one by one")

    def slices_to_check(self, batch_size: int) -> Iterator[slice]:
        """Whose values to check beforehand: all held ones, in pieces of whole batches; of others the first batch."""
        step = batch_size * max(1, _LOOK // (batch_size * prod(self.shape[1:]) or 1))
        end = self.shape[0] if self.held else 1
        return (slice(first, first + (step if self.held else batch_size)) for first in range(0, end, step))


class MemoryArray(ArraySource):
    """An array in memory, the host's or a GPU's."""

    def __init__(self, where: str, array: Sliceable) -> None:
        self._array = array
        super().__init__(where, array)

    def take(self, index: Index, copy: bool = False) -> Shaped:
        """The samples at `index`. copy: of a slice too, which is a view otherwise."""
        taken = self._array[index]
        if not isinstance(taken, np.ndarray):  # a GPU's
            return taken
        return native(taken.copy() if copy and isinstance(index, slice) else taken)


class Mapped(MemoryArray):
    """A `numpy.memmap`, whose samples are read from the disk when they are looked at."""

    held = False


class Frame(ArraySource):
    """A pandas Series or DataFrame; see `table_dtype` for its errors."""

    def __init__(self, where: str, table: Any) -> None:
        self._table = table
        self._made_as = table_dtype(where, table)
        super().__init__(where, table)
        self.dtype = self._made_as

    def take(self, index: Index, copy: bool = False) -> Array:
        """The samples by their number, counted from 0, whatever the pandas index is."""
        return native(table_array(self._table.iloc[index], self._made_as, copy))


class Lazy(ArraySource):
    """A source that is read by slices: an HDF5 or a zarr set."""

    held = False

    def __init__(self, where: str, array: HasShape) -> None:
        self._array = array
        super().__init__(where, array)
        self.take(slice(0, 1))  # whether it can be read, before anything depends on it
        self.one_by_one = getattr(array, "one_by_one", False) is True
        self.is_chunked = getattr(array, "chunks", ()) is not None
        self.starts = None if self.one_by_one else chunk_starts(array, self.shape)

    def take(self, index: Index, copy: bool = False) -> Array:
        """Only these samples are read, in rising order and each once, as HDF5 wants it; then put in the order asked."""
        if isinstance(index, slice):
            read = self._read(index, len(range(*index.indices(self.shape[0]))))
            return read.copy() if copy else read  # a set of the user's own may refill what it gave
        rising, back = np.unique(index, return_inverse=True)
        taken: Array = self._read(rising, len(rising))[back]
        return taken

    def part(self, numbers: Array) -> Sliceable:
        """See `ArraySource`."""
        found: Sliceable = self._array.part(numbers)  # type: ignore[attr-defined]  # what is one_by_one has it
        return found

    def _read(self, index: Index, count: int) -> Array:
        try:
            read = sliced(self._where, self._array, index)
        except OSError as error:  # h5py's, of a damaged chunk, without the file's name
            file = getattr(getattr(self._array, "file", None), "filename", None)
            if file is None:
                raise
            raise DataFileError(f"{file}: {self._where}: wanted {count} samples, received {error}") from error
        if read.shape[:1] != (count,):
            raise ShapeError(f"{self._where}: wanted {count} samples of {self.shape}, received {read.shape}")
        return read


def chunk_starts(given: object, shape: Shape) -> Array | None:
    """The number of the first sample of each chunk, int64 rising from 0; None for what does not say how it is stored.

    given: an HDF5 or zarr set, which has `chunks`, None for one in one piece; or any object with `starts`, these
    numbers themselves.
    """
    starts = getattr(given, "starts", None)
    if starts is not None:
        return np.asarray(starts, np.int64)
    if not hasattr(given, "chunks"):
        return None
    chunks = given.chunks
    step = chunks[0] if isinstance(chunks, tuple) and chunks else shape[0]
    return np.arange(0, shape[0], max(1, int(step)), dtype=np.int64)


def rows(where: str, given: object) -> ArraySource:
    """The samples of anything that holds an array; nothing is copied, but for tensors in a GPU's memory.

    TypeError for what is no array, ShapeError for one without samples. where: what messages begin with.
    """
    if isinstance(given, Tensor):
        check_value(where, given)
        return MemoryArray(where, numbers(where, given) if on_host(given) else to_numpy(given))
    if is_table(given):
        return Frame(where, given)
    if _is_read_by_slices(given, where):
        return Lazy(where, given)
    if _is_on_gpu(given):
        check_detached(where, given)
        return MemoryArray(where, given)
    return (Mapped if isinstance(given, np.memmap) else MemoryArray)(where, numbers(where, given))


def _is_read_by_slices(given: object, where: str) -> TypeGuard[HasShape]:
    return is_lazy(where, given)


def _is_on_gpu(given: object) -> TypeGuard[Sliceable]:
    return not on_host(given)


def checked_inputs(
    where: str,
    layers: LayerGraph,
    x: object,
    before: Mapping[str, Callable[[str, ArraySource], ArraySource]] | None = None,
) -> dict[str, ArraySource]:
    """A data set's inputs by layer, checked without reading them. x: one array, or {input layer: array}.

    Of ids, values in memory are looked at too. before: what makes samples that the net takes of those that are given.
    """
    before = before or {}
    inputs, dtype, ids = {}, layers.dtype, layers.input_ids()
    for name, given in by_name(x, list(layers.input_shapes()), f"{where}: inputs of the net").items():
        here = f"{where}: input of layer {name!r}"
        if name not in before and says_shape(given, here):
            check_input(here, given, layers.fitting(name, tuple(given.shape)), dtype, ids.get(name), True)
        inputs[name] = before[name](here, rows(here, given)) if name in before else rows(here, given)
        check_input(here, inputs[name], layers.fitting(name, inputs[name].shape), dtype, ids.get(name), True)
        if name in ids and inputs[name].held:
            for index in inputs[name].slices_to_check(1):
                check_ids(here, inputs[name].take(index), ids[name], index.start)
    same_counts(where, inputs)
    return inputs


def checked_targets(where: str, y: object, outputs: list[str], count: int) -> dict[str, ArraySource]:
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


class Samples(DataSet):
    """What `fit`, `evaluate` and `predict` go through. inputs, targets: by layer; targets None for `predict`.

    single: whether batches are one array, or dicts by layer, as the user gave them: (inputs, targets). dtypes: of
    inputs, to which each batch is converted; without one it stays as it is.
    """

    def __init__(
        self,
        inputs: dict[str, ArraySource],
        targets: dict[str, ArraySource] | None,
        batch_size: int,
        single: tuple[bool, bool],
        dtypes: Mapping[str, DType],
    ) -> None:
        self.inputs = inputs
        self.targets = targets
        self.batch_size = batch_size
        self.count = next(iter(inputs.values())).shape[0]
        self.forms = self._forms()
        self.single = single
        self.dtypes = dtypes

    def divide(self, share: Share) -> None:
        """See `DataSet`."""
        super().divide(share)
        self.forms = self._forms()

    def _forms(self) -> int:
        sizes = {min(self.batch_size, self.count), self.count % self.batch_size} - {0}
        return len({self.share.samples(self.share.rank, size) for size in sizes})

    def slices(self, start: int = 0) -> Iterator[slice]:
        """The samples of each batch from number `start`, in the order of the data. The last one may be shorter."""
        for first in range(start * self.batch_size, self.count, self.batch_size):
            yield slice(first, min(first + self.batch_size, self.count))

    def own_slices(self, start: int = 0) -> Iterator[slice]:
        """As `slices`, of each the share; perhaps none of it."""
        for number, piece in enumerate(self.slices(start), start):
            own = self.share.slice_of(number, piece.stop - piece.start)
            yield slice(piece.start + own.start, piece.start + own.stop)

    def indices(self, order: Array | None, start: int = 0) -> Iterator[Index | None]:
        """As `own_slices`, in this order of all samples, if one is given; None for none."""
        for piece in self.own_slices(start):
            yield None if piece.start == piece.stop else piece if order is None else order[piece]

    def iterate(
        self, order: Array | None = None, start: int = 0, prefetch: int = 0, epoch: int = 0, key: int = 0
    ) -> Batches:
        """See `DataSet`."""
        indices = self.indices(order, start)
        return prefetched((None if index is None else self.take(index, prefetch > 0) for index in indices), prefetch)

    def without_samples(self) -> Batch:
        """See `DataSet`."""
        return emptied(self.take(slice(0, 1)))

    def digest(self) -> int | None:
        """See `DataSet`."""
        every, found = (*self.inputs.values(), *(self.targets or {}).values()), 0
        for rows in (each for each in every if each.held):
            for number in range(0, self.count, -(-self.count // _TELLING)):
                taken = rows.take(slice(number, number + 1))
                if isinstance(taken, np.ndarray):  # one on a GPU is not waited for
                    found = zlib.crc32(taken.reshape(-1)[:_BEGINNING].tobytes(), found)
        return found

    def take(self, index: Index, copy: bool = False) -> Batch:
        """(samples, targets) at `index`, see `ArraySource.take`; targets None where there are none."""
        inputs = {name: found.take(index, copy) for name, found in self.inputs.items()}
        if self.targets is None:
            return self.to_batch(inputs, None)
        return self.to_batch(inputs, {name: found.take(index, copy) for name, found in self.targets.items()})

    def to_batch(self, inputs: dict[str, Shaped], targets: dict[str, Shaped] | None) -> Batch:
        """A batch as the net takes it, in the form in which the user gave the whole; with weights, if there are any."""
        inputs = {name: converted(taken, self.dtypes.get(name)) for name, taken in inputs.items()}
        x = next(iter(inputs.values())) if self.single[0] else inputs
        if targets is None:
            return x, None
        weights = {name.removeprefix(WEIGHT): taken for name, taken in targets.items() if name.startswith(WEIGHT)}
        own = {name: taken for name, taken in targets.items() if not name.startswith(WEIGHT)}
        y = next(iter(own.values())) if self.single[1] else own
        return (x, y, weights) if weights else (x, y)
