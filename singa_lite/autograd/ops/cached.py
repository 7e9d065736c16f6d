"""Operations of a text that goes on position by position, over what is kept of it. They are not on the tape."""

from __future__ import annotations

from math import sqrt

from singa_lite.device import device_of
from singa_lite.tensor import Tensor


def rows_at(x: Tensor, position: Tensor, count: int) -> Tensor:
    """x[:, position : position + count]. x: (n, length, ...); position: int64 (1,)."""
    y = device_of(x).empty((x.shape[0], count, *x.shape[2:]), x.dtype)
    device_of(x).run("read_at", x, position, y)
    return y


def write_rows(x: Tensor, position: Tensor, kept: Tensor) -> None:
    """kept[:, position : position + m] = x. x: (n, m, ...); kept: (n, length, ...); position: int64 (1,)."""
    device_of(x).run("write_at", x, position, kept)


def cached_attention(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, position: Tensor) -> Tensor:
    """Causal `attention` of the m positions behind `position` others, over keys and values that are kept of all.

    q: (n, m, heads, size); keys, values: (n, length, kv_heads, size); mask: (n, length); position: int64 (1,). Result
    (n, m, heads, size).
    """
    y = device_of(q).empty(q.shape, q.dtype)
    device_of(q).run("cached_attention", q, keys, values, mask, position, y, scale=1 / sqrt(q.shape[3]))
    return y
