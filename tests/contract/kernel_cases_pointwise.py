"""Cases of the kernels of elementwise, reduction, linear, activation, loss and metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernel_case import Case, Tensors, garbage

SMALL = (3, 5, 7)
BIG = (11, 219, 221)
SCORES = ((5, 7), (719, 739))
IMAGES = ((3, 5, 2, 7), (3, 11, 127, 129))

Made = tuple[Tensors, dict[str, Any]]
Formula = Callable[[np.ndarray], np.ndarray]


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Normal numbers of any float dtype."""
    return rng.standard_normal(shape).astype(dtype)


def same(x: np.ndarray) -> np.ndarray:
    """The identity."""
    return x


def logistic(x: np.ndarray) -> np.ndarray:
    """An output of sigmoid."""
    return 1 / (1 + np.exp(-x))


def unary(formula: Formula = same, **settings: Any) -> Case:
    """x, y of equal shapes; x = formula of normal numbers."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        x = formula(normal(rng, BIG if big else SMALL, dtype)).astype(dtype)
        return [x, garbage(x.shape, dtype)], settings

    return Case(build)


def binary(formula: Formula = same, a_axes: str = "nch", b_axes: str = "nch", **settings: Any) -> Case:
    """a, b, y: y has axes n, c, h, and a and b those of them that are named, 1 where it says 1.

    b = formula of normal numbers: an activation's output, say, with dy as a.
    """

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        extents = {"1": 1, **dict(zip("nch", BIG if big else SMALL, strict=True))}
        a, b = (normal(rng, tuple(extents[axis] for axis in axes), dtype) for axes in (a_axes, b_axes))
        return [a, formula(b).astype(dtype), garbage(BIG if big else SMALL, dtype)], settings

    return Case(build)


def rounded(*axes: str, settings: dict[str, Any] | None = None, last: Any = None) -> Case:
    """Tensors with those of the axes n, c, h that are named, whole numbers among which many are equal, and y.

    axes: of each tensor; "?" before them: of bool. last: the dtype of y, None for that of the case.
    """

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        shape = BIG if big else SMALL
        extents = {"1": 1, **dict(zip("nch", shape, strict=True))}
        shapes = [tuple(extents[axis] for axis in each.lstrip("?")) for each in axes]
        made = [np.asarray(np.round(2 * normal(rng, each, dtype))) for each in shapes]
        read = [m > 0 if each[:1] == "?" else m for m, each in zip(made, axes, strict=True)]
        return [*read, garbage(shape, last or dtype)], dict(settings or {})

    return Case(build)


def long_rows(name: str) -> Case:
    """`softmax` or `softmax_derivative` along rows longer than a GPU's warp keeps: 32 numbers of 4 bytes a lane."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        x = normal(rng, (139, 4099) if big else (1, 7992 // dtype.itemsize), dtype)
        inputs = [x] if name == "softmax" else [normal(rng, x.shape, dtype), probabilities(x)]
        return [*inputs, garbage(x.shape, dtype)], {"axis": 1}

    return Case(build)


def conversion(x_dtype: Any, *x_axes: int) -> Case:
    """copy of x, which has the given axes of y and another dtype (None: the same)."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        shape = BIG if big else SMALL
        x = 9 * normal(rng, tuple(e if i in x_axes else 1 for i, e in enumerate(shape)), dtype)
        return [x.astype(x_dtype or dtype), garbage(shape, dtype)], {}

    return Case(build)


def build_fill(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """y alone."""
    return [garbage(BIG if big else SMALL, dtype)], {"value": -2.5}


def reduction(y_shape: Callable[[tuple[int, ...]], tuple[int, ...]], **settings: Any) -> Case:
    """x and its sum, whose shape follows from x's."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        shape = BIG if big else SMALL
        return [normal(rng, shape, dtype), garbage(y_shape(shape), dtype)], settings

    return Case(build)


