"""Values of the elementwise, reduction, linear, activation, loss and metric kernels of the NumPy set."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

from singa_lite.kernels.numpy_kernels import NUMPY

RNG = np.random.default_rng(2)
X = RNG.uniform(-3, 3, (3, 5, 7))
B = RNG.uniform(0.5, 2, (5, 1))


def call(kernel: str, *tensors: np.ndarray | None, **settings: Any) -> None:
    """Run a kernel with scratch full of NaN."""
    scratch = np.full(NUMPY.scratch_bytes(kernel, tensors, settings), 0xFF, np.uint8)
    NUMPY.prepare(kernel, tensors, scratch, settings)()


def result(kernel: str, *inputs: Any, shape: tuple[int, ...] | None = None, **settings: Any) -> np.ndarray:
    """The last argument of a kernel, of the last float input's dtype, and the first input's shape unless given."""
    arrays = [a if a is None else np.asarray(a) for a in inputs]
    dtype = next(a.dtype for a in arrays if a is not None and a.dtype.kind == "f")
    output = np.full(arrays[0].shape if shape is None else shape, np.nan, dtype)
    call(kernel, *arrays, output, **settings)
    return output


def central(f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Derivative of the sum of f(x) by x, element by element, by central differences."""
    derivative = np.empty_like(x)
    for index in np.ndindex(x.shape):
        offset = np.zeros_like(x)
        offset[index] = step
        derivative[index] = np.sum(f(x + offset) - f(x - offset)) / (2 * step)
    return derivative


# Elementwise


@pytest.mark.parametrize(
    "kernel, settings, wanted",
    [
        ("copy", {}, X),
        ("scale", {"alpha": -1.5, "beta": 0.25}, 0.25 - 1.5 * X),
        ("scale", {"alpha": 2.0, "beta": 0.0}, X + X),
        ("power", {"exponent": 2.0}, X * X),
        ("power", {"exponent": 3.0}, X * X * X),
        ("power", {"exponent": 1.0}, X),
        ("power", {"exponent": -1.0}, 1 / X),
        ("exp", {}, math.e**X),
    ],
)
def test_unary_values(kernel, settings, wanted):
    np.testing.assert_allclose(result(kernel, X, **settings), wanted, rtol=1e-14)


def test_root_and_logarithm_undo_square_and_exponential():
    positive = np.abs(X)
    np.testing.assert_allclose(result("power", positive * positive, exponent=0.5), positive, rtol=1e-14)
    np.testing.assert_allclose(result("log", math.e**X), X, atol=1e-14)


@pytest.mark.parametrize(
    "kernel, wanted", [("add", X + B), ("subtract", X - B), ("multiply", X * B), ("divide", X / B)]
)
def test_binary_values_are_broadcast(kernel, wanted):
    np.testing.assert_array_equal(result(kernel, X, B), wanted)


def test_copy_broadcasts_and_converts():
    halves = np.full((2, 3), -1, np.int32)
    call("copy", np.array([1.5, -2.5, 0.0]), halves)
    np.testing.assert_array_equal(halves, [[1, -2, 0], [1, -2, 0]])
    turned = np.empty((7, 5, 3), np.float32)
    call("copy", X, turned.T)
    np.testing.assert_array_equal(turned, X.T.astype(np.float32))


def test_fill():
    y = np.empty((3, 2))
    call("fill", y, value=-2.5)
    np.testing.assert_array_equal(y, [[-2.5, -2.5]] * 3)


# Reduction


@pytest.mark.parametrize(
    "axes, shape, wanted",
    [
        ((1,), (3, 1, 7), X.sum(1, keepdims=True)),
        ((1,), (3, 7), X.sum(1)),
        ((-3, 2), (5,), X.sum(2).sum(0)),
        ((0, 1, 2), (), X.sum()),
        ((0, 1, 2), (1, 1, 1), X.sum(keepdims=True)),
        ((), (3, 5, 7), X),
    ],
)
def test_reduce_sum(axes, shape, wanted):
    got = result("reduce_sum", X, shape=shape, axes=axes, alpha=-0.5)
    np.testing.assert_allclose(got, -0.5 * wanted, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_bias_gradient_is_the_sum_over_the_other_axes(axis):
    wanted = np.moveaxis(X, axis, 0).reshape(X.shape[axis], -1).sum(1)
    np.testing.assert_allclose(result("bias_gradient", X, shape=wanted.shape, axis=axis), wanted, rtol=1e-13)


@pytest.mark.parametrize("shape, axes", [((300_000, 2), (0,)), ((2, 300_000), (1,))])
def test_sums_of_float32_are_accumulated_in_float64(shape, axes):
    x = np.full(shape, 0.1, np.float32)
    wanted = np.float32(300_000 * float(np.float32(0.1)))
    np.testing.assert_array_equal(result("reduce_sum", x, shape=(2,), axes=axes, alpha=1.0), [wanted, wanted])


def test_large_outputs_are_reduced_in_pieces():
    x = RNG.standard_normal((3, 131, 257))
    got = result("reduce_sum", x, shape=(131, 257), axes=(0,), alpha=2.0)
    np.testing.assert_allclose(got, 2 * (x[0] + x[1] + x[2]), rtol=1e-12, atol=1e-12)


# Linear


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("a_lead, b_lead", [((), ()), ((3, 2), ()), ((), (3, 2)), ((3, 2), (3, 2))])
def test_matmul(transpose_a, transpose_b, a_lead, b_lead):
    a = RNG.standard_normal((*a_lead, 4, 5))
    b = RNG.standard_normal((*b_lead, 5, 7))
    wanted = np.einsum("...ij,...jk->...ik", a, b)
    given_a = np.ascontiguousarray(a.swapaxes(-1, -2)) if transpose_a else a
    given_b = np.ascontiguousarray(b.swapaxes(-1, -2)) if transpose_b else b
    got = result("matmul", given_a, given_b, shape=wanted.shape, transpose_a=transpose_a, transpose_b=transpose_b)
    np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-13)


