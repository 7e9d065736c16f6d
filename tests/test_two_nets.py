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


def updated(net: FeedForwardNet, dy: Any, with_what: optimizer.Optimizer | None) -> Tensor:
    """Walk back, updating if an optimizer is given; the derivative by the net's input."""
    (name,) = net.input_shapes()
    for item in net.backward(dy, output=[name]):
        for each in zip(item.names, item.values, item.gradients, strict=True) if with_what else ():
            with_what.update(*each)
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


def test_each_net_may_be_updated_as_its_gradients_come():
    nets = [two_nets(), two_nets()]
    first, second = nets[0]
    sgd = optimizer.SGD(lr=0.1)
    second.forward(True, first.forward(True, X))
    updated(first, updated(second, DY, sgd), sgd)
    first, second = nets[1]
    for parameter, gradient in autograd.backward(
        second.forward(True, first.forward(True, X)), tensor.from_numpy(DY, first.device)
    ):
        sgd.update(parameter.name, parameter, gradient)
    for one, other in zip(*nets, strict=True):
        assert all_bits(one.parameters()) == all_bits(other.parameters())


def test_a_net_that_is_fed_by_another_trains_alone_and_the_other_can_still_be_walked():
    first, second = two_nets()
    out = first.forward(True, X)
    second.forward(True, out)
    found = gradients_of(second.backward(DY))
    assert set(found) == set(second.param_names())
    assert set(gradients_of(first.backward(np.ones((6, 4))))) == set(first.param_names())


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


def test_an_input_with_a_gradient_of_its_own_gets_it_from_the_tape_and_is_never_trained():
    _, second = two_nets()
    given = tensor.from_numpy(RNG.standard_normal((6, 4)), second.device)
    given.stores_grad, given.name = True, "image"
    second.forward(True, given)
    found: dict[str, np.ndarray] = {}
    wanted = tensor.to_numpy(derivative_by_input(second, DY, found))
    assert set(found) == set(second.param_names())
    assert bits(jointly(second.forward(True, given), DY)["image"]) == bits(wanted)
    second.compile(optimizer.SGD(lr=0.1), loss.SquaredError(), graph=False)
    before = bits(given)
    second.train_one_batch(given, DY)
    assert bits(given) == before


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
    with pytest.raises(GraphError, match=r"one forward\(True, x\).*several.*autograd.backward"):
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
        with pytest.raises(GraphError, match=r"wanted forward\(True, x\) before"):
            second.backward(DY)
        assert len(held) == 2


def test_a_frozen_layer_that_would_cut_a_tape_is_refused():
    first, second = two_nets()
    out = first.forward(True, X)
    with pytest.raises(GraphError, match=r"'b1'.*frozen.*detach"):
        second.forward(True, out, freeze="b4")
    second.forward(True, out.detach(), freeze="b4")
    assert set(gradients_of(second.backward(DY))) == {"b4/weight", "b4/bias"}
    assert len(gradients_of(first.backward(np.ones((6, 4))))) == len(first.param_names())


@pytest.mark.parametrize("graph", [False, True])
def test_a_step_trains_one_net_whatever_feeds_it(graph):
    nets = [two_nets(), two_nets()]
    for (first, second), taped in zip(nets, (True, False), strict=True):
        second.compile(optimizer.Adam(), loss.SquaredError(), graph=graph, freeze="b4")
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
    with pytest.raises(GraphError, match=r"SquaredError.*needs no derivative.*detach"):
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


# --- the same scripts in PyTorch ------------------------------------------------------------------------------


def in_torch(torch: Any, net: FeedForwardNet, build: Callable[[Any], Any]) -> tuple[Any, dict[str, Any]]:
    """PyTorch's module with the net's parameters, and its parameters by the net's names."""
    module = build(torch.nn).double()
    named = dict(zip(net.param_names(), module.parameters(), strict=True))
    for name, parameter in named.items():
        value = tensor.to_numpy(net.parameters()[name])
        parameter.data = torch.from_numpy((value.T if name.endswith("weight") else value).copy())
    return module, named


def first_in_torch(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 4))


def second_in_torch(nn: Any) -> Any:
    return nn.Sequential(nn.Tanh(), nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, 2))


def assert_equal_parameters(nets: list[tuple[FeedForwardNet, dict[str, Any]]]) -> None:
    for net, theirs in nets:
        for name, value in net.parameters().items():
            wanted = theirs[name].detach().numpy()
            wanted = wanted.T if name.endswith("weight") else wanted
            np.testing.assert_allclose(tensor.to_numpy(value), wanted, rtol=1e-11, atol=1e-12, err_msg=name)


@pytest.mark.peer
def test_adversaries_train_as_in_pytorch():
    torch = pytest.importorskip("torch", reason="pip install torch==2.13.0 for the peer of this comparison")
    maker, judge = two_nets()
    (their_maker, makers), (their_judge, judges) = (
        in_torch(torch, maker, first_in_torch),
        in_torch(torch, judge, second_in_torch),
    )
    ours = optimizer.SGD(lr=0.1), optimizer.SGD(lr=0.05)
    theirs = torch.optim.SGD(makers.values(), lr=0.1), torch.optim.SGD(judges.values(), lr=0.05)
    squared, real = loss.SquaredError(), RNG.standard_normal((6, 4))
    good, bad = np.ones((6, 2)), np.zeros((6, 2))
    for _ in range(4):
        fake = maker.forward(True, X)
        for x, target in ((real, good), (fake.detach(), bad)):
            squared.forward(True, judge.forward(True, x), target)
            updated(judge, squared.backward(), ours[1])
        squared.forward(True, judge.forward(True, fake), good)  # through the judge, which stays as it is
        updated(maker, updated(judge, squared.backward(), None), ours[0])

        fake = their_maker(torch.from_numpy(X))
        for x, target in ((torch.from_numpy(real), good), (fake.detach(), bad)):
            theirs[1].zero_grad()
            (((their_judge(x) - torch.from_numpy(target)) ** 2).mean() / 2).backward()
            theirs[1].step()
        theirs[0].zero_grad()
        (((their_judge(fake) - torch.from_numpy(good)) ** 2).mean() / 2).backward()
        theirs[0].step()
    assert_equal_parameters([(maker, makers), (judge, judges)])


@pytest.mark.peer
def test_a_pair_through_one_net_and_an_expression_trains_as_in_pytorch():
    torch = pytest.importorskip("torch", reason="pip install torch==2.13.0 for the peer of this comparison")
    encoder, _ = two_nets()
    theirs, named = in_torch(torch, encoder, first_in_torch)
    sgd, their_sgd = optimizer.SGD(lr=0.2, momentum=0.5), torch.optim.SGD(named.values(), lr=0.2, momentum=0.5)
    for _ in range(4):
        value = apart(encoder.forward(True, X), encoder.forward(True, OTHER))
        for parameter, gradient in autograd.backward(value):
            sgd.update(parameter.name, parameter, gradient)
        a, b = theirs(torch.from_numpy(X)), theirs(torch.from_numpy(OTHER))
        wanted = ((a - b) ** 2 / 2 - torch.tanh(a * b)).mean()
        their_sgd.zero_grad()
        wanted.backward()
        their_sgd.step()
        np.testing.assert_allclose(tensor.to_numpy(value), wanted.item(), rtol=1e-11)
    assert_equal_parameters([(encoder, named)])
