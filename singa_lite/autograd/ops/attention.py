"""Scaled dot-product attention, by tiles: neither scores nor probabilities exist whole, forward or backward.

Beside it rotary positions, and operations of a text that goes on position by position, over what is kept of it. The
latter are not on the tape.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from singa_lite.autograd.ops.noise import drawn_key
from singa_lite.autograd.ops.op import LinearOp, Op, checked_tensor
from singa_lite.common.checks import axis_of, finite_above_zero, flag, fraction, is_bfloat16
from singa_lite.common.errors import ShapeError
from singa_lite.device import device_of
from singa_lite.tensor import Tensor


class Attention(Op):
    """y = dropped(softmax(scale * q @ k^T)) @ v, head by head. state: of the random numbers, None where p is 0."""

    optional = (3, 4)

    def __init__(self, causal: bool, scale: float, p: float, state: Tensor | None) -> None:
        self.settings: dict[str, object] = {"causal": causal, "scale": scale}
        self.state = state
        if state is not None:
            self.settings["p"] = p

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, first: Tensor | None) -> Tensor:
        _check(q, k, v, mask)
        first = None if first is None else _rows_of_all(first, q.shape[0], q.shape[1], bool(self.settings["causal"]))
        key = None if self.state is None else drawn_key("attention", self.state)
        y = self.device.empty(q.shape, q.dtype)
        lse = self.device.empty((q.shape[0], q.shape[2], q.shape[1]), q.dtype)
        self.device.run("attention", q, k, v, mask, first, key, y, lse, **self.settings)
        self.save(q, k, v, y, lse, mask, first, key)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        """One call gives all three derivatives; there is none by the mask and the first keys."""
        if index >= 3:
            return super().backward(index, *dys)
        q, k, v, y, lse = map(self.kept, range(5))
        mask, first, key = self.saved[5:]
        made = [self.device.empty(t.shape, t.dtype) for t in (q, k, v)]
        self.device.run("attention_derivative", dys[0], q, k, v, mask, first, key, y, lse, *made, **self.settings)
        self.made = {other: made[other] for other in range(3) if other != index and self.needs[other]}
        return made[index]


def _check(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
    if any(t.ndim != 4 for t in (q, k, v)):
        raise ShapeError(
            f"attention: wanted q, k and v of four axes, (n, time, heads, size), received {q.shape}, {k.shape} and "
            f"{v.shape}"
        )
    if k.shape != v.shape:
        raise ShapeError(f"attention: wanted k and v of one shape, received {k.shape} and {v.shape}")
    if 0 in q.shape or 0 in k.shape:
        raise ShapeError(f"attention: wanted extents of at least 1, received q {q.shape} and k {k.shape}")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ShapeError(
            f"attention: wanted q and k of one batch and one size of a head, received q {q.shape} and k {k.shape}"
        )
    if q.shape[2] % k.shape[2]:
        raise ShapeError(f"attention: wanted heads of k that divide the {q.shape[2]} of q, received {k.shape[2]}")
    if mask is not None and mask.shape != k.shape[:2]:
        raise ShapeError(
            f"attention: wanted a mask (n, time) of k's, {k.shape[:2]}, 1 where a key is seen, received {mask.shape}"
        )
    if q.dtype.kind != "f" and not is_bfloat16(q.dtype):
        raise TypeError(f"attention: wanted tensors of floats, received {q.dtype}")
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(f"attention: wanted q, k and v of one dtype, received {q.dtype}, {k.dtype} and {v.dtype}")
    if mask is not None and mask.dtype.kind not in "fiub" and not is_bfloat16(mask.dtype):
        raise TypeError(f"attention: wanted a mask of real numbers, received {mask.dtype}")


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    first: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    state: Tensor | None = None,
) -> Tensor:
    """Returns softmax(scale * q @ k^T) @ v for each head (Vaswani and others, arXiv 1706.03762), computed by tiles
    (arXiv 2205.14135).

    q: (n, t, heads, size); k, v: (n, s, kv_heads, size), kv_heads divides heads: query head i goes with key head
    i // (heads / kv_heads), grouped queries (arXiv 2305.13245). Result (n, t, heads, size), of q's dtype.
    mask: (n, s), any real dtype; a key is seen where it is not 0. causal: row i sees the keys 0 to i, counted from the
    first, also where t and s differ (PyTorch's is_causal). A row that sees no key gives 0 and passes nothing back.
    first: (n or 1, t) of int32 or int64, with causal alone: row i sees keys first[i] to i, as within a window, or from
    where its text begins in a row of several. scale: 1 / sqrt(size) where None. dropout: the share of probabilities
    that are set to 0, the others divided by 1 - dropout; state, which it takes: uint64 (3,), (seed, stream, counter),
    whose counter goes up by one at each call.
    ShapeError or TypeError for tensors that do not fit, ValueError for other settings.

    >>> q, k = tensor.ones((2, 5, 4, 8)), tensor.ones((2, 7, 2, 8))  # 5 queries, 7 keys, 4 heads over 2
    >>> autograd.attention(q, k, k, causal=True).shape
    (2, 5, 4, 8)
    """
    causal = flag("attention causal", causal)
    p = fraction("attention dropout", dropout)
    size = (checked_tensor("attention", q).shape or (1,))[-1] or 1  # one without size is refused later
    factor = finite_above_zero("attention scale", 1 / sqrt(size) if scale is None else scale)
    if p and (not isinstance(state, Tensor) or state.shape != (3,) or state.dtype != np.uint64):
        raise ShapeError(f"attention: wanted state uint64 (3,) with dropout {p:g}, received {state!r:.100}")
    if not p and state is not None:
        raise ValueError("attention: wanted state with dropout above 0 only, received it with dropout 0")
    return Attention(causal, factor, p, state)(q, k, v, mask, first)


def _rows_of_all(first: Tensor, n: int, rows: int, causal: bool) -> Tensor:
    """The first keys of the rows of all samples, (n, rows): a view."""
    if not causal:
        raise ValueError("attention: wanted first keys with causal=True only, received them without")
    if first.dtype.name not in ("int32", "int64"):
        raise TypeError(f"attention: wanted first keys of int32 or int64, received {first.dtype}")
    if first.shape not in ((n, rows), (1, rows)):
        raise ShapeError(f"attention: wanted first keys of shape {(n, rows)} or {(1, rows)}, received {first.shape}")
    return first if first.shape[0] == n else first.view((n, rows), (0, first.strides[1]))


def rows_at(x: Tensor, position: Tensor, count: int) -> Tensor:
    """x[:, position : position + count]. x: (n, length, ...); position: int64 (1,)."""
    y = device_of(x).empty((x.shape[0], count, *x.shape[2:]), x.dtype)
    device_of(x).run("read_at", x, position, y)
    return y


def write_rows(x: Tensor, position: Tensor, kept: Tensor) -> None:
    """kept[:, position : position + m] = x. x: (n, m, ...); kept: (n, length, ...); position: int64 (1,)."""
    device_of(x).run("write_at", x, position, kept)


def cached_attention(
    q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, first: Tensor | None, position: Tensor
) -> Tensor:
    """Causal `attention` of the m positions behind `position` others, over keys and values that are kept of all.

    q: (n, m, heads, size); keys, values: (n, length, kv_heads, size); mask: (n, length); first: (n or 1, m); position:
    int64 (1,). Result (n, m, heads, size).
    """
    first = None if first is None else _rows_of_all(first, q.shape[0], q.shape[1], True)
    y = device_of(q).empty(q.shape, q.dtype)
    device_of(q).run("cached_attention", q, keys, values, mask, first, position, y, scale=1 / sqrt(q.shape[3]))
    return y


def rotary(x: Tensor, table: Tensor, axis: int = -2) -> Tensor:
    """Returns x with its pairs (x[..., i], x[..., i + size / 2]) turned by the angles of their position (Su and others,
    arXiv 2104.09864).

    x: (n, ..., size), size even; axis: that of time, neither the first nor the last; table: of
    `positions.rotary_table`, (2, x.shape[axis], size / 2) in x's dtype, which has no derivative; a view of later rows
    of it gives later positions.

    >>> x = tensor.ones((2, 3, 4))  # 2 texts of 3 positions, 4 features
    >>> table = tensor.from_numpy(np.stack([np.zeros((3, 2)), np.ones((3, 2))]).astype("float32"))
    >>> print(autograd.rotary(x, table)[0, 0])
    [-1. -1.  1.  1.]
    """
    shape, angles = checked_tensor("rotary", x).shape, checked_tensor("rotary", table)
    along = axis_of("rotary", axis, shape)
    if not 0 < along < len(shape) - 1:
        raise ShapeError(
            f"rotary: wanted an axis of time between the first and the last of x {shape}, received {along}"
        )
    wanted = 2, shape[along], shape[-1] // 2
    if shape[-1] % 2 or angles.shape != wanted:
        raise ShapeError(
            f"rotary: wanted x with an even last axis and a table {wanted}, received x {shape} and {angles.shape}"
        )
    if angles.dtype != x.dtype:
        raise TypeError(f"rotary: wanted a table of x's dtype {x.dtype}, received {angles.dtype}")
    return LinearOp("rotary", {"inverse": True}, axis=along, inverse=False)(x, angles)
