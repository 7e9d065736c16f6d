"""Attention by tiles: NumPy's products and exponentials over a tile of one key head at a time."""

from __future__ import annotations

from functools import partial

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.numpy_kernels.scratch import Bytes, Shaped, bytes_for, carve, scratch
from singa_lite.kernels.tiled_attention import Backward, BufferSpecs, Call, Drop, Forward, Tiling, tiling

#: Rows and keys of a tile: its scores are 128 KiB in float32, a part of a core's cache.
ROWS, KEYS = 128, 256


class _Arithmetic:
    """`Arithmetic`, by functions of NumPy's."""

    def scores(self, a: Array, b: Array, offsets: Array | None, y: Array) -> Launch:
        """y = a @ b^T + offsets."""
        product = partial(np.matmul, a, b.swapaxes(1, 2), out=y)
        return product if offsets is None else _both(product, partial(np.add, y, offsets, out=y))

    def powers(self, x: Array, rows: Array) -> Launch:
        """x = e**(x - rows)."""
        return _both(partial(np.subtract, x, rows[..., None], out=x), partial(np.exp, x, out=x))

    def score_powers(self, a: Array, b: Array, offsets: Array | None, rows: Array, y: Array) -> Launch:
        """y = e**(a @ b^T + offsets - rows)."""
        return _both(self.scores(a, b, offsets, y), self.powers(y, rows))

    def slopes(self, a: Array, b: Array, rows: Array, p: Array, y: Array) -> Launch:
        """y = p * (a @ b^T - rows)."""
        less = _both(self.scores(a, b, None, y), partial(np.subtract, y, rows[..., None], out=y))
        return _both(less, partial(np.multiply, y, p, out=y))

    def largest(self, x: Array, y: Array) -> Launch:
        """y = the largest of each row of x."""
        return partial(np.maximum.reduce, x, axis=2, out=y)

    def total(self, x: Array, y: Array) -> Launch:
        """y = the sum of each row of x."""
        return partial(np.add.reduce, x, axis=2, out=y)

    def add_product(self, a: Array, b: Array, y: Array, product: Array) -> Launch:
        """y += a @ b."""
        return _both(partial(np.matmul, a, b, out=product), partial(np.add, y, product, out=y))


def _both(first: Launch, second: Launch) -> Launch:
    def run() -> None:
        first()
        second()

    return run


def _tiling(q: Shaped, k: Shaped, causal: bool) -> Tiling:
    return tiling(q, k, causal, together=1, rows=ROWS, keys=KEYS)


def _carve(scratch: Bytes, buffers: BufferSpecs) -> dict[str, Array]:
    return dict(zip(buffers, carve(scratch, *buffers.values()), strict=True))


def _forward_rule(
    q: Shaped,
    k: Shaped,
    v: Shaped,
    mask: Shaped | None,
    key: Shaped | None,
    *_: Shaped,
    causal: bool,
    **settings: float,
) -> int:
    buffers = _tiling(q, k, causal).forward_buffers(mask is not None, key is not None)
    return bytes_for(*buffers.values())


def _backward_rule(
    dy: Shaped,
    q: Shaped,
    k: Shaped,
    v: Shaped,
    mask: Shaped | None,
    key: Shaped | None,
    *_: Shaped,
    causal: bool,
    **settings: float,
) -> int:
    buffers = _tiling(q, k, causal).backward_buffers(mask is not None, key is not None)
    return bytes_for(*buffers.values())


@scratch(_forward_rule)
def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    key: Array | None,
    y: Array,
    lse: Array,
    *,
    causal: bool,
    scale: float,
    p: float = 0.0,
    scratch: Bytes,
) -> None:
    """All tiles, one after the other."""
    drop = None if key is None else Drop(key, p)
    tiles = _tiling(q, k, causal)
    buffers = _carve(scratch, tiles.forward_buffers(mask is not None, key is not None))
    call = Call({"q": q, "k": k, "v": v, "y": y, "lse": lse}, mask, drop, scale, buffers)
    Forward(tiles, call, _Arithmetic())()


@scratch(_backward_rule)
def attention_derivative(
    dy: Array,
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    key: Array | None,
    y: Array,
    lse: Array,
    dq: Array,
    dk: Array,
    dv: Array,
    *,
    causal: bool,
    scale: float,
    p: float = 0.0,
    scratch: Bytes,
) -> None:
    """All tiles, one after the other."""
    drop = None if key is None else Drop(key, p)
    tiles = _tiling(q, k, causal)
    buffers = _carve(scratch, tiles.backward_buffers(mask is not None, key is not None))
    tensors = {"dy": dy, "q": q, "k": k, "v": v, "y": y, "lse": lse, "dq": dq, "dk": dk, "dv": dv}
    Backward(tiles, Call(tensors, mask, drop, scale, buffers), _Arithmetic())()
