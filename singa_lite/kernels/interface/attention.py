"""Scaled dot-product attention by tiles (Dao and others, "FlashAttention", arXiv 2205.14135): no square is kept.

Scratch is a constant number of tiles and what is linear in the lengths. Scores have each as many numbers as rows and
keys together, and exist for one tile of rows and keys at a time, in both directions.
"""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Write, kernel

# q, y, dy, dq: (n, t, heads, size); k, v, dk, dv: (n, s, kv_heads, size), kv_heads divides heads, and query head i goes
# with key head i // (heads / kv_heads). mask: (n, s), any real dtype; a key is seen where it is not 0, by all rows.
# first: (n, t) of int32 or int64, with causal alone: row i sees keys first[i] to i.
# causal: row i sees keys 0 to i, counted from the first of both, also where t and s differ. lse: (n, heads, t).
# key: each of the probabilities (n, heads, t, s) is dropped as `dropout` would by this key and the share p; which are
# dropped hangs on the key alone, not on tiles. Without a key p is 0.
# NaN in a row of q makes NaN of that row of y, NaN in a key or value of all rows that see it, and perhaps of others
# from which causal or `first` hide it alone, as 0 times NaN is. Keys and values that the mask hides are not read,
# whatever is there (but by `cached_attention`). Scores are taken to be finite and far below 1e29.


@kernel(Facts(multiplies="scores", by_samples=("q", "k", "v", "mask", "first", "y", "lse"), joins_samples="key"), y="q")
def attention(
    q: Read,
    k: Read,
    v: Read,
    mask: Read | None,
    first: Read | None,
    key: Read | None,
    y: Write,
    lse: Write,
    *,
    causal: bool,
    scale: float,
    p: float = 0.0,
) -> None:
    """y = dropped(P) @ v, P = softmax(scale * q @ k^T) over the keys that a row sees; lse = log of the sum of e**score.

    A row that sees no key has y = 0 and lse = 0, and passes no derivative on.
    """


@kernel(
    Facts(
        multiplies="scores",
        by_samples=("dy", "q", "k", "v", "mask", "first", "y", "lse", "dq", "dk", "dv"),
        joins_samples="key",
    ),
    dq="q dy y",
    dk="k",
    dv="v",
)
def attention_derivative(
    dy: Read,
    q: Read,
    k: Read,
    v: Read,
    mask: Read | None,
    first: Read | None,
    key: Read | None,
    y: Read,
    lse: Read,
    dq: Write,
    dk: Write,
    dv: Write,
    *,
    causal: bool,
    scale: float,
    p: float = 0.0,
) -> None:
    """dq, dk and dv, from P = e**(scale * q @ k^T - lse), made again tile by tile; the same of it are dropped again.

    dS = P * (dropped(dy @ v^T) - sum of dy * y); dq = scale * dS @ k; dk = scale * dS^T @ q; dv = dropped(P)^T @ dy.
    """


@kernel(Facts(multiplies="scores", by_samples=("q", "keys", "values", "mask", "first", "y")), y="q")
def cached_attention(
    q: Read,
    keys: Read,
    values: Read,
    mask: Read | None,
    first: Read | None,
    position: Read,
    y: Write,
    *,
    scale: float,
) -> None:
    """`attention` of m rows that stand behind `position` others: row i sees keys 0 to position + i, and y is as there.

    q, y: (n, m, heads, size); keys, values: (n, length, kv_heads, size), their first position + m already there, the
    others not read; mask: (n, length); first: (n, m), counted from the first key; position: int64 (1,), with m at most
    length: an IndexError where a kernel can raise one.
    """