def product(transpose_a: bool, transpose_b: bool, a_lead: bool = False, b_lead: bool = False) -> Case:
    """Matrices, a and b with a leading axis or without."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        lead, rows, inner, columns = (7, 311, 23, 313) if big else (2, 3, 4, 5)
        if not (a_lead or b_lead):
            rows *= 7  # a plain product's result must be large as well
        a = normal(rng, (inner, rows) if transpose_a else (rows, inner), dtype)
        b = normal(rng, (columns, inner) if transpose_b else (inner, columns), dtype)
        if a_lead:
            a = normal(rng, (lead, *a.shape), dtype)
        if b_lead:
            b = normal(rng, (lead, *b.shape), dtype)
        y = garbage(((lead,) if a_lead or b_lead else ()) + (rows, columns), dtype)
        return [a, b, y], {"transpose_a": transpose_a, "transpose_b": transpose_b}

    return Case(build)


def dense(use_bias: bool, **settings: Any) -> Case:
    """x, weight, bias or None, y."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        n, inputs, outputs = (719, 37, 741) if big else (5, 3, 7)
        bias = normal(rng, (outputs,), dtype) if use_bias else None
        x, weight = normal(rng, (n, inputs), dtype), normal(rng, (inputs, outputs), dtype)
        return [x, weight, bias, garbage((n, outputs), dtype)], settings

    return Case(build)