def test_matmul_over_an_empty_axis_is_zero():
    got = result("matmul", np.empty((3, 2, 0)), np.empty((0, 4)), shape=(3, 2, 4), transpose_a=False, transpose_b=False)
    np.testing.assert_array_equal(got, np.zeros((3, 2, 4)))


def test_linear_by_hand():
    x, weight = np.array([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]]), np.array([[1.0, 0.0, 2.0, 1.0], [4.0, 1.0, 0.0, -1.0]])
    product = np.array([[9.0, 2.0, 2.0, -1.0], [-4.0, -1.0, 0.0, 1.0], [5.0, 0.5, 6.0, 2.5]])
    bias = np.array([10.0, 20.0, 30.0, 40.0])
    np.testing.assert_array_equal(result("linear", x, weight, None, shape=(3, 4)), product)
    np.testing.assert_array_equal(result("linear", x, weight, bias, shape=(3, 4)), product + bias)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_add_bias(axis):
    bias = np.arange(X.shape[axis], dtype=float)
    wanted = np.moveaxis(np.moveaxis(X, axis, -1) + bias, -1, axis)
    np.testing.assert_array_equal(result("add_bias", X, bias, axis=axis), wanted)


# Activations: name, settings, the function worked for one number, whether the derivative takes y and not x

ACTIVATIONS: list[tuple[str, dict[str, float], Callable[[float], float], bool]] = [
    ("relu", {}, lambda x: max(x, 0.0), True),
    ("relu6", {}, lambda x: min(max(x, 0.0), 6.0), True),
    ("leaky_relu", {"slope": 0.1}, lambda x: x if x > 0 else 0.1 * x, True),
    ("leaky_relu", {"slope": 2.5}, lambda x: x if x > 0 else 2.5 * x, True),
    ("elu", {"alpha": 0.7}, lambda x: x if x > 0 else 0.7 * math.expm1(x), True),
    ("sigmoid", {}, lambda x: 1 / (1 + math.exp(-x)), True),
    ("tanh", {}, math.tanh, True),
    ("gelu", {}, lambda x: x * math.erfc(-x / math.sqrt(2)) / 2, False),
    ("gelu_tanh", {}, lambda x: x / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), False),
    ("silu", {}, lambda x: x / (1 + math.exp(-x)), False),
    ("softplus", {}, lambda x: math.log1p(math.exp(x)), True),
]
every_activation = pytest.mark.parametrize(
    "name, settings, one, takes_y", ACTIVATIONS, ids=[f"{name}{[*s.values()]}" for name, s, _, _ in ACTIVATIONS]
)

#: Both sides of 0 and of 6, none of them within a difference's step.
POINTS = np.array([-8.0, -5.1, -2.3, -1.0, -0.4, -1e-3, 1e-3, 0.3, 0.9, 2.2, 5.9, 6.1, 8.5])


@every_activation
@pytest.mark.parametrize("dtype, rounding", [(np.float64, 2e-15), (np.float32, 1e-6), (np.float16, 2e-3)])
def test_activation_values(name, settings, one, takes_y, dtype, rounding):
    x = POINTS.astype(dtype)
    wanted = [one(float(v)) for v in x]
    np.testing.assert_allclose(result(name, x, **settings), wanted, rtol=rounding, atol=rounding / 100)


@every_activation
def test_activation_derivatives(name, settings, one, takes_y):
    dy = RNG.uniform(0.5, 2, POINTS.shape)
    wanted = dy * central(lambda x: result(name, x, **settings), POINTS)
    read = result(name, POINTS, **settings) if takes_y else POINTS
    got = result(f"{name}_derivative", dy, read, **settings)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-9)


