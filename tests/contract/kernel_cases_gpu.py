"""Further calls of kernels: sizes about what a pack, a warp, a block or a tile of a GPU holds, and shared-out sums."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np

import kernel_cases_attention as attention
import kernel_cases_pointwise as pointwise
import kernel_cases_quantized as quantized
import kernel_cases_spatial as spatial
from kernel_case import Case, Tensors, garbage
from kernel_cases import CASES
from kernel_cases_recurrent import BACKWARDS, GATES, recurrent
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.interface.window import Window

Shape = tuple[int, ...]


def fixed(*shapes: Shape, **settings: Any) -> Case:
    """Inputs of normal numbers and a result, of these shapes."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> tuple[Tensors, dict[str, Any]]:
        inputs = [pointwise.normal(rng, shape, dtype) for shape in shapes[:-1]]
        return [*inputs, garbage(shapes[-1], dtype)], settings

    return Case(build)


def resized(key: str, **sizes: Shape | dict[int, Shape]) -> Case:
    """A case of the tables whose named sizes are these."""
    by_axes = {name: {n: (s, s) for n, s in size.items()} for name, size in sizes.items() if isinstance(size, dict)}
    plain = {name: (size, size) for name, size in sizes.items() if isinstance(size, tuple)}

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> tuple[Tensors, dict[str, Any]]:
        with ExitStack() as changed:
            for module in (pointwise, spatial):
                for name, size in (by_axes | plain).items():
                    if hasattr(module, name):
                        changed.enter_context(patch.object(module, name, size))
            return CASES[key].build(rng, dtype, False)

    return Case(build)


def with_target(case: Case, target: int, dtype: Any) -> Case:
    """The same, tensor number `target` in another dtype."""

    def build(rng: np.random.Generator, of: np.dtype, big: bool) -> tuple[Tensors, dict[str, Any]]:
        tensors, settings = case.build(rng, of, big)
        tensors[target] = (2 * rng.standard_normal(np.shape(tensors[target]))).astype(dtype)
        return tensors, settings

    return Case(build)


def softmax_derivative(shape: Shape, axis: int) -> Case:
    """At even probabilities: where one is almost 1, dy - sum of dy * y cancels."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> tuple[Tensors, dict[str, Any]]:
        powers = np.exp(pointwise.normal(rng, shape, np.dtype("f8")) / 4)
        y = (powers / powers.sum(axis, keepdims=True)).astype(dtype)
        return [pointwise.normal(rng, shape, dtype), y, garbage(shape, dtype)], {"axis": axis}

    return Case(build)


def embedding_gradient(name: str, places: int, features: int, most: int = 71) -> Case:
    """ids below `most`, dy, gradient."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> tuple[Tensors, dict[str, Any]]:
        ids, dy = rng.integers(0, most, places), pointwise.normal(rng, (places, features), dtype)
        adds = name.endswith("_add")
        gradient = pointwise.normal(rng, (60, features), dtype) if adds else garbage((60, features), dtype)
        return [ids, dy, gradient], {"first": 7, "padding": -1 if adds else 11}

    return Case(build)


def by_blocks(back: bool) -> Case:
    """A weight of more rows than some tiles have, in quantised blocks."""
    case = quantized.product("q8_0", back, bias=not back, shape=(67, 96), count=5)
    return Case(lambda rng, dtype, big: case.build(rng, dtype, True))


def reduced(shape: Shape, axes: tuple[int, ...], **settings: float) -> Case:
    """A sum or an extreme whose axes are kept as 1."""
    places = {axis % len(shape) for axis in axes}
    kept = tuple(1 if axis in places else extent for axis, extent in enumerate(shape))
    return fixed(shape, kept, axes=axes, **settings)


