"""MultiHeadAttention: by hand, and beside PyTorch from equal weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skips
from run_layer import prepared, run
from singa_lite import autograd, layers, tensor

RNG = np.random.default_rng(8)


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch, or a skip where it is not installed."""
    return skips.library("torch")


def by_formula(values: dict[str, np.ndarray], x: np.ndarray, m: np.ndarray, heads: int, kv_heads: int) -> np.ndarray:
    """The output by loops over samples and heads."""
    q, k, v = (
        s @ values[f"{name}/weight"] + values[f"{name}/bias"] for name, s in (("query", x), ("key", m), ("value", m))
    )
    size = q.shape[2] // heads
    gathered = np.zeros_like(q)
    for n in range(len(x)):
        for head in range(heads):
            own, shared = head * size, head // (heads // kv_heads) * size
            scores = q[n, :, own : own + size] @ k[n, :, shared : shared + size].T / np.sqrt(size)
            p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
            gathered[n, :, own : own + size] = p @ v[n, :, shared : shared + size]
    return gathered @ values["output/weight"] + values["output/bias"]


@pytest.mark.parametrize("cross", [False, True], ids=["self", "cross"])
def test_the_formula(cross):
    layer = layers.MultiHeadAttention("a", 4, 3, kv_heads=2)
    shapes = ((5, 6), (7, 8)) if cross else ((5, 6),)
    prepared(layer, *shapes)
    values = {name: RNG.standard_normal(t.shape) for name, t in layer.parameters.items()}
    inputs = [RNG.standard_normal((2, *shape)) for shape in shapes]
    wanted = by_formula(values, inputs[0], inputs[-1], 4, 2)
    np.testing.assert_allclose(run(layer, *inputs, parameters=values), wanted, rtol=1e-10)
    shapes = {name: value.shape for name, value in values.items()}
    width = 8 if cross else 6
    assert shapes == {
        **{"query/weight": (6, 12), "query/bias": (12,), "key/weight": (width, 6), "key/bias": (6,)},
        **{"value/weight": (width, 6), "value/bias": (6,), "output/weight": (12, 6), "output/bias": (6,)},
    }


def test_rotary_goes_by_distances():
    """Where all positions hold the same, shifting them changes no score."""
    layer = prepared(layers.MultiHeadAttention("a", 2, rotary=True), (6, 8))
    x = RNG.standard_normal((1, 6, 8))
    plain = prepared(layers.MultiHeadAttention("a", 2), (6, 8))
    assert np.abs(run(layer, x) - run(plain, x)).max() > 1e-3
    same = np.repeat(x[:, :1], 6, 1)
    np.testing.assert_allclose(run(layer, same), np.repeat(run(layer, same)[:, :1], 6, 1), rtol=1e-9)


def test_dropout_scales_what_it_keeps():
    """The mean over many samples is what evaluation gives; rows of the weights sum to 1 on the average alone."""
    layer = prepared(layers.MultiHeadAttention("a", 2, dropout=0.25), (8, 6))
    x = np.repeat(RNG.standard_normal((1, 8, 6)), 3000, 0)
    trained, evaluated = run(layer, x, training=True), run(layer, x[:1])
    assert trained.std(0).min() > 0.01
    np.testing.assert_allclose(trained.mean(0), evaluated[0], atol=6 * trained.std(0).max() / np.sqrt(3000))
    assert tensor.to_numpy(layer.states["random"])[2] == 1


