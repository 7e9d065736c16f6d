"""The cases of `kernels.py`: kernels of the interface at the shapes that real nets give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from singa_lite.kernels.interface.update import AdamHyper, Hyper, SgdHyper
from singa_lite.kernels.interface.window import Window

Shape = tuple[int, ...]
Array = np.ndarray[Any, Any]

#: Tensors of four axes that are no images.
FILTERS = frozenset({"weight", "dweight"})
#: Tensors that are not float32, by name.
DTYPES = {
    "ids": np.int64,
    "target": np.int64,
    "rate": np.float64,
    "count": np.int64,
    "key": np.uint64,
    "index": np.uint8,
}
#: Values of those that are one number: a rate, and updates so far (the first one leaves the velocity out).
SCALARS = {"rate": 0.001, "count": 10}
#: Below what integers are.
BELOW = {"ids": 50257}
#: Tensors that a kernel takes roots, powers or quotients of.
POSITIVE = frozenset({"running_var", "inv_std", "scale", "second_moment", "velocity", "norm"})
#: The constant of LRN, which its derivative does not get but its scale holds.
LRN_K = 1.0


@dataclass(frozen=True)
class Case:
    """A kernel call. tensors: {argument: shape, or None if it is left out}, in the interface's order.

    within: {argument: shape of the array whose leading part along axis 1 it is}. result: the argument whose values
    are compared with PyTorch's, "" for random ones.
    """

    title: str
    kernel: str
    tensors: dict[str, Shape | None]
    settings: dict[str, Any] = field(default_factory=dict)
    result: str = "y"
    within: dict[str, Shape] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kernel}: {self.title}"

    def arrays(self, layouts: Mapping[str, Shape] | None = None) -> dict[str, Array | None]:
        """Values for all tensors, the same in every process and layout.

        layouts: {"image" or "filters": axes from the outermost to the innermost}, as a KernelSet's; default C order.
        """
        return {
            name: None if shape is None else self._array(name, shape, layouts or {})
            for name, shape in self.tensors.items()
        }

    def _array(self, name: str, shape: Shape, layouts: Mapping[str, Shape]) -> Array:
        whole = self.within.get(name, shape)
        values = _values(name, prod(whole)).reshape(whole)
        axes = layouts.get("filters" if name in FILTERS else "image", ())
        if axes and len(whole) == len(axes):
            values = np.ascontiguousarray(values.transpose(axes)).transpose(np.argsort(axes))
        return values[:, : shape[1]] if name in self.within else values


def _values(name: str, size: int) -> Array:
    dtype = np.dtype(DTYPES.get(name, np.float32))
    random = np.random.default_rng(len(name) + ord(name[0]))
    if name in SCALARS:
        return np.full(size, SCALARS[name], dtype)
    if dtype.kind in "iu":
        return np.resize(random.integers(0, BELOW.get(name, 4), 4099).astype(dtype), size)
    values = random.standard_normal(min(size, 1_000_003), dtype=np.float32)
    return np.resize(np.abs(values) + 0.5 if name in POSITIVE else values, size)


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _convolutions()
    yield from _products()
    yield from _normalizations()
    yield from _tables()
    yield from _poolings()
    yield from _pointwise()
    yield from _losses()
    yield from _updates()


def _convolutions() -> Iterator[Case]:
    rows = [
        # title, n, c, h, kernels, kernel, stride, groups
        ("ResNet-50 stem, 16", 16, 3, 224, 64, 7, 2, 1),
        ("ResNet-50 56 1x1 256-64, 16", 16, 256, 56, 64, 1, 1, 1),
        ("ResNet-50 56 3x3, 16", 16, 64, 56, 64, 3, 1, 1),
        ("ResNet-50 56 3x3 stride 2, 16", 16, 128, 56, 128, 3, 2, 1),
        ("ResNet-50 28 3x3, 16", 16, 128, 28, 128, 3, 1, 1),
        ("ResNet-50 56 1x1 stride 2 256-512, 16", 16, 256, 56, 512, 1, 2, 1),
        ("ResNet-50 14 1x1 1024-256, 16", 16, 1024, 14, 256, 1, 1, 1),
        ("ResNet-50 14 3x3, 16", 16, 256, 14, 256, 3, 1, 1),
        ("ResNet-50 7 3x3, 16", 16, 512, 7, 512, 3, 1, 1),
        ("VGG16 224 3x3 64-64, 8", 8, 64, 224, 64, 3, 1, 1),
        ("VGG16 28 3x3 512-512, 8", 8, 512, 28, 512, 3, 1, 1),
        ("MobileNetV2 112 depthwise, 32", 32, 32, 112, 32, 3, 1, 32),
        ("MobileNetV2 112 depthwise stride 2, 32", 32, 96, 112, 96, 3, 2, 96),
        ("MobileNetV2 14 depthwise, 32", 32, 384, 14, 384, 3, 1, 384),
        ("MobileNetV2 112 1x1 16-96, 32", 32, 16, 112, 96, 1, 1, 1),
        ("LeNet 28 5x5, 64", 64, 1, 28, 6, 5, 1, 1),
    ]
    for title, n, c, h, kernels, kernel, stride, groups in rows:
        window = Window((kernel,) * 2, (stride,) * 2, (kernel // 2,) * 4)
        x, weight = (n, c, h, h), (kernels, c // groups, *window.kernel)
        y, settings = (n, kernels, *window.positions(title, (h, h))), {"window": window, "groups": groups}
        yield Case(title, "conv2d", {"x": x, "weight": weight, "bias": None, "y": y}, settings)
        yield Case(title, "conv2d_gradient", {"x": x, "dy": y, "dweight": weight}, settings, "dweight")
        if c > 3:  # the first layer's is asked for by nobody
            yield Case(title, "conv2d_derivative", {"dy": y, "weight": weight, "dx": x}, settings, "dx")


def _products() -> Iterator[Case]:
    for title, n, inputs, outputs in (
        ("MLP 2048-2048, 64", 64, 2048, 2048),
        ("MLP 2048-2048, 512", 512, 2048, 2048),
        ("VGG16 25088-4096, 8", 8, 25088, 4096),
        ("ResNet-50 2048-1000, 16", 16, 2048, 1000),
    ):
        x, weight, y = (n, inputs), (inputs, outputs), (n, outputs)
        yield Case(title, "linear", {"x": x, "weight": weight, "bias": (outputs,), "y": y})
        turned = {"transpose_a": False, "transpose_b": True}
        yield Case(f"{title}, derivative", "matmul", {"a": y, "b": weight, "y": x}, turned)
        turned = {"transpose_a": True, "transpose_b": False}
        yield Case(f"{title}, gradient", "matmul", {"a": x, "b": y, "y": weight}, turned)
        yield Case(title, "bias_gradient", {"dy": y, "db": (outputs,)}, {"axis": 1}, "db")
    yield Case("VGG16 224, 8", "bias_gradient", {"dy": (8, 64, 224, 224), "db": (64,)}, {"axis": 1}, "db")


def _normalizations() -> Iterator[Case]:
    for title, x in (
        ("ResNet-50 stem, 16", (16, 64, 112, 112)),
        ("ResNet-50 14 1024, 16", (16, 1024, 14, 14)),
        ("MobileNetV2 112 96, 32", (32, 96, 112, 112)),
    ):
        given = dict.fromkeys(("gamma", "beta", "running_mean", "running_var"), (x[1],))
        made = {"mean": (x[1],), "inv_std": (x[1],)}
        settings = {"momentum": 0.1, "epsilon": 1e-5}
        yield Case(title, "batch_norm", {"x": x, **given, "other": None, "y": x, **made}, settings)
        yield Case(title, "batch_norm_inference", {"x": x, **given, "y": x}, {"epsilon": 1e-5})
        given = {"gamma": (x[1],), "beta": None, **made, "other": None}
        back = {**given, "dx": x, "dgamma": (x[1],), "dbeta": (x[1],)}
        yield Case(title, "batch_norm_derivative", {"dy": x, "x": x, **back}, {}, "dx")
    x, row = (32, 128, 768), (768,)
    made = {"mean": (32, 128), "inv_std": (32, 128)}
    yield Case("4096 rows of 768", "layer_norm", {"x": x, "gamma": row, "beta": row, "y": x, **made}, {"epsilon": 1e-5})
    back = {"dy": x, "x": x, "gamma": row, **made, "dx": x}
    yield Case("4096 rows of 768", "layer_norm_derivative", back, {}, "dx")
    back = {"dy": x, "x": x, **made, "dgamma": row, "dbeta": row}
    yield Case("4096 rows of 768", "layer_norm_gradient", back, {}, "dgamma")
    made = {"inv_rms": (32, 128)}
    yield Case("4096 rows of 768", "rms_norm", {"x": x, "gamma": row, "y": x, **made}, {"epsilon": 1e-6})
    x, settings = (32, 96, 27, 27), {"size": 5, "alpha": 1e-4, "beta": 0.75}
    yield Case("AlexNet 27 96, 32", "lrn", {"x": x, "y": x, "scale": x}, {**settings, "k": LRN_K})
    yield Case("AlexNet 27 96, 32", "lrn_derivative", {"dy": x, "x": x, "scale": x, "dx": x}, settings, "dx")


def _tables() -> Iterator[Case]:
    title, ids, table, rows = "GPT-2, 2 x 256 of 50257", (2, 256), (50257, 768), (2, 256, 768)
    yield Case(title, "embedding", {"ids": ids, "weight": table, "y": rows})
    settings = {"first": 0, "padding": -1}
    yield Case(title, "embedding_gradient", {"ids": ids, "dy": rows, "dweight": table}, settings, "dweight")


def _poolings() -> Iterator[Case]:
    for title, x, kernel, stride, pad in (
        ("ResNet-50 stem 3x3 stride 2, 16", (16, 64, 112, 112), 3, 2, 1),
        ("VGG16 224 2x2, 8", (8, 64, 224, 224), 2, 2, 0),
        ("LeNet 28 2x2, 64", (64, 6, 28, 28), 2, 2, 0),
    ):
        window = Window((kernel,) * 2, (stride,) * 2, (pad,) * 4)
        y, settings = (*x[:2], *window.positions(title, x[2:])), {"window": window}
        yield Case(title, "max_pool2d", {"x": x, "y": y, "index": y}, settings)
        yield Case(title, "max_pool2d_derivative", {"dy": y, "index": y, "dx": x}, settings, "dx")
    x, y = (16, 128, 56, 56), (16, 128, 28, 28)
    settings = {"window": Window((2, 2), (2, 2)), "count_pad": True}
    yield Case("DenseNet 56 2x2, 16", "avg_pool2d", {"x": x, "y": y}, settings)
    yield Case("DenseNet 56 2x2, 16", "avg_pool2d_derivative", {"dy": y, "dx": x}, settings, "dx")
    x, settings = (32, 1280, 7, 7), {"axes": (2, 3), "alpha": 1 / 49}
    yield Case("MobileNetV2 average, 32", "reduce_sum", {"x": x, "y": x[:2]}, settings)


def _pointwise() -> Iterator[Case]:
    large, small = (16, 256, 56, 56), (64, 2048)
    for title, x in (("ResNet-50 56 256, 16", large), ("MLP 2048, 64", small)):
        yield Case(title, "relu", {"x": x, "y": x})
        yield Case(title, "relu_derivative", {"dy": x, "y": x, "dx": x}, {}, "dx")
    for name in ("relu6", "sigmoid", "tanh", "gelu", "silu"):
        saved = "x" if name in ("gelu", "silu") else "y"
        yield Case("ResNet-50 56 256, 16", name, {"x": large, "y": large})
        yield Case("ResNet-50 56 256, 16", f"{name}_derivative", {"dy": large, saved: large, "dx": large}, {}, "dx")
    yield Case("ResNet-50 56 256, 16", "add", {"a": large, "b": large, "y": large})
    yield Case("ResNet-50 56 256, 16", "multiply", {"a": large, "b": large, "y": large})
    yield Case("ResNet-50 56 256, 16", "copy", {"x": large, "y": large})
    part = {"y": (16, 512, 56, 56)}
    yield Case("256 of 512 channels, as concatenation does, 16", "copy", {"x": large, "y": large}, {}, "y", part)
    part = {"x": (16, 512, 56, 56)}
    yield Case("out of 512 channels, as slicing does, 16", "copy", {"x": large, "y": large}, {}, "y", part)
    yield Case("VGG16 4096, 64", "dropout", {"x": (64, 4096), "key": (3,), "y": (64, 4096)}, {"p": 0.5}, "")
    yield Case("ResNet-50 56 256, 16", "dropout", {"x": large, "key": (3,), "y": large}, {"p": 0.5}, "")


def _losses() -> Iterator[Case]:
    for title, x in (("1000 classes, 32", (32, 1000)), ("U-Net 5 classes of 128 x 160, 8", (8, 5, 128, 160))):
        n, target = (x[0],), (x[0], *x[2:])
        yield Case(title, "softmax", {"x": x, "y": x}, {"axis": 1})
        yield Case(title, "softmax_cross_entropy", {"x": x, "target": target, "losses": n, "p": x}, {}, "losses")
        back = {"dlosses": n, "p": x, "target": target, "dx": x}
        yield Case(title, "softmax_cross_entropy_derivative", back, {}, "")


def _updates() -> Iterator[Case]:
    for title, size in (("4 M", 4 << 20), ("VGG16 dense1, 103 M", 25088 * 4096)):
        one = (size,)
        hyper: Hyper = SgdHyper(momentum=0.9, dampening=0.0, nesterov=False, weight_decay=0.0, lr_mult=1.0)
        state = {"velocity": one, "count": ()}
        yield Case(title, "sgd", {"gradient": one, "rate": (), "value": one, **state}, {"hyper": hyper}, "value")
        hyper = AdamHyper(beta_1=0.9, beta_2=0.999, epsilon=1e-8, weight_decay=0.01, decoupled=True, lr_mult=1.0)
        state = {"first_moment": one, "second_moment": one, "count": ()}
        tensors = {"gradient": one, "rate": (), "value": one, **state}
        yield Case(title, "adam", tensors, {"hyper": hyper}, "value")
