"""Element-wise kernels of the oneDNN set: layouts, broadcasting, NaN and infinity; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_onednn_linear import channels_last, normal

from kernel_case import garbage, run
from nets import bits
from singa_lite.kernels.kernel_set import KernelSet, specs_of

Array = np.ndarray

UFUNCS = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}
every_operation = pytest.mark.parametrize("name, ufunc", UFUNCS.items(), ids=UFUNCS)
#: Large enough to be served.
IMAGES = (3, 40, 58, 39)


def serves(kernels: KernelSet, name: str, *arrays: Array, **settings: Any) -> bool:
    return kernels.kernels[name].serves(specs_of(arrays), settings)


def applied(kernels: KernelSet, name: str, *inputs: Array, **settings: Any) -> Array:
    y = np.full_like(inputs[0], np.nan)
    assert serves(kernels, name, *inputs, y, **settings)
    run(kernels, name, [*inputs, y], settings)
    return y


@every_operation
@pytest.mark.parametrize("lay", [channels_last, np.ascontiguousarray], ids=["channels_last", "c_order"])
def test_two_tensors_that_lie_alike(onednn, name, ufunc, lay):
    a, b = lay(normal(*IMAGES)), lay(normal(*IMAGES, seed=4))
    wanted = ufunc(a, b)
    np.testing.assert_array_equal(applied(onednn, name, a, b), wanted)
    over_a, over_b = a.copy(order="K"), b.copy(order="K")
    run(onednn, name, [over_a, b, over_a], {})
    run(onednn, name, [a, over_b, over_b], {})
    assert bits(over_a) == bits(wanted)
    assert bits(over_b) == bits(wanted)


@every_operation
@pytest.mark.parametrize("lay", [channels_last, np.ascontiguousarray], ids=["channels_last", "c_order"])
@pytest.mark.parametrize("shape", [(40, 1, 1), (1, 40, 1, 1), (3, 40, 1, 1), (1, 1, 1, 1), (), (1,)], ids=str)
def test_broadcasting_to_images(onednn, name, ufunc, lay, shape):
    a, b = lay(normal(*IMAGES)), np.asarray(normal(*shape), np.float32)
    np.testing.assert_array_equal(applied(onednn, name, a, b), ufunc(a, b))


@every_operation
@pytest.mark.parametrize("shape", [(521,), (1, 521), (531, 1)], ids=str)
def test_broadcasting_to_rows(onednn, name, ufunc, shape):
    a, b = normal(531, 521), normal(*shape)
    np.testing.assert_array_equal(applied(onednn, name, a, b), ufunc(a, b))


@pytest.mark.parametrize("name", ["add", "multiply"])
def test_the_first_operand_may_broadcast_where_the_two_commute(onednn, name):
    a, b, y = normal(40, 1, 1), channels_last(normal(*IMAGES)), channels_last(garbage(IMAGES, np.float32))
    assert serves(onednn, name, a, b, y)
    run(onednn, name, [a, b, y], {})
    np.testing.assert_array_equal(y, UFUNCS[name](a, b))


@every_operation
def test_other_operands_are_left_to_the_next_set(onednn, name, ufunc):
    last, plain = channels_last(normal(*IMAGES)), normal(*IMAGES)
    piece, double = np.concatenate([last, last], 1)[:, 20:60], plain.astype(np.float64)
    assert not serves(onednn, name, last, plain, last)
    assert serves(onednn, name, last, piece, last), "channels of a larger tensor"
    assert not serves(onednn, name, double, double, double)
    assert not serves(onednn, name, plain[0], plain[0], plain[0]), "one as small as this"
    assert not serves(onednn, name, plain[:, :1], plain[:1], plain)
    for slow in ((3, 1, 1, 1), (3, 40, 58, 1)):
        assert not serves(onednn, name, plain, normal(*slow), plain)


# Copies


def piece_of(lay: Any, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Some channels of a larger tensor, and all of it."""
    whole = lay(np.full((shape[0], shape[1] + 9, *shape[2:]), 7, np.float32))
    return whole[:, 4:-5], whole


@pytest.mark.parametrize("source", [channels_last, np.ascontiguousarray], ids=["from_channels_last", "from_c_order"])
@pytest.mark.parametrize("target", [channels_last, np.ascontiguousarray], ids=["to_channels_last", "to_c_order"])
def test_copies_between_layouts(onednn, source, target):
    x, y = source(normal(*IMAGES)), target(garbage(IMAGES, np.float32))
    x[1, 2, 3, 4:8] = np.nan, np.inf, -np.inf, -0.0
    assert serves(onednn, "copy", x, y)
    run(onednn, "copy", [x, y], {})
    assert y.tobytes() == x.tobytes()


@pytest.mark.parametrize("lay", [channels_last, np.ascontiguousarray], ids=["channels_last", "c_order"])
def test_copies_into_and_out_of_a_concatenation(onednn, lay):
    x = lay(normal(*IMAGES))
    piece, whole = piece_of(lay, IMAGES)
    assert serves(onednn, "copy", x, piece)
    run(onednn, "copy", [x, piece], {})
    np.testing.assert_array_equal(piece, x)
    assert np.all(whole[:, :4] == 7) and np.all(whole[:, -5:] == 7)
    back = np.full_like(x, np.nan)
    assert serves(onednn, "copy", piece, back)
    run(onednn, "copy", [piece, back], {})
    np.testing.assert_array_equal(back, x)


def test_other_copies_are_left_to_the_next_set(onednn):
    x = normal(*IMAGES)
    assert not serves(onednn, "copy", x[0], x[0].copy())
    assert not serves(onednn, "copy", x[:1], x)
    assert not serves(onednn, "copy", np.broadcast_to(x[:1], x.shape), x)
    assert not serves(onednn, "copy", x.astype(np.float64), x)
    assert not serves(onednn, "copy", x.astype(np.int64), x.astype(np.int64))