def build_linear_gradient(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """x, dy, dweight, dbias."""
    n, inputs, outputs = (709, 757, 331) if big else (3, 7, 5)
    x, dy = normal(rng, (n, inputs), dtype), normal(rng, (n, outputs), dtype)
    return [x, dy, garbage((inputs, outputs), dtype), garbage((outputs,), dtype)], {}


def bias_add(axis: int) -> Case:
    """x, bias along `axis`, y."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        shape = BIG if big else SMALL
        tensors = [normal(rng, shape, dtype), normal(rng, (shape[axis],), dtype), garbage(shape, dtype)]
        return tensors, {"axis": axis}

    return Case(build)


def targets(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Class ids (integer dtype), or rows with about a third of the classes and at least one."""
    ids = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    if np.dtype(dtype).kind in "iu":
        return ids.astype(dtype)
    rows = rng.random(shape) < 0.3
    np.put_along_axis(rows, np.expand_dims(ids, 1), True, axis=1)
    return rows.astype(dtype)


def probabilities(x: np.ndarray) -> np.ndarray:
    """An output of softmax along axis 1."""
    powers = np.exp(x.astype("f8"))  # of float16, the sum may be too large for it
    return (powers / powers.sum(axis=1, keepdims=True)).astype(x.dtype)


def class_loss(shapes: tuple[tuple[int, ...], ...], target_dtype: Any) -> Case:
    """x, target, losses, p."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        x = 3 * normal(rng, shapes[big], dtype)
        target = targets(rng, x.shape, target_dtype)
        return [x, target, garbage(x.shape[:1], dtype), garbage(x.shape, dtype)], {}

    return Case(build)


def class_loss_derivative(shapes: tuple[tuple[int, ...], ...], target_dtype: Any) -> Case:
    """dlosses, p, target, dx."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        p = probabilities(3 * normal(rng, shapes[big], dtype))
        target = targets(rng, p.shape, target_dtype)
        return [normal(rng, p.shape[:1], dtype), p, target, garbage(p.shape, dtype)], {}

    return Case(build)


def sample_loss(derivative: bool, **settings: Any) -> Case:
    """x, target, losses; or with the derivative dlosses, x, target, dx."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        x = normal(rng, IMAGES[big], dtype)
        target, dlosses = rng.random(x.shape).astype(dtype), normal(rng, x.shape[:1], dtype)
        if derivative:
            return [dlosses, x, target, garbage(x.shape, dtype)], settings
        return [x, target, garbage(x.shape[:1], dtype)], settings

    return Case(build)


def build_squared_error_derivative(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
    """dy, x, target, dx."""
    shape = BIG if big else SMALL
    return [*(normal(rng, shape, dtype) for _ in range(3)), garbage(shape, dtype)], {}


def hits(shapes: tuple[tuple[int, ...], ...], target_dtype: Any) -> Case:
    """x with many ties, target, values; k = 3."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> Made:
        x = rng.integers(0, 50 if big else 4, shapes[big]).astype(dtype)
        return [x, targets(rng, x.shape, target_dtype), garbage(x.shape[:1], dtype)], {"k": 3}

    return Case(build)


CASES: dict[str, Case] = {
    "copy": unary(),
    "copy:broadcast": conversion(None, 1),
    "copy:integers": conversion(np.int32, 0, 1, 2),
    "fill": Case(build_fill),
    "add": binary(),
    "add:relu": binary(activation="relu"),
    "add:broadcast": binary(b_axes="c1"),
    "add:outer": binary(a_axes="n11", b_axes="ch"),
    "subtract": binary(),
    "subtract:broadcast": binary(a_axes="1h"),
    "multiply": binary(),
    "multiply:broadcast": binary(b_axes=""),
    "divide": binary(np.exp),
    "divide:broadcast": binary(np.exp, b_axes="n1h"),
    "scale": unary(alpha=-1.5, beta=0.25),
    "scale:no_offset": unary(alpha=3.0, beta=0.0),
    "power": unary(np.exp, exponent=-0.75),
    "power:square": unary(exponent=2.0),
    "power:root": unary(np.exp, exponent=0.5),
    "exp": unary(),
    "log": unary(np.exp),
    "absolute": unary(),
    "absolute_derivative": rounded("nch", "nch"),
    "clip": unary(low=-0.5, high=0.75),
    "clip:above": unary(low=float("-inf"), high=0.5),
    "clip_derivative": rounded("nch", "nch", settings={"low": -1.0, "high": 2.0}),
    "maximum": binary(),
    "maximum:broadcast": binary(a_axes="n11", b_axes="ch"),
    "minimum": binary(),
    "minimum:broadcast": binary(b_axes="c1"),
    "maximum_derivative": rounded("nch", "nch", "nch"),
    "maximum_derivative:broadcast": rounded("nch", "c1", "n1h"),
    "compare": rounded("nch", "nch", settings={"relation": "less"}, last=np.bool_),
    "compare:floats": rounded("nch", "nch", settings={"relation": "equal"}),
    "compare:broadcast": rounded("nch", "c1", settings={"relation": "less_equal"}, last=np.bool_),
    "compare:not equal": rounded("c1", "nch", settings={"relation": "not_equal"}),
    "where": rounded("?nch", "nch", "nch"),
    "where:broadcast": rounded("?c1", "n1h", "h"),
    "where:one number": rounded("?nch", "nch", ""),
    "flip": unary(axes=(0, 2)),
    "flip:last": unary(axes=(2,)),
    "reduce_max": reduction(lambda s: (1, s[1], 1), axes=(0, 2)),
    "reduce_max:left_out": reduction(lambda s: s[1:], axes=(0,)),
    "reduce_max:all": reduction(lambda s: (), axes=(0, 1, 2)),
    "reduce_min": reduction(lambda s: (*s[:2], 1), axes=(-1,)),
    "reduce_min:left_out": reduction(lambda s: (s[0],), axes=(1, 2)),
    "reduce_min:columns": reduction(lambda s: (1, *s[1:]), axes=(0,)),
    "reduce_sum": reduction(lambda s: (1, s[1], 1), axes=(0, 2), alpha=0.5),
    "reduce_sum:left_out": reduction(lambda s: s[1:], axes=(0,), alpha=1.0),
    "reduce_sum:last": reduction(lambda s: (*s[:2], 1), axes=(-1,), alpha=-2.0),
    "reduce_sum:all": reduction(lambda s: (), axes=(0, 1, 2), alpha=0.125),
    "bias_gradient": reduction(lambda s: s[1:2], axis=1),
    "bias_gradient:last": reduction(lambda s: s[-1:], axis=-1),
    "matmul": product(False, False),
    "matmul:a_transposed": product(True, False),
    "matmul:b_transposed": product(False, True),
    "matmul:both_transposed": product(True, True, a_lead=True, b_lead=True),
    "matmul:batched_a": product(False, True, a_lead=True),
    "matmul:batched_b": product(True, False, b_lead=True),
    "linear": dense(use_bias=True),
    "linear:no_bias": dense(use_bias=False),
    "linear:relu": dense(use_bias=True, activation="relu"),
    "linear:no_bias tanh": dense(use_bias=False, activation="tanh"),
    "linear_gradient": Case(build_linear_gradient),
    "add_bias": bias_add(axis=1),
    "add_bias:last": bias_add(axis=-1),
    "relu": unary(),
    "relu_derivative": binary(lambda x: np.maximum(x, 0)),
    "relu6": unary(lambda x: 5 * x),
    "relu6_derivative": binary(lambda x: np.clip(5 * x, 0, 6)),
    "leaky_relu": unary(slope=0.1),
    "leaky_relu:steep": unary(slope=3.0),
    "leaky_relu_derivative": binary(slope=0.1),
    "elu": unary(alpha=0.7),
    "elu_derivative": binary(lambda x: np.where(x > 0, x, 0.7 * np.expm1(x)), alpha=0.7),
    "sigmoid": unary(),
    "sigmoid_derivative": binary(logistic),
    "tanh": unary(),
    "tanh_derivative": binary(np.tanh),
    "gelu": unary(),
    "gelu_tanh": unary(),
    "gelu_derivative": binary(),
    "gelu_tanh_derivative": binary(),
    "silu": unary(),
    "silu_derivative": binary(),
    "softplus": unary(),
    "softplus_derivative": binary(lambda x: np.log1p(np.exp(x))),
    "softmax": unary(axis=1),
    "softmax:last": unary(axis=-1),
    "softmax:first": unary(axis=0),
    "softmax:long": long_rows("softmax"),
    "softmax_derivative": binary(probabilities, axis=1),
    "softmax_derivative:last": binary(probabilities, axis=-1),
    "softmax_derivative:long": long_rows("softmax_derivative"),
    "softmax_cross_entropy": class_loss(SCORES, np.int64),
    "softmax_cross_entropy:rows": class_loss(SCORES, np.float32),
    "softmax_cross_entropy:images": class_loss(IMAGES, np.uint8),
    "softmax_cross_entropy:image_rows": class_loss(IMAGES, np.bool_),
    "softmax_cross_entropy_derivative": class_loss_derivative(SCORES, np.int32),
    "softmax_cross_entropy_derivative:rows": class_loss_derivative(SCORES, np.bool_),
    "softmax_cross_entropy_derivative:images": class_loss_derivative(IMAGES, np.int64),
    "sigmoid_cross_entropy": sample_loss(derivative=False),
    "sigmoid_cross_entropy_derivative": sample_loss(derivative=True),
    "squared_error": binary(),
    "squared_error_derivative": Case(build_squared_error_derivative),
    "huber": sample_loss(derivative=False, delta=0.6),
    "huber_derivative": sample_loss(derivative=True, delta=0.6),
    "in_top_k": hits(SCORES, np.int64),
    "in_top_k:rows": hits(SCORES, np.float32),
    "in_top_k:images": hits(IMAGES, np.uint8),
    "precision_at_k": hits(SCORES, np.float32),
    "precision_at_k:images": hits(IMAGES, np.bool_),
    "recall_at_k": hits(SCORES, np.float32),
    "recall_at_k:images": hits(IMAGES, np.bool_),
}
