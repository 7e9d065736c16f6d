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

    A library's batch of matrices has one step only. apart: heads from one matrix of a batch to the next.
    """

    def __init__(self, q: DeviceArray, k: DeviceArray) -> None:
        samples, self.rows, heads, _ = q.shape
        share = heads // k.shape[2]
        if samples * share <= heads:
            self.apart = share
            self.all = [
                _Part((n,), slice(n, n + 1), [((n, slice(i, None, share)), n * heads + i) for i in range(share)])
                for n in range(samples)
            ]
        else:
            self.apart, every = heads, slice(None)
            self.all = [
                _Part((every, g), every, [((every, g * share + i), g * share + i) for i in range(share)])
                for g in range(k.shape[2])
            ]
        self.batch = k.shape[2] if samples * share <= heads else samples


class _TiledCall:
    """What both directions do alike. kernels of a tile: see `Attention`."""

    def __init__(self, temporaries: Temporaries, q: Any, k: Any, mask: Any, key: Any, settings: Settings) -> None:
        self.parts, self.key, self.settings = _Parts(q, k), key, settings
        self.batch, self.rows, self.keys, self.size = self.parts.batch, q.shape[1], k.shape[1], q.shape[3]
        self.dtype, self.wide = q.dtype, computed(q.dtype)
        most = max(TILE_BYTES // (self.batch * self.keys * self.wide.itemsize), 1)
        self.step = -(-self.rows // -(-self.rows // most))
        self.temporaries = temporaries
        self.hidden = None if mask is None else self.matrices(self.keys, self.size, self.dtype)

    def matrices(self, rows: int, columns: int, dtype: DType) -> DeviceArray:
        """A temporary (batch, rows, columns)."""
        return self.temporaries.array((self.batch, rows, columns), dtype)

    def tile(self) -> tuple[DeviceArray, DeviceArray]:
        """A tile of numbers of the computed dtype, and one of the operands', the same where the dtypes are equal."""
        scores = self.matrices(self.step, self.keys, self.wide)
        return scores, scores if self.wide == self.dtype else self.matrices(self.step, self.keys, self.dtype)

    def visible(self, hide: Kernel, rows: DeviceArray, mask: DeviceArray) -> tuple[DeviceArray, list[InnerCall]]:
        """Keys or values, those that the mask hides as 0, and the calls that make them so."""
        if self.hidden is None:
            return rows, []
        return self.hidden, [InnerCall(hide, (rows, mask, self.hidden))]

    def blocks(self) -> Iterator[tuple[slice, int]]:
        """Rows of each tile, and how many keys it has."""
        for start in range(0, self.rows, self.step):
            stop = min(start + self.step, self.rows)
            yield slice(start, stop), min(stop, self.keys) if self.settings["causal"] else self.keys

    def settings_of(self, rows: slice, heads: int) -> Settings:
        """Settings of a tile's kernel. heads: before the first one of the batch, in rows of scores."""
        numbers = self.rows * self.keys
        return {
            **self.settings,
            "row": rows.start,
            "number": heads * numbers + rows.start * self.keys,
            "batch_numbers": self.parts.apart * numbers,
            "row_numbers": self.keys,
        }


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
        q: Any,
        k: Any,
        v: Any,
        mask: Any,
        first: Any,
        key: Any,
        y: Any,
        lse: Any,
        **settings: Any,
    ) -> Iterator[InnerCall]:
        call = _TiledCall(temporaries, q, k, mask, key, settings)
        scores, shares = call.tile()
        q, k, v, y = (a.swapaxes(1, 2) for a in (q, k, v, y))
        for part in call.parts.all:
            seen = None if mask is None else mask[part.samples]
            values, hiding = call.visible(self._hide, v[part.keys], seen)
            yield from hiding
            for heads, before in part.queries:
                for rows, keys in call.blocks():
                    s, p = (_first(a, rows, keys) for a in (scores, shares))
                    yield product(q[heads][:, rows], k[part.keys][:, :keys], s, transpose_b=True)
                    begins = None if first is None else first[part.samples, rows]
                    operands = s, seen, begins, key, p, lse[heads][:, rows]
                    yield InnerCall(self._probabilities, operands, call.settings_of(rows, before))
                    yield product(p, values[:, :keys], y[heads][:, rows])

    def _backward(
        self,
        temporaries: Temporaries,
        dy: Any,
        q: Any,
        k: Any,
        v: Any,
        mask: Any,
        first: Any,
        key: Any,
        y: Any,
        lse: Any,
        dq: Any,
        dk: Any,
        dv: Any,
        **settings: Any,
    ) -> Iterator[InnerCall]:
        call = _TiledCall(temporaries, q, k, mask, key, settings)
        (scores, shares), (dp, slopes) = call.tile(), call.tile()
        totals = [call.matrices(call.keys, call.size, call.wide) for _ in range(2)]
        dy, q, k, v, y, dq, dk, dv = (a.swapaxes(1, 2) for a in (dy, q, k, v, y, dq, dk, dv))
        for part in call.parts.all:
            seen = None if mask is None else mask[part.samples]
            seen_keys, hiding = call.visible(self._hide, k[part.keys], seen)
            yield from [*hiding, *(InnerCall("fill", (total,), {"value": 0.0}) for total in totals)]
            for heads, before in part.queries:
                for rows, keys in call.blocks():
                    s, p, t, ds = (_first(a, rows, keys) for a in (scores, shares, dp, slopes))
                    q_rows, dy_rows = q[heads][:, rows], dy[heads][:, rows]
                    yield product(q_rows, k[part.keys][:, :keys], s, transpose_b=True)
                    yield product(dy_rows, v[part.keys][:, :keys], t, transpose_b=True)
                    begins = None if first is None else first[part.samples, rows]
                    operands = s, t, dy_rows, y[heads][:, rows], seen, begins, key, lse[heads][:, rows], p, ds
                    yield InnerCall(self._slopes, operands, call.settings_of(rows, before))
                    for total, left, right in zip(totals, (ds, p), (q_rows, dy_rows), strict=True):
                        yield product(left, right, total[:, :keys], "matmul_add", transpose_a=True)
                    yield product(ds, seen_keys[:, :keys], dq[heads][:, rows])
            for total, result in zip(totals, (dk, dv), strict=True):
                yield InnerCall("copy", (total, result[part.keys]))


def _has_dtypes(specs: TensorSpecs, settings: Settings, floats: tuple[int, ...]) -> bool:
    """Whether these tensors are floats of one dtype, and all others of dtypes that the kernels know."""
    named = {required(specs[i]).dtype.name for i in floats}
    return len(named) == 1 and named <= {*FLOATS} and all(spec is None or spec.dtype.name in TYPES for spec in specs)


def _first(tile: DeviceArray, rows: slice, keys: int) -> DeviceArray:
    """The first numbers of each matrix of a tile as (batch, rows, keys), one behind the other."""
    batch, count = tile.shape[0], rows.stop - rows.start
    return tile.reshape(-1)[: batch * count * keys].reshape(batch, count, keys)
