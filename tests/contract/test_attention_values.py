"""Attention in every kernel set: the formula with all scores at once, in float64, against its tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from every_set import ON_CPU, every_set
from kernel_case import garbage, run
from kernel_cases_attention import reference
from singa_lite.kernels.kernel_set import KernelSet

KEY = np.array([3, 5, 2**64 - 1], np.uint64)
#: (n, t, s, heads, kv_heads, size): more than a tile of rows and of keys, and a rest.
LONG = 1, 300, 1100, 2, 1, 3


def fitted(kernels: KernelSet, *lengths: int) -> list[int]:
    """Lengths as they are; an eighth for a GPU's kernels, whose threads take turns on the host."""
    return [length // 8 if kernels.name.startswith("cuda") else length for length in lengths]


def inputs(n: int, t: int, s: int, heads: int, kv_heads: int, size: int) -> list[np.ndarray]:
    """q, k, v in float64, of numbers that float32 has."""
    rng = np.random.default_rng(1)
    shapes = (n, t, heads, size), (n, s, kv_heads, size), (n, s, kv_heads, size)
    return [rng.standard_normal(shape).astype("f").astype("d") for shape in shapes]


def mask(n: int, s: int) -> np.ndarray:
    """Some keys hidden, and a whole tile of the first ones."""
    seen = np.random.default_rng(2).random((n, s)) < 0.6
    seen[:, : min(600, s // 2)] = False
    return seen


def forward(
    kernels: KernelSet, given: list[np.ndarray], seen: Any, causal: bool, scale: float, first: Any = None
) -> list[np.ndarray]:
    """y and lse in float32."""
    q, k, v = (a.astype("f") for a in given)
    y, lse = garbage(q.shape, "f"), garbage((q.shape[0], q.shape[2], q.shape[1]), "f")
    run(kernels, "attention", [q, k, v, seen, first, None, y, lse], {"causal": causal, "scale": scale})
    return [y, lse]


def backward(
    kernels: KernelSet,
    given: list[np.ndarray],
    seen: Any,
    *others: Any,
    causal: bool,
    scale: float,
    first: Any = None,
) -> list[np.ndarray]:
    """dq, dk and dv in float32. others: y, lse."""
    dy, q, k, v = (a.astype("f") for a in given)
    results = [garbage(a.shape, "f") for a in (q, k, v)]
    run(
        kernels,
        "attention_derivative",
        [dy, q, k, v, seen, first, None, *others, *results],
        {"causal": causal, "scale": scale},
    )
    return results


def derivatives(
    dy: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    seen: Any,
    causal: bool,
    scale: float,
    first: Any = None,
) -> list[np.ndarray]:
    """dq, dk, dv by the formula as it stands."""
    n, s, kv_heads, size = k.shape
    share = q.shape[2] // kv_heads
    unit = np.broadcast_to(np.eye(s)[None, :, None], (n, s, kv_heads, s))
    padded = [np.concatenate([a, np.zeros((*a.shape[:3], s - size))], -1) for a in (q, k)]
    p = reference(*padded, unit, seen, causal, scale, first)[0].transpose(0, 2, 1, 3)  # (n, heads, t, s)
    wide = [np.repeat(a, share, axis=2) for a in (k, v)]
    dp = np.einsum("nthd,nshd->nhts", dy, wide[1])
    ds = scale * p * (dp - (dp * p).sum(-1, keepdims=True))
    dk, dv = np.einsum("nhts,nthd->nshd", ds, q), np.einsum("nhts,nthd->nshd", p, dy)
    grouped = [a.reshape(n, s, kv_heads, share, size).sum(3) for a in (dk, dv)]
    return [np.einsum("nhts,nshd->nthd", ds, wide[0]), *grouped]


@every_set
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("sizes", [LONG, (2, 700, 150, 2, 2, 5)], ids=["more keys", "more rows"])
def test_tiles_give_what_the_formula_gives(kernels, causal, masked, sizes):
    n, t, s, *heads = sizes
    t, s = fitted(kernels, t, s)
    given, scale = inputs(n, t, s, *heads), 0.8
    seen = mask(n, s) if masked else None
    y, lse = forward(kernels, given, seen, causal, scale)
    for found, wanted in zip((y, lse), reference(*given, seen, causal, scale), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
    dy = np.random.default_rng(5).standard_normal(given[0].shape)
    found = backward(kernels, [dy, *given], seen, y, lse, causal=causal, scale=scale)
    for mine, wanted in zip(found, derivatives(dy, *given, seen, causal, scale), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=0, atol=5e-6 * np.abs(wanted).max())


@every_set
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("kind", ["window", "texts", "any"])
def test_rows_that_begin_behind_the_first_key(kernels, kind, dtype):
    """A window; texts one behind the other, of which one begins within a tile; and whatever the numbers are."""
    n, (t, s, before, middle) = 2, fitted(kernels, 700, 650, 130, 391)
    given, scale = inputs(n, t, s, 4, 2, 5), 0.8
    rows = np.broadcast_to(np.arange(t), (n, t))
    first = {
        "window": np.maximum(rows - t // 7, 0),
        "texts": np.where(rows < before, 0, np.where(rows < middle, before, middle)) + np.array([[0], [7]]),
        "any": np.random.default_rng(7).integers(-5, t + 5, (n, t)),
    }[kind].astype(dtype)
    seen = mask(n, s) if kind == "any" else None
    y, lse = forward(kernels, given, seen, True, scale, first)
    for found, wanted in zip((y, lse), reference(*given, seen, True, scale, first), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)
    dy = np.random.default_rng(5).standard_normal(given[0].shape)
    found = backward(kernels, [dy, *given], seen, y, lse, causal=True, scale=scale, first=first)
    for mine, wanted in zip(found, derivatives(dy, *given, seen, True, scale, first), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=0, atol=5e-6 * np.abs(wanted).max())


@every_set
def test_rows_that_see_no_key_give_zeros_and_pass_nothing_back(kernels):
    given = inputs(2, 3, 5, 2, 1, 4)
    seen = np.array([[0, 0, 0, 0, 0], [0, 0, 1, 1, 0]], np.int32)  # causal: in sample 1, rows 0 and 1 see none
    y, lse = forward(kernels, given, seen, True, 0.5)
    found = backward(kernels, [np.ones_like(given[0]), *given], seen, y, lse, causal=True, scale=0.5)
    assert not y[0].any() and not lse[0].any() and not y[1, :2].any() and not lse[1, :, :2].any()
    np.testing.assert_allclose(y[1, 2], np.repeat(given[2][1, 2], 2, 0), rtol=1e-6)  # one key alone has all the weight
    dq, dk, dv = found
    assert not dq[0].any() and not dk[0].any() and not dv[0].any() and not dq[1, :2].any()
    np.testing.assert_allclose(dv[1], [[[0] * 4], [[0] * 4], [[2] * 4], [[0] * 4], [[0] * 4]], atol=1e-6)


@every_set
def test_large_scores_neither_overflow_nor_vanish(kernels):
    given = inputs(1, 4, 600, 1, 1, 3)
    y, lse = forward(kernels, given, None, False, 3e3)
    wanted = 3e3 * given[0][0, :, 0] @ given[1][0, :, 0].T
    np.testing.assert_allclose(lse[0, 0], wanted.max(1), rtol=1e-5)
    np.testing.assert_allclose(y[0, :, 0], given[2][0, wanted.argmax(1), 0], rtol=1e-4)
    very_low = [-50 * np.ones((1, 2, 1, 4)), 50 * np.ones((1, 3, 1, 4)), np.ones((1, 3, 1, 4))]
    y, lse = forward(kernels, very_low, None, False, 1.0)
    np.testing.assert_allclose(y, np.ones_like(y), rtol=1e-5)
    np.testing.assert_allclose(lse, -10_000 + np.log(3), rtol=1e-5)


@every_set
def test_nan_reaches_what_it_is_part_of(kernels):
    q, k, v = inputs(1, 4, 6, 2, 2, 3)
    q[0, 1, 0, 2] = np.nan
    y, lse = forward(kernels, [q, k, v], None, False, 1.0)
    assert np.isnan(y[0, 1, 0]).all() and np.isnan(lse[0, 0, 1])
    y[0, 1, 0], lse[0, 0, 1] = 0, 0
    assert np.isfinite(y).all() and np.isfinite(lse).all()
    q, k, v = inputs(1, 4, 6, 2, 2, 3)
    k[0, 5, 1, 0] = np.nan
    y, lse = forward(kernels, [q, k, v], None, False, 1.0)
    assert np.isnan(y[0, :, 1]).all() and np.isnan(lse[0, 1]).all() and np.isfinite(y[0, :, 0]).all()
    dq, dk, dv = backward(kernels, [np.ones_like(q), q, k, v], None, y, lse, causal=False, scale=1.0)
    assert all(np.isnan(d[0, :, 1]).all() and np.isfinite(d[0, :, 0]).all() for d in (dq, dk, dv))


@every_set
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_dropout_drops_what_the_dropout_of_all_probabilities_would(kernels, causal):
    """Values are rows of the unit matrix, so y is the probabilities themselves."""
    n, heads, scale, p = 2, 2, 0.05, 0.4
    t, s = fitted(kernels, 300, 260)
    q, k = (np.random.default_rng(4).standard_normal((n, e, heads, s)).astype("f") for e in (t, s))
    v = np.ascontiguousarray(np.broadcast_to(np.eye(s, dtype="f")[None, :, None], k.shape))
    wanted = np.ascontiguousarray(reference(q, k, v, None, causal, scale)[0].transpose(0, 2, 1, 3)).astype("f")
    dropped = garbage(wanted.shape, "f")
    run(kernels, "dropout", [wanted, KEY, dropped], {"p": p})
    settings = {"causal": causal, "scale": scale, "p": p}
    y, lse = garbage(q.shape, "f"), garbage((n, heads, t), "f")
    run(kernels, "attention", [q, k, v, None, None, KEY, y, lse], settings)
    np.testing.assert_allclose(y.transpose(0, 2, 1, 3), dropped, rtol=1e-4, atol=1e-6)
    zeros = y[:, s:] == 0
    assert abs(np.mean(zeros) - p) < 4 * np.sqrt(p * (1 - p) / zeros.size) or causal
    dy = np.random.default_rng(5).standard_normal(q.shape).astype("f")
    results = [garbage(a.shape, "f") for a in (q, k, v)]
    run(kernels, "attention_derivative", [dy, q, k, v, None, None, KEY, y, lse, *results], settings)
    np.testing.assert_allclose(results[2], np.einsum("nhts,nthd->nshd", dropped, dy), rtol=1e-3, atol=1e-4)


@every_set
@pytest.mark.parametrize("name", ["attention", "attention_derivative"])
def test_scratch_is_linear_in_the_lengths(kernels, name):
    def scratch(length: int) -> int:
        q, lse = np.empty((1, length, 8, 64), np.float32), np.empty((1, 8, length), np.float32)
        tensors = (
            [q, q, q, None, None, None, q, lse]
            if name == "attention"
            else [q, q, q, q, None, None, None, q, lse, q, q, q]
        )
        return kernels.scratch_bytes(name, tensors, {"causal": True, "scale": 0.125})

    least, most = scratch(2048), scratch(16_384)
    assert most < 8.1 * least  # 8 times the length
    part = 4 if kernels.name.startswith("cuda") else 16  # a GPU's tiles are larger
    assert most < 4 * 16_384**2 / part  # far below one head's scores


@every_set
@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_the_last_rows_of_a_text_over_what_is_kept_of_it(kernels, m, masked):
    """Those of causal attention over the whole text; what lies behind it is not read."""
    n, t, heads, kv_heads, size = 3, 11, 6, 2, 5
    q, k, v = inputs(n, t, t, heads, kv_heads, size)
    seen = np.arange(t) >= np.array([[2], [0], [t]]) if masked else None  # the last sample sees nothing
    wanted, _ = reference(q, k, v, seen, True, 0.6)
    beyond = np.full((n, 4, kv_heads, size), np.nan)
    keys, values = (np.concatenate([a, beyond], 1).astype("f") for a in (k, v))
    kept = None if seen is None else np.concatenate([seen, np.ones((n, 4), bool)], 1)
    y = garbage((n, m, heads, size), "f")
    run(
        kernels,
        "cached_attention",
        [q[:, t - m :].astype("f"), keys, values, kept, None, np.array([t - m]), y],
        {"scale": 0.6},
    )
    np.testing.assert_allclose(y, wanted[:, t - m :], rtol=0, atol=2e-6)
    assert np.array_equal(y[2], np.zeros(y[2].shape)) == masked


@pytest.mark.parametrize("kernels", ON_CPU, ids=lambda kernels: kernels.name)
def test_a_position_beyond_what_is_kept_is_refused(kernels):
    q, keys = np.ones((1, 2, 1, 3), "f"), np.ones((1, 5, 1, 3), "f")
    for position in (4, -1):
        with pytest.raises(IndexError, match=f"in 0..3 for 2 of 5 places, received {position}"):
            run(
                kernels, "cached_attention", [q, keys, keys, None, None, np.array([position]), q.copy()], {"scale": 1.0}
            )
