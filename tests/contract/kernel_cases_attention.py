"""Cases of the kernels of attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernel_case import Case, Tensors, garbage

#: (n, t, s, heads, kv_heads, size), small and big; lengths that are no multiples of a tile's, and one tile and a bit.
SIZES = (2, 5, 7, 2, 2, 3), (3, 331, 277, 4, 4, 131)
GROUPED = (2, 7, 5, 4, 2, 3), (2, 277, 331, 6, 2, 157)
KEY = np.array([17, 4, 2], np.uint64)


def attention(
    mask: bool = False,
    causal: bool = False,
    sizes: tuple[tuple[int, ...], ...] = SIZES,
    p: float | None = None,
    backward: bool = False,
    first: str = "",
) -> Case:
    """The tensors of `attention`, or of its derivative with an lse that fits q and k. first: dtype of first keys."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> tuple[Tensors, dict[str, Any]]:
        n, t, s, heads, kv_heads, size = sizes[big]
        q, k, v = (rng.standard_normal(shape) for shape in ((n, t, heads, size), *[(n, s, kv_heads, size)] * 2))
        seen = (rng.random((n, s)) < 0.7).astype(dtype) if mask else None
        begins = rng.integers(-2, t, (n, t)).astype(first) if first else None
        scale = 0.7 / np.sqrt(size)
        y, lse = reference(q, k, v, seen, causal, scale, begins)
        y, lse, q, k, v = (a.astype(dtype) for a in (y, lse, q, k, v))
        key = None if p is None else KEY.copy()
        settings = {"causal": causal, "scale": scale, **({} if p is None else {"p": p})}
        if not backward:
            return [q, k, v, seen, begins, key, garbage(q.shape, dtype), garbage(lse.shape, dtype)], settings
        dy = rng.standard_normal(q.shape).astype(dtype)
        results = [garbage(a.shape, dtype) for a in (q, k, v)]
        return [dy, q, k, v, seen, begins, key, y, lse, *results], settings

    return Case(build)


def reference(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: np.ndarray | None,
    causal: bool,
    scale: float,
    first: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """y and lse by the formula as it stands, with all scores at once; 0 of rows that see no key."""
    k, v = (np.repeat(a, q.shape[2] // k.shape[2], axis=2) for a in (k, v))
    scores = scale * np.einsum("nthd,nshd->nhts", q, k)
    hidden = np.zeros(scores.shape, bool)
    if mask is not None:
        hidden |= (mask == 0)[:, None, None]
    if causal:
        hidden |= np.arange(k.shape[1]) > np.arange(q.shape[1])[:, None]
    if first is not None:
        hidden |= (np.arange(k.shape[1]) < first[..., None])[:, None]
    powers = np.where(hidden, 0, np.exp(scores))
    total = powers.sum(-1, keepdims=True)
    seen = total > 0
    p = np.divide(powers, total, out=np.zeros_like(powers), where=seen)
    lse = np.log(total, out=np.zeros_like(total), where=seen)[..., 0]
    return np.einsum("nhts,nshd->nthd", p, v), lse


#: (n, m, length, position, heads, kv_heads, size), small and big.
CACHED = {
    "": ((3, 1, 7, 4, 2, 2, 5), (2, 1, 2311, 2101, 12, 6, 41)),
    ":tiles": ((1, 2, 300, 259, 4, 2, 131),) * 2,
    ":rows": ((2, 3, 7, 4, 6, 2, 3), (3, 41, 907, 613, 6, 3, 67)),
}


def cached(label: str, mask: bool = False, first: str = "") -> Case:
    """The tensors of `cached_attention`."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> tuple[Tensors, dict[str, Any]]:
        n, m, length, position, heads, kv_heads, size = CACHED[label][big]
        q = rng.standard_normal((n, m, heads, size)).astype(dtype)
        keys, values = (rng.standard_normal((n, length, kv_heads, size)).astype(dtype) for _ in range(2))
        seen = (rng.random((n, length)) < 0.7).astype(dtype) if mask else None
        settings = {"scale": 0.7 / np.sqrt(size)}
        begins = rng.integers(-2, position + m, (n, m)).astype(first) if first else None
        return [q, keys, values, seen, begins, np.array([position]), garbage(q.shape, dtype)], settings

    return Case(build)


CASES: dict[str, Case] = {
    "cached_attention": cached(""),
    "cached_attention:mask": cached("", mask=True),
    "cached_attention:rows": cached(":rows"),
    "cached_attention:rows and a mask": cached(":rows", mask=True),
    "cached_attention:first keys": cached("", first="int64"),
    "cached_attention:rows, a mask and first keys": cached(":rows", mask=True, first="int32"),
    "attention": attention(),
    "attention:mask": attention(mask=True),
    "attention:causal": attention(causal=True, sizes=GROUPED),
    "attention:both": attention(mask=True, causal=True, sizes=GROUPED),
    "attention:first keys": attention(causal=True, sizes=GROUPED, first="int32"),
    "attention:first keys and all else": attention(mask=True, causal=True, p=0.3, first="int64"),
    "attention_derivative:first keys": attention(causal=True, sizes=GROUPED, backward=True, first="int64"),
    "attention_derivative:first keys and all else": attention(
        mask=True, causal=True, p=0.3, backward=True, first="int32"
    ),
    "attention_derivative": attention(backward=True),
    "attention_derivative:mask": attention(mask=True, backward=True),
    "attention_derivative:causal": attention(causal=True, sizes=GROUPED, backward=True),
    "attention_derivative:both": attention(mask=True, causal=True, sizes=GROUPED, backward=True),
    "attention:dropout": attention(p=0.3),
    "attention:dropout and all else": attention(mask=True, causal=True, sizes=GROUPED, p=0.6),
    "attention_derivative:dropout": attention(p=0.3, backward=True),
    "attention_derivative:dropout and all else": attention(mask=True, causal=True, sizes=GROUPED, p=0.6, backward=True),
}

#: One head of all samples at a time, as there are fewer heads; rows of more keys than a block has threads for.
_SAMPLES, _KEYS = ((5, 4, 9, 2, 1, 3),) * 2, ((1, 3, 2051, 2, 2, 5),) * 2
#: Sizes about those of a GPU's units.
FURTHER: dict[str, Case] = {
    "attention:samples": attention(mask=True, causal=True, p=0.3, first="int64", sizes=_SAMPLES),
    "attention:keys": attention(mask=True, p=0.3, sizes=_KEYS),
    "attention_derivative:samples": attention(
        mask=True, causal=True, p=0.3, first="int64", sizes=_SAMPLES, backward=True
    ),
    "attention_derivative:keys": attention(p=0.3, sizes=_KEYS, backward=True),
    "cached_attention:tiles": cached(":tiles", mask=True, first="int32"),
}
