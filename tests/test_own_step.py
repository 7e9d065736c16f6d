"""Several nets: steps of the user's own, which `test_modes.py` has in all modes, and walks back through their tapes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import skips
from data_nets import StopAt
from nets import all_bits, gradients_of
from own_steps import LATENT, X, critic, gan, generator, real, vae, values
from singa_lite import FeedForwardNet, GraphError, ShapeError, Tensor, autograd, device, layers, loss, optimizer, tensor
from singa_lite.device import Device
from singa_lite.errors import SnapshotError


def fitted(pair: tuple[FeedForwardNet, FeedForwardNet], epochs: int = 2, **options: Any) -> Any:
    """Batches of 8, the last one of 6."""
    history = pair[0].fit(X, batch_size=8, epochs=epochs, verbose=False, **options).history
    return {name: given for name, given in history.items() if name not in ("samples_per_second", "high_water")}


def test_a_plan_before_the_first_batch_wants_targets_shown():
    net, _ = gan(noise=False)
    before = values(net)
    with pytest.raises(GraphError, match=r"net\.evaluate_one_batch\(x, y\)"):
        net.plan_batch(64)
    net.evaluate_one_batch(X[:1], np.zeros((1, LATENT), np.float32))
    plan = net.plan_batch(22)
    assert values(net) == before
    net.train_one_batch(X, np.zeros((22, LATENT), np.float32))
    assert net.memory_plan.arena_bytes == plan.arena_bytes


@pytest.mark.parametrize("make", [gan, vae])
def test_steps_are_resumed_to_the_bit(tmp_path, make):
    whole, path = make(), tmp_path / "run.h5"
    history = fitted(whole)
    fitted(make(), callbacks=StopAt(2, path))
    going_on = make()
    assert fitted(going_on, resume=path) == history
    assert values(*whole) == values(*going_on)


def test_a_checkpoint_of_other_nets_is_refused(tmp_path):
    fitted(gan(), callbacks=StopAt(2, tmp_path / "run.h5"))
    net = alone()
    before = values(net)
    with pytest.raises(SnapshotError, match="generator"):
        fitted((net, net), resume=tmp_path / "run.h5")
    assert before == values(net)


def alone_step(net: FeedForwardNet, call: Any) -> Any:
    loss = real(net.forward(call.training, call.x))
    call.update(loss)
    return loss


def alone(step: Any = alone_step, **options: Any) -> FeedForwardNet:
    net = critic(device.new_cpu(kernels="numpy"))
    net.compile(optimizer.SGD(0.1), **{"step": step, **options})
    return net


def test_normal_numbers_have_the_mean_and_deviation_asked_for_and_are_others_each_time():
    def step(net: FeedForwardNet, call: Any) -> Any:
        alone_step(net, call)
        numbers, others = call.normal((70, 90), 2.0, 0.5), call.normal((70, 90), 2.0, 0.5)
        mean = autograd.reduce_mean(numbers)
        square = autograd.reduce_mean((numbers - 2.0) * (numbers - 2.0))
        return {"loss": mean, "square": square, "other": autograd.reduce_mean(others)}

    net, means = alone(step), set()
    for _ in range(3):
        mean, rest = net.train_one_batch(X)
        means |= {float(mean), float(rest["other"])}
        assert abs(float(mean) - 2) < 5 * 0.5 / 6300**0.5
        assert abs(float(rest["square"]) - 0.25) < 5 * 0.25 * (2 / 6300) ** 0.5
    assert len(means) == 6


def test_a_net_updated_several_times_counts_one_step_and_its_state_each_update():
    pair = gan(rounds=3)
    fitted(pair, 1)
    assert [net.optimizer.step for net in pair] == [3, 3]
    assert int(tensor.to_numpy(pair[0].optimizer.state["c1/weight"]["count"])) == 9


def test_a_number_that_the_function_closes_over_is_frozen_until_it_is_recorded_again():
    weight, constant = 1.0, np.arange(5, dtype=np.float32)

    def step(net: FeedForwardNet, call: Any) -> Any:
        loss = weight * real(net.forward(call.training, call.x * tensor.from_numpy(constant, net.device)))
        call.update(loss)
        return loss

    net = alone(step)
    net.optimizer.lr = 0.0
    first = float(net.train_one_batch(X)[0])
    weight = 3.0
    assert float(net.train_one_batch(X)[0]) == pytest.approx(first, rel=1e-6)
    net.record_again()
    assert float(net.train_one_batch(X)[0]) == pytest.approx(3 * first, rel=1e-6)


def test_a_copy_and_another_device_go_on_alike():
    net = alone()
    net.train_one_batch(X)
    copied = deepcopy(net)
    moved = deepcopy(net)
    moved.to_device(device.new_cpu(kernels="numpy"))
    losses = [float(each.train_one_batch(X)[0]) for each in (net, copied, moved)]
    assert losses == [losses[0]] * 3
    assert values(net) == values(copied)
    with pytest.raises(GraphError, match="generator"):
        deepcopy(gan()[0])


# ---- beside PyTorch


def theirs(torch: Any, *nets: FeedForwardNet) -> dict[str, Any]:
    """Our values as PyTorch's parameters, by net and name."""
    return {
        f"{number}/{name}": torch.tensor(tensor.to_numpy(value), requires_grad=True)
        for number, net in enumerate(nets)
        for name, value in net.parameters().items()
    }