def central_differences(layer: Any, x: np.ndarray, dy: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """The derivative of sum(dy * y) by x, in float64."""
    found = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        ends = []
        for step in (1e-6, -1e-6):
            moved = x.copy()
            moved[at] += step
            ends.append((forward(layer, moved, *others) * dy).sum())
        found[at] = (ends[0] - ends[1]) / 2e-6
    return found


def forward(layer: Any, x: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """The output for inputs of their own dtypes."""
    with autograd.no_grad():
        return tensor.to_numpy(layer.forward(False, *map(tensor.from_numpy, (x, *others))))


def derivative(layer: Any, x: np.ndarray, dy: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """By x."""
    given = tensor.from_numpy(x)
    given.stores_grad = True
    y = layer.forward(True, given, *map(tensor.from_numpy, others))
    return next(tensor.to_numpy(g) for p, g in autograd.backward(y, tensor.from_numpy(dy)) if p is given)


#: Two texts and an empty end; one text after another within the window.
STARTS = np.array([[0, 0, 0, 3, 3, 5, 6], [0, 0, 2, 2, 2, 2, 2]])


@pytest.mark.parametrize(("window", "dtype"), [(None, "int32"), (None, "int64"), (2, "int64")])
def test_texts_in_a_row_are_as_if_each_had_a_row_of_its_own(window, dtype):
    """Rotary positions too, as they go by distances."""
    options = {"rotary": True, "kv_heads": 1, "window": window, "query_key_norm": True, "qkv_bias": True}
    alone = prepared(layers.MultiHeadAttention("a", 2, 4, True, **options), (7, 6))
    packed = prepared(layers.MultiHeadAttention("a", 2, 4, True, packed=True, **options), (7, 6), (7,))
    x, dy = RNG.standard_normal((2, 2, 7, 6))
    starts = STARTS.astype(dtype)
    y, dx = forward(packed, x, starts), derivative(packed, x, dy, starts)
    np.testing.assert_allclose(dx, central_differences(packed, x, dy, starts), rtol=1e-5, atol=1e-8)
    for row in range(2):
        for start in np.unique(STARTS[row]):
            text = np.flatnonzero(STARTS[row] == start)
            wanted = forward(alone, x[row : row + 1, text])
            np.testing.assert_allclose(y[row : row + 1, text], wanted, rtol=1e-9, atol=1e-12)
            wanted = derivative(alone, x[row : row + 1, text], dy[row : row + 1, text])
            np.testing.assert_allclose(dx[row : row + 1, text], wanted, rtol=1e-9, atol=1e-12)


def test_a_window_hides_what_lies_before_it():
    layer = prepared(layers.MultiHeadAttention("a", 2, causal=True, window=3), (7, 6))
    plain = prepared(layers.MultiHeadAttention("a", 2, causal=True), (7, 6))
    x = RNG.standard_normal((2, 7, 6))
    y = forward(layer, x)
    np.testing.assert_allclose(y[:, :3], forward(plain, x)[:, :3], rtol=1e-12)
    for row in range(2, 7):
        np.testing.assert_allclose(y[:, row], forward(plain, x[:, row - 2 : row + 1])[:, -1], rtol=1e-9, atol=1e-12)


# ---- beside PyTorch


@pytest.mark.peer
def test_equals_torchs_layer(torch):
    """Of a memory of another width; `test_peer_blocks.py` has self-attention."""
    features, width, heads = 6, 10, 3
    theirs = torch.nn.MultiheadAttention(features, heads, kdim=width, vdim=width, batch_first=True, dtype=torch.float64)
    shapes = (5, features), (7, width), (7,)
    layer = prepared(layers.MultiHeadAttention("a", heads), *shapes)
    weights = [theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight]
    biases = theirs.in_proj_bias.data = torch.randn(3 * features, dtype=torch.float64)
    names = "query", "key", "value"
    for name, weight, bias in zip(names, weights, biases.chunk(3), strict=True):
        layer.parameters[f"{name}/weight"].copy_from_numpy(weight.detach().numpy().T.copy())
        layer.parameters[f"{name}/bias"].copy_from_numpy(bias.numpy().copy())
    layer.parameters["output/weight"].copy_from_numpy(theirs.out_proj.weight.detach().numpy().T.copy())
    layer.parameters["output/bias"].copy_from_numpy(theirs.out_proj.bias.detach().numpy().copy())
    arrays = [RNG.standard_normal((2, *shape)) for shape in shapes[:-1]]
    mask = np.ones((2, *shapes[-1]))
    mask[0, 3:] = mask[1, 1] = 0
    foreign = [torch.from_numpy(a.copy()).requires_grad_() for a in arrays]
    output, _ = theirs(foreign[0], foreign[-1], foreign[-1], key_padding_mask=torch.from_numpy(mask == 0))
    dy = RNG.standard_normal(tuple(output.shape))
    (output * torch.from_numpy(dy)).sum().backward()
    given = [tensor.from_numpy(a) for a in arrays]
    for one in given:
        one.stores_grad = True
    y = layer.forward(True, *given, tensor.from_numpy(mask))
    np.testing.assert_allclose(tensor.to_numpy(y), output.detach().numpy(), rtol=1e-9, atol=1e-10)
    gradients = {id(p): tensor.to_numpy(g) for p, g in autograd.backward(y, tensor.from_numpy(dy))}
    for mine, wanted in zip(given, foreign, strict=True):
        np.testing.assert_allclose(gradients[id(mine)], wanted.grad.numpy(), rtol=1e-8, atol=1e-10)
    found = gradients[id(layer.parameters["output/weight"])]
    np.testing.assert_allclose(found, theirs.out_proj.weight.grad.numpy().T, rtol=1e-8, atol=1e-10)
    wanted = theirs.q_proj_weight.grad
    np.testing.assert_allclose(gradients[id(layer.parameters["query/weight"])], wanted.numpy().T, rtol=1e-8, atol=1e-10)


@pytest.mark.peer
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize(("t", "s", "kv_heads"), [(5, 7, 4), (7, 5, 2), (1, 6, 1)])
def test_equals_torchs_operation(torch, causal, t, s, kv_heads):
    arrays = [RNG.standard_normal(shape) for shape in ((2, t, 4, 3), (2, s, kv_heads, 3), (2, s, kv_heads, 3))]
    theirs = [torch.from_numpy(a.copy()).requires_grad_() for a in arrays]
    attend = torch.nn.functional.scaled_dot_product_attention
    output = attend(*(a.transpose(1, 2) for a in theirs), is_causal=causal, scale=0.7, enable_gqa=True).transpose(1, 2)
    dy = RNG.standard_normal(tuple(output.shape))
    (output * torch.from_numpy(dy)).sum().backward()
    mine = [tensor.from_numpy(a) for a in arrays]
    for one in mine:
        one.stores_grad = True
    y = autograd.attention(*mine, causal=causal, scale=0.7)
    np.testing.assert_allclose(tensor.to_numpy(y), output.detach().numpy(), rtol=1e-10, atol=1e-12)
    gradients = {id(p): tensor.to_numpy(g) for p, g in autograd.backward(y, tensor.from_numpy(dy))}
    for one, wanted in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(gradients[id(one)], wanted.grad.numpy(), rtol=1e-9, atol=1e-12)