# One operand


@pytest.mark.parametrize("alpha, beta", [(0.3, 0.0), (-2.0, 1.0), (0.0, 5.0)])
def test_scale(onednn, alpha, beta):
    x = channels_last(normal(*IMAGES))
    got = applied(onednn, "scale", x, alpha=alpha, beta=beta)
    np.testing.assert_allclose(got, alpha * x.astype(np.float64) + beta, rtol=0, atol=1e-6)


@pytest.mark.parametrize("exponent", [1.0, 1.5, 3.0])
def test_other_powers_are_left_to_the_next_set(onednn, exponent):
    x = normal(5, 7)
    assert not serves(onednn, "power", x, x, exponent=exponent)


def test_exp(onednn):
    x = np.linspace(-80, 80, 10007, dtype=np.float32)
    np.testing.assert_allclose(applied(onednn, "exp", x), np.exp(x.astype(np.float64)), rtol=5e-7)


@pytest.mark.parametrize(
    "name, settings", [("scale", {"alpha": 2.0, "beta": 1.0}), ("power", {"exponent": 2.0}), ("exp", {})]
)
def test_one_operand_in_other_forms(onednn, name, settings):
    x, target = normal(3, 5, 7, 2), channels_last(garbage((3, 5, 7, 2), np.float32))
    whole = np.concatenate([x, x], 1)
    for source in (x, whole[:, 5:]):
        assert serves(onednn, name, source, target, **settings)
        assert serves(onednn, name, source, whole[:, :5], **settings)
    assert not serves(onednn, name, x.astype(np.float64), x, **settings)
    assert not serves(onednn, name, x[:1], x, **settings)


def test_what_is_left_to_the_next_set(onednn):
    assert not {"log", "fill", "maximum", "minimum", "reduce_max", "where"} & onednn.kernels.keys()


@pytest.mark.parametrize("name, settings", [("power", {"exponent": 2.0}), ("relu", {}), ("absolute", {})])
def test_every_other_column_is_served_where_no_row_begins_before_the_last_one_ends(onednn, name, settings):
    y = np.empty((5, 4), np.float32)
    assert serves(onednn, name, normal(5, 8)[:, ::2], y, **settings)
    odd = normal(5, 7)[:, ::2]
    assert not serves(onednn, name, odd, y, **settings)
    wanted = {"power": np.square, "relu": lambda x: np.maximum(x, 0), "absolute": np.abs}[name](odd)
    run(onednn, name, [odd, y], settings)
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("low, high", [(-0.5, 0.75), (-np.inf, 0.2), (0.1, np.inf)])
def test_bounds(onednn, low, high):
    x = channels_last(normal(*IMAGES))
    np.testing.assert_array_equal(applied(onednn, "clip", x, low=low, high=high), np.clip(x, low, high))


@pytest.mark.parametrize("relation", ["equal", "not_equal", "less", "less_equal"])
@pytest.mark.parametrize("shape", [(531, 521), (521,), (531, 1)], ids=str)
def test_comparisons_of_large_tensors(onednn, relation, shape):
    a, b = np.round(normal(531, 521)), np.round(normal(*shape))
    wanted = getattr(np, relation)(a, b)
    np.testing.assert_array_equal(applied(onednn, "compare", a, b, relation=relation), wanted)
    assert not serves(onednn, "compare", a, b, wanted, relation=relation)


# A sum and its activation


@pytest.mark.parametrize("lay", [channels_last, np.ascontiguousarray], ids=["channels_last", "c_order"])
@pytest.mark.parametrize("over", [None, 0, 1], ids=["apart", "over a", "over b"])
def test_a_sum_is_rectified_to_the_bits_of_the_two_kernels(onednn, lay, over):
    edges = np.array([0.0, -0.0, np.nan, np.inf, 1e-45, -1e-45, 3e38, -3e38, 1, -1, 2e-38], np.float32)
    a, b = lay(normal(*IMAGES)), lay(normal(*IMAGES, seed=4))
    a[0, 0, 0, : len(edges)], b[0, 0, 0, : len(edges)] = -np.inf, edges
    for row, edge in enumerate(edges, 1):
        a[0, 0, row, : len(edges)], b[0, 0, row, : len(edges)] = edge, edges
    apart = lay(garbage(IMAGES, np.float32))
    run(onednn, "add", [a, b, apart], {})
    run(onednn, "relu", [apart, apart], {})
    given = [a.copy(order="K"), b.copy(order="K")]
    y = lay(garbage(IMAGES, np.float32)) if over is None else given[over]
    assert serves(onednn, "add_activation", *given, y, activation="relu")
    run(onednn, "add_activation", [*given, y], {"activation": "relu"})
    assert bits(y) == bits(apart)
    assert np.isnan(y).sum() == 2 * len(edges) + 1, "of each NaN, and of infinity less infinity"


def test_sums_with_other_activations_or_of_other_operands_are_left_to_the_next_set(onednn):
    plain, piece = normal(*IMAGES), np.concatenate([normal(*IMAGES)] * 2, 1)[:, 20:60]
    assert serves(onednn, "add_activation", plain, piece, plain, activation="relu"), "channels of a larger tensor"
    assert not serves(onednn, "add_activation", plain, plain, plain, activation="relu6")
    assert not serves(onednn, "add_activation", plain, channels_last(plain), plain, activation="relu")
    assert not serves(onednn, "add_activation", plain[0], plain[0], plain[0], activation="relu")
    assert not serves(onednn, "add_activation", plain, normal(40, 1, 1), plain, activation="relu")
