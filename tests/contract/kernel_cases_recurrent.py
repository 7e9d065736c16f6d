"""Cases of the kernels of recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from kernel_case import Case, Tensors, garbage
from singa_lite.kernels.interface import SIGNATURES

#: steps, samples, units; of the big ones some gates fill more than 2 MB.
SIZES = (5, 3, 4), (67, 41, 191)
GATES = {"lstm": 4, "gru": 3, "simple_rnn": 1}
#: Settings of the derivative alone.
BACK = ("last",)


def recurrent(
    name: str,
    without: tuple[str, ...] = (),
    sizes: tuple[tuple[int, int, int], ...] = SIZES,
    mask: DTypeLike = None,
    **settings: Any,
) -> Case:
    """A call of a kernel. without: tensors that are left out. sizes: steps, samples, units of the small and the big.

    mask: its dtype, by default that of all others.
    """
    forward = name.removesuffix("_derivative")
    usual: dict[str, Any] = {"reverse": False, "last": False, "reset_after": True}
    usual |= {"recurrent_activation": "sigmoid", "activation": "tanh", **settings}
    chosen = {key: usual[key] for key in SIGNATURES[name].settings}

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> tuple[Tensors, dict[str, Any]]:
        t, n, h = sizes[big] if forward != "simple_rnn" or not big else (131, 41, 191)
        values = states(rng, forward, t, n, h, chosen)
        tensors: Tensors = []
        for key, role in zip(SIGNATURES[name].tensors, SIGNATURES[name].roles, strict=True):
            shape = shape_of(key, t, n, h, GATES[forward], bool(chosen.get("last")))
            of = np.dtype(mask or dtype) if key == "mask" else dtype
            made = garbage(shape, of) if role == "Write" else np.ascontiguousarray(values[key], of).reshape(shape)
            tensors.append(None if key in without else made)
        return tensors, chosen

    return Case(build)


def shape_of(key: str, t: int, n: int, h: int, gates: int, last: bool) -> tuple[int, ...]:
    """Of a tensor of the interface."""
    if key in ("gates_in", "gates", "dgates"):
        return t, n, gates * h
    shapes = {"weight": (h, gates * h), "bias": (gates * h,), "mask": (n, t), "hidden0": (n, h), "cell0": (n, h)}
    shapes |= {"hidden": (t + 1, n, h), "cell": (t + 1, n, h), "dy": (n, h) if last else (t, n, h)}
    return shapes.get(key, (t, n, h))


def states(
    rng: np.random.Generator, kernel: str, t: int, n: int, h: int, settings: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Values of all tensors, those that a forward call gives within the bounds that these have."""
    gates = GATES[kernel]
    spread = 1 / np.sqrt(h)
    made = {
        "gates_in": rng.standard_normal((t, n, gates * h)),
        "weight": rng.uniform(-spread, spread, (h, gates * h)),
        "bias": rng.standard_normal(gates * h),
        "mask": (rng.random((n, t)) < 0.7).astype(float),
        "dy": rng.standard_normal((n, h) if settings.get("last") else (t, n, h)),
        "gates": rng.uniform(0.1, 0.9, (t, n, gates * h)),
    }
    made |= {key: rng.uniform(-0.9, 0.9, (n, h)) for key in ("hidden0", "cell0")}
    made |= {key: rng.uniform(-0.9, 0.9, (t + 1, n, h)) for key in ("hidden", "cell")}
    if settings.get("activation") == "relu":  # which gives no state below 0
        made["hidden"] = np.abs(made["hidden"])
    return made | {"products": rng.uniform(-0.9, 0.9, (t, n, h))}


NOTHING = ("hidden0", "cell0", "mask", "bias")
BACKWARDS: dict[str, Any] = {"reverse": True, "recurrent_activation": "hard_sigmoid", "activation": "relu"}

CASES: dict[str, Case] = {
    **{name: recurrent(name) for kernel in GATES for name in (kernel, f"{kernel}_derivative")},
    **{f"{name}:plain, backwards": recurrent(name, NOTHING, **BACKWARDS) for name in GATES},
    **{
        f"{name}_derivative:the last, backwards": recurrent(f"{name}_derivative", ("mask",), last=True, **BACKWARDS)
        for name in GATES
    },
    "gru:reset before": recurrent("gru", reset_after=False),
    "gru_derivative:reset before": recurrent("gru_derivative", ("dproducts",), reset_after=False),
}
