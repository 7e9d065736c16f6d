"""Attention by tiles of scores: the set's products, and between them one kernel that makes probabilities or slopes.

    scores = q @ k^T                    a tile: some rows of q, all keys, the heads of a sample or the samples of a head
    p, lse = probabilities of scores    y = p @ v
    p, ds = slopes of scores and dp     dp = dy @ v^T;  dv += p^T @ dy;  dk += ds^T @ q;  dq = ds @ k

The probabilities are made again from the log of the sum of each row. Formulas: interface/attention.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from singa_lite.common.array_types import DType
from singa_lite.kernels.composed import ComposedKernel, InnerCall, Temporaries, product
from singa_lite.kernels.cuda_kernels import attention_tile
from singa_lite.kernels.cuda_kernels.routine import CudaKernel, Loader
from singa_lite.kernels.cuda_kernels.source import FLOATS, TYPES, computed
from singa_lite.kernels.kernel_set import DeviceArray, Kernel, KernelSet, Settings, TensorSpecs
from singa_lite.kernels.pieces import required

#: Bytes of a tile of scores at most, unless a row of each of its heads takes more.
TILE_BYTES = 16 << 20


class _Part(NamedTuple):
    """Key heads whose keys are in one batch of matrices. keys: their index in (n, kv_heads); samples: in (n,).

    queries: for each batch of query heads that goes with them, its index in (n, heads), and the number of its first
    probability, counted in rows of scores.
    """

    keys: tuple[Any, ...]
    samples: slice
    queries: list[tuple[tuple[Any, ...], int]]


class _Parts:
    """A call divided into parts: the heads of one sample, or one head of all samples, whichever are fewer.

    A library's batch of matrices has one step only. apart: heads from one matrix of a batch to the next;
    batch: matrices of a batch.
    """

    def __init__(self, q: DeviceArray, k: DeviceArray) -> None:
        (samples, _, heads, _), kv_heads = q.shape, k.shape[2]
        share = heads // kv_heads
        if samples * share <= heads:
            self.apart, self.batch = share, kv_heads
            self.all = [
                _Part((n,), slice(n, n + 1), [((n, slice(i, None, share)), n * heads + i) for i in range(share)])
                for n in range(samples)
            ]
        else:
            self.apart, self.batch, every = heads, samples, slice(None)
            self.all = [
                _Part((every, g), every, [((every, g * share + i), g * share + i) for i in range(share)])
                for g in range(kv_heads)
            ]


class _Tile(NamedTuple):
    """Scores of some rows. heads: index of the batch of query heads in (n, heads); keys: how many, from the first on.

    settings: of the kernels of a tile.
    """

    heads: tuple[Any, ...]
    rows: slice
    keys: int
    settings: Settings


class _TiledCall:
    """What both directions do alike: temporaries, and the tiles of each part. mask, first: None where left out."""

    def __init__(
        self,
        temporaries: Temporaries,
        q: DeviceArray,
        k: DeviceArray,
        mask: DeviceArray,
        first: DeviceArray,
        settings: Settings,
    ) -> None:
        self.parts, self.mask, self.first, self.settings = _Parts(q, k), mask, first, settings
        self.batch, self.rows, self.keys, self.size = self.parts.batch, q.shape[1], k.shape[1], q.shape[3]
        self.dtype, self.wide = q.dtype, computed(q.dtype)
        most = max(TILE_BYTES // (self.batch * self.keys * self.wide.itemsize), 1)
        self.step = -(-self.rows // -(-self.rows // most))
        self.temporaries = temporaries
        self.hidden = None if mask is None else self.matrices(self.keys, self.size, self.dtype)

    def matrices(self, rows: int, columns: int, dtype: DType) -> DeviceArray:
        """A temporary (batch, rows, columns)."""
        return self.temporaries.array((self.batch, rows, columns), dtype)

    def scores(self) -> tuple[DeviceArray, DeviceArray]:
        """A tile of numbers of the computed dtype, and one of the operands', the same where the dtypes are equal."""
        scores = self.matrices(self.step, self.keys, self.wide)
        return scores, scores if self.wide == self.dtype else self.matrices(self.step, self.keys, self.dtype)

    def mask_of(self, part: _Part) -> DeviceArray | None:
        """(1 or batch, keys)."""
        return None if self.mask is None else self.mask[part.samples]

    def first_of(self, part: _Part, tile: _Tile) -> DeviceArray | None:
        """(1 or batch, rows)."""
        return None if self.first is None else self.first[part.samples, tile.rows]

    def visible(self, hide: Kernel, part: _Part, lines: DeviceArray) -> tuple[DeviceArray, list[InnerCall]]:
        """Keys or values of a part, those that the mask hides as 0, and the calls that make them so."""
        if self.hidden is None:
            return lines[part.keys], []
        return self.hidden, [InnerCall(hide, (lines[part.keys], self.mask_of(part), self.hidden))]

    def tiles(self, part: _Part) -> Iterator[_Tile]:
        """Those of a part, of causal attention without the keys that no row sees."""
        numbers = self.rows * self.keys
        steps = {"batch_numbers": self.parts.apart * numbers, "row_numbers": self.keys}
        for heads, before in part.queries:
            for start in range(0, self.rows, self.step):
                stop = min(start + self.step, self.rows)
                keys = min(stop, self.keys) if self.settings["causal"] else self.keys
                number = before * numbers + start * self.keys
                settings = {**self.settings, **steps, "row": start, "number": number}
                yield _Tile(heads, slice(start, stop), keys, settings)


