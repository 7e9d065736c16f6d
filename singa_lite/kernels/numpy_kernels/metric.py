"""Metrics. Ties go to the lower class, and a NaN is never among the highest scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.pieces import axis_buffer, axis_shape, line_buffer, pieces
from singa_lite.kernels.numpy_kernels.samples import (
    LIMIT,
    add_to_samples,
    column,
    is_rows,
    labels_of,
    positions,
    sample_buffers,
)
from singa_lite.kernels.numpy_kernels.scratch import BufferSpec, Bytes, Shaped, bytes_for, carve, scratch


def _rank_buffers(x: Shaped) -> list[BufferSpec]:
    """The classes' numbers, from 1; label and rank of each position; three masks of the scores."""
    lines, scores = axis_buffer(x, 1, LIMIT)[0], line_buffer(x, 1, LIMIT)[0]
    masks: list[BufferSpec] = [(scores, np.bool_)] * 3
    return [((x.shape[1],), np.intp), (lines, np.intp), (lines, np.intp), *masks]


def _rank_rule(x: Shaped, target: Shaped, values: Shaped, *, k: int) -> int:
    """Scratch of `in_top_k`."""
    return bytes_for(*sample_buffers(x), *_rank_buffers(x))


@scratch(_rank_rule)
def in_top_k(x: Array, target: Array, values: Array, *, k: int, scratch: Bytes) -> None:
    """A hit where fewer than k classes have a higher score, or an equal one and a lower number."""
    labels = labels_of(x, target)
    totals, sums, numbers, label, rank, *masks = carve(scratch, *sample_buffers(x), *_rank_buffers(x))
    np.add.accumulate(np.broadcast_to(np.intp(1), numbers.shape), out=numbers)
    numbers = column(numbers, x.ndim - 1)
    totals.fill(0)
    columns = column(totals, x.ndim), column(sums, x.ndim)
    for xb, tb, total, subtotal in pieces(x, labels, *columns, whole=(1,), limit=LIMIT):
        shape = axis_shape(xb.shape, 1)
        own, before = shaped(label, shape), shaped(rank, shape)
        if is_rows(x, target):
            np.argmax(tb, axis=1, keepdims=True, out=own)
        else:
            np.copyto(own, tb, casting="unsafe")
        hits = _top_k_hits(xb, own, k, numbers, before, [shaped(m, xb.shape) for m in masks])
        add_to_samples(hits, total, subtotal)
    np.divide(totals, positions(x), out=values)


def _top_k_hits(x: Array, label: Array, k: int, numbers: Array, rank: Array, masks: list[Array]) -> Array:
    """Whether each position's label is among the k highest scores, as a mask of the label's shape."""
    higher, tied, lower = masks
    score = np.take_along_axis(x, label, axis=1)
    np.equal(x, score, out=tied)
    np.less_equal(numbers, label, out=lower)
    np.logical_and(tied, lower, out=tied)
    np.greater(x, score, out=higher)
    np.logical_or(higher, tied, out=higher)
    np.add.reduce(higher, axis=1, dtype=rank.dtype, keepdims=True, out=rank)
    hits, real = shaped(tied.reshape(-1), rank.shape), shaped(lower.reshape(-1), rank.shape)
    np.less(rank, k, out=hits)
    np.equal(score, score, out=real)
    np.logical_and(hits, real, out=hits)
    return hits


def _selection_buffers(x: Shaped) -> list[BufferSpec]:
    """Scores to partition; running counts of ties; three masks of the scores; two counts a position."""
    lines, scores = axis_buffer(x, 1, LIMIT)[0], line_buffer(x, 1, LIMIT)[0]
    masks: list[BufferSpec] = [(scores, np.bool_)] * 3
    return [(scores, x.dtype), (scores, np.float64), *masks, (lines, np.float64), (lines, np.float64)]


def _selection_rule(x: Shaped, target: Shaped, values: Shaped, *, k: int) -> int:
    """Scratch of `precision_at_k` and `recall_at_k`."""
    return bytes_for(*sample_buffers(x), *_selection_buffers(x))


@scratch(_selection_rule)
def precision_at_k(x: Array, target: Array, values: Array, *, k: int, scratch: Bytes) -> None:
    """Labels among the k highest scores, divided by k."""

    def precision(hits: Array, labels: Array) -> None:
        np.divide(hits, k, out=hits)

    _mean_of_hits(precision, x, target, values, k, scratch)


@scratch(_selection_rule)
def recall_at_k(x: Array, target: Array, values: Array, *, k: int, scratch: Bytes) -> None:
    """Labels among the k highest scores, divided by the number of labels."""

    def recall(hits: Array, labels: Array) -> None:
        np.maximum(labels, 1, out=labels)  # no labels, no hits: 0 / 1
        np.divide(hits, labels, out=hits)

    _mean_of_hits(recall, x, target, values, k, scratch)


def _mean_of_hits(
    ratio: Callable[[Array, Array], None], x: Array, target: Array, values: Array, k: int, scratch: Bytes
) -> None:
    """values = means over each sample's positions of what `ratio` makes of its first argument, the hits."""
    totals, sums, scores, counts, *rest = carve(scratch, *sample_buffers(x), *_selection_buffers(x))
    totals.fill(0)
    columns = column(totals, x.ndim), column(sums, x.ndim)
    for xb, tb, total, subtotal in pieces(x, target, *columns, whole=(1,), limit=LIMIT):
        chosen, tied, label = (shaped(m, xb.shape) for m in rest[:3])
        hits, labels = (shaped(a, axis_shape(xb.shape, 1)) for a in rest[3:])
        _select_top_k(xb, k, scores, shaped(counts, xb.shape), chosen, tied, label, hits)
        np.greater(tb, 0, out=label)
        np.logical_and(chosen, label, out=chosen)
        for mask, count in ((chosen, hits), (label, labels)):
            np.add.reduce(mask, axis=1, dtype=count.dtype, keepdims=True, out=count)
        ratio(hits, labels)
        add_to_samples(hits, total, subtotal)
    np.divide(totals, positions(x), out=values)


def _select_top_k(
    x: Array, k: int, scores: Array, counts: Array, chosen: Array, tied: Array, early: Array, room: Array
) -> None:
    """chosen = the k highest scores of each position, NaN never; whatever stands behind k is overwritten."""
    classes = np.moveaxis(x, 1, -1)
    negated = shaped(scores, classes.shape)
    np.negative(classes, out=negated)
    np.fmin(negated, np.inf, out=negated)  # NaN goes behind every number
    last = min(k, x.shape[1]) - 1
    negated.partition(last, axis=-1)
    least = np.moveaxis(negated[..., last : last + 1], -1, 1)
    np.negative(least, out=least)
    np.greater(x, least, out=chosen)
    np.add.reduce(chosen, axis=1, dtype=room.dtype, keepdims=True, out=room)
    np.subtract(k, room, out=room)
    np.equal(x, least, out=tied)
    np.add.accumulate(tied, axis=1, dtype=counts.dtype, out=counts)
    np.less_equal(counts, room, out=early)
    np.logical_and(tied, early, out=tied)
    np.logical_or(chosen, tied, out=chosen)
