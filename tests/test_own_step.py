"""Steps of the user's own: as PyTorch does them, resumed to the bit, refused; in all modes in `test_modes.py`."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import skips
from own_steps import LATENT, X, critic, gan, generator, real, same_bits, vae, values
from singa_lite import FeedForwardNet, GraphError, ShapeError, autograd, device, optimizer, tensor
from singa_lite.errors import NonFiniteError, SnapshotError
from singa_lite.fit import Callback, StopTraining
from singa_lite.snapshots.checkpoints import checkpoint


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
    assert same_bits(values(net), before)
    net.train_one_batch(X, np.zeros((22, LATENT), np.float32))
    assert net.memory_plan.arena_bytes == plan.arena_bytes


class Stopping(Callback):
    """Saves and stops after so many steps."""

    def __init__(self, path: Any, stop: int) -> None:
        self.path, self.stop = path, stop

    def on_batch(self, training: Any) -> None:
        if training.net.optimizer.step == self.stop:
            checkpoint.save(training, self.path)
            raise StopTraining


@pytest.mark.parametrize("make", [gan, vae])
def test_steps_are_resumed_to_the_bit(tmp_path, make):
    whole, path = make(), tmp_path / "run.h5"
    history = fitted(whole)
    fitted(make(), callbacks=Stopping(path, 2))
    going_on = make()
    assert fitted(going_on, resume=path) == history
    assert same_bits(values(*whole), values(*going_on))


def test_a_checkpoint_of_other_nets_is_refused(tmp_path):
    fitted(gan(), callbacks=Stopping(tmp_path / "run.h5", 2))
    net = alone()
    before = values(net)
    with pytest.raises(SnapshotError, match="generator"):
        fitted((net, net), resume=tmp_path / "run.h5")
    assert same_bits(before, values(net))


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


def test_a_number_that_the_function_closes_over_is_followed():
    weight, constant = 1.0, np.arange(5, dtype=np.float32)

    def step(net: FeedForwardNet, call: Any) -> Any:
        loss = weight * real(net.forward(call.training, call.x * tensor.from_numpy(constant, net.device)))
        call.update(loss)
        return loss

    net = alone(step)
    net.optimizer.lr = 0.0
    first = float(net.train_one_batch(X)[0])
    weight = 3.0
    assert float(net.train_one_batch(X)[0]) == pytest.approx(3 * first, rel=1e-6)


def test_a_copy_and_another_device_go_on_alike():
    net = alone()
    net.train_one_batch(X)
    copied = deepcopy(net)
    moved = deepcopy(net)
    moved.to_device(device.new_cpu(kernels="numpy"))
    losses = [float(each.train_one_batch(X)[0]) for each in (net, copied, moved)]
    assert losses == [losses[0]] * 3
    assert same_bits(values(net), values(copied))
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


READS: dict[str, Any] = {
    "float": lambda net, call: float(alone_step(net, call)),
    "branch": lambda net, call: 1 if alone_step(net, call) > 0 else 2,
    "numpy": lambda net, call: tensor.to_numpy(net.forward(True, call.x)),
}


@pytest.mark.parametrize("step", READS.values(), ids=READS)
def test_values_cannot_be_read_while_recording_and_nothing_has_changed(step):
    net = alone(step)
    before = values(net)
    with pytest.raises(GraphError, match="reading"):
        net.train_one_batch(X)
    assert same_bits(before, values(net))
    assert net.optimizer.step == 0
    net.compile(net.optimizer, step=alone_step)
    net.train_one_batch(X)


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


@pytest.mark.parametrize("graph", [True, False])
def test_a_loss_that_is_not_finite_ends_fit(graph):
    broken = X.copy()
    broken[9, 3] = np.nan
    net, other = gan(graph=graph)
    before = values(other)
    with pytest.raises(NonFiniteError, match=r"step 1.*'c1'.*1, 3"):
        net.fit(broken, batch_size=8, epochs=1, shuffle=False, verbose=False)
    assert not same_bits(before, values(other))
    with pytest.raises(GraphError, match="whole step"):
        net.train_one_batch(X)


OTHERS = np.random.default_rng()


def drawing(net: FeedForwardNet, call: Any) -> Any:
    noise = tensor.from_numpy(OTHERS.standard_normal((call.size, 5), np.float32), net.device)
    loss = real(net.forward(call.training, call.x + noise))
    call.update(loss)
    return loss


def scaling(net: FeedForwardNet, call: Any) -> Any:
    loss = OTHERS.random() * real(net.forward(call.training, call.x))
    call.update(loss)
    return loss


def flipping(net: FeedForwardNet, call: Any) -> Any:
    FLIPS.append(1)
    loss = real(net.forward(call.training, call.x if len(FLIPS) % 2 else autograd.tanh(call.x)))
    call.update(loss)
    return loss


FLIPS: list[int] = []


class Late:
    """A step that counts its calls, and goes by that when there were many."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, net: FeedForwardNet, call: Any) -> Any:
        self.calls += 1
        loss = real(net.forward(call.training, call.x * 2.0 if self.calls > 30 else call.x))
        call.update(loss)
        return loss


def rarely(net: FeedForwardNet, call: Any) -> Any:
    loss = real(net.forward(call.training, call.x * 2.0 if OTHERS.random() < 1e-12 else call.x))
    call.update(loss)
    return loss


@pytest.mark.parametrize("step", [drawing, scaling, flipping, Late(), rarely])
def test_what_differs_between_calls_is_refused_and_nothing_has_changed(step):
    net = alone(step)
    before = values(net)
    with pytest.raises(GraphError, match="same operations"):
        net.train_one_batch(X)
    assert same_bits(before, values(net))
    assert net.optimizer.step == 0
    with pytest.raises(GraphError, match="same operations"):
        net.evaluate(X)


def test_batches_of_unequal_counts_are_refused():
    with pytest.raises(ShapeError, match="samples"):
        gan(noise=False)[0].train_one_batch(X, np.zeros((3, LATENT), np.float32))
    with pytest.raises(ShapeError, match="targets"):
        gan(noise=False)[0].fit(X, np.zeros((3, LATENT), np.float32), verbose=False)
