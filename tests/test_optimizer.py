"""Optimizers: rules, steps and state. `test_update_rules.py` has formulas, `test_peer_nets.py` rules with each kind."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from singa_lite import (
    DeviceError,
    FeedForwardNet,
    GraphError,
    ShapeError,
    device,
    layers,
    loss,
    optimizer,
    regularizer,
    tensor,
)
from singa_lite.tensor import Tensor

SHAPE = (3, 5)
RNG = np.random.default_rng(5)
START = RNG.normal(0, 1, SHAPE)
GRADIENTS = [RNG.normal(0, 1, SHAPE) for _ in range(2)]


def to_tensor(array: Any) -> Tensor:
    return tensor.from_numpy(np.asarray(array))


OWN = {"regularizer": regularizer.L2Regularizer(0.4), "constraint": regularizer.ElementConstraint(0.6)}
GENERAL = {"regularizer": regularizer.L2Regularizer(9.0), "constraint": regularizer.NormConstraint(1e-3)}
CLIPPED = np.clip(GRADIENTS[0], -0.6, 0.6)
#: {way: (options, what is registered for this parameter, the gradient that SGD takes)}. A constraint comes first and
#: bounds the gradient alone; all decays come after it.
RULES: dict[str, tuple[dict[str, Any], dict[str, Any], np.ndarray]] = {
    "multipliers": ({"weight_decay": 0.2}, {"lr_mult": 0.5, "decay_mult": 3.0}, 0.5 * (GRADIENTS[0] + 0.6 * START)),
    "bounded elements": ({**OWN, "weight_decay": 0.1}, {}, CLIPPED + 0.5 * START),
    "bounded norm": (
        {**OWN, "weight_decay": 0.1, "constraint": regularizer.NormConstraint(2.5)},
        {},
        GRADIENTS[0] * 2.5 / np.linalg.norm(GRADIENTS[0]) + 0.5 * START,
    ),
    "own rules take the place of general ones": (GENERAL, {"decay_mult": 0.5, **OWN}, CLIPPED + 0.2 * START),
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_change_the_gradient(rule):
    options, own, wanted = RULES[rule]
    opt, value = optimizer.SGD(0.05, **options), to_tensor(START)
    opt.register("dense/*", **own)
    opt.update("dense/bias", value, to_tensor(GRADIENTS[0]))
    np.testing.assert_allclose(tensor.to_numpy(value), START - 0.05 * wanted, rtol=1e-12)


# ---- rules


def moved(opt: optimizer.Optimizer, name: str | None) -> float:
    """By how much a parameter at 0 moves for a gradient of -1."""
    value = to_tensor([0.0])
    opt.update(name, value, to_tensor([-1.0]))
    return float(value)


def test_the_last_pattern_that_matches_holds():
    opt = optimizer.SGD(1.0)
    opt.register("*/bias", lr_mult=2.0)
    opt.register("conv/*", lr_mult=3.0)
    assert [moved(opt, name) for name in ("conv/bias", "dense/bias", "conv/weight", "dense/weight")] == [3, 2, 3, 1]


def test_patterns_that_match_nothing_are_named():
    opt = optimizer.SGD(regularizer=regularizer.L2Regularizer(0.1))
    opt.check_names([])
    opt.register("*/bias")
    opt.check_names(["dense/weight", "dense/bias"])
    opt.register("Dense/*")
    with pytest.raises(ValueError, match=r"Dense/\*"):
        opt.check_names(["dense/weight", "dense/bias"])


# ---- steps and rates


def counting(step: int) -> float:
    return float(step + 1)


def test_a_step_begins_by_itself_when_a_name_comes_again():
    opt = optimizer.SGD(counting)
    assert opt.step == 0
    assert [moved(opt, name) for name in ("a", "b", "a", "b", "b", "a")] == [1, 1, 2, 2, 3, 3]
    assert opt.step == 3


def test_a_step_begins_by_itself_without_names():
    opt, values = optimizer.SGD(counting), [to_tensor([0.0]), to_tensor([0.0])]
    for _ in range(2):
        for value in values:
            opt.update(None, value, to_tensor([-1.0]))
    assert [float(value) for value in values] == [3.0, 3.0]
    assert opt.step == 2


def test_a_restored_step_goes_on():
    opt = optimizer.SGD(counting)
    assert moved(opt, "a") == 1
    opt.restore_step(10)
    assert opt.step == 10
    assert [moved(opt, name) for name in ("b", "a", "b")] == [11, 11, 12]
    with pytest.raises(ValueError, match=r"restore_step.*-1"):
        opt.restore_step(-1)


# ---- state


def test_amsgrad_may_be_set_until_there_is_state():
    opt, value = optimizer.Adam(0.05), to_tensor(START)
    opt.amsgrad = True
    opt.amsgrad = False
    assert "max_second_moment" not in opt.slots
    opt.amsgrad = True
    opt.update("w", value, to_tensor(GRADIENTS[0]))
    wanted = to_tensor(START)
    optimizer.Adam(0.05, amsgrad=True).update("w", wanted, to_tensor(GRADIENTS[0]))
    np.testing.assert_array_equal(tensor.to_numpy(value), tensor.to_numpy(wanted))
    with pytest.raises(GraphError, match="Adam amsgrad"):
        opt.amsgrad = False
    assert opt.amsgrad


def test_state_follows_a_parameter_to_another_device():
    other = device.new_cpu()
    for by_itself in (True, False):
        opt, value = optimizer.SGD(counting, momentum=0.5), to_tensor(START)
        opt.update("w", value, to_tensor(GRADIENTS[0]))
        value = value.to_device(other)
        if not by_itself:
            opt.to_device(other)
        opt.update("w", value, tensor.from_numpy(GRADIENTS[1], other))
        wanted = START - GRADIENTS[0] - 2 * (0.5 * GRADIENTS[0] + GRADIENTS[1])
        np.testing.assert_allclose(tensor.to_numpy(value), wanted, rtol=1e-12)
        assert all(held.device is other for held in opt.state["w"].values())


def test_one_optimizer_serves_one_net():
    opt = optimizer.Adam()
    opt.update("w", tensor.zeros((3, 2)), tensor.zeros((3, 2)))
    with pytest.raises(ShapeError, match="'w'"):
        opt.update("w", tensor.zeros((2, 3)), tensor.zeros((2, 3)))
    with pytest.raises(ShapeError, match="float64"):
        opt.update("w", tensor.zeros((3, 2), np.float64), tensor.zeros((3, 2), np.float64))


def test_an_optimizer_is_compiled_with_one_living_net():
    def built() -> FeedForwardNet:
        net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu())
        net.add(layers.Dense("dense", 2, input_sample_shape=(3,)))
        return net

    net, other, shared = built(), built(), optimizer.SGD(0.1)
    x, y = np.ones((4, 3), "f"), np.ones((4, 2), "f")
    other.compile(shared)
    net.compile(shared)
    with pytest.raises(GraphError, match="one net"):
        other.train_one_batch(x, y)
    net.train_one_batch(x, y)
    third = built()
    with pytest.raises(GraphError, match="one net"):
        third.compile(shared)
    assert third.optimizer is None and shared.step == 1
    net.compile(shared)
    copied = copy.deepcopy(net)
    copied.compile(copied.optimizer)
    third.compile(copy.deepcopy(shared))
    for each in (net, copied, third):
        each.train_one_batch(x, y)


@pytest.mark.parametrize("name", ["lr", "schedule"])
def test_a_rate_is_exchanged_by_either_name(name):
    value, gradient, opt = tensor.from_numpy(np.ones(3)), np.array([1.0, 2, 3]), optimizer.SGD(0.5)
    setattr(opt, name, 0.25)
    opt.update("w", value, tensor.from_numpy(gradient))
    np.testing.assert_array_equal(tensor.to_numpy(value), 1 - 0.25 * gradient)
    setattr(opt, name, lambda step: 1 / (1 + step))
    assert opt.lr == 0.5
    with pytest.raises(TypeError, match="lr"):
        setattr(opt, name, "fast")


def test_gradients_that_do_not_fit_change_nothing():
    opt, value = optimizer.SGD(), tensor.zeros((3, 2))
    with pytest.raises(ShapeError, match="'w'"):
        opt.update("w", value, tensor.zeros((2, 3)))
    with pytest.raises(TypeError, match="float64"):
        opt.update(None, value, tensor.zeros((3, 2), np.float64))
    with pytest.raises(TypeError, match="float parameter"):
        opt.update("w", tensor.zeros((3, 2), np.int32), tensor.zeros((3, 2), np.int32))
    with pytest.raises(DeviceError, match="'w'"):
        opt.update("w", value, tensor.zeros((3, 2), device=device.new_cpu()))
    assert not tensor.to_numpy(value).any()
    assert opt.step == 0
    assert opt.state == {}


# ---- numbers out of range

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("make", "options", "culprit"),
    [
        (optimizer.SGD, {"lr": -0.1}, "lr"),
        (optimizer.SGD, {"momentum": 1.0}, "momentum"),
        (optimizer.SGD, {"momentum": -0.1}, "momentum"),
        (optimizer.SGD, {"momentum": 0.5, "dampening": 1.5}, "dampening"),
        (optimizer.SGD, {"weight_decay": -1.0}, "weight_decay"),
        (optimizer.Nesterov, {"momentum": 0.0}, "nesterov"),
        (optimizer.Nesterov, {"weight_decay": INF}, "weight_decay"),
        (optimizer.RMSProp, {"rho": 1.0}, "rho"),
        (optimizer.RMSProp, {"epsilon": 0.0}, "epsilon"),
        (optimizer.AdaGrad, {"epsilon": -1e-8}, "epsilon"),
        (optimizer.Adam, {"beta_1": 1.0}, "beta_1"),
        (optimizer.Adam, {"beta_2": -0.1}, "beta_2"),
        (optimizer.Adam, {"epsilon": NAN}, "epsilon"),
        (optimizer.AdamW, {"beta_2": 1.5}, "beta_2"),
        (optimizer.AdamW, {"weight_decay": -0.1}, "weight_decay"),
        (optimizer.Lion, {"beta_1": 1.0}, "beta_1"),
        (optimizer.Lion, {"beta_2": -0.1}, "beta_2"),
        (optimizer.Muon, {"momentum": 1.0}, "momentum"),
        (optimizer.Muon, {"ns_steps": 0}, "ns_steps"),
        (optimizer.Muon, {"ns_coefficients": (1.0, 2.0)}, "ns_coefficients"),
        (optimizer.Muon, {"adjust_lr": "none"}, "adjust_lr"),
        (optimizer.Adafactor, {"beta_2_decay": 0.1}, "beta_2_decay"),
        (optimizer.Adafactor, {"epsilon_1": -1.0}, "epsilon_1"),
        (optimizer.Adafactor, {"epsilon_2": NAN}, "epsilon_2"),
        (optimizer.Adafactor, {"d": 0.9}, " d"),
        (optimizer.SGD().register, {"pattern": "*", "lr_mult": -1.0}, "lr_mult"),
        (optimizer.SGD().register, {"pattern": "*", "decay_mult": NAN}, "decay_mult"),
    ],
)
def test_numbers_out_of_range_are_refused(make, options, culprit):
    with pytest.raises(ValueError, match=culprit):
        make(**options)
