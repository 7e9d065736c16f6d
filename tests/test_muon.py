"""Muon: ten steps beside its formula and torch.optim.Muon; composed with another optimizer; stored; errors."""

from __future__ import annotations

import numpy as np
import pytest

from nets import all_bits
from singa_lite import FeedForwardNet, SnapshotError, layers, loss, optimizer, parallel, regularizer, tensor
from singa_lite.training.compile_checks import check_ranks
from skips import library

SHAPES = [(5, 3), (3, 7), (6, 6), (4, 3, 2, 5), (300, 520)]
A, B, C = 3.4445, -4.775, 2.0315


def orthogonal(d: np.ndarray, steps: int = 5) -> np.ndarray:
    """Newton and Schulz's iteration in float64, on the matrix as it lies."""
    x = d / max(np.linalg.norm(d), 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x


@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_ten_steps_are_those_of_the_formula(shape, nesterov, adjust):
    rng = np.random.default_rng(1)
    start = rng.standard_normal(shape).astype(np.float32)
    wanted, momentum, value = start.astype(float), np.zeros(shape), tensor.as_tensor(start)
    opt = optimizer.Muon(0.02, 0.9, nesterov, adjust_lr=adjust, weight_decay=0.3)
    opt.register("*", lr_mult=0.5)
    rows, columns = shape[0], int(np.prod(shape[1:]))
    ratio = columns / rows if len(shape) == 2 else rows / columns
    scale = np.sqrt(max(1, ratio)) if adjust == "original" else 0.2 * np.sqrt(max(rows, columns))
    for _ in range(10):
        gradient = rng.standard_normal(shape).astype(np.float32)
        momentum = 0.9 * momentum + 0.1 * gradient
        direction = 0.9 * momentum + 0.1 * gradient if nesterov else momentum
        step = orthogonal(direction.reshape(rows, columns)).reshape(shape)
        wanted = wanted - 0.01 * (scale * step + 0.3 * wanted)
        opt.update("w", value, tensor.as_tensor(gradient))
    np.testing.assert_allclose(tensor.to_numpy(value), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(tensor.to_numpy(opt.state["w"]["momentum"]), momentum, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(5, 3), (3, 7), (40, 64)])
def test_ten_steps_are_those_of_torch(shape, monkeypatch):
    """A matrix lies the other way round there. With its cast to bfloat16 taken out only rounding is left; with it an
    element of a step, at most 1.2 times the scale, is off by some of bfloat16's units of 2**-8."""
    torch = library("torch")
    rng = np.random.default_rng(2)
    start = rng.standard_normal(shape).astype(np.float32)
    gradients = rng.standard_normal((10, *shape)).astype(np.float32)
    value, opt = tensor.as_tensor(start), optimizer.Muon(0.02)
    for gradient in gradients:
        opt.update("w", value, tensor.as_tensor(gradient))

    def theirs() -> np.ndarray:
        weight = torch.nn.Parameter(torch.tensor(start.T.copy()))
        their = torch.optim.Muon([weight], lr=0.02)
        for gradient in gradients:
            weight.grad = torch.tensor(gradient.T.copy())
            their.step()
        return weight.detach().numpy().T

    scale = np.sqrt(max(1, shape[1] / shape[0]))
    rounded = np.abs(tensor.to_numpy(value) - theirs()).max()
    assert 1e-5 < rounded < 10 * 0.02 * scale * 8 * 2**-8
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda given: given.clone())
    np.testing.assert_allclose(tensor.to_numpy(value), theirs(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(5, 30), (70, 20), (16, 16, 3, 3)])
def test_singular_values_of_a_step_are_near_1(shape):
    gradient = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    value = tensor.as_tensor(np.zeros(shape, np.float32))
    optimizer.Muon(1.0, weight_decay=0.0, adjust_lr="match_rms_adamw").update("w", value, tensor.as_tensor(gradient))
    step = tensor.to_numpy(value).reshape(shape[0], -1)
    found = np.linalg.svd(step, compute_uv=False) / (0.2 * np.sqrt(max(step.shape)))
    assert found.min() > 0.6 and found.max() < 1.25


RNG = np.random.default_rng(4)
X, Y = RNG.integers(0, 20, (8, 6)), RNG.integers(0, 4, 8)


