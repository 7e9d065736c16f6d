"""Every optimizer beside a reference in float64: PyTorch's where it has one, else the formula of the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

import skips
from nets import bits, state_of
from singa_lite import FeedForwardNet, layers, loss, optimizer, parallel, tensor
from singa_lite.optimizer.stepping import Rounding
from singa_lite.tensor import from_numpy, to_numpy
from singa_lite.training.compile_checks import check_ranks

Array = np.ndarray[Any, Any]
#: The value of a parameter after one more update, of its value and gradient.
Step = Callable[[Array, Array], Array]


def pytorch(kind: str, **options: Any) -> Callable[[float], Step]:
    """The steps of PyTorch's optimizer at a rate."""

    def begin(rate: float) -> Step:
        torch, held = skips.library("torch"), []

        def step(value: Array, gradient: Array) -> Array:
            if not held:
                parameter = torch.zeros(value.shape, dtype=torch.float64, requires_grad=True)
                held.extend([parameter, getattr(torch.optim, kind)([parameter], lr=rate, **options)])
            parameter, made = held
            parameter.data, parameter.grad = (torch.tensor(given, dtype=torch.float64) for given in (value, gradient))
            made.step()
            return parameter.detach().numpy().copy()

        return step

    return begin


def lion(beta_1: float, beta_2: float, decay: float) -> Callable[[float], Step]:
    """Chen and others, arXiv 2302.06675, algorithm 2."""

    def begin(rate: float) -> Step:
        momentum: list[Any] = [0.0]

        def step(value: Array, gradient: Array) -> Array:
            direction = np.sign(beta_1 * momentum[0] + (1 - beta_1) * gradient)
            momentum[0] = beta_2 * momentum[0] + (1 - beta_2) * gradient
            return value - rate * (direction + decay * value)

        return step

    return begin


class Rule(NamedTuple):
    """make: the optimizer of a rate. reference: its steps in float64."""

    make: Callable[[float], optimizer.Optimizer]
    rate: float
    reference: Callable[[float], Step]


def rule(kind: type[optimizer.Optimizer], rate: float, reference: Callable[[float], Step], **settings: Any) -> Rule:
    return Rule(lambda lr: kind(lr, **settings), rate, reference)


#: Settings of the same name and meaning in both.
DECAY: dict[str, Any] = {"weight_decay": 0.2}
DAMPED: dict[str, Any] = {"momentum": 0.8, "dampening": 0.4, **DECAY}
LARGEST: dict[str, Any] = {"amsgrad": True}
BETAS: dict[str, Any] = {"beta_1": 0.5, "beta_2": 0.8}
RULES = {
    "plain": rule(optimizer.SGD, 0.3, pytorch("SGD")),
    "momentum": rule(optimizer.SGD, 0.3, pytorch("SGD", momentum=0.9), momentum=0.9),
    "momentum, decay": rule(optimizer.SGD, 0.3, pytorch("SGD", momentum=0.9, **DECAY), momentum=0.9, **DECAY),
    "dampening": rule(optimizer.SGD, 0.3, pytorch("SGD", **DAMPED), **DAMPED),
    "nesterov": rule(optimizer.SGD, 0.1, pytorch("SGD", momentum=0.8, nesterov=True), momentum=0.8, nesterov=True),
    "Nesterov": rule(optimizer.Nesterov, 0.1, pytorch("SGD", momentum=0.9, nesterov=True, **DECAY), **DECAY),
    "RMSProp": rule(optimizer.RMSProp, 0.01, pytorch("RMSprop", alpha=0.9, **DECAY), **DECAY),
    "AdaGrad": rule(optimizer.AdaGrad, 0.03, pytorch("Adagrad", **DECAY), **DECAY),
    "Adam": rule(optimizer.Adam, 0.01, pytorch("Adam", **DECAY), **DECAY),
    "Adam betas": rule(optimizer.Adam, 0.03, pytorch("Adam", betas=(0.5, 0.8), eps=0.1), **BETAS, epsilon=0.1),
    "Adam amsgrad": rule(optimizer.Adam, 0.01, pytorch("Adam", betas=(0.9, 0.6), **LARGEST), beta_2=0.6, **LARGEST),
    "AdamW": rule(optimizer.AdamW, 0.01, pytorch("AdamW")),
    "AdamW amsgrad": rule(optimizer.AdamW, 0.01, pytorch("AdamW", **DECAY, **LARGEST), **DECAY, **LARGEST),
    "Lion": rule(optimizer.Lion, 0.01, lion(0.5, 0.8, 0.2), **BETAS, **DECAY),
}
#: Optimizers that a test of their own compares with PyTorch's. They take a gradient whole.
ELSEWHERE = {"Adafactor": optimizer.Adafactor, "Muon": optimizer.Muon}
EVERY: dict[str, Callable[[], optimizer.Optimizer]] = {
    **{name: partial(made.make, made.rate) for name, made in RULES.items()},
    **ELSEWHERE,
}
#: Rules whose reference needs no PyTorch.
BY_FORMULA = ("Lion",)


