"""Mixed precision: in which dtype a net's activations are stored, or factors rounded, by what `compile` is told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.checks import check_choice, names
from singa_lite.common.errors import PrecisionWarning
from singa_lite.common.notice import warn
from singa_lite.compiler.ir.target import Narrow
from singa_lite.device import Device
from singa_lite.kernels.kernel_set import tf32_of
from singa_lite.layer.layer import Layer

#: What `compile(precision=)` takes. bfloat16 has 8 bits of exponent, as float32, and 7 of mantissa; float16 has 5, from
#: 6e-8 to 65504, and 10. tf32 stores float32, and has the factors of products rounded to 10 bits of mantissa on a GPU.
PRECISIONS = ("float32", "bfloat16", "float16", "tf32")


def storage_by(
    precision: object, float32_layers: Collection[str], graph: bool, layers: Sequence[Layer], device: Device
) -> Narrow | None:
    """How activations are stored; None: in the net's dtype.

    precision: one of `PRECISIONS`; float32_layers: paths of layers that store none in fewer bits, nor do those within
    them. TypeError, ValueError or ImportError for what is none of these, or where it would do nothing; DeviceError for
    tf32 where there are no tensor cores.
    """
    wanted = check_choice("compile precision", precision, PRECISIONS)
    kept = names("compile float32_layers", float32_layers)
    inner = [layer for outer in layers for layer in outer.with_sublayers()]
    if wanted in ("float32", "tf32"):
        if kept:
            raise ValueError(f"compile float32_layers: wanted precision='bfloat16' beside it, received {wanted!r}")
        if wanted == "tf32":
            _check_net(wanted, graph, inner)
            tf32_of(device.kernels)
        return None
    _check_net(wanted, graph, inner)
    unknown = [name for name in kept if name not in {layer.path for layer in inner}]
    if unknown:
        raise ValueError(f"compile float32_layers: wanted names of this net's layers, received {unknown}")
    narrow = Narrow(_dtype(wanted), np.dtype(np.float32), _contained_paths(inner, kept))
    if not device.runtime.is_asynchronous and (wanted == "float16" or not device.kernels.has_bfloat16):
        others = " (oneDNN has, with AVX512-BF16 or AMX)" if wanted == "bfloat16" else ""
        warn(
            f"compile precision={wanted!r}: activations take half the bytes, but kernels {device.kernels.name!r} have"
            f" no products in {wanted} on this processor{others}: those of float32 serve,"
            " over converted copies, and a step takes about as long as in float32",
            PrecisionWarning,
        )
    return narrow


def _dtype(name: str) -> DType:
    """ImportError where NumPy has no such dtype."""
    if name == "bfloat16" and find_spec("ml_dtypes") is None:
        raise ImportError(f"compile precision={name!r}: wants NumPy's bfloat16, pip install ml_dtypes")
    return np.dtype(import_module("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def _contained_paths(layers: Sequence[Layer], kept: Collection[str]) -> frozenset[str]:
    """The paths of these layers and of all that they hold."""
    return frozenset(inner.path for layer in layers if layer.path in kept for inner in layer.with_sublayers())


def _check_net(wanted: str, graph: bool, layers: Sequence[Layer]) -> None:
    """ValueError for steps that are not recorded, and for nets of another dtype."""
    if not graph:
        raise ValueError(f"compile precision={wanted!r}: wanted graph=True, as recorded steps alone are rewritten")
    for layer in layers:
        if layer.dtype != np.float32:
            raise ValueError(
                f"compile precision={wanted!r}: wanted a net in float32, received layer {layer.path!r} in {layer.dtype}"
            )