def compiled(opt: optimizer.Optimizer, seed: int = 1, **options: object) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=seed)
    net.add(layers.Embedding("embedding", 20, 8, input_sample_shape=(6,)))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("middle", 12))
    net.add(layers.Dense("head", 4))
    net.compile(opt, **options)
    return net


def muon() -> optimizer.Muon:
    return optimizer.Muon(0.02, others=optimizer.AdamW(3e-3), others_for=["*embedding*", "head/*"])


def losses(**options: object) -> list[float]:
    net = compiled(muon(), **options)
    found = [float(net.train_one_batch(X, Y)[0]) for _ in range(5)]
    assert "first_moment" in net.optimizer.state["embedding/weight"]
    assert "momentum" in net.optimizer.state["middle/weight"]
    return found


def test_recorded_steps_are_those_done_at_once():
    assert losses() == losses(graph=False)


def with_rule() -> optimizer.Optimizer:
    opt = optimizer.AdamW()
    opt.register("*/bias", lr_mult=2.0)
    return opt


def with_state() -> optimizer.Optimizer:
    net = compiled(optimizer.AdamW())
    net.train_one_batch(X, Y)
    return net.optimizer


@pytest.mark.parametrize(
    ("options", "error", "received"),
    [
        ({"others": 3}, TypeError, "int"),
        ({"others": "adamw"}, TypeError, "str"),
        ({"others": optimizer.AdamW}, TypeError, "the class AdamW"),
        ({"others": optimizer.Muon()}, TypeError, "Muon"),
        ({"others": with_rule}, ValueError, "AdamW with some"),
        ({"others": with_state}, ValueError, "AdamW with some"),
        ({"others": lambda: optimizer.SGD(regularizer=regularizer.L2Regularizer(0.1))}, ValueError, "SGD with some"),
        ({"others_for": "head/*"}, TypeError, "'head/[*]'"),
        ({"others_for": ["head/*", 3]}, TypeError, r"\['head/[*]', 3\]"),
    ],
)
def test_other_choices_are_refused(options, error, received):
    made = {
        name: given() if callable(given) and not isinstance(given, type) else given for name, given in options.items()
    }
    with pytest.raises(error, match=f"^Muon {next(iter(options))}.*wanted .*received {received}$"):
        optimizer.Muon(**made)


def test_a_pattern_without_parameters_is_refused_before_anything_changes():
    net = compiled(optimizer.AdamW())
    with pytest.raises(ValueError, match=r"^Muon others_for: wanted a pattern .*'head/bias'\], received 'tail/\*'$"):
        net.compile(optimizer.Muon(others_for=["head/*", "tail/*"]))
    assert type(net.optimizer) is optimizer.AdamW


def test_parts_of_its_state_on_several_processes_are_refused():
    with pytest.raises(ValueError, match="shard='state', received Muon"):
        check_ranks(parallel.mpi(shard="state"), None, optimizer.Muon(), None)


@pytest.mark.parametrize(("first", "then"), [(muon, optimizer.AdamW), (optimizer.AdamW, muon)])
def test_a_snapshot_of_another_optimizer_gives_its_parameters_alone(first, then, tmp_path):
    saved, read = compiled(first()), compiled(then(), seed=2)
    saved.train_one_batch(X, Y)
    saved.save(tmp_path / "net.safetensors")
    kinds = type(then()).__name__, type(first()).__name__
    before = all_bits(read.parameters())
    with pytest.raises(SnapshotError, match="wanted the state of optimizer {}, received {}".format(*kinds)):
        read.load(tmp_path / "net.safetensors")
    assert all_bits(read.parameters()) == before and not read.optimizer.has_state
    read.load(tmp_path / "net.safetensors", optimizer=False)
    assert all_bits(read.parameters()) == all_bits(saved.parameters()) != before and not read.optimizer.has_state


def test_a_run_goes_on_from_a_snapshot_with_equal_bits(tmp_path):
    whole, read = compiled(muon()), compiled(muon(), seed=2)
    whole.train_one_batch(X, Y)
    whole.save(tmp_path / "net.safetensors")
    read.load(tmp_path / "net.safetensors")
    for net in (whole, read):
        net.train_one_batch(X, Y)
    assert all_bits(read.parameters()) == all_bits(whole.parameters())
