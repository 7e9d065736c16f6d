"""Mixed precision: in which dtype a net's activations are stored, by what `compile` is told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module
from importlib.util import find_spec

import numpy as np

from singa_lite.checks import names, one_of
from singa_lite.device import Device
from singa_lite.errors import PrecisionWarning
from singa_lite.layer import Layer
from singa_lite.notice import warn
from singa_lite.passes.target import Narrow

#: What `compile(precision=)` takes.
PRECISIONS = ("float32", "bfloat16")


def storage_by(
    precision: object, float32_layers: Collection[str], graph: bool, layers: Sequence[Layer], device: Device
) -> Narrow | None:
    """How activations are stored; None: in the net's dtype.

    precision: one of `PRECISIONS`; float32_layers: names of layers that store none in fewer bits. TypeError, ValueError
    or ImportError for what is none of these, or where it would do nothing.
    """
    wanted = one_of("compile precision", precision, PRECISIONS)
    kept = names("compile float32_layers", float32_layers)
    if wanted == "float32":
        if kept:
            raise ValueError(f"compile float32_layers: wanted precision='bfloat16' beside it, received {wanted!r}")
        return None
    _check_net(wanted, graph, layers)
    unknown = [name for name in kept if name not in {layer.name for layer in layers}]
    if unknown:
        raise ValueError(f"compile float32_layers: wanted names of this net's layers, received {unknown}")
    if device.runtime.link.beside:
        raise ValueError(f"compile precision={wanted!r}: wanted a CPU, received device {device.name}")
    if find_spec("ml_dtypes") is None:
        raise ImportError(f"compile precision={wanted!r}: wants NumPy's bfloat16, pip install ml_dtypes")
    if not device.kernels.has_bfloat16:
        warn(
            f"compile precision={wanted!r}: activations take half the bytes, but kernels {device.kernels.name!r} have"
            " no products in bfloat16 on this processor (oneDNN has, with AVX512-BF16 or AMX): those of float32 serve,"
            " over converted copies, and a step takes about as long as in float32",
            PrecisionWarning,
        )
    return Narrow(np.dtype(import_module("ml_dtypes").bfloat16), np.dtype(np.float32), frozenset(kept))


def _check_net(wanted: str, graph: bool, layers: Sequence[Layer]) -> None:
    """ValueError for steps that are not recorded, and for layers that say themselves how they store."""
    if not graph:
        raise ValueError(f"compile precision={wanted!r}: wanted graph=True, as recorded steps alone are rewritten")
    for layer in layers:
        if layer.storage is not None:
            raise ValueError(
                f"compile precision={wanted!r}: wanted layers without a storage of their own, received layer "
                f"{layer.name!r} with storage={layer.storage.name!r}"
            )
        if layer.dtype != np.float32:
            raise ValueError(
                f"compile precision={wanted!r}: wanted a net in float32, received layer {layer.name!r} in {layer.dtype}"
            )