def agree(found: dict[str, Any], *nets: FeedForwardNet) -> None:
    for name, value in found.items():
        number, _, path = name.partition("/")
        ours = tensor.to_numpy(nets[int(number)].parameters()[path])
        np.testing.assert_allclose(ours, value.detach().numpy(), rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.peer
def test_an_adversarial_pair_trains_as_in_pytorch():
    torch = skips.library("torch")
    softplus, mean = torch.nn.functional.softplus, torch.mean
    pair = gan(dtype="float64", noise=False, clip=0.05)
    values = theirs(torch, *pair)

    def scores(x: Any) -> Any:
        return torch.tanh(x @ values["0/c1/weight"] + values["0/c1/bias"]) @ values["0/c3/weight"] + values["0/c3/bias"]

    def made(latent: Any) -> Any:
        hidden = latent @ values["1/g1/weight"] + values["1/g1/bias"]
        hidden = torch.nn.functional.batch_norm(
            hidden,
            None,
            None,
            values["1/g2/gamma"],
            values["1/g2/beta"],
            training=True,
            eps=pair[1].layers["g2"].epsilon,
        )
        return torch.tanh(hidden) @ values["1/g4/weight"] + values["1/g4/bias"]

    critics, makers = ([value for name, value in values.items() if name.startswith(number)] for number in "01")
    one, two = torch.optim.SGD(critics, 0.1, momentum=0.9), torch.optim.Adam(makers, 1e-2)
    random = np.random.default_rng(8)
    for size in (8, 8, 6, 8):
        x, latent = random.standard_normal((size, 5)), random.standard_normal((size, LATENT))
        loss, other = pair[0].train_one_batch(x, latent)
        fakes = made(torch.tensor(latent))
        first = mean(softplus(-scores(torch.tensor(x)))) + mean(softplus(scores(fakes.detach())))
        one.zero_grad()
        first.backward()
        one.step()
        second = mean(softplus(-scores(fakes)))
        two.zero_grad()
        second.backward()
        norm = torch.nn.utils.clip_grad_norm_(makers, 0.05)
        two.step()
        assert float(norm) > 0.05
        assert float(pair[1].gradient_norm) == pytest.approx(float(norm), rel=1e-9)
        assert float(loss) == pytest.approx(first.item(), rel=1e-10)
        assert float(other["generator"]) == pytest.approx(second.item(), rel=1e-10)
        agree(values, *pair)


@pytest.mark.peer
def test_a_variational_autoencoder_trains_as_in_pytorch():
    torch = skips.library("torch")
    pair = vae(dtype="float64", noise=False)
    values = theirs(torch, *pair)

    def dense(x: Any, name: str) -> Any:
        return x @ values[f"{name}/weight"] + values[f"{name}/bias"]

    encoder, decoder = ([value for name, value in values.items() if name.startswith(number)] for number in "01")
    one, two = torch.optim.Adam(encoder, 2e-2), torch.optim.SGD(decoder, 0.05)
    random = np.random.default_rng(9)
    for size in (8, 7, 8):
        x, drawn = random.standard_normal((size, 5)), random.standard_normal((size, 2))
        loss, other = pair[0].train_one_batch(x, drawn)
        given = torch.tensor(x)
        body = torch.tanh(dense(given, "0/body"))
        mean, log_variance = dense(body, "0/mean"), dense(body, "0/log_variance")
        code = mean + torch.exp(0.5 * log_variance) * torch.tensor(drawn)
        back = dense(torch.tanh(dense(code, "1/d1")), "1/d3")
        kl = -0.5 * (1 + log_variance - mean**2 - torch.exp(log_variance)).sum() / size
        whole = ((back - given) ** 2).sum() / size + kl
        for each in (one, two):
            each.zero_grad()
        whole.backward()
        one.step()
        two.step()
        assert float(loss) == pytest.approx(whole.item(), rel=1e-10)
        assert float(other["kl"]) == pytest.approx(kl.item(), rel=1e-10)
        agree(values, *pair)


# ---- what is refused


@pytest.mark.parametrize(
    ("options", "error", "culprit"),
    [
        ({"micro_batches": 2}, ValueError, "micro_batches"),
        ({"accumulate": 3}, ValueError, "accumulate"),
        ({"freeze": "c3"}, ValueError, "freeze"),
        ({"loss_scale": 8.0}, ValueError, "loss_scale"),
        ({"precision": "float16"}, ValueError, "precision"),
        ({"loss": "squared_error"}, ValueError, "loss"),
        ({"metric": "accuracy"}, ValueError, "metric"),
        ({"nets": {"c": critic(device.new_cpu(kernels="numpy"))}}, GraphError, "nets"),
        ({"nets": [3]}, TypeError, "nets"),
        ({"step": 3}, TypeError, "step"),
        ({"step": None, "loss": "squared_error", "nets": {}}, ValueError, "nets"),
    ],
)
def test_options_that_the_step_would_ignore_are_refused(options, error, culprit):
    with pytest.raises(error, match=f"compile .*{culprit}"):
        alone(**options)


def test_what_other_calls_refuse_beside_a_step():
    net = critic(device.new_cpu(kernels="numpy"))
    other = generator(net.device)
    other.compile(optimizer.SGD(), memory_budget="1 GiB")
    with pytest.raises(ValueError, match="memory_budget"):
        net.compile(optimizer.SGD(), step=alone_step, nets={"g": other})
    with pytest.raises(ValueError, match="sample_weight"):
        alone().fit(X, sample_weight=np.ones(22), verbose=False)
    with pytest.raises(GraphError, match="gradients"):
        alone().gradients(X, None)


CONSTANT: list[Any] = []


def stale(net: FeedForwardNet, call: Any) -> Any:
    one, two = real(net.forward(True, call.x)), real(net.forward(True, call.x * 2.0))
    call.update(one)
    call.update(two)
    return one


def outside(net: FeedForwardNet, call: Any) -> Any:
    alone_step(net, call)
    return {"loss": CONSTANT[0]}


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "nothing": (lambda net, call: None, TypeError, "return a loss"),
    "no loss": (lambda net, call: {"kl": alone_step(net, call)}, TypeError, "kl"),
    "a number": (lambda net, call: {"loss": alone_step(net, call), "a": 3.0}, TypeError, "'a'"),
    "no mean": (lambda net, call: net.forward(True, call.x), ShapeError, "'loss'"),
    "no update": (lambda net, call: real(net.forward(True, call.x)), GraphError, "the net itself"),
    "no tape": (lambda net, call: call.update(tensor.full((), 1.0)), GraphError, "tape"),
    "no scalar": (lambda net, call: call.update(net.forward(True, call.x)), ShapeError, "loss"),
    "no targets": (lambda net, call: call.y, GraphError, "targets"),
    "stale": (stale, GraphError, "'c"),
    "backward": (lambda net, call: net.backward(net.forward(True, call.x)), GraphError, "update"),
    "a stranger": (lambda net, call: call.update(alone_step(net, call), generator(net.device)), GraphError, "nets="),
}


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize(("step", "error", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_step_is_refused(step, error, message, graph):
    with pytest.raises(error, match=message):
        alone(step, graph=graph).train_one_batch(X)


def test_a_tensor_from_outside_and_training_in_an_evaluation_are_refused():
    net = alone(outside)
    CONSTANT[:] = [tensor.full((), 1.0, device=net.device)]
    with pytest.raises(GraphError, match="'loss'"):
        net.train_one_batch(X)
    with pytest.raises(GraphError, match="training"):
        alone(lambda net, call: real(net.forward(True, call.x))).evaluate(X)


def test_a_failing_step_done_at_once_leaves_both_nets_marked():
    net, other = gan(graph=False)
    before = other.forward

    def failing(*given: Any, **options: Any) -> Any:
        before(*given, **options)
        raise KeyboardInterrupt

    other.forward = failing
    with pytest.raises(KeyboardInterrupt):
        net.train_one_batch(X)
    del other.forward
    for each in (net, other):
        with pytest.raises(GraphError, match="whole step"):
            each.forward(True, np.zeros((2, *each.input_shapes().popitem()[1]), np.float32))
        each.discard_step()
    net.train_one_batch(X)


CANNOT_BE_RECORDED: dict[str, tuple[Any, str]] = {
    "float": (lambda net, call: float(alone_step(net, call)), "reading"),
    "branch": (lambda net, call: 1 if alone_step(net, call) > 0 else 2, "reading"),
    "numpy": (lambda net, call: tensor.to_numpy(net.forward(call.training, call.x)), "reading"),
}


@pytest.mark.parametrize("name", CANNOT_BE_RECORDED)
def test_what_reads_values_is_refused_and_nothing_has_changed(name):
    step, words = CANNOT_BE_RECORDED[name]
    net = alone(step)
    before = values(net)
    with pytest.raises(GraphError, match=words):
        net.train_one_batch(X)
    assert before == values(net)
    assert net.optimizer.step == 0
    with pytest.raises(GraphError, match=words):
        net.evaluate(X)
    net.compile(net.optimizer, step=alone_step)
    net.train_one_batch(X)


def test_batches_of_unequal_counts_are_refused():
    with pytest.raises(ShapeError, match="samples"):
        gan(noise=False)[0].train_one_batch(X, np.zeros((3, LATENT), np.float32))
    with pytest.raises(ShapeError, match="targets"):
        gan(noise=False)[0].fit(X, np.zeros((3, LATENT), np.float32), verbose=False)


# --- tapes that meet ----------------------------------------------------------------------------------------


RNG = np.random.default_rng(12)
ONE, OTHER = RNG.standard_normal((6, 3)), RNG.standard_normal((6, 3))
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
    wanted = jointly(second.forward(True, first.forward(True, ONE)), DY)
    found: dict[str, np.ndarray] = {}
    second.forward(True, first.forward(True, ONE))
    derivative_by_input(first, derivative_by_input(second, DY, found), found)
    assert set(wanted) == {*first.param_names(), *second.param_names()}
    assert all_bits(found) == all_bits(wanted)


def test_two_nets_over_one_output_give_two_derivatives_to_add():
    first, second = two_nets()
    _, third = two_nets(first.device)
    out = first.forward(True, ONE)
    wanted = jointly(second.forward(True, out) + third.forward(True, out), DY)["a1/weight"]
    out = first.forward(True, ONE)
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
    x = tensor.from_numpy(ONE, second.device)
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
    pair = [first.forward(True, ONE), first.forward(True, OTHER)]
    found = jointly(apart(*pair))
    sums = {name: np.zeros_like(gradient) for name, gradient in found.items()}
    one, other = (tensor.to_numpy(out) for out in pair)
    slope = (one - other) / one.size
    flat = (1 - np.tanh(one * other) ** 2) / one.size
    for x, dy in ((ONE, slope - flat * other), (OTHER, -slope - flat * one)):
        first.forward(True, x)
        for name, gradient in gradients_of(first.backward(dy)).items():
            sums[name] += gradient
    for name, gradient in found.items():
        np.testing.assert_allclose(gradient, sums[name], rtol=1e-9, atol=1e-12)


def test_back_from_the_second_of_two_forwards_that_are_both_held_is_refused():
    first, _ = two_nets()
    one = first.forward(True, ONE)
    two = first.forward(True, OTHER)
    with pytest.raises(GraphError, match=r"forward\(True, x\)"):
        first.backward(np.ones((6, 4)))
    assert set(jointly(one + two, np.ones((6, 4)))) == set(first.param_names())
    kept = first.forward(True, ONE)
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
    out = first.forward(True, ONE)
    with pytest.raises(GraphError, match="'b1'"):
        second.forward(True, out, freeze="b4")
    second.forward(True, out.detach(), freeze="b4")
    assert set(gradients_of(second.backward(DY))) == {"b4/weight", "b4/bias"}
    assert len(gradients_of(first.backward(np.ones((6, 4))))) == len(first.param_names())


def test_a_step_trains_one_net_whatever_feeds_it():
    nets = [two_nets(), two_nets()]
    for (first, second), taped in zip(nets, (True, False), strict=True):
        second.compile(optimizer.Adam(), loss.SquaredError(), freeze="b4")
        out = first.forward(True, ONE)
        target = first.forward(True, ONE)
        given = (out, autograd.split(target, 1, (2,))[0]) if taped else (out.detach(), tensor.to_numpy(target)[:, :2])
        second.train_one_batch(*given)
        second.gradients(*given)
    for one, other in zip(*nets, strict=True):
        assert all_bits(one.parameters()) == all_bits(other.parameters())


def test_a_target_from_a_tape_is_refused_by_a_loss_that_would_lose_its_derivative():
    first, second = two_nets()
    out = second.forward(True, first.forward(True, ONE))
    squared = loss.SquaredError()
    with pytest.raises(GraphError, match="SquaredError"):
        squared.forward(True, out, out * 0.5)
    squared.forward(False, out, out * 0.5)
    squared.forward(True, out, (out * 0.5).detach())
    assert squared.backward().shape == out.shape
