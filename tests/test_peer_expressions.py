"""Parts, extremes, comparisons and choices beside PyTorch, from equal values: ties, NaN and infinities with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import skips
from every_row import over_rows
from singa_lite import autograd, tensor

pytestmark = pytest.mark.peer
NAN, INF = float("nan"), float("inf")


def plain(*shape: int) -> np.ndarray:
    """Normal numbers."""
    return np.random.default_rng(sum(shape)).standard_normal(shape)


def tied(*shape: int) -> np.ndarray:
    """Whole numbers from -2 to 2, so that many are equal."""
    return np.round(plain(*shape))


def beyond(*shape: int) -> np.ndarray:
    """NaN, infinities and zeros of both signs among others."""
    return np.random.default_rng(4).choice([NAN, INF, -INF, 0.0, -0.0, 1.5, -2.0, 1.0], shape)


IDS = np.array([[2, 0], [2, 1], [0, 2]])
MASK = np.array([True, False, False, True, True])

#: {name: (ours, theirs as (torch, *tensors), arrays)}.
ROWS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[np.ndarray]]] = {
    "number": (lambda x: x[1], lambda t, x: x[1], [plain(3, 4, 5)]),
    "slices": (lambda x: x[0:2, -1, ::2], lambda t, x: x[0:2, -1, ::2], [plain(3, 4, 5)]),
    "new axis": (lambda x: x[..., None, 1:], lambda t, x: x[..., None, 1:], [plain(3, 4, 5)]),
    "nothing": (lambda x: x[2:2], lambda t, x: x[2:2], [plain(3, 4)]),
    "backwards": (lambda x: x[::-1, 3:0:-2], lambda t, x: x.flip(0)[:, [3, 1]], [plain(3, 4)]),
    "abs": (autograd.abs, lambda t, x: t.abs(x), [tied(3, 4, 5)]),
    "abs beyond": (autograd.abs, lambda t, x: t.abs(x), [beyond(3, 17)]),
    "sqrt": (autograd.sqrt, lambda t, x: t.sqrt(x), [np.abs(tied(3, 17))]),
    "sqrt beyond": (autograd.sqrt, lambda t, x: t.sqrt(x), [beyond(3, 17) + 0.0]),
    "square": (autograd.square, lambda t, x: t.square(x), [plain(3, 4, 5)]),
    "square beyond": (autograd.square, lambda t, x: t.square(x), [beyond(3, 17)]),
    "clip": (lambda x: autograd.clip(x, -1, 1), lambda t, x: t.clamp(x, -1, 1), [tied(3, 4, 5)]),
    "clip beyond": (lambda x: autograd.clip(x, high=1.5), lambda t, x: t.clamp(x, max=1.5), [beyond(3, 17)]),
    "maximum": (autograd.maximum, lambda t, *x: t.maximum(*x), [tied(3, 1, 5), tied(4, 5)]),
    "maximum beyond": (autograd.maximum, lambda t, *x: t.maximum(*x), [beyond(7, 1), beyond(19)]),
    "minimum": (autograd.minimum, lambda t, *x: t.minimum(*x), [tied(3, 1, 5), tied(4, 5)]),
    "minimum beyond": (autograd.minimum, lambda t, *x: t.minimum(*x), [beyond(7, 1), beyond(19)]),
    "where": (
        lambda a, b: autograd.where(MASK, a, b),
        lambda t, a, b: t.where(t.from_numpy(MASK), a, b),
        [beyond(3, 1), beyond(4, 1, 5)],
    ),
    "where less": (
        lambda a, b: autograd.where(autograd.less(a, b), a * 2.0, b),
        lambda t, a, b: t.where(a < b, a * 2.0, b),
        [beyond(7, 1), beyond(19)],
    ),
    "reduce_max": (autograd.reduce_max, lambda t, x: t.amax(x, (0, 1)), [tied(3, 4)]),
    "reduce_max of axes": (
        lambda x: autograd.reduce_max(x, (0, 2), True),
        lambda t, x: t.amax(x, (0, 2), True),
        [tied(3, 4, 5)],
    ),
    "reduce_max beyond": (lambda x: x.max(1), lambda t, x: t.amax(x, 1), [beyond(23, 3)]),
    "reduce_min": (lambda x: x.min(-1), lambda t, x: t.amin(x, -1), [tied(3, 4, 5)]),
    "reduce_min beyond": (lambda x: x.min(0), lambda t, x: t.amin(x, 0), [beyond(3, 23)]),
    "gather": (
        lambda x: autograd.gather(x, tensor.from_numpy(IDS), 1),
        lambda t, x: t.index_select(x, 1, t.from_numpy(IDS.ravel())).reshape(4, 3, 2, 5),
        [plain(4, 3, 5)],
    ),
    "stack": (lambda *x: autograd.stack(x, 1), lambda t, *x: t.stack(x, 1), [plain(3, 4), plain(4, 3).T]),
}

#: What sums, so that the two round apart.
SUMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[np.ndarray]]] = {
    "mean": (lambda x: x.mean((0, 2)), lambda t, x: x.mean((0, 2)), [plain(3, 4, 5)]),
    "matmul": (autograd.matmul, lambda t, *x: t.matmul(*x), [plain(6, 1, 3, 4), plain(5, 4, 2)]),
    "matmul of one": (autograd.matmul, lambda t, *x: t.matmul(*x), [plain(5, 3, 4), plain(4, 2)]),
    "matmul for all": (lambda a, b: a @ b, lambda t, *x: t.matmul(*x), [plain(3, 4), plain(5, 4, 2)]),
}


def both_ways(torch: Any, row: tuple[Any, Any, list[np.ndarray]], dtype: str) -> tuple[list[Any], list[Any]]:
    """[result, gradient by each input], ours and theirs. Where all is finite dy is random, else it has edges too."""
    ours, theirs, arrays = row
    given = [array.astype(dtype) for array in arrays]
    mine = [tensor.from_numpy(array) for array in given]
    for each in mine:
        each.stores_grad = True
    y = ours(*mine)
    dy = np.random.default_rng(9).standard_normal(y.shape).astype(dtype)
    if not all(np.isfinite(array).all() for array in given):
        dy.flat[::3] = INF
    with np.errstate(invalid="ignore"):  # NumPy's products of infinity and 0 warn
        found = {id(p): tensor.to_numpy(g) for p, g in autograd.backward(y, tensor.from_numpy(dy))}
    peers = [torch.from_numpy(np.ascontiguousarray(array)).requires_grad_() for array in given]
    wanted = theirs(torch, *peers)
    wanted.backward(torch.from_numpy(dy))
    return [tensor.to_numpy(y), *(found[id(p)] for p in mine)], [wanted.detach(), *(peer.grad for peer in peers)]


def compare(key: str, dtype: str) -> None:
    roundings = (0, 100) if key in SUMS else (4, 4)  # the latter for sums over what was broadcast or is shared
    relative, absolute = (count * np.finfo(dtype).eps for count in roundings)
    mine, theirs = both_ways(skips.library("torch"), {**ROWS, **SUMS}[key], dtype)
    for found, wanted in zip(mine, theirs, strict=True):
        assert found.shape == tuple(wanted.shape)
        np.testing.assert_allclose(found, wanted.numpy(), rtol=relative, atol=absolute)


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_values_and_derivatives_are_those_of_pytorch(dtype):
    skips.library("torch")
    over_rows(compare, ((key, (key, dtype)) for key in (*ROWS, *SUMS)))


def test_comparisons_are_those_of_pytorch():
    torch = skips.library("torch")
    a, b = beyond(7, 1).astype("f"), beyond(19).astype("f")
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        theirs = getattr(torch, {"equal": "eq", "not_equal": "ne"}.get(name, name))
        found = getattr(autograd, name)(tensor.from_numpy(a), tensor.from_numpy(b))
        assert found.dtype == bool and not found.requires_grad
        wanted = theirs(torch.from_numpy(a), torch.from_numpy(b)).numpy()
        np.testing.assert_array_equal(found, wanted, err_msg=name)