@every_activation
def test_activations_neither_overflow_nor_warn_far_from_zero(name, settings, one, takes_y):
    far = {"relu6": 6.0, "sigmoid": 1.0, "tanh": 1.0}.get(name, 1e4)
    near = {"leaky_relu": -1e4 * settings.get("slope", 0), "elu": -0.7, "tanh": -1.0}.get(name, 0.0)
    for dtype in (np.float32, np.float64):
        x = np.array([1e4, -1e4], dtype)
        y = result(name, x, **settings)
        np.testing.assert_allclose(y, [far, near], rtol=1e-6, atol=0)
        assert np.isfinite(result(f"{name}_derivative", x, y if takes_y else x, **settings)).all()


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def normal(x: float) -> tuple[Decimal, Decimal]:
    """Phi(x) and phi(x) to 35 digits and more: Phi = 1/2 + phi * (x + x**3 / 3 + x**5 / (3 * 5) + ...)."""
    with localcontext(prec=60):
        d = Decimal(x)
        density = (-d * d / 2).exp() / (2 * PI).sqrt()
        term, total, odd = d, Decimal(0), 1
        while abs(term) > Decimal("1e-58"):
            total, odd = total + term, odd + 2
            term *= d * d / odd
        return Decimal("0.5") + density * total, density


@pytest.mark.parametrize("dtype, near_rounding, rounding", [("float64", 1e-15, 5e-15), ("float32", 6e-7, 4e-6)])
def test_gelu_keeps_its_digits_where_erf_has_lost_them(dtype, near_rounding, rounding):
    x = np.linspace(-9, 9, 301, dtype=dtype)
    normals = [normal(float(v)) for v in x]
    wanted = np.array([float(Decimal(float(v)) * cdf) for v, (cdf, _) in zip(x, normals, strict=True)])
    slopes = np.array([float(cdf + Decimal(float(v)) * d) for v, (cdf, d) in zip(x, normals, strict=True)])
    got = result("gelu", x)
    near = np.abs(x) < 3
    np.testing.assert_allclose(got[near], wanted[near], rtol=near_rounding)
    np.testing.assert_allclose(got, wanted, rtol=rounding)
    np.testing.assert_allclose(result("gelu_derivative", np.ones_like(x), x), slopes, rtol=rounding, atol=near_rounding)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(3, 5, 7), (3, 61, 131)])
def test_softmax(axis, shape):
    x = RNG.standard_normal(shape)
    powers = np.exp(x)
    wanted = powers / powers.sum(axis, keepdims=True)
    np.testing.assert_allclose(result("softmax", x, axis=axis), wanted, rtol=1e-14)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_derivative(axis):
    x, dy = X[:, :3, :4], RNG.standard_normal((3, 3, 4))
    wanted = central(lambda v: dy * result("softmax", v, axis=axis), x)
    got = result("softmax_derivative", dy, result("softmax", x, axis=axis), axis=axis)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-10)


# Losses


def cross_entropy(x: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """losses and p."""
    losses, p = np.full(x.shape[:1], np.nan, x.dtype), np.full(x.shape, np.nan, x.dtype)
    call("softmax_cross_entropy", x, target, losses, p)
    return losses, p


def test_softmax_cross_entropy_by_hand():
    x = np.log([[1.0, 2.0, 5.0], [3.0, 3.0, 4.0]])
    losses, p = cross_entropy(x, np.array([2, 0]))
    np.testing.assert_allclose(p, [[1 / 8, 2 / 8, 5 / 8], [0.3, 0.3, 0.4]], rtol=1e-14)
    np.testing.assert_allclose(losses, [math.log(8 / 5), math.log(10 / 3)], rtol=1e-14)
    losses, _ = cross_entropy(x, np.array([[1, 0, 1], [0, 4, 0]]))
    np.testing.assert_allclose(losses, [(math.log(8) + math.log(8 / 5)) / 2, math.log(10 / 3)], rtol=1e-14)


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 2, 7), (3, 11, 47, 53)])
@pytest.mark.parametrize("ids_dtype", [np.int64, np.uint8])
def test_softmax_cross_entropy_of_ids_is_that_of_their_one_hot_rows(shape, ids_dtype):
    x = 3 * RNG.standard_normal(shape)
    ids = RNG.integers(0, shape[1], (shape[0], *shape[2:]))
    rows = np.moveaxis(np.eye(shape[1])[ids], -1, 1)
    powers = np.exp(x)
    log_p = np.log(powers / powers.sum(1, keepdims=True))
    wanted = -(rows * log_p).sum(1).reshape(shape[0], -1).mean(1)
    for target in (ids.astype(ids_dtype), rows, rows.astype(bool), 4 * rows.astype(np.int8)):
        losses, p = cross_entropy(x, target)
        np.testing.assert_allclose(losses, wanted, rtol=1e-13)
        np.testing.assert_allclose(p, np.exp(log_p), rtol=1e-13)


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 2, 4)])
@pytest.mark.parametrize("kind", ["ids", "multi_hot", "weights"])
def test_softmax_cross_entropy_derivative(shape, kind):
    x, dlosses = RNG.standard_normal(shape), RNG.standard_normal(shape[:1])
    target = {
        "ids": RNG.integers(0, shape[1], (shape[0], *shape[2:])),
        "multi_hot": np.concatenate([np.ones((shape[0], 1, *shape[2:])), RNG.random(shape)[:, 1:] < 0.5], 1),
        "weights": RNG.random(shape),
    }[kind]
    wanted = central(lambda v: dlosses * cross_entropy(v, target)[0], x)
    got = result("softmax_cross_entropy_derivative", dlosses, cross_entropy(x, target)[1], target, shape=shape)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-10)


