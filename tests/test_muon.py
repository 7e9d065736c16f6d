"""Muon: ten steps beside its formula and torch.optim.Muon; composed with another optimizer; stored; errors."""

from __future__ import annotations

import numpy as np
import pytest

from singa_lite import FeedForwardNet, layers, loss, optimizer, tensor
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


def losses(**options: object) -> list[float]:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=1)
    net.add(layers.Embedding("embedding", 20, 8, input_sample_shape=(6,)))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("middle", 12))
    net.add(layers.Dense("head", 4))
    others = {"others": optimizer.AdamW(3e-3), "others_for": ["*embedding*", "head/*"]}
    net.compile(optimizer.Muon(0.02, **others), **options)
    rng = np.random.default_rng(4)
    x, y = rng.integers(0, 20, (8, 6)), rng.integers(0, 4, 8)
    found = [float(net.train_one_batch(x, y)[0]) for _ in range(5)]
    assert "first_moment" in net.optimizer.state["embedding/weight"]
    assert "momentum" in net.optimizer.state["middle/weight"]
    return found


def test_recorded_steps_are_those_done_at_once():
    assert losses() == losses(graph=False)