def rows(names: Any) -> list[Any]:
    return [name if name in BY_FORMULA else pytest.param(name, marks=pytest.mark.peer) for name in names]


EACH = pytest.mark.parametrize("name", rows(RULES))


def test_no_optimizer_is_missing():
    kinds = {kind for kind in vars(optimizer).values() if isinstance(kind, type)}
    wanted = {kind for kind in kinds if issubclass(kind, optimizer.Optimizer)} - {optimizer.Optimizer}
    assert {type(make()).__name__ for make in EVERY.values()} == {kind.__name__ for kind in wanted}


@EACH
@pytest.mark.parametrize(("dtype", "near"), [("float64", 1e-11), ("float32", 3e-6)])
def test_ten_steps_are_those_of_the_reference(name, dtype, near):
    """Of several shapes, one at half the rate."""
    rng, (make, rate, reference) = np.random.default_rng(1), RULES[name]
    opt, shapes = make(rate), {"one": (7,), "half": (5, 3), "many": (4, 3, 2, 5)}
    opt.register("half", lr_mult=0.5)
    steps = {at: reference(rate / 2 if at == "half" else rate) for at in shapes}
    wanted = {at: rng.standard_normal(shape).astype("f").astype(float) for at, shape in shapes.items()}
    values = {at: from_numpy(value.astype(dtype)) for at, value in wanted.items()}
    for _ in range(10):
        for at, value in values.items():
            gradient = rng.standard_normal(value.shape).astype("f")
            wanted[at] = steps[at](wanted[at], gradient.astype(float))
            opt.update(at, value, from_numpy(gradient.astype(dtype)))
            np.testing.assert_allclose(to_numpy(value), wanted[at], rtol=near, atol=near)


@pytest.mark.parametrize("kind", ["bfloat16", "int8"])
@pytest.mark.parametrize("name", rows(name for name in RULES if name != "plain"))
def test_a_first_step_with_narrow_state_is_that_of_the_reference(name, kind):
    """It has no rounded state behind it yet."""
    value, gradient = np.random.default_rng(0).standard_normal((2, 70, 67)).astype(np.float32)
    opt, moved = RULES[name].make(0.001), from_numpy(value)
    opt.keep_state_as(kind)
    opt.update("w", moved, from_numpy(gradient))
    wanted = RULES[name].reference(0.001)(value, gradient)
    np.testing.assert_allclose(to_numpy(moved), wanted, rtol=0, atol=2e-6)


# ---- within training steps


def net_of(opt: optimizer.Optimizer, **options: Any) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=2)
    net.add(layers.Dense("a", 17, input_sample_shape=(5,), activation="tanh"))
    net.add(layers.Dense("b", 3))
    net.compile(opt, **options)
    return net


def batch(number: int) -> tuple[Array, Array]:
    rng, count = np.random.default_rng(number), 9 + 2 * (number % 2)
    return rng.standard_normal((count, 5), dtype=np.float32), rng.integers(0, 3, count)