#: Parts of a warp, a warp, a block and several of them in a row; columns of few and of many rows.
ROWS = [(7, 1), (67, 3), (9, 8), (5, 49), (3, 512), (3, 513), (2, 4100), (1, 20011), (3, 20000)]
COLUMNS = [(1, 5), (3, 2000), (64, 3), (65, 10), (8, 128), (9, 129), (20011, 1), (3001, 20), (700, 133)]
AXES = [(0,), (1,), (3,), (2, 3), (0, 2), (1, 3), (0, 2, 3), (-1, -2, -3), (0, 1, 2, 3), ()]
REDUCTIONS: dict[str, dict[str, float]] = {"reduce_sum": {"alpha": -0.75}, "reduce_max": {}, "reduce_min": {}}
#: Parts of a warp, all of one, what registers hold of a row and one more.
LENGTHS = [1, 2, 9, 21, 128, 129, 512, 513, 1000, 1024, 1025, 2051, 8193]
#: (rows, depth, columns) of a product.
PRODUCTS = [(1, 1, 1), (1, 37, 5), (64, 16, 64), (65, 17, 63), (3, 33, 129), (130, 5, 2), (67, 64, 68)]
#: Samples of one element, of a warp, of a block, of several blocks.
SAMPLES = [(70, 1), (5, 3, 7), (3, 600), (2, 17, 31, 67), (1, 70_001)]
SCORES = [(1, 1), (70, 2), (5, 33), (2, 300), (3, 5, 7, 6), (60, 3, 1, 1)]
#: Images of whole packs of channels, and of parts of one: x, filters, window, groups.
CONVOLUTIONS: dict[str, tuple[Shape, int, Window, int]] = {
    "depthwise": ((2, 16, 9, 7), 16, Window((3, 3), (2, 3), (1, 0, 1, 1)), 16),
    "depthwise, dilated": ((2, 8, 9, 7), 8, Window((3, 2), pad=(2, 2, 3, 0), dilation=(2, 3)), 8),
    "depthwise, many taps": ((2, 8, 7, 9), 8, Window((5, 5), pad=(2, 2, 2, 2)), 8),
    "depthwise, many channels": ((1, 132, 3, 4), 132, Window((2, 2)), 132),
    "depthwise, many places": ((1, 8, 31, 37), 8, Window((3, 3)), 8),
    "depthwise, windows in the padding alone": ((2, 4, 2, 3), 4, Window((2, 2), pad=(3, 4, 2, 5)), 4),
}
#: Several slabs of several rows a thread, the last of each shorter, in one tile of channels and in two.
SLABS = [(3, 4, 31, 47), (2, 130, 15, 31), (5, 3, 23, 29)]

#: (steps, samples, units) and the mask's dtype: one of each, several blocks of units, samples about a tile's 64.
STEPS = [((1, 1, 1), "int64"), ((3, 5, 131), "bool"), ((2, 67, 6), "float64")]


def convolution(direction: str, label: str, **further: Any) -> Case:
    """A row of the table."""
    x, filters, window, groups = CONVOLUTIONS[label]
    return spatial.convolution(direction, window=window, small=x, filters=(filters, filters), groups=groups, **further)


