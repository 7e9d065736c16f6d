"""Adafactor: ten steps beside its formula in float64 and beside PyTorch's; recorded steps, budgets, snapshots."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skips
from singa_lite import FeedForwardNet, device, layers, optimizer, regularizer, tensor

SHAPES = [(), (7,), (5, 3), (300, 70), (3, 20000), (4, 3, 5), (4, 3, 2, 5)]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"beta_2_decay": -0.5, "epsilon_1": 1e-4, "epsilon_2": 0.5, "d": 1.5, "weight_decay": 0.3},
]


def formula(value: np.ndarray, gradients: list[np.ndarray], lr: float, **options: Any) -> np.ndarray:
    """The value behind updates by these gradients, in float64."""
    given = {"beta_2_decay": -0.8, "epsilon_2": 1e-3, "d": 1.0, "weight_decay": 0.0, **options}
    least = given.get("epsilon_1") or np.finfo(np.float32).eps
    rows = columns = whole = 0.0
    for t, g in enumerate(gradients, 1):
        b = t ** given["beta_2_decay"]
        size = max(given["epsilon_2"], np.sqrt((value**2).mean()))
        if g.ndim > 1:
            rows = (1 - b) * rows + b * (g**2).mean(-1, keepdims=True)
            columns = (1 - b) * columns + b * (g**2).mean(-2, keepdims=True)
            v = rows * columns / np.maximum(rows.mean(-2, keepdims=True), least)
        else:
            v = whole = (1 - b) * whole + b * g**2
        u = g / np.maximum(np.sqrt(v), least)
        clipped = u / max(1, np.sqrt((u**2).mean()) / given["d"])
        value = value * (1 - lr * given["weight_decay"]) - size * min(lr, t**-0.5) * clipped
    return value


def drawn(shape: tuple[int, ...], dtype: Any = np.float32) -> tuple[np.ndarray, list[np.ndarray]]:
    """A value, and gradients of ten steps whose rows differ in size."""
    rng = np.random.default_rng(1)
    sizes = np.exp(rng.normal(size=(*shape[:-1], 1) if shape else ()))
    gradients = [rng.standard_normal(shape) * sizes * 10.0 ** rng.integers(-3, 3) for _ in range(10)]
    return np.asarray(rng.standard_normal(shape), dtype), [np.asarray(g, dtype) for g in gradients]


def stepped(value: np.ndarray, gradients: list[np.ndarray], lay: Any = np.array, **options: Any) -> np.ndarray:
    """The value behind updates."""
    moved, opt = tensor.as_tensor(lay(value)), optimizer.Adafactor(**options)
    opt.register("*", lr_mult=0.5)
    for gradient in gradients:
        opt.update("w", moved, tensor.as_tensor(lay(gradient)))
    return tensor.to_numpy(moved)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_ten_steps_are_those_of_the_formula(shape, options):
    value, gradients = drawn(shape)
    wanted = formula(value.astype(float), [g.astype(float) for g in gradients], 0.1, **options)
    for lay in (np.array, np.asfortranarray):
        got = stepped(value, gradients, lay, lr=0.2, **options)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.peer
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_ten_steps_are_those_of_pytorch(shape, options):
    torch = skips.library("torch")
    value, gradients = drawn(shape, np.float64)
    own = {"lr": 0.1, "eps": (options.get("epsilon_1"), options.get("epsilon_2", 1e-3))}
    own |= {"beta2_decay": options.get("beta_2_decay", -0.8)}
    own |= {name: options[name] for name in ("d", "weight_decay") if name in options}
    parameter = torch.nn.Parameter(torch.tensor(value))
    peer = torch.optim.Adafactor([parameter], **own)
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        peer.step()
    got = stepped(value, gradients, lr=0.2, **options)
    np.testing.assert_allclose(got, parameter.detach().numpy(), rtol=1e-11, atol=1e-12)


X, Y = np.random.default_rng(0).normal(size=(16, 3, 9, 7)).astype("f"), np.arange(16) % 5


def net(opt: optimizer.Optimizer | None = None, **options: Any) -> FeedForwardNet:
    """Filters, a large matrix and vectors."""
    found = FeedForwardNet("softmax_cross_entropy", device=device.new_cpu())
    found.add(layers.Conv2D("conv", 6, 3, input_sample_shape=(3, 9, 7)))
    for number in range(6):
        found.add(layers.Conv2D(f"conv{number}", 6, 3))
        found.add(layers.Activation(f"tanh{number}", "tanh"))
    found.add(layers.Flatten("flat"))
    found.add(layers.Dense("hidden", 70))
    found.add(layers.Activation("act", "relu"))
    found.add(layers.Dense("scores", 5))
    found.compile(optimizer.Adafactor() if opt is None else opt, **options)
    return found


def trained(found: FeedForwardNet, steps: int = 4) -> list[bytes]:
    for _ in range(steps):
        found.train_one_batch(X, Y)
    return [tensor.to_numpy(value).tobytes() for value in found.param_values()]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accumulate": 2},
        {"clip_global_norm": 0.1},
        {"micro_batches": 2},
        {"parameter_dtype": "bfloat16"},
        {"parameter_dtype": "bfloat16", "rounding": "compensated"},
    ],
    ids=str,
)
def test_recorded_steps_have_the_bits_of_eager_ones(options):
    assert trained(net(**options)) == trained(net(graph=False, **options))


def test_within_a_budget_bits_are_equal():
    free = net()
    (least, _), *_, (most, _) = sorted(free.budget_curve(16))
    assert least < most
    assert trained(net(memory_budget=least)) == trained(free)


def test_rules_parts_and_a_schedule_that_goes_on_from_a_file(tmp_path):
    def made() -> FeedForwardNet:
        opt = optimizer.Adafactor(lambda step: 0.01 / (step + 1), regularizer=regularizer.L2Regularizer(0.01))
        opt.register("*/bias", lr_mult=2.0)
        return net(opt)

    whole, first, second = made(), made(), made()
    trained(first, 2)
    first.save(tmp_path / "net.h5")
    second.load(tmp_path / "net.h5")
    assert trained(second, 2) == trained(whole)
    assert {slot: state.shape for slot, state in second.trainer.optimizer.state["conv/weight"].items()} == {
        "row_var": (6, 3, 3, 1),
        "col_var": (6, 3, 1, 3),
        "count": (),
    }


def test_what_it_cannot_do_is_refused():
    for kept in ("int8", "bfloat16"):
        with pytest.raises(ValueError, match="Adafactor state_dtype"):
            net(state_dtype=kept)
