"""Evaluation and prediction over many samples, and how samples are taken from arrays by batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Protocol

import numpy as np

from singa_lite.batch import as_array
from singa_lite.checks import is_int
from singa_lite.errors import ShapeError
from singa_lite.prefetch import ahead
from singa_lite.progress import Mean
from singa_lite.tensor import Tensor


class Evaluable(Protocol):
    """What the loops need of a net."""

    device: Any

    def evaluate_one_batch(self, x: Any, y: Any) -> tuple[Tensor, Any]: ...

    def predict_one_batch(self, x: Any) -> Any: ...


def samples(arrays: Any) -> int:
    """Number of samples in an array, or in each array of a dict. ShapeError where they differ or there is none."""
    members = arrays if isinstance(arrays, Mapping) else {"data": arrays}
    counts = {name: next(iter(as_array(a).shape), 0) for name, a in members.items()}
    if len(set(counts.values())) != 1 or not all(counts.values()):
        raise ShapeError(f"data: wanted equally many samples in each array, at least one, received {counts}")
    return next(iter(counts.values()))


def take(arrays: Any, index: Any, copy: bool = False) -> Any:
    """The samples at `index` (a slice or an array of places) of an array, or of each array of a dict.

    copy: of slices too, which are views of the data otherwise.
    """
    if isinstance(arrays, Mapping):
        return {name: take(array, index, copy) for name, array in arrays.items()}
    # DLPack shows a tensor's memory without a copy; only the samples asked for are copied.
    taken = (np.from_dlpack(arrays) if isinstance(arrays, Tensor) else np.asarray(arrays))[index]
    return taken.copy() if copy and isinstance(index, slice) else taken


def taken(x: Any, y: Any, indices: Iterable[Any], prefetch: int = 0) -> Generator[tuple[Any, Any], None, None]:
    """Samples and targets at each of the indices; so many batches are copied ahead, in a thread, until it is closed."""
    copy = prefetch > 0
    return ahead(((take(x, index, copy), take(y, index, copy)) for index in indices), prefetch)


def checked(x: Any, y: Any, batch_size: int) -> int:
    """Number of samples. ShapeError unless there are as many targets (None: none wanted), ValueError for batch_size."""
    count = samples(x)
    if y is not None and samples(y) != count:
        raise ShapeError(f"data: wanted as many targets as samples, received {samples(y)} for {count}")
    if not is_int(batch_size) or batch_size < 1:
        raise ValueError(f"batch_size: wanted an integer of at least 1, received {batch_size!r}")
    return count


def batches(count: int, batch_size: int, order: Any = None, start: int = 0) -> Iterator[Any]:
    """Indices of each batch from number `start`: slices, or pieces of `order`. The last one may be shorter."""
    for first in range(start * batch_size, count, batch_size):
        piece = slice(first, min(first + batch_size, count))
        yield piece if order is None else order[piece]


def evaluate(
    net: Evaluable,
    x: Any,
    y: Any,
    batch_size: int,
    after_batch: Callable[[], None] = lambda: None,
    prefetch: int = 0,
) -> tuple[float, Any]:
    """See `FeedForwardNet.evaluate`. after_batch: called after each batch; prefetch: as for `FeedForwardNet.fit`."""
    count, mean = checked(x, y, batch_size), Mean()
    with closing(taken(x, y, batches(count, batch_size), prefetch)) as all_batches:
        for batch in all_batches:
            loss, metric = net.evaluate_one_batch(*batch)
            del batch  # before the next one is taken
            mean.add(min(batch_size, count - mean.count), loss, metric)
            after_batch()
    return mean.loss(), mean.metric()


def predict(net: Evaluable, x: Any, batch_size: int) -> Any:
    """See `FeedForwardNet.predict`. Each batch's output is copied into its place of the whole."""
    count = checked(x, None, batch_size)
    whole: dict[str, Tensor] = {}
    single = False
    for index in batches(count, batch_size):
        out = net.predict_one_batch(take(x, index))
        single = isinstance(out, Tensor)
        for name, part in _members(out):
            if name not in whole:
                whole[name] = net.device.empty((count, *part.shape[1:]), part.dtype)
            stride = whole[name].strides[0]
            net.device.run("copy", part, whole[name].view(part.shape, offset=index.start * stride))
    return whole[""] if single else whole


def _members(out: Any) -> list[tuple[str, Tensor]]:
    return [("", out)] if isinstance(out, Tensor) else list(out.items())
