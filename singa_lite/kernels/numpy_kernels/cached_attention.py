"""Attention of the last few positions of a text over the keys and values that are kept of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.ids import checked_span
from singa_lite.kernels.numpy_kernels.attention_tiles import HIDDEN, count_up, cut
from singa_lite.kernels.numpy_kernels.scratch import BufferSpec, Bytes, Shaped, bytes_for, carve, scratch

#: Scores that are there at a time, unless one key head of one sample has more: 1 MiB of float32.
SCORES = 1 << 18


@dataclass(frozen=True)
class _Grid:
    """Extents of an attention. rows: of a key head, those of all query heads that go with it. samples, groups: how many
    samples and key heads are done at a time.
    """

    share: int
    rows: int
    size: int
    length: int
    samples: int
    groups: int

    @property
    def heads(self) -> int:
        """Pairs of a sample and a key head that are done at a time."""
        return self.samples * self.groups


def _grid(q: Shaped, keys: Shaped) -> _Grid:
    n, m, heads, size = q.shape
    length, kv_heads = keys.shape[1], keys.shape[2]
    share = heads // kv_heads
    fitting = max(1, SCORES // (share * m * length))
    return _Grid(share, share * m, size, length, min(n, max(1, fitting // kv_heads)), min(kv_heads, fitting))


def _extents(grid: _Grid, m: int, mask: object) -> tuple[int, ...]:
    """Returns element counts of the temporaries: query rows, scores, each row's largest and sum, the causal mask and
    the mask's addend.
    """
    rows = grid.heads * grid.rows
    masked = 0 if mask is None else grid.samples * grid.length
    return rows * grid.size, rows * grid.length, rows, rows, m * m if m > 1 else 0, masked


def _buffers(q: Shaped, keys: Shaped, mask: Shaped | None, first: Shaped | None) -> list[BufferSpec]:
    """All numbers, one behind the other, as cutting is quicker than carving; and which rows and keys see nothing.

    With `first` also places of keys and first keys.
    """
    grid, m = _grid(q, keys), q.shape[1]
    extents = _extents(grid, m, mask)
    flags = max(extents[2], extents[5], 0 if first is None else grid.samples * m * grid.length)
    places = [] if first is None else [((grid.length + grid.samples * m,), np.dtype(np.int64))]
    return [((sum(extents),), np.result_type(q.dtype, np.float32)), ((flags,), np.bool_), *places]


@scratch(lambda q, keys, values, mask, first, position, y, **_: bytes_for(*_buffers(q, keys, mask, first)))
def cached_attention(
    q: Array,
    keys: Array,
    values: Array,
    mask: Array | None,
    first: Array | None,
    position: Array,
    y: Array,
    *,
    scale: float,
    scratch: Bytes,
) -> None:
    """All keys at once for some samples and key heads at a time."""
    grid, m = _grid(q, keys), q.shape[1]
    span = checked_span(position, m, grid.length)
    numbers, flags, *places = carve(scratch, *_buffers(q, keys, mask, first))
    query, scores, top, total, band, offsets = _consecutive(numbers, _extents(grid, m, mask))
    later = _later(cut(band, m, m)) if m > 1 else None
    with np.errstate(all="ignore"):
        for samples, groups in _parts(grid, q.shape[0], keys.shape[2]):
            k, v = (t[samples, : span.stop, groups] for t in (keys, values))
            several = k.shape[0], k.shape[2]
            rows = cut(query, *several, grid.rows, grid.size)
            by_head = rows.reshape(*several, grid.share, m, grid.size)
            np.multiply(_by_head(q, samples, groups, grid.share), scale, out=by_head)
            table = cut(scores, *several, grid.rows, span.stop)
            np.matmul(rows, k.transpose(0, 2, 3, 1), out=table)
            if later is not None:
                last = table.reshape(*several, grid.share, m, span.stop)[..., span.start :]
                np.add(last, later, out=last)
            if mask is not None:
                np.add(table, _of_mask(mask[samples, : span.stop], flags, offsets), out=table)
            if first is not None:
                by_row = table.reshape(*several, grid.share, m, span.stop)
                _hide_earlier(by_row, first[samples], flags, places[0], grid.length)
            _exponentials(table, *(cut(buffer, *table.shape[:3]) for buffer in (top, total, flags)))
            np.matmul(table, v.transpose(0, 2, 1, 3), out=rows)
            sums = cut(total, *several, grid.share, m, 1)
            np.divide(by_head, sums, out=_by_head(y, samples, groups, grid.share), casting="same_kind")


def _consecutive(numbers: Array, extents: Sequence[int]) -> Iterator[Array]:
    """Of so many numbers each, one behind the other."""
    at = 0
    for extent in extents:
        yield numbers[at : at + extent]
        at += extent


def _parts(grid: _Grid, n: int, kv_heads: int) -> Iterator[tuple[slice, slice]]:
    """Samples and key heads that are done at a time."""
    for sample in range(0, n, grid.samples):
        for group in range(0, kv_heads, grid.groups):
            yield slice(sample, min(sample + grid.samples, n)), slice(group, min(group + grid.groups, kv_heads))


def _by_head(tensor: Array, samples: slice, groups: slice, share: int) -> Array:
    """Of q or y, as (samples, key heads, share, m, size)."""
    n, m, heads, size = tensor.shape
    return tensor.reshape(n, m, heads // share, share, size)[samples, :, groups].transpose(0, 2, 3, 1, 4)


def _later(band: Array) -> Array:
    """The band (m, m) filled with what hides the keys of later rows from row i."""
    band.fill(0)
    for row, line in enumerate(band):
        line[row + 1 :] = HIDDEN
    return band


def _of_mask(mask: Array, hidden: Array, offsets: Array) -> Array:
    """(samples, 1, 1, keys): what the mask adds to the scores."""
    flags, added = cut(hidden, *mask.shape), cut(offsets, *mask.shape)
    np.equal(mask, 0, out=flags)
    added.fill(0)
    np.copyto(added, HIDDEN, where=flags)
    return added[:, None, None]


def _hide_earlier(scores: Array, first: Array, flags: Array, numbers: Array, length: int) -> None:
    """Hides keys that come before the first one that a row sees. scores: (samples, key heads, share, m, keys)."""
    samples, _, _, m, keys = scores.shape
    places, firsts = numbers[:keys], cut(numbers[length:], samples, m)
    count_up(places)
    np.copyto(firsts, first)
    earlier = cut(flags, samples, m, keys)
    np.less(places, firsts[..., None], out=earlier)
    np.copyto(scores, HIDDEN, where=earlier[:, None, None])


def _exponentials(scores: Array, top: Array, total: Array, dead: Array) -> None:
    """scores = e**(score - the row's largest), total = their sum; infinity of rows that see no key."""
    np.maximum.reduce(scores, axis=3, out=top)
    np.less(top, HIDDEN / 2, out=dead)
    np.subtract(scores, top[..., None], out=scores)
    np.exp(scores, out=scores)
    np.add.reduce(scores, axis=3, out=total)
    np.copyto(total, np.inf, where=dead)
