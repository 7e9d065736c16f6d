"""Nets with steps of the user's own, for tests: an adversarial pair, and a variational autoencoder."""

from __future__ import annotations

from typing import Any

import numpy as np

from singa_lite import FeedForwardNet, autograd, device, layers, optimizer, tensor
from singa_lite.tensor import Tensor

RNG = np.random.default_rng(5)
X = RNG.standard_normal((22, 5)).astype(np.float32)
LATENT = 3


def critic(on: Any, dtype: str = "float32") -> FeedForwardNet:
    net = FeedForwardNet(device=on, dtype=dtype, seed=1)
    net.add(layers.Dense("c1", 7, input_sample_shape=(5,)))
    net.add(layers.Activation("c2", "tanh"))
    net.add(layers.Dense("c3", 1))
    return net


def generator(on: Any, dtype: str = "float32") -> FeedForwardNet:
    net = FeedForwardNet(device=on, dtype=dtype, seed=2)
    net.add(layers.Dense("g1", 6, input_sample_shape=(LATENT,)))
    net.add(layers.BatchNormalization("g2"))
    net.add(layers.Activation("g3", "tanh"))
    net.add(layers.Dense("g4", 5))
    return net


def real(scores: Tensor) -> Tensor:
    """-log(sigmoid(scores)), its mean."""
    return autograd.reduce_mean(autograd.softplus(-scores))


def fake(scores: Tensor) -> Tensor:
    """-log(1 - sigmoid(scores)), its mean."""
    return autograd.reduce_mean(autograd.softplus(scores))


def gan(
    on: Any = None,
    dtype: str = "float32",
    noise: bool = True,
    clip: float | None = None,
    rounds: int = 1,
    **options: Any,
) -> tuple[FeedForwardNet, FeedForwardNet]:
    """(critic, which has the step, generator). noise: drawn in the step, else read from the targets."""
    on = on or device.new_cpu(kernels="numpy")
    second, first = critic(on, dtype), generator(on, dtype)
    first.compile(optimizer.Adam(1e-2), clip_global_norm=clip)

    def step(net: FeedForwardNet, call: Any) -> dict[str, Tensor]:
        latent = call.normal((call.size, LATENT)) if noise else call.y
        made = first.forward(call.training, latent)
        for _ in range(rounds):
            left = made.detach()
            loss = real(net.forward(call.training, call.x)) + fake(net.forward(call.training, left))
            call.update(loss, net)
        fooled = real(net.forward(call.training, made))
        call.update(fooled, first)
        return {"loss": loss, "generator": fooled}

    second.compile(optimizer.SGD(0.1, momentum=0.9), step=step, nets={"generator": first}, **options)
    return second, first


def vae(
    on: Any = None, dtype: str = "float32", noise: bool = True, **options: Any
) -> tuple[FeedForwardNet, FeedForwardNet]:
    """(encoder, which has the step, decoder), both updated by one walk back."""
    on = on or device.new_cpu(kernels="numpy")
    encoder = FeedForwardNet(device=on, dtype=dtype, seed=3)
    encoder.add(layers.Dense("body", 6, input_sample_shape=(5,)))
    encoder.add(layers.Activation("bend", "tanh"))
    encoder.add(layers.Dense("mean", 2), "bend")
    encoder.add(layers.Dense("log_variance", 2), "bend")
    decoder = FeedForwardNet(device=on, dtype=dtype, seed=4)
    decoder.add(layers.Dense("d1", 4, input_sample_shape=(2,)))
    decoder.add(layers.Activation("d2", "tanh"))
    decoder.add(layers.Dense("d3", 5))
    decoder.compile(optimizer.SGD(0.05))

    def step(net: FeedForwardNet, call: Any) -> dict[str, Tensor]:
        out = net.forward(call.training, call.x)
        mean, log_variance = out["mean"], out["log_variance"]
        drawn = call.normal(mean.shape) if noise else call.y
        code = mean + autograd.exp(0.5 * log_variance) * drawn
        back = decoder.forward(call.training, code)
        error = autograd.reduce_sum((back - call.x) * (back - call.x)) / call.size
        kl = -0.5 * autograd.reduce_sum(1.0 + log_variance - mean * mean - autograd.exp(log_variance)) / call.size
        call.update(error + kl)
        return {"loss": error + kl, "kl": kl}

    encoder.compile(optimizer.Adam(2e-2), step=step, nets={"decoder": decoder}, **options)
    return encoder, decoder


def values(*nets: FeedForwardNet) -> dict[str, np.ndarray]:
    """All that training moves, by net and name."""
    found: dict[str, np.ndarray] = {}
    for number, net in enumerate(nets):
        kept = net.parameters() | net.states() | net.step_state()
        for name, slots in net.optimizer.state.items():
            kept |= {f"{name}/{slot}": each for slot, each in slots.items()}
        found |= {f"{number}/{name}": tensor.to_numpy(each) for name, each in kept.items()}
    return found


def same_bits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)
