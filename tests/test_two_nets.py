"""Tapes that meet: one net's output fed to another, nets fed twice, nets within expressions, and back through all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nets import all_bits, bits, gradients_of
from singa_lite import FeedForwardNet, GraphError, Tensor, autograd, device, layers, loss, optimizer, tensor
from singa_lite.device import Device

RNG = np.random.default_rng(12)
X, OTHER = RNG.standard_normal((6, 3)), RNG.standard_normal((6, 3))
DY = RNG.standard_normal((6, 2))


def two_nets(on: Device | None = None) -> tuple[FeedForwardNet, FeedForwardNet]:
    """From 3 over 4 to 2 features; the second net begins with a layer without parameters."""
    on = on or device.new_cpu(kernels="numpy")
    first = FeedForwardNet(device=on, dtype="float64", seed=1)
    first.add(layers.Dense("a1", 5, input_sample_shape=(3,)))
    first.add(layers.BatchNormalization("a2"))
    first.add(layers.Dense("a3", 4))
    second = FeedForwardNet(device=on, dtype="float64", seed=2)
    second.add(layers.Activation("b1", "tanh", input_sample_shape=(4,)))
    second.add(layers.Dense("b2", 6))
    second.add(layers.Activation("b3", "sigmoid"))
    second.add(layers.Dense("b4", 2))
    return first, second


def derivative_by_input(net: FeedForwardNet, dy: Any, found: dict[str, np.ndarray]) -> Tensor:
    """Walk back through the net; its gradients go to `found`."""
    (name,) = net.input_shapes()
    for item in net.backward(dy, output=[name]):
        found.update({n: tensor.to_numpy(g) for n, g in zip(item.names, item.gradients, strict=True)})
    return item.layer_gradients[name]


def jointly(y: Tensor, dy: Any = None) -> dict[str, np.ndarray]:
    """All gradients by one walk of the tape."""
    dy = dy if dy is None else tensor.from_numpy(dy, y.device)
    return {parameter.name: tensor.to_numpy(gradient) for parameter, gradient in autograd.backward(y, dy)}


def test_one_nets_backward_leaves_the_others_tape_for_its_own():
    first, second = two_nets()
    wanted = jointly(second.forward(True, first.forward(True, X)), DY)
    found: dict[str, np.ndarray] = {}
    second.forward(True, first.forward(True, X))
    derivative_by_input(first, derivative_by_input(second, DY, found), found)
    assert set(wanted) == {*first.param_names(), *second.param_names()}
    assert all_bits(found) == all_bits(wanted)


def test_two_nets_over_one_output_give_two_derivatives_to_add():
    first, second = two_nets()
    _, third = two_nets(first.device)
    out = first.forward(True, X)
    wanted = jointly(second.forward(True, out) + third.forward(True, out), DY)["a1/weight"]
    out = first.forward(True, X)
    found: dict[str, np.ndarray] = {}
    second.forward(True, out)
    third.forward(True, out)
    total = derivative_by_input(second, DY, {}) + derivative_by_input(third, DY, {})
    derivative_by_input(first, total, found)
    np.testing.assert_allclose(found["a1/weight"], wanted, rtol=1e-12)


def test_an_expression_before_a_net_gets_its_derivative():
    _, second = two_nets()
    weight = tensor.from_numpy(RNG.standard_normal((3, 4)), second.device)
    weight.stores_grad, weight.name = True, "weight"
    x = tensor.from_numpy(X, second.device)
    wanted = jointly(second.forward(True, autograd.matmul(x, weight)), DY)
    made = autograd.matmul(x, weight)
    second.forward(True, made)
    found: dict[str, np.ndarray] = {}
    dx = derivative_by_input(second, DY, found)
    found |= jointly(made, tensor.to_numpy(dx))
    assert all_bits(found) == all_bits(wanted)


def apart(a: Tensor, b: Tensor) -> Tensor:
    """The loss of a pair: half the mean square of their distance, less their product."""
    distance = a - b
    return autograd.reduce_mean(distance * distance * 0.5 - autograd.tanh(a * b))


def test_a_net_that_is_fed_twice_adds_up_in_one_walk():
    first, _ = two_nets()
    pair = [first.forward(True, X), first.forward(True, OTHER)]
    found = jointly(apart(*pair))
    sums = {name: np.zeros_like(gradient) for name, gradient in found.items()}
    one, other = (tensor.to_numpy(out) for out in pair)
    slope = (one - other) / one.size
    flat = (1 - np.tanh(one * other) ** 2) / one.size
    for x, dy in ((X, slope - flat * other), (OTHER, -slope - flat * one)):
        first.forward(True, x)
        for name, gradient in gradients_of(first.backward(dy)).items():
            sums[name] += gradient
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, sums[name], rtol=1e-9, atol=1e-12)


def test_back_from_the_second_of_two_forwards_that_are_both_held_is_refused():
    first, _ = two_nets()
    one = first.forward(True, X)
    two = first.forward(True, OTHER)
    with pytest.raises(GraphError, match=r"forward\(True, x\)"):
        first.backward(np.ones((6, 4)))
    assert set(jointly(one + two, np.ones((6, 4)))) == set(first.param_names())
    kept = first.forward(True, X)
    del one, two
    assert len(gradients_of(first.backward(np.ones(kept.shape)))) == len(first.param_names())


def test_a_step_of_the_nets_own_does_not_mind_forwards_that_are_held():
    _, second = two_nets()
    x = RNG.standard_normal((6, 4))
    for graph in (False, True):
        second.compile(optimizer.SGD(lr=0.1), loss.SquaredError(), graph=graph)
        held = [second.forward(True, x) for _ in range(2)]
        second.train_one_batch(x, DY)
        second.gradients(x, DY)
        with pytest.raises(GraphError, match=r"forward\(True, x\)"):
            second.backward(DY)
        assert len(held) == 2


def test_a_frozen_layer_that_would_cut_a_tape_is_refused():
    first, second = two_nets()
    out = first.forward(True, X)
    with pytest.raises(GraphError, match="'b1'"):
        second.forward(True, out, freeze="b4")
    second.forward(True, out.detach(), freeze="b4")
    assert set(gradients_of(second.backward(DY))) == {"b4/weight", "b4/bias"}
    assert len(gradients_of(first.backward(np.ones((6, 4))))) == len(first.param_names())


def test_a_step_trains_one_net_whatever_feeds_it():
    nets = [two_nets(), two_nets()]
    for (first, second), taped in zip(nets, (True, False), strict=True):
        second.compile(optimizer.Adam(), loss.SquaredError(), freeze="b4")
        out = first.forward(True, X)
        target = first.forward(True, X)
        given = (out, autograd.split(target, 1, (2,))[0]) if taped else (out.detach(), tensor.to_numpy(target)[:, :2])
        second.train_one_batch(*given)
        second.gradients(*given)
    for one, other in zip(*nets, strict=True):
        assert all_bits(one.parameters()) == all_bits(other.parameters())


def test_a_target_from_a_tape_is_refused_by_a_loss_that_would_lose_its_derivative():
    first, second = two_nets()
    out = second.forward(True, first.forward(True, X))
    squared = loss.SquaredError()
    with pytest.raises(GraphError, match="SquaredError"):
        squared.forward(True, out, out * 0.5)
    squared.forward(False, out, out * 0.5)
    squared.forward(True, out, (out * 0.5).detach())
    assert squared.backward().shape == out.shape


def recorded(on: Device, body: Callable[[], list[Tensor]]) -> list[np.ndarray]:
    """What a recorded body gives when it is run."""
    with on.recording() as graph:
        kept = body()
    graph.run()
    return [tensor.to_numpy(value) for value in kept]


@pytest.mark.parametrize("way", ["walk by walk", "in one walk"])
def test_both_walks_are_recorded_as_they_are_done(way):
    def body() -> list[Tensor]:
        out = second.forward(True, first.forward(True, tensor.from_numpy(X, first.device)))
        dy = tensor.from_numpy(DY, first.device)
        kept = []
        if way == "in one walk":
            return [gradient.detach() for _, gradient in autograd.backward(out, dy)]
        for item in second.backward(dy, output=["b1"]):
            kept += [gradient.detach() for gradient in item.gradients]
        for last in first.backward(item.layer_gradients["b1"]):
            kept += [gradient.detach() for gradient in last.gradients]
        return kept

    first, second = two_nets()
    eager = [tensor.to_numpy(value) for value in body()]
    assert len(eager) == len(first.param_names()) + len(second.param_names())
    assert [bits(value) for value in recorded(first.device, body)] == [bits(value) for value in eager]
