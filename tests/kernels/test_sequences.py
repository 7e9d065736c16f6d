"""NumPy's kernels of sequences against numbers worked out by hand: other sets are held to these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_case import garbage, run
from singa_lite.kernels.interface.update import SgdHyper
from singa_lite.kernels.numpy_kernels import NUMPY

TABLE = np.array([[1.0, 2], [3, 4], [5, 6], [7, 8]])
IDS = np.array([[2, 0, 2], [3, 2, 0]])
DY = np.arange(1.0, 13).reshape(2, 3, 2)
PLAIN = SgdHyper(momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0, lr_mult=0.5)


def result(name: str, *tensors: Any, shape: tuple[int, ...], **settings: Any) -> np.ndarray:
    """The last tensor that the kernel writes."""
    out = garbage(shape, np.float64)
    run(NUMPY, name, [*tensors, out], settings)
    return out


def test_rows_of_a_table():
    y = result("embedding", IDS, TABLE, shape=(2, 3, 2))
    np.testing.assert_array_equal(y, [[[5, 6], [1, 2], [5, 6]], [[7, 8], [5, 6], [1, 2]]])
    np.testing.assert_array_equal(result("embedding", np.array(3, np.uint8), TABLE, shape=(2,)), [7, 8])


@pytest.mark.parametrize("wrong", [-1, 4])
def test_an_id_outside_the_table(wrong):
    with pytest.raises(IndexError, match=rf"ids: wanted 0 to 3, received {wrong} at \[1\]"):
        result("embedding", np.array([0, wrong, 2]), TABLE, shape=(3, 2))


def test_gradients_of_rows():
    gradient = result("embedding_gradient", IDS, DY, shape=(4, 2), first=0, padding=-1)
    np.testing.assert_array_equal(gradient, [[3 + 11, 4 + 12], [0, 0], [1 + 5 + 9, 2 + 6 + 10], [7, 8]])
    some = result("embedding_gradient", IDS, DY, shape=(2, 2), first=2, padding=3)
    np.testing.assert_array_equal(some, [[15, 18], [0, 0]])


@pytest.mark.parametrize("padding", [-1, 3])
def test_only_rows_that_occur_are_updated(padding):
    value, count = TABLE.copy(), np.array(4, np.int64)
    value[1] = np.nan  # 0 times the rate would leave it NaN too, but not a signalling one; its bits stay
    before = value[1].tobytes()
    run(NUMPY, "sgd_rows", [IDS, DY, np.array(0.2), value, count], {"hyper": PLAIN, "padding": padding})
    wanted = TABLE - 0.1 * np.array([[14, 16], [0, 0], [15, 18], [7, 8]])
    if padding == 3:
        wanted[3] = TABLE[3]
    np.testing.assert_allclose(value[[0, 2, 3]], wanted[[0, 2, 3]], rtol=1e-15)
    assert value[1].tobytes() == before
    assert count == 5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_updates_by_rows_are_those_of_the_whole_gradient_to_the_bit(dtype):
    rng = np.random.default_rng(3)
    ids, dy = rng.integers(0, 7, (5, 11)), rng.standard_normal((5, 11, 6)).astype(dtype)
    values = [rng.standard_normal((7, 6)).astype(dtype)] * 2
    whole, rows = (value.copy() for value in values)
    gradient = garbage((7, 6), dtype)
    run(NUMPY, "embedding_gradient", [ids, dy, gradient], {"first": 0, "padding": 2})
    rate = np.array(0.3)
    run(NUMPY, "sgd", [gradient, rate, whole, None, np.array(0)], {"hyper": PLAIN})
    run(NUMPY, "sgd_rows", [ids, dy, rate, rows, np.array(0)], {"hyper": PLAIN, "padding": 2})
    np.testing.assert_array_equal(rows, whole)
    tiles = [garbage((stop - start, 6), dtype) for start, stop in ((0, 3), (3, 7))]
    for first, tile in zip((0, 3), tiles, strict=True):
        run(NUMPY, "embedding_gradient", [ids, dy, tile], {"first": first, "padding": 2})
    np.testing.assert_array_equal(np.concatenate(tiles), gradient)


def test_rotary_turns_pairs():
    x = np.array([[[1.0, 2, 3, 4], [5, 6, 7, 8]]])
    turns = np.array([[[1.0, 0], [0.6, 0.8]], [[0, 1], [0.8, 0.6]]])
    y = result("rotary", x, turns, shape=(1, 2, 4), axis=1, inverse=False)
    wanted = [[1, -4, 3, 2], [3 - 5.6, 4.8 - 4.8, 4.2 + 4, 6.4 + 3.6]]
    np.testing.assert_allclose(y[0], wanted, rtol=1e-15, atol=1e-15)
    back = result("rotary", y, turns, shape=(1, 2, 4), axis=1, inverse=True)
    np.testing.assert_allclose(back, x, rtol=1e-14)


def test_root_mean_square_normalization():
    x, gamma = np.array([[3.0, 4], [0, 0]]), np.array([2.0, 1])
    y, inv_rms = garbage((2, 2), np.float64), garbage((2,), np.float64)
    run(NUMPY, "rms_norm", [x, gamma, y, inv_rms], {"epsilon": 0.5})
    factor = 1 / np.sqrt(13)
    np.testing.assert_allclose(inv_rms, [factor, np.sqrt(2)], rtol=1e-15)
    np.testing.assert_allclose(y, [[6 * factor, 4 * factor], [0, 0]], rtol=1e-15)
    dy = np.array([[1.0, 1], [1, 2]])
    dx = result("rms_norm_derivative", dy, x, gamma, inv_rms, shape=(2, 2))
    along = (2 * 3 + 4) / 2 / 13
    wanted = [[factor * (2 - 3 * along), factor * (1 - 4 * along)], [2 * np.sqrt(2), 2 * np.sqrt(2)]]
    np.testing.assert_allclose(dx, wanted, rtol=1e-14)
    dgamma = result("rms_norm_gradient", dy, x, inv_rms, shape=(2,))
    np.testing.assert_allclose(dgamma, [3 * factor, 4 * factor], rtol=1e-15)


@pytest.mark.parametrize(
    ("target", "ids", "weights"),
    [
        ([1, 9, 2, 9, 0], [1, 0, 2, 0, 0], [5 / 3, 0, 5 / 3, 0, 5 / 3]),
        ([9, 9], [0, 0], [0, 0]),
        ([3], [3], [1]),
    ],
)
def test_rows_that_count(target, ids, weights):
    found, shares = garbage((len(ids),), np.int64), garbage((len(ids),), np.float64)
    run(NUMPY, "target_weights", [np.array(target), found, shares], {"ignored": 9})
    np.testing.assert_array_equal(found, ids)
    np.testing.assert_allclose(shares, weights, rtol=1e-15)


def test_what_does_not_count_may_be_anything():
    x, weights = np.array([np.inf, np.nan, 3, -2]), np.array([0.0, 0, 2, 0.5])
    np.testing.assert_array_equal(result("weigh", x, weights, shape=(4,)), [0, 0, 6, -1])


def test_smoothed_labels():
    x, target = np.array([[1.0, 2, 6], [0, 3, 0]]), np.array([2, 0])
    losses = np.array([1.0, 2])
    run(NUMPY, "smooth_labels", [x, target, losses], {"share": 0.5})
    np.testing.assert_allclose(losses, [1 + 0.5 * 3, 2 - 0.5], rtol=1e-15)
    dx = np.zeros((2, 3))
    run(NUMPY, "smooth_labels_derivative", [np.array([1.0, -2]), target, dx], {"share": 0.3})
    np.testing.assert_allclose(dx, [[-0.1, -0.1, 0.2], [-0.4, 0.2, 0.2]], rtol=1e-14)


def test_the_next_places_of_a_longer_tensor():
    kept = np.arange(10.0).reshape(1, 5, 2)
    assert result("read_at", kept, np.array([3]), shape=(1, 2, 2)).tolist() == [[[6, 7], [8, 9]]]
    run(NUMPY, "write_at", [np.array([[[-1.0, -2.0]]]), np.array([1]), kept], {})
    assert kept.tolist() == [[[0, 1], [-1, -2], [4, 5], [6, 7], [8, 9]]]


@pytest.mark.parametrize("name", ["read_at", "write_at"])
@pytest.mark.parametrize("position", [-1, 4])
def test_places_beyond_the_end_are_refused(name, position):
    tensors = [np.ones((1, 5, 2)), np.array([position]), np.ones((1, 2, 2))]
    with pytest.raises(IndexError, match=rf"in 0\.\.3 for 2 of 5 places, received {position}"):
        run(NUMPY, name, tensors if name == "read_at" else tensors[::-1], {})


def test_gradients_of_rows_are_added_to_what_is_there():
    gradient = TABLE.copy()
    run(NUMPY, "embedding_gradient_add", [IDS, DY, gradient], {"first": 0, "padding": 3})
    np.testing.assert_array_equal(gradient - TABLE, [[14, 16], [0, 0], [15, 18], [0, 0]])
    some = TABLE[2:].copy()
    run(NUMPY, "embedding_gradient_add", [IDS, DY, some], {"first": 2, "padding": -1})
    np.testing.assert_array_equal(some - TABLE[2:], [[15, 18], [7, 8]])


@pytest.mark.parametrize("shape", [(2, 3), (5, 2)])
def test_products_are_added_to_what_is_there(shape):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 4, (4, shape[0])).astype(float), rng.integers(-4, 4, (shape[1], 4)).astype(float)
    y = rng.integers(-4, 4, shape).astype(float)
    wanted = y + a.T @ b.T
    run(NUMPY, "matmul_add", [a, b, y], {"transpose_a": True, "transpose_b": True})
    np.testing.assert_array_equal(y, wanted)


def test_the_log_of_a_sum_of_powers():
    x = np.log([[1.0, 2, 5], [1e300, 1e300, 1e-300]])
    x[1] += 700  # e to this is beyond any float
    np.testing.assert_allclose(result("log_sum_exp", x, shape=(2,)), [np.log(8), 700 + np.log(2e300)], rtol=1e-14)


def test_some_classes_of_a_derivative():
    x, lse = np.log([[1.0, 2], [4, 1], [2, 3]]), np.log([8.0, 10, 20])
    given = np.array([1.0, -2, 3]), x, lse, np.array([3, 2, 0])
    dx = result("softmax_classes_derivative", *given, shape=(3, 2), first=2, classes=5, share=0.0)
    np.testing.assert_allclose(dx, [[1 / 8, 2 / 8 - 1], [-2 * (4 / 10 - 1), -2 * 0.1], [3 * 0.1, 3 * 0.15]], rtol=1e-14)
    smoothed = result("softmax_classes_derivative", *given, shape=(3, 2), first=2, classes=5, share=0.25)
    less = np.array([[0, 0.25], [0.25, 0], [0, 0]]) - 0.05
    np.testing.assert_allclose(smoothed, dx + less * given[0][:, None], rtol=1e-13)
