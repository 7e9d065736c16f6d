"""Updates against their formulas in float64 over several steps, and against PyTorch where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

import skips
from kernel_case import run
from singa_lite.kernels.interface.update import Hyper
from singa_lite.kernels.numpy_kernels import NUMPY
from test_update_values import every_update

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
    divisor = state["second_moment"]
    if "max_second_moment" in state:
        divisor = state["max_second_moment"] = np.maximum(state["max_second_moment"], divisor)
    return value - lr * first / (np.sqrt(divisor / (1 - s["beta_2"] ** t)) + s["epsilon"])


FORMULAS: dict[str, Callable[..., Array]] = {"sgd": sgd, "rms_prop": rms_prop, "ada_grad": ada_grad, "adam": adam}
STATES = {"sgd": ["velocity"], "rms_prop": ["square_average"], "ada_grad": ["square_sum"]}
STATES["adam"] = ["first_moment", "second_moment"]
STATES["ams_grad"] = [*STATES["adam"], "max_second_moment"]
FORMULAS["ams_grad"] = adam
#: PyTorch's names.
PEERS = {"sgd": "SGD", "rms_prop": "RMSprop", "ada_grad": "Adagrad", "adam": "Adam", "rho": "alpha", "epsilon": "eps"}
PEERS["ams_grad"] = "Adam"


def peer_of(torch: Any, name: str, hyper: Hyper, parameter: Any) -> Any:
    """PyTorch's optimizer with these hyperparameters."""
    settings = {PEERS.get(key, key): value for key, value in asdict(hyper).items() if key != "lr_mult"}
    kind = PEERS[name] + ("W" if settings.pop("decoupled", False) else "")
    if name in ("adam", "ams_grad"):
        settings["amsgrad"] = name == "ams_grad"
        settings["betas"] = settings.pop("beta_1"), settings.pop("beta_2")
    return getattr(torch.optim, kind)([parameter], lr=1.0, **settings)


def numbers(dtype: Any = np.float64) -> tuple[Array, Array]:
    """A value, and a gradient for each step."""
    rng = np.random.default_rng(9)
    return rng.standard_normal(SHAPE).astype(dtype), rng.standard_normal((STEPS, *SHAPE)).astype(dtype)


def values_after_each_step(name: str, states: int, hyper: Hyper, dtype: Any) -> tuple[list[Array], State]:
    """Run the kernel for all steps, the rate and the count in tensors of their own throughout."""
    value, gradients = numbers(dtype)
    state = {key: np.zeros(SHAPE, dtype) for key in STATES[name][:states]}
    rate, count = np.array(0.0), np.array(0, np.int64)
    values = []
    for lr, gradient in zip(RATES, gradients, strict=True):
        rate[...] = lr
        run(NUMPY, name, [gradient, rate, value, *(state.values() or [None]), count], {"hyper": hyper})
        values.append(value.copy())
    assert count == STEPS
    return values, state


@every_update
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equals_its_formula_step_by_step(name, states, settings, dtype):
    hyper = settings["hyper"]
    values, kept = values_after_each_step(name, states, hyper, dtype)
    value, gradients = (array.astype(np.float64) for array in numbers(dtype))
    state: State = {key: np.zeros(SHAPE) for key in kept}
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    for t, (lr, gradient, got) in enumerate(zip(RATES, gradients, values, strict=True), start=1):
        decay = getattr(hyper, "coupled_decay", hyper.weight_decay)
        value = FORMULAS[name](gradient + decay * value, value, hyper.lr_mult * lr, t, state, asdict(hyper))
        np.testing.assert_allclose(got, value, rtol=tolerance, atol=tolerance, err_msg=f"step {t}")
    for key, tensor in state.items():
        np.testing.assert_allclose(kept[key], tensor, rtol=tolerance, atol=tolerance, err_msg=key)


@pytest.mark.peer
@every_update
def test_equals_pytorch(name, states, settings):
    torch = skips.library("torch")
    hyper = settings["hyper"]
    values, _ = values_after_each_step(name, states, hyper, np.float64)
    value, gradients = numbers()
    parameter = torch.nn.Parameter(torch.tensor(value))
    optimizer = peer_of(torch, name, hyper, parameter)
    for lr, gradient, got in zip(RATES, gradients, values, strict=True):
        optimizer.param_groups[0]["lr"] = hyper.lr_mult * lr
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(got, parameter.detach().numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_add_scaled(dtype):
    y, (x, *_) = numbers(dtype)
    wanted = y + np.asarray(-0.75, dtype) * x
    run(NUMPY, "add_scaled", [x, y], {"alpha": -0.75})
    np.testing.assert_array_equal(y, wanted)
