"""Nets with steps of the user's own, for tests: an adversarial pair, and a variational autoencoder."""

from __future__ import annotations

from typing import Any

import numpy as np

from nets import all_bits, state_of
from singa_lite import FeedForwardNet, autograd, device, layers, optimizer
from singa_lite.tensor import Tensor

RNG = np.random.default_rng(5)
X = RNG.standard_normal((22, 5)).astype(np.float32)
LATENT = 3
Pair = tuple[FeedForwardNet, FeedForwardNet]


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


def with_generator(
    net: FeedForwardNet, noise: bool = True, clip: float | None = None, rounds: int = 1
) -> dict[str, Any]:
    """Options of `compile` by which a critic trains against a generator. noise: drawn, else read from the targets."""
    maker = generator(net.device, str(net.dtype))
    maker.compile(optimizer.Adam(1e-2), clip_global_norm=clip)

    def step(net: FeedForwardNet, call: Any) -> dict[str, Tensor]:
        latent = call.normal((call.size, LATENT)) if noise else call.y
        made = maker.forward(call.training, latent)
        for _ in range(rounds):
            left = made.detach()
            loss = real(net.forward(call.training, call.x)) + fake(net.forward(call.training, left))
            call.update(loss, net)
        fooled = real(net.forward(call.training, made))
        call.update(fooled, maker)
        return {"loss": loss, "generator": fooled}

    return {"step": step, "nets": {"generator": maker}}


def encoder(on: Any, dtype: str = "float32") -> FeedForwardNet:
    net = FeedForwardNet(device=on, dtype=dtype, seed=3)
    net.add(layers.Dense("body", 6, input_sample_shape=(5,)))
    net.add(layers.Activation("bend", "tanh"))
    net.add(layers.Dense("mean", 2), "bend")
    net.add(layers.Dense("log_variance", 2), "bend")
    return net


def with_decoder(net: FeedForwardNet, noise: bool = True) -> dict[str, Any]:
    """Options of `compile` by which an encoder and a decoder are updated by one walk back."""
    decoder = FeedForwardNet(device=net.device, dtype=str(net.dtype), seed=4)
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

    return {"step": step, "nets": {"decoder": decoder}}


def gan(
    on: Any = None,
    dtype: str = "float32",
    noise: bool = True,
    clip: float | None = None,
    rounds: int = 1,
    **options: Any,
) -> Pair:
    """(critic, which has the step, generator)."""
    net = critic(on or device.new_cpu(kernels="numpy"), dtype)
    beside = with_generator(net, noise, clip, rounds)
    net.compile(optimizer.SGD(0.1, momentum=0.9), **beside, **options)
    return net, beside["nets"]["generator"]


def vae(dtype: str = "float32", noise: bool = True, **options: Any) -> Pair:
    """(encoder, which has the step, decoder)."""
    net = encoder(device.new_cpu(kernels="numpy"), dtype)
    beside = with_decoder(net, noise)
    net.compile(optimizer.Adam(2e-2), **beside, **options)
    return net, beside["nets"]["decoder"]


def values(*nets: FeedForwardNet) -> list[Any]:
    """The bits of all that training moves."""
    return [(state_of(net), all_bits(net.trainer.step_state())) for net in nets]
