"""Updates against their formulas in float64 over several steps, and against PyTorch where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import skips
from kernel_case import run
from singa_lite.kernels.interface.update import AdaGradHyper, AdamHyper, RmsPropHyper, SgdHyper
from singa_lite.kernels.numpy_kernels import NUMPY

#: Larger than what the kernels update at a time.
SHAPE = (5, 37, 101)
STEPS = 4
RATES = [0.1, 0.07, 0.02, 0.05]

Array = np.ndarray
Settings = dict[str, Any]
State = dict[str, Array]


def sgd(g: Array, value: Array, lr: float, t: int, state: State, s: Settings) -> Array:
    """The value after one step; g is with weight decay."""
    if s["momentum"] == 0:
        return value - lr * g
    moved = s["momentum"] * state["velocity"] + (1 - s["dampening"]) * g
    state["velocity"] = g if t == 1 else moved
    step = g + s["momentum"] * state["velocity"] if s["nesterov"] else state["velocity"]
    return value - lr * step


def rms_prop(g: Array, value: Array, lr: float, t: int, state: State, s: Settings) -> Array:
    """The value after one step."""
    state["square_average"] = s["rho"] * state["square_average"] + (1 - s["rho"]) * g**2
    return value - lr * g / (np.sqrt(state["square_average"]) + s["epsilon"])


def ada_grad(g: Array, value: Array, lr: float, t: int, state: State, s: Settings) -> Array:
    """The value after one step."""
    state["square_sum"] = state["square_sum"] + g**2
    return value - lr * g / (np.sqrt(state["square_sum"]) + s["epsilon"])


def adam(g: Array, value: Array, lr: float, t: int, state: State, s: Settings) -> Array:
    """The value after one step; if decoupled, g is without weight decay."""
    if s["decoupled"]:
        value = value - lr * s["weight_decay"] * value
    state["first_moment"] = s["beta_1"] * state["first_moment"] + (1 - s["beta_1"]) * g
    state["second_moment"] = s["beta_2"] * state["second_moment"] + (1 - s["beta_2"]) * g**2
    first = state["first_moment"] / (1 - s["beta_1"] ** t)
    second = state["second_moment"] / (1 - s["beta_2"] ** t)
    return value - lr * first / (np.sqrt(second) + s["epsilon"])


HYPER: dict[str, Any] = {"sgd": SgdHyper, "rms_prop": RmsPropHyper, "ada_grad": AdaGradHyper, "adam": AdamHyper}
ADAM = {"beta_1": 0.8, "beta_2": 0.9, "epsilon": 1e-6, "weight_decay": 0.1}

#: (formula, state tensors, settings, PyTorch's optimizer with its arguments).
UPDATES: dict[str, tuple[Callable[..., Array], list[str], Settings, tuple[str, Settings]]] = {
    f"sgd {momentum} {dampening} {nesterov} {decay}": (
        sgd,
        ["velocity"] if momentum else [],
        {"momentum": momentum, "dampening": dampening, "nesterov": nesterov, "weight_decay": decay},
        ("SGD", {"momentum": momentum, "dampening": dampening, "nesterov": nesterov, "weight_decay": decay}),
    )
    for momentum, dampening, nesterov, decay in (
        (0.0, 0.0, False, 0.0),
        (0.0, 0.0, False, 0.1),
        (0.9, 0.0, False, 0.0),
        (0.9, 0.3, False, 0.1),
        (0.9, 0.0, True, 0.1),
    )
}
UPDATES |= {
    "rms_prop": (
        rms_prop,
        ["square_average"],
        {"rho": 0.8, "epsilon": 1e-3, "weight_decay": 0.1},
        ("RMSprop", {"alpha": 0.8, "eps": 1e-3, "weight_decay": 0.1}),
    ),
    "ada_grad": (
        ada_grad,
        ["square_sum"],
        {"epsilon": 1e-3, "weight_decay": 0.1},
        ("Adagrad", {"eps": 1e-3, "weight_decay": 0.1}),
    ),
    "adam": (
        adam,
        ["first_moment", "second_moment"],
        {**ADAM, "decoupled": False},
        ("Adam", {"betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.1}),
    ),
    "adam, decoupled": (
        adam,
        ["first_moment", "second_moment"],
        {**ADAM, "decoupled": True},
        ("AdamW", {"betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.1}),
    ),
}

every_update = pytest.mark.parametrize("formula, states, settings, peer", UPDATES.values(), ids=UPDATES)


def numbers(dtype: Any = np.float64) -> tuple[Array, Array]:
    """A value, and a gradient for each step."""
    rng = np.random.default_rng(9)
    return rng.standard_normal(SHAPE).astype(dtype), rng.standard_normal((STEPS, *SHAPE)).astype(dtype)


def values_after_each_step(
    name: str, states: list[str], settings: Settings, dtype: Any, lr_mult: float
) -> tuple[list[Array], State]:
    """Run the kernel for all steps, the rate and the count in tensors of their own throughout."""
    value, gradients = numbers(dtype)
    state = {key: np.zeros(SHAPE, dtype) for key in states}
    rate, count = np.array(0.0), np.array(0, np.int64)
    tensors = list(state.values()) if states else [None]
    hyper = HYPER[name](**settings, lr_mult=lr_mult)
    values = []
    for lr, gradient in zip(RATES, gradients, strict=True):
        rate[...] = lr
        run(NUMPY, name, [gradient, rate, value, *tensors, count], {"hyper": hyper})
        values.append(value.copy())
    assert count == STEPS
    return values, state


@every_update
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equals_its_formula_step_by_step(formula, states, settings, peer, dtype):
    values, kept = values_after_each_step(formula.__name__, states, settings, dtype, lr_mult=0.5)
    value, gradients = (array.astype(np.float64) for array in numbers(dtype))
    state: State = {key: np.zeros(SHAPE) for key in states}
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    for t, (lr, gradient, got) in enumerate(zip(RATES, gradients, values, strict=True), start=1):
        decay = 0 if settings.get("decoupled") else settings["weight_decay"]
        value = formula(gradient + decay * value, value, 0.5 * lr, t, state, settings)
        np.testing.assert_allclose(got, value, rtol=tolerance, atol=tolerance, err_msg=f"step {t}")
    for key, tensor in state.items():
        np.testing.assert_allclose(kept[key], tensor, rtol=tolerance, atol=tolerance, err_msg=key)


@pytest.mark.peer
@every_update
def test_equals_pytorch(formula, states, settings, peer):
    torch = skips.library("torch")
    values, _ = values_after_each_step(formula.__name__, states, settings, np.float64, lr_mult=1.0)
    value, gradients = numbers()
    parameter = torch.nn.Parameter(torch.tensor(value))
    optimizer = getattr(torch.optim, peer[0])([parameter], lr=1.0, **peer[1])
    for lr, gradient, got in zip(RATES, gradients, values, strict=True):
        optimizer.param_groups[0]["lr"] = lr
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(got, parameter.detach().numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_add_scaled(dtype):
    y, (x, *_) = numbers(dtype)
    wanted = y + np.asarray(-0.75, dtype) * x
    run(NUMPY, "add_scaled", [x, y], {"alpha": -0.75})
    np.testing.assert_array_equal(y, wanted)