class Attention:
    """The kernels `attention` and `attention_derivative` over the products of a set. loader: compiles the sources."""

    def __init__(self, kernels: KernelSet, loader: Loader) -> None:
        self._probabilities, self._slopes, self._hide = (
            CudaKernel(build, loader)
            for build in (attention_tile.probabilities, attention_tile.slopes, attention_tile.seen_rows)
        )
        self.kernels: dict[str, Kernel] = {
            "attention": ComposedKernel(self._forward, kernels, partial(_has_dtypes, floats=(0, 1, 2, 6))),
            "attention_derivative": ComposedKernel(
                self._backward, kernels, partial(_has_dtypes, floats=(0, 1, 2, 3, 7, 9, 10, 11))
            ),
        }

    def _forward(
        self,
        temporaries: Temporaries,
        q: DeviceArray,
        k: DeviceArray,
        v: DeviceArray,
        mask: DeviceArray,
        first: DeviceArray,
        key: DeviceArray,
        y: DeviceArray,
        lse: DeviceArray,
        **settings: Any,
    ) -> Iterator[InnerCall]:
        call = _TiledCall(temporaries, q, k, mask, first, settings)
        memory = call.scores()
        q, k, v, y = (a.swapaxes(1, 2) for a in (q, k, v, y))
        for part in call.parts.all:
            values, hiding = call.visible(self._hide, part, v)
            yield from hiding
            for tile in call.tiles(part):
                heads, rows, keys, _ = tile
                scores, p = (_first(a, tile) for a in memory)
                yield product(q[heads][:, rows], k[part.keys][:, :keys], scores, transpose_b=True)
                operands = scores, call.mask_of(part), call.first_of(part, tile), key, p, lse[heads][:, rows]
                yield InnerCall(self._probabilities, operands, tile.settings)
                yield product(p, values[:, :keys], y[heads][:, rows])

    def _backward(
        self,
        temporaries: Temporaries,
        dy: DeviceArray,
        q: DeviceArray,
        k: DeviceArray,
        v: DeviceArray,
        mask: DeviceArray,
        first: DeviceArray,
        key: DeviceArray,
        y: DeviceArray,
        lse: DeviceArray,
        dq: DeviceArray,
        dk: DeviceArray,
        dv: DeviceArray,
        **settings: Any,
    ) -> Iterator[InnerCall]:
        call = _TiledCall(temporaries, q, k, mask, first, settings)
        memory = *call.scores(), *call.scores()
        totals = [call.matrices(call.keys, call.size, call.wide) for _ in range(2)]
        dy, q, k, v, y, dq, dk, dv = (a.swapaxes(1, 2) for a in (dy, q, k, v, y, dq, dk, dv))
        for part in call.parts.all:
            seen_keys, hiding = call.visible(self._hide, part, k)
            yield from [*hiding, *(InnerCall("fill", (total,), {"value": 0.0}) for total in totals)]
            for tile in call.tiles(part):
                heads, rows, keys, _ = tile
                scores, p, dp, ds = (_first(a, tile) for a in memory)
                q_rows, dy_rows, y_rows, lse_rows = (a[heads][:, rows] for a in (q, dy, y, lse))
                yield product(q_rows, k[part.keys][:, :keys], scores, transpose_b=True)
                yield product(dy_rows, v[part.keys][:, :keys], dp, transpose_b=True)
                hidden = call.mask_of(part), call.first_of(part, tile), key
                yield InnerCall(self._slopes, (scores, dp, dy_rows, y_rows, *hidden, lse_rows, p, ds), tile.settings)
                for total, left, right in zip(totals, (ds, p), (q_rows, dy_rows), strict=True):
                    yield product(left, right, total[:, :keys], "matmul_add", transpose_a=True)
                yield product(ds, seen_keys[:, :keys], dq[heads][:, rows])
            for total, result in zip(totals, (dk, dv), strict=True):
                yield InnerCall("copy", (total, result[part.keys]))


def _has_dtypes(specs: TensorSpecs, settings: Settings, floats: tuple[int, ...]) -> bool:
    """Whether these tensors are floats of one dtype, and all others of dtypes that the kernels know."""
    named = {required(specs[i]).dtype.name for i in floats}
    return len(named) == 1 and named <= {*FLOATS} and all(spec is None or spec.dtype.name in TYPES for spec in specs)


def _first(memory: DeviceArray, tile: _Tile) -> DeviceArray:
    """The first numbers of a temporary as the matrices of a tile (batch, rows, keys), one behind the other."""
    batch, rows = memory.shape[0], tile.rows.stop - tile.rows.start
    return memory.reshape(-1)[: batch * rows * tile.keys].reshape(batch, rows, tile.keys)
