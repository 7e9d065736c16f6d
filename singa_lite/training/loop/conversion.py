"""Conversion: samples and targets of any real dtype as the net takes them, a batch at a time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from singa_lite.common.array_types import Array, DType, Shaped
from singa_lite.common.arrays import KINDS, converted, dtype_of, on_host
from singa_lite.data.loading.batch import as_array
from singa_lite.data.loading.samples import ArraySource, Index, MemoryArray
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.loss import Loss
from singa_lite.loss.base import LikeScores
from singa_lite.tensor import Shape


def inputs(layers: LayerGraph, x: object) -> object:
    """A batch with its arrays in the host's memory in the net's dtype, but for ids. x: one array, or {layer: array}."""
    if isinstance(x, Mapping):
        return {name: _input(layers, name, given) for name, given in x.items()}
    names = list(layers.input_shapes())
    return _input(layers, names[0], x) if len(names) == 1 else x


def _input(layers: LayerGraph, name: object, given: object) -> object:
    if name in layers.input_ids() or name not in layers.input_shapes() or not on_host(given):
        return given
    found = as_array(f"input of layer {name!r}", given)
    return converted(found, layers.dtype)


class Fitted(ArraySource):
    """Targets in the shape and the dtype that a loss wants. ValueError, as they are taken, for an id that is none."""

    def __init__(self, where: str, source: ArraySource, shape: Shape, dtype: DType) -> None:
        self._source = source
        self._where, self.shape, self.dtype = where, shape, dtype
        self._to = dtype
        self.held, self.starts, self.one_by_one = source.held, source.starts, source.one_by_one

    def take(self, index: Index, copy: bool = False) -> Array:
        """The targets at `index`, converted."""
        given = np.asarray(self._source.take(index, copy))
        if given.dtype.kind == "f" and self._to.kind == "i":
            self._check_whole(given, index)
        with np.errstate(over="ignore"):  # an infinity is told where the loss meets it
            return given.reshape(len(given), *self.shape[1:]).astype(self._to, copy=False)

    def _check_whole(self, given: Array, index: Index) -> None:
        bad = ~(np.isfinite(given) & (given == np.trunc(given)))
        if bad.any():
            at = tuple(int(number) for number in np.unravel_index(int(bad.argmax()), bad.shape))
            sample = at[0] + (index.start or 0) if isinstance(index, slice) else int(index[at[0]])
            raise ValueError(
                f"{self._where}: wanted class ids, which are whole numbers, received {given[at]} at "
                f"{[sample, *at[1:]]} of the target"
            )


def fitted(where: str, rows: ArraySource, loss: Loss, scores: Shape, dtype: DType, features_last: bool) -> ArraySource:
    """Targets as a loss wants them, where conversion can do it: else as they are.

    Ids may be (n, 1), floats that are whole numbers, or bool; numbers of any real dtype. scores: the output's sample
    shape; dtype: the net's; features_last: whether its features lie along the last axis.
    """
    found = dtype_of(rows)
    if found is None or found.kind not in KINDS:
        return rows
    if rows.held and not isinstance(rows.take(slice(0, 1)), np.ndarray):  # a GPU's; nothing is read from a disk
        return rows
    (count, *given), to = rows.shape, found
    usual = loss.target_form_behind((count, *scores), dtype, features_last)
    wanted = list(usual[0][1:])
    if usual[1].kind in "iu":
        if given == [*wanted, 1] and given != list(scores):
            given = wanted
        if given == wanted and found.kind in "bf":
            to = np.dtype(np.int64)
    elif given == wanted and isinstance(loss, LikeScores):
        to = dtype
    shape = (count, *given)
    return rows if (shape, to) == (rows.shape, found) else Fitted(where, rows, shape, to)


def class_ids(where: str, given: Shaped, loss: Loss, scores: Shape, dtype: DType, features_last: bool) -> Shaped:
    """A batch's class ids as a loss wants them, where they are (n, 1), whole floats or bool; others as they are.

    scores: the output's batch shape. ValueError for an id that is no whole number.
    """
    if not isinstance(given, np.ndarray) or loss.target_form_behind(scores, dtype, features_last)[1].kind not in "iu":
        return given
    found = fitted(where, MemoryArray(where, given), loss, scores[1:], dtype, features_last)
    return found.take(slice(0, len(given))) if isinstance(found, Fitted) else given