def gradients(values: dict[str, Array], x: Array, y: Array) -> dict[str, Array]:
    """Of the mean cross entropy, worked out by hand."""
    hidden = np.tanh(x @ values["a/weight"] + values["a/bias"])
    powers = np.exp(hidden @ values["b/weight"] + values["b/bias"])
    dy = (powers / powers.sum(1, keepdims=True) - np.eye(3)[y]) / len(x)
    dh = dy @ values["b/weight"].T * (1 - hidden**2)
    return {"a/weight": x.T @ dh, "a/bias": dh.sum(0), "b/weight": hidden.T @ dy, "b/bias": dy.sum(0)}


def values_of(net: FeedForwardNet) -> dict[str, Array]:
    return {name: to_numpy(value).astype(float) for name, value in net.parameters().items()}


def values_with_errors(net: FeedForwardNet) -> dict[str, Array]:
    """What updates begin with: values and, where they are stored in bfloat16, errors in 1/256 of a last place."""
    found = values_of(net)
    for name, value in net.parameters().items():
        if (error := net.optimizer.state_for(name, value).get("error")) is not None:
            bits = found[name].astype("f").view(np.int32) + (to_numpy(error).astype(np.int32) << 8)
            found[name] = bits.view(np.float32).astype(float)
    return found


#: {how parameters are stored: (options, by how much of a value they may be off)}: half a last place, or one.
STORED: dict[str, tuple[dict[str, Any], float]] = {
    "float32": ({}, 0.0),
    "compensated": ({"parameter_dtype": "bfloat16", "rounding": "compensated"}, 2.0**-8),
    "stochastic": ({"parameter_dtype": "bfloat16"}, 2.0**-7),
}
LIMIT = 0.2
WITHIN: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipped": {"clip_global_norm": LIMIT},
    "not clipped": {"clip_global_norm": 100.0},
    "group": {"accumulate": 3},
    "clipped group": {"clip_global_norm": LIMIT, "accumulate": 2},
}
IN_NETS = ("plain", "momentum", "momentum, decay", "dampening", "Nesterov", "Adam", "AdamW", "Lion")


def _net_rows() -> list[Any]:
    """(rule, how parameters are stored, what is done within)."""
    found = product(IN_NETS, STORED, WITHIN)
    return [row if row[0] in BY_FORMULA else pytest.param(*row, marks=pytest.mark.peer) for row in found]


@pytest.mark.parametrize(("name", "stored", "within"), _net_rows())
def test_steps_of_a_net_are_those_of_the_reference(name, stored, within):
    """By gradients in float64 at the values as they are stored; these come one after the other, or, where they are
    rounded by chance, each from the one before. Operations done one by one give equal bits.
    """
    if stored != "float32":
        skips.library("ml_dtypes")
    (make, rate, reference), (options, near) = RULES[name], STORED[stored]
    net, eager = (net_of(make(rate), graph=graph, **options, **WITHIN[within]) for graph in (True, False))
    wanted, steps = values_with_errors(net), {parameter: reference(rate) for parameter in net.param_names()}
    clip, count, scaled = net.clip_global_norm, net.accumulate, 0
    for step in range(6):
        total = dict.fromkeys(wanted, 0.0)
        if stored == "stochastic":
            wanted = values_of(net)
        for number in range(count):
            given = batch(10 * step + number)
            for parameter, gradient in gradients(values_of(net), *given).items():
                total[parameter] = total[parameter] + gradient / count
            assert bits(net.train_one_batch(*given)[0]) == bits(eager.train_one_batch(*given)[0])
        if clip is not None:
            norm = np.sqrt(sum(np.square(gradient).sum() for gradient in total.values()))
            assert float(net.gradient_norm) == pytest.approx(norm, rel=1e-5)
            scaled += norm > clip
            total = {parameter: gradient * min(1, clip / (norm + 1e-6)) for parameter, gradient in total.items()}
        wanted = {parameter: steps[parameter](value, total[parameter]) for parameter, value in wanted.items()}
        for parameter, value in values_of(net).items():
            np.testing.assert_allclose(value, wanted[parameter], rtol=near if value.ndim > 1 else 0, atol=1e-5)
    assert scaled >= 3 if clip == LIMIT else scaled == 0
    assert net.optimizer.step == 6 and state_of(net) == state_of(eager)