FURTHER: dict[str, Case] = {
    **attention.FURTHER,
    **{
        f"{name}:{label} {s}": reduced(s, (axis,), **settings)
        for name, settings in REDUCTIONS.items()
        for label, axis, shapes in (("rows", 1, ROWS), ("columns", 0, COLUMNS))
        for s in shapes
    },
    **{
        f"{name}:{s} {a}": reduced(s, a, **settings)
        for name, settings in REDUCTIONS.items()
        for s in ((3, 5, 7, 2), (2, 8, 3, 12))
        for a in AXES
    },
    **{
        f"bias_gradient:{s}": fixed(s, s[1:2], axis=1)
        for s in ((4, 3, 60, 60), (2, 64, 20, 31), (2, 130, 5, 7), (33, 10, 1, 1))
    },
    **{f"softmax:rows {n}": fixed((3, n), (3, n), axis=1) for n in LENGTHS},
    **{f"softmax:columns {n}": fixed((n, 7), (n, 7), axis=0) for n in LENGTHS},
    **{f"softmax_derivative:rows {n}": softmax_derivative((3, n), 1) for n in LENGTHS},
    **{f"softmax_derivative:columns {n}": softmax_derivative((2, n, 7), 1) for n in LENGTHS},
    **{
        f"softmax_cross_entropy{end}:{n} classes of {np.dtype(target)}": build(((2, n), (2, n)), target)
        for end, build in (("", pointwise.class_loss), ("_derivative", pointwise.class_loss_derivative))
        for n in (2051, 8194)
        for target in ("i8", "f4")
    },
    **{f"softmax:images {a}": fixed((3, 8, 4, 12), (3, 8, 4, 12), axis=a) for a in range(4)},
    **{f"softmax_derivative:images {a}": softmax_derivative((2, 5, 7, 3), a) for a in range(4)},
    "quantized_linear:rows": by_blocks(back=False),
    "quantized_linear_derivative:rows": by_blocks(back=True),
    **{f"linear:{m, k, n}": fixed((m, k), (k, n), (n,), (m, n)) for m, k, n in PRODUCTS},
    **{f"linear:relu {m, k, n}": fixed((m, k), (k, n), (n,), (m, n), activation="relu") for m, k, n in PRODUCTS},
    **{
        f"matmul:{a} {b} {left} {right}": fixed(
            (*a, *((19, 65) if left else (65, 19))),
            (*b, *((7, 19) if right else (19, 7))),
            (*(a or b), 65, 7),
            transpose_a=left,
            transpose_b=right,
        )
        for a, b in (((3, 2), (3, 2)), ((3, 2), ()), ((), (3, 2)))
        for left, right in ((False, False), (True, False), (False, True), (True, True))
    },
    **{
        f"{name}:{s}": resized(name, IMAGES=s)
        for name in ("sigmoid_cross_entropy", "huber", "sigmoid_cross_entropy_derivative", "huber_derivative")
        for s in SAMPLES
    },
    **{
        f"{name}:target of {dtype}": with_target(CASES[name], target, dtype)
        for name, target in (("sigmoid_cross_entropy", 1), ("huber_derivative", 2), ("squared_error_derivative", 2))
        for dtype in ("bool", "int16", "float64")
    },
    **{
        f"{name}:{dtype} {s}": pointwise.hits((s, s), dtype)
        for s in SCORES
        for name, dtype in (("in_top_k", "i8"), ("in_top_k", "f4"), ("precision_at_k", "?"), ("recall_at_k", "f8"))
    },
    **{
        f"{direction}:{label}": convolution(direction, label)
        for direction in ("conv2d", "conv2d_derivative", "conv2d_gradient")
        for label in CONVOLUTIONS
    },
    **{
        f"conv2d:depthwise relu {bias}": convolution("conv2d", "depthwise", with_bias=bias, activation="relu")
        for bias in (True, False)
    },
    **{f"{n}:slabs {s}": resized(n, CHANNELS={2: s}) for n in ("batch_norm", "batch_norm_derivative") for s in SLABS},
    **{
        f"{name}:{places} {features}": embedding_gradient(name, places, features)
        for name in ("embedding_gradient", "embedding_gradient_add")
        for places, features in ((1, 5), (255, 5), (256, 31), (257, 129), (768, 5), (1283, 300), (4097, 5))
    },
    "embedding_gradient:long runs": embedding_gradient("embedding_gradient", 700, 131, 10),
    "embedding_gradient_add:long runs": embedding_gradient("embedding_gradient_add", 700, 5, 10),
    **{
        f"{name}:{s} {mask}": recurrent(name, without, (s, s), mask, last=s[0] == 3, **further)
        for name in sorted(key for key in SIGNATURES if key.removesuffix("_derivative") in GATES)
        for (s, mask), without, further in (
            (STEPS[0], (), {}),
            (STEPS[1], ("hidden0", "bias"), BACKWARDS),
            (STEPS[2], ("cell0",), {"reverse": True}),
        )
    },
    **{
        f"gru{tail}:reset before {s} {mask}": recurrent(
            f"gru{tail}", without, (s, s), mask, reset_after=False, **further
        )
        for tail, without in (("", ("hidden0", "bias")), ("_derivative", ("dproducts",)))
        for (s, mask), further in ((STEPS[1], BACKWARDS), (STEPS[2], {"last": True}))
    },
    **{
        f"{name}:{s}": resized(name, IMAGES=s)
        for name in ("uniform", "normal", "truncated_normal")
        for s in ((1,), (8,), (9,), (15,), (2, 4, 3, 8), (7, 47, 101))
    },
    "clip_norm:more sums than threads": resized("clip_norm", PARAMETERS=(300_007,)),
}