def test_cross_entropy_derivative_keeps_its_digits_near_a_hit():
    p = np.array([[1e-7, 1 - 2.0**-24]], np.float32)
    got = result("softmax_cross_entropy_derivative", np.array([3.0], np.float32), p, np.array([1]), shape=(1, 2))
    np.testing.assert_allclose(got, [[3e-7, -3 * 2.0**-24]], rtol=1e-6)


SAMPLE_LOSSES: list[tuple[str, dict[str, float], Callable[[float, float], float]]] = [
    ("sigmoid_cross_entropy", {}, lambda x, t: max(x, 0) - x * t + math.log1p(math.exp(-abs(x)))),
    (
        "huber",
        {"delta": 0.6},
        lambda x, t: (x - t) ** 2 / 2 if abs(x - t) <= 0.6 else 0.6 * (abs(x - t) - 0.3),
    ),
]
every_sample_loss = pytest.mark.parametrize("name, settings, one", SAMPLE_LOSSES, ids=["sigmoid", "huber"])


@every_sample_loss
@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 7), (2, 131, 149)])
def test_sample_losses_are_means(name, settings, one, shape):
    x, target = 2 * RNG.standard_normal(shape), RNG.random(shape)
    wanted = [
        np.mean([one(a, b) for a, b in zip(row.flat, goal.flat, strict=True)])
        for row, goal in zip(x, target, strict=True)
    ]
    got = result(name, x, target, shape=shape[:1], **settings)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


@every_sample_loss
def test_sample_loss_derivatives(name, settings, one):
    x, target, dlosses = 2 * RNG.standard_normal((3, 5, 2)), RNG.random((3, 5, 2)), RNG.standard_normal(3)
    wanted = central(lambda v: dlosses * result(name, v, target, shape=(3,), **settings), x)
    got = result(f"{name}_derivative", dlosses, x, target, shape=x.shape, **settings)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-10)


def test_squared_error_by_hand():
    x, target, dy = np.array([[1.0, 2.0, -3.0]]), np.array([[0.0, 4.0, -3.0]]), np.array([[5.0, 7.0, 9.0]])
    np.testing.assert_array_equal(result("squared_error", x, target), [[0.5, 2.0, 0.0]])
    np.testing.assert_array_equal(result("squared_error_derivative", dy, x, target), [[5.0, -14.0, 0.0]])


# Empty batches


@pytest.mark.parametrize(
    "kernel, shapes, settings",
    [
        ("relu_derivative", [(0, 5), (0, 5), (0, 5)], {}),
        ("gelu", [(0, 5), (0, 5)], {}),
        ("softmax", [(0, 5), (0, 5)], {"axis": 1}),
        ("softmax", [(3, 0), (3, 0)], {"axis": 1}),
        ("scale", [(0, 5), (0, 5)], {"alpha": 2.0, "beta": 1.0}),
        ("linear", [(0, 5), (5, 3), (3,), (0, 3)], {}),
        ("softmax_cross_entropy", [(0, 5), (0, 5), (0,), (0, 5)], {}),
        ("softmax_cross_entropy_derivative", [(0,), (0, 5), (0, 5), (0, 5)], {}),
        ("huber", [(0, 5), (0, 5), (0,)], {"delta": 1.0}),
        ("huber_derivative", [(0,), (0, 5), (0, 5), (0, 5)], {"delta": 1.0}),
        ("in_top_k", [(0, 5), (0, 5), (0,)], {"k": 2}),
        ("precision_at_k", [(0, 5, 3), (0, 5, 3), (0,)], {"k": 2}),
    ],
)
def test_an_empty_batch_does_nothing(kernel, shapes, settings):
    call(kernel, *(np.empty(shape) for shape in shapes), **settings)


def test_an_empty_sum_is_zero():
    np.testing.assert_array_equal(result("bias_gradient", np.empty((0, 3)), shape=(3,), axis=1), [0, 0, 0])