# ---- the same bits in every way


def chain(name: str, **options: Any) -> FeedForwardNet:
    """A gradient that most optimizers take by tiles, and activations that a budget has done again."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=2)
    net.add(layers.Dense("a", 17_000, input_sample_shape=(64,)))
    for number in range(5):
        net.add(layers.Activation(f"tanh{number}", "tanh"))
    net.add(layers.Dense("b", 3))
    net.compile(EVERY[name](), **options)
    return net


def trained(net: FeedForwardNet, steps: Iterable[int] = range(4)) -> FeedForwardNet:
    for step in steps:
        rng = np.random.default_rng(step)
        net.train_one_batch(rng.standard_normal((40, 64), dtype=np.float32), rng.integers(0, 3, 40))
    return net


@cache
def planned(name: str) -> tuple[dict[str, Any], int]:
    """What a net has behind recorded steps, and the bytes that these took."""
    net = trained(chain(name))
    return state_of(net), net.memory_plan.total_bytes


def unplanned(name: str, folder: Any) -> FeedForwardNet:
    return trained(chain(name, graph=False))


def budgeted(name: str, folder: Any) -> FeedForwardNet:
    most = planned(name)[1] - 3_000_000
    net = trained(chain(name, memory_budget=most))
    assert net.memory_plan.total_bytes <= most
    return net


def resumed(name: str, folder: Any) -> FeedForwardNet:
    trained(chain(name), range(2)).save(folder / "net.npz")
    net = chain(name)
    net.load(folder / "net.npz")
    return trained(net, range(2, 4))


@pytest.mark.parametrize("train", [unplanned, budgeted, resumed])
@pytest.mark.parametrize("name", EVERY)
def test_steps_have_equal_bits_in_every_way(tmp_path, name, train):
    assert state_of(train(name, tmp_path)) == planned(name)[0]


@pytest.mark.parametrize("name", EVERY)
def test_state_is_in_parts_unless_gradients_are_taken_whole(name):
    """`test_parallel_training.py` trains with such state."""
    ranks, made = parallel.mpi(shard="state"), EVERY[name]()
    if name not in ELSEWHERE:
        check_ranks(ranks, None, made, None)
        return
    with pytest.raises(ValueError, match=f"updates each element by itself beside shard='state', received {name}"):
        check_ranks(ranks, None, made, None)


@pytest.mark.parametrize("rounding", ["stochastic", "compensated"])
@pytest.mark.parametrize("name", RULES)
def test_the_mean_of_many_stored_updates_is_that_of_one_in_float32(name, rounding):
    """Of 40,000 equal elements, each rounded to one of two neighbours, by chance or by what it had left over."""
    bfloat16, (make, rate, _) = skips.library("ml_dtypes").bfloat16, RULES[name]
    start = np.full((200, 200), 0.7001, "f").astype(bfloat16)
    wide = from_numpy(start.astype("f"))
    stored = tensor.empty(start.shape, start.dtype)
    stored.device.copy_in(stored, start)
    for value in (stored, wide):
        opt = make(rate * 0.003)
        opt.rounding = Rounding(rounding, 0)
        opt.update("w", value, from_numpy(np.full((200, 200), 0.37, "f")))
    got, wanted = to_numpy(stored).astype(float), float(to_numpy(wide)[0, 0])
    low, high = np.unique(got)
    assert low < wanted < high and high - low <= 2.0**-8
    share = (wanted - low) / (high - low)
    deviation = (high - low) * np.sqrt(share * (1 - share) / got.size)
    assert abs(got.mean() - wanted) < 5 * deviation
