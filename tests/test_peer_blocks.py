"""Layers of layers beside PyTorch's modules of modules, from equal weights: outputs, gradients, steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import skips
from nets import gradients_of
from singa_lite import FeedForwardNet, device, layers, loss, optimizer, tensor

pytestmark = pytest.mark.peer
RNG = np.random.default_rng(11)
WIDTH, HEADS, HIDDEN = 6, 2, 10


def torch_values(net: FeedForwardNet, block: str) -> dict[str, np.ndarray]:
    """A block's parameters by the names of PyTorch's TransformerEncoderLayer."""
    return as_torch({name: tensor.to_numpy(value) for name, value in net.parameters().items()}, block)


def as_torch(ours: Mapping[str, np.ndarray], block: str) -> dict[str, np.ndarray]:
    """Values or gradients by PyTorch's names, in its layout."""
    mine = {name.removeprefix(f"{block}/"): value for name, value in ours.items() if name.startswith(f"{block}/")}
    parts = [f"attention/{part}" for part in ("query", "key", "value")]
    found = {
        "self_attn.in_proj_weight": np.concatenate([mine[f"{part}/weight"].T for part in parts]),
        "self_attn.in_proj_bias": np.concatenate([mine[f"{part}/bias"] for part in parts]),
    }
    for theirs, name in {"self_attn.out_proj": "attention/output", "linear1": "hidden", "linear2": "output"}.items():
        found |= {f"{theirs}.weight": mine[f"{name}/weight"].T, f"{theirs}.bias": mine[f"{name}/bias"]}
    for theirs, name in {"norm1": "attention_norm", "norm2": "hidden_norm"}.items():
        found |= {f"{theirs}.weight": mine[f"{name}/gamma"], f"{theirs}.bias": mine[f"{name}/beta"]}
    return found


def encoder_layer(torch: Any, values: Mapping[str, np.ndarray], norm_first: bool) -> Any:
    made = torch.nn.TransformerEncoderLayer(
        *(WIDTH, HEADS, HIDDEN), dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first
    ).double()
    made.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in values.items()})
    return made


def scattered(net: FeedForwardNet) -> FeedForwardNet:
    """The net with other values in all parameters, norms and biases too."""
    rng = np.random.default_rng(2)
    for value in net.parameters().values():
        value.copy_from_numpy(tensor.to_numpy(value) + rng.normal(0, 0.3, value.shape))
    return net


@pytest.mark.parametrize("norm_first", [True, False], ids=["norm first", "norm last"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both ways"])
@pytest.mark.parametrize("masked", [True, False], ids=["padded", "whole"])
def test_a_transformer_block_is_pytorchs_encoder_layer(norm_first, causal, masked):
    torch = skips.library("torch")
    net = FeedForwardNet(device=device.new_cpu(), dtype="float64", seed=3)
    net.add(layers.Dummy("x", (5, WIDTH)), [])
    net.add(layers.Dummy("mask", (5,)), [])
    block = layers.TransformerBlock("block", HEADS, causal, hidden_size=HIDDEN, normalize_first=norm_first)
    net.add(block, ["x", "mask"])
    theirs = encoder_layer(torch, torch_values(scattered(net), "block"), norm_first)
    x, dy = RNG.standard_normal((3, 5, WIDTH)), RNG.standard_normal((3, 5, WIDTH))
    mask = np.ones((3, 5))
    if masked:
        mask[0, 3:] = mask[2, 1:] = 0
    given = torch.from_numpy(x).requires_grad_()
    above = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1) if causal else None
    wanted = theirs(given, src_mask=above, src_key_padding_mask=torch.from_numpy(mask == 0))
    wanted.backward(torch.from_numpy(dy))

    found = net.forward(True, {"x": x, "mask": mask})
    np.testing.assert_allclose(tensor.to_numpy(found), wanted.detach().numpy(), rtol=1e-10, atol=1e-12)
    derivatives: dict[str, Any] = {}

    def walk() -> Any:
        for item in net.backward(dy, output=["x"]):
            derivatives.update(item.layer_gradients)
            yield item

    gradients = as_torch(gradients_of(walk()), "block")
    np.testing.assert_allclose(tensor.to_numpy(derivatives["x"]), given.grad.numpy(), rtol=1e-9, atol=1e-11)
    for name, parameter in theirs.named_parameters():
        np.testing.assert_allclose(gradients[name], parameter.grad.numpy(), rtol=1e-9, atol=1e-11, err_msg=name)


def test_modules_within_modules_train_alike():
    torch = skips.library("torch")
    nn = torch.nn

    class Residual(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, *parts: Any) -> None:
            super().__init__()
            self.parts = nn.Sequential(*parts)

        def forward(self, x: Any) -> Any:
            return x + self.parts(x)

    inner = [layers.LayerNormalization("norm"), layers.Dense("d", 7), layers.Activation("act", "gelu_tanh")]
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), dtype="float64", seed=3)
    net.add(layers.Dense("in", 5, input_sample_shape=(4,)))
    within = layers.Residual("within", [layers.Dense("f", 7), layers.Activation("tanh", "tanh")])
    net.add(layers.Residual("block", [*inner, within, layers.Dense("e", 5)]))
    net.add(layers.Dense("out", 3))
    net.compile(optimizer.Adam(0.01))
    module = nn.Sequential(
        nn.Linear(4, 5),
        Residual(
            *(nn.LayerNorm(5), nn.Linear(5, 7), nn.GELU(approximate="tanh")),
            Residual(nn.Linear(7, 7), nn.Tanh()),
            nn.Linear(7, 5),
        ),
        nn.Linear(5, 3),
    ).double()
    named = dict(zip(scattered(net).param_names(), module.parameters(), strict=True))
    for name, parameter in named.items():
        parameter.data = torch.from_numpy(np.ascontiguousarray(tensor.to_numpy(net.parameters()[name]).T))
    adam = torch.optim.Adam(module.parameters(), 0.01)
    for _ in range(4):
        x, y = RNG.standard_normal((6, 4)), RNG.integers(0, 3, 6)
        adam.zero_grad()
        wanted = nn.functional.cross_entropy(module(torch.from_numpy(x)), torch.from_numpy(y))
        wanted.backward()
        adam.step()
        np.testing.assert_allclose(net.train_one_batch(x, y)[0].item(), wanted.item(), rtol=1e-10)
    for name, parameter in named.items():
        found = tensor.to_numpy(net.parameters()[name]).T
        np.testing.assert_allclose(found, parameter.detach().numpy(), rtol=1e-9, atol=1e-11, err_msg=name)
