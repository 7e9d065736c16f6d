"""Recurrent layers: by loops over steps, beside PyTorch from equal weights, and state that is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import skips
from misuse import refused
from run_layer import prepared, run, state
from singa_lite import FeedForwardNet, ShapeError, autograd, device, layers, loss, optimizer, tensor
from singa_lite.layer import Layer

RNG = np.random.default_rng(8)
LAYERS = {
    "LSTM": lambda size, **options: layers.LSTM("r", size, **options),
    "GRU": lambda size, **options: layers.GRU("r", size, **options),
    "SimpleRNN": lambda size, **options: layers.SimpleRNN("r", size, **options),
}
every_layer = pytest.mark.parametrize("kind", LAYERS)


@pytest.fixture(scope="module")
def torch() -> Any:
    """PyTorch, or a skip where it is not installed."""
    return skips.library("torch")


# ---- by loops


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def hard_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.clip(x / 6 + 0.5, 0, 1)


def step(kind: str, values: Any, x: np.ndarray, h: np.ndarray, c: np.ndarray, s: Any, after: bool) -> Any:
    """One step of one sample or more by the formulas as they stand: the states behind it."""
    w, u, b, d = (values[name] for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"))
    if kind == "LSTM":
        i, f, g, o = np.split(x @ w + b + h @ u + d, 4, -1)
        c = s(f) * c + s(i) * np.tanh(g)
        return s(o) * np.tanh(c), c
    if kind == "SimpleRNN":
        return np.tanh(x @ w + b + h @ u + d), c
    (xr, xz, xn), (ur, uz, un), (dr, dz, dn) = (np.split(a, 3, -1) for a in (x @ w + b, u, d))
    r, z = s(xr + h @ ur + dr), s(xz + h @ uz + dz)
    n = np.tanh(xn + r * (h @ un + dn)) if after else np.tanh(xn + (r * h) @ un + dn)
    return (1 - z) * n + z * h, c


def by_loop(
    kind: str, values: Any, x: np.ndarray, mask: Any = None, s: Any = sigmoid, after: bool = True
) -> np.ndarray:
    """All outputs, (n, time, size)."""
    size = len(values["weight_hh_l0"])
    outputs = np.zeros((*x.shape[:2], size))
    for n, sample in enumerate(x):
        h = c = np.zeros(size)
        for t, at in enumerate(sample):
            if mask is None or mask[n, t]:
                h, c = step(kind, values, at, h, c, s, after)
            outputs[n, t] = h
    return outputs


def with_values(layer: Layer, *shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Set it up, and give it random parameters."""
    prepared(layer, *shapes)
    return {name: RNG.uniform(-1, 1, t.shape) for name, t in layer.parameters.items()}


@every_layer
def test_the_formula(kind):
    x = RNG.standard_normal((3, 5, 4))
    layer = LAYERS[kind](2, return_sequences=True)
    values = with_values(layer, (5, 4))
    wanted = by_loop(kind, values, x)
    np.testing.assert_allclose(run(layer, x, parameters=values), wanted, rtol=1e-10)
    last = LAYERS[kind](2)
    np.testing.assert_allclose(run(last, x, parameters=values), wanted[:, -1], rtol=1e-10)
    gates = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}[kind]
    assert {name: v.shape for name, v in values.items()} == {
        **{"weight_ih_l0": (4, 2 * gates), "weight_hh_l0": (2, 2 * gates)},
        **{"bias_ih_l0": (2 * gates,), "bias_hh_l0": (2 * gates,)},
    }


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("after", [True, False], ids=["reset after", "reset before"])
def test_the_formulas_of_keras(kind, after):
    """Keras's GRU of reset_after=False resets the state before its product; its hard sigmoid is x / 6 + 1/2."""
    x = 3 * RNG.standard_normal((3, 5, 4))
    options = {"reset_after": after} if kind == "GRU" else {}
    layer = LAYERS[kind](2, return_sequences=True, recurrent_activation="hard_sigmoid", **options)
    values = with_values(layer, (5, 4))
    wanted = by_loop(kind, values, x, s=hard_sigmoid, after=after)
    np.testing.assert_allclose(run(layer, x, parameters=values), wanted, rtol=1e-10)


def test_a_rectified_one():
    layer = layers.SimpleRNN("r", 1, activation="relu", use_bias=False, return_sequences=True)
    y = run(layer, [[[1], [-3], [4]]], parameters={"weight_ih_l0": [[1]], "weight_hh_l0": [[2]]})
    np.testing.assert_array_equal(y, [[[1], [0], [4]]])


MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 0]])


@every_layer
def test_a_masked_step_leaves_the_state_as_it_is(kind):
    x = RNG.standard_normal((4, 5, 3))
    layer = LAYERS[kind](2, return_sequences=True)
    values = with_values(layer, (5, 3), (5,))
    y = run(layer, x, MASK, parameters=values)
    np.testing.assert_allclose(y, by_loop(kind, values, x, MASK), rtol=1e-10)
    assert not y[3].any()
    x[MASK == 0] = np.nan
    np.testing.assert_array_equal(run(layer, x, MASK), y)


@every_layer
def test_the_other_direction_begins_behind_the_padding(kind):
    x = RNG.standard_normal((4, 5, 3))
    layer = LAYERS[kind](2, bidirectional=True, return_sequences=True)
    values = with_values(layer, (5, 3), (5,))
    y = run(layer, x, MASK, parameters=values)
    theirs = {name.removesuffix("_reverse"): v for name, v in values.items() if name.endswith("_reverse")}
    wanted = by_loop(kind, theirs, x[:, ::-1], MASK[:, ::-1])[:, ::-1]
    np.testing.assert_allclose(y[..., 2:], wanted, rtol=1e-10)
    np.testing.assert_allclose(y[..., :2], by_loop(kind, values, x, MASK), rtol=1e-10)


@pytest.mark.parametrize(("merge", "of"), [("sum", np.add), ("mul", np.multiply), ("concat", None), ("ave", None)])
def test_bidirectional_merges_two_layers(merge, of):
    x = RNG.standard_normal((2, 5, 3))
    both = layers.Bidirectional("b", layers.GRU("any", 2, return_sequences=True), merge)
    values = with_values(both, (5, 3))
    parts = []
    for direction, steps in (("forward", slice(None)), ("backward", slice(None, None, -1))):
        own = {name.partition("/")[2]: v for name, v in values.items() if name.startswith(direction)}
        parts.append(by_loop("GRU", own, x[:, steps])[:, steps])
    wanted = np.concatenate(parts, 2) if merge == "concat" else (parts[0] + parts[1]) / 2 if of is None else of(*parts)
    np.testing.assert_allclose(run(both, x, parameters=values), wanted, rtol=1e-10)
    last = layers.Bidirectional("b", layers.GRU("any", 2))
    found = run(last, x, parameters=values)
    np.testing.assert_allclose(found, np.concatenate([parts[0][:, -1], parts[1][:, 0]], 1), rtol=1e-10)


@every_layer
def test_evaluation_by_pieces_of_time_gives_what_training_gives(kind):
    """300 steps of 2 samples are more than the rows whose gates are there at a time."""
    layer = LAYERS[kind](3, num_stacks=2, bidirectional=True, return_sequences=True)
    x, mask = RNG.standard_normal((2, 300, 4)), RNG.random((2, 300)) < 0.8
    prepared(layer, (300, 4), (300,))
    whole = layer.forward(True, tensor.from_numpy(x), tensor.from_numpy(mask))
    np.testing.assert_allclose(run(layer, x, mask), tensor.to_numpy(whole), rtol=1e-9, atol=1e-12)


# ---- beside PyTorch


@pytest.mark.peer
@every_layer
@pytest.mark.parametrize("sequences", [True, False], ids=["sequences", "last"])
@pytest.mark.parametrize("both", [True, False], ids=["both directions", "one direction"])
def test_equals_torchs_layer(torch, kind, sequences, both):
    nn = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU, "SimpleRNN": torch.nn.RNN}[kind]
    theirs = nn(4, 3, 2, batch_first=True, bidirectional=both, dtype=torch.float64)
    layer = prepared(LAYERS[kind](3, num_stacks=2, bidirectional=both, return_sequences=sequences), (6, 4))
    assert {name for name, _ in theirs.named_parameters()} == set(layer.parameters)
    for name, value in theirs.named_parameters():
        layer.parameters[name].copy_from_numpy(value.detach().numpy().T.copy())
    x = RNG.standard_normal((5, 6, 4))
    foreign = torch.from_numpy(x.copy()).requires_grad_()
    output, final = theirs(foreign)
    if not sequences:
        hidden = final[0] if kind == "LSTM" else final
        output = torch.cat([hidden[-2], hidden[-1]], 1) if both else hidden[-1]
    dy = RNG.standard_normal(tuple(output.shape))
    (output * torch.from_numpy(dy)).sum().backward()
    given = tensor.from_numpy(x)
    given.stores_grad = True
    y = layer.forward(True, given)
    np.testing.assert_allclose(tensor.to_numpy(y), output.detach().numpy(), rtol=1e-9, atol=1e-12)
    gradients = {id(p): tensor.to_numpy(g) for p, g in autograd.backward(y, tensor.from_numpy(dy))}
    np.testing.assert_allclose(gradients[id(given)], foreign.grad.numpy(), rtol=1e-9, atol=1e-12)
    for name, value in theirs.named_parameters():
        found = gradients[id(layer.parameters[name])]
        np.testing.assert_allclose(found.T, value.grad.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)


# ---- state that is kept


@every_layer
def test_a_stateful_layer_goes_on_where_the_last_batch_ended(kind):
    whole = prepared(LAYERS[kind](3, num_stacks=2, return_sequences=True), (8, 4))
    kept = LAYERS[kind](3, num_stacks=2, return_sequences=True, stateful=True, batch_size=2)
    values = with_values(kept, (4, 4))
    x = RNG.standard_normal((2, 8, 4))
    wanted = run(whole, x, parameters=values)
    first, second = (run(kept, x[:, at : at + 4], training=True, parameters=values) for at in (0, 4))
    np.testing.assert_allclose(np.concatenate([first, second], 1), wanted, rtol=1e-10)
    np.testing.assert_allclose(state(kept, "hidden_l1"), wanted[:, -1], rtol=1e-10)
    np.testing.assert_allclose(run(kept, x[:1, :4]), wanted[:1, :4], rtol=1e-10)  # evaluation begins at 0
    np.testing.assert_allclose(state(kept, "hidden_l1"), wanted[:, -1], rtol=1e-10)  # and leaves it alone
    kept.reset_states()
    np.testing.assert_array_equal(run(kept, x[:, :4], training=True), first)


def test_no_derivative_goes_into_the_batch_before():
    layer = prepared(layers.LSTM("r", 3, stateful=True, batch_size=2), (4, 5))
    x = tensor.from_numpy(RNG.standard_normal((2, 4, 5)))
    x.stores_grad = True
    before = layer.forward(True, x)
    y = layer.forward(True, tensor.from_numpy(RNG.standard_normal((2, 4, 5))))
    assert id(x) not in {id(p) for p, _ in autograd.backward(y, tensor.from_numpy(np.ones((2, 3))))}
    del before


def stateful_net(**options: Any) -> FeedForwardNet:
    """Truncated backpropagation over four samples."""
    made = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(), seed=3)
    made.add(layers.LSTM("r", 5, 0.3, 2, stateful=True, batch_size=4, input_sample_shape=(7, 3)))
    made.compile(optimizer.Adam(lr=0.01), **options)
    return made


def test_state_is_saved_and_goes_on(tmp_path):
    x, y = RNG.standard_normal((3, 4, 7, 3)).astype("f"), RNG.standard_normal((3, 4, 5)).astype("f")
    one, other = stateful_net(), stateful_net(graph=False)
    for batch, target in zip(x[:2], y[:2], strict=True):
        one.train_one_batch(batch, target)
        one.evaluate(x[2, :3], y[2, :3])
    one.save(tmp_path / "net.npz")
    other.load(tmp_path / "net.npz")
    for made in (one, other):
        made.train_one_batch(x[2], y[2])
    assert bits_of(one) == bits_of(other)
    assert tensor.to_numpy(one.states()["r/cell_l1"]).any()


def bits_of(made: FeedForwardNet) -> dict[str, bytes]:
    """Bytes of all parameters and state."""
    tensors = {**made.parameters(), **made.states()}
    return {name: tensor.to_numpy(value).tobytes() for name, value in tensors.items()}


def test_the_least_budget_gives_the_same_bits():
    """With state that moves, which a repeated call must not read behind the move."""
    free = stateful_net()
    x, y = RNG.standard_normal((2, 4, 7, 3)).astype("f"), RNG.standard_normal((2, 4, 5)).astype("f")
    least = min(nbytes for nbytes, _ in free.budget_curve(4))
    assert least < free.plan_batch(4).total_bytes
    tight = stateful_net(memory_budget=least)
    for made in (free, tight):
        for each in zip(x, y, strict=True):
            made.train_one_batch(*each)
    assert bits_of(free) == bits_of(tight)


def test_a_mask_comes_with_the_embedding_and_ends_with_the_last_step():
    made = FeedForwardNet(device=device.new_cpu(), seed=1)
    made.add(layers.Embedding("ids", 9, 4, mask_zero=True, input_sample_shape=(5,)))
    made.add(layers.LSTM("r", 3, return_sequences=True))
    made.add(layers.GRU("last", 2))
    ids = np.array([[3, 4, 5, 0, 0], [1, 2, 0, 0, 0]])
    y = made.predict(ids)
    short = FeedForwardNet(device=device.new_cpu(), seed=1)
    short.add(layers.Embedding("ids", 9, 4, mask_zero=True, input_sample_shape=(3,)))
    short.add(layers.LSTM("r", 3, return_sequences=True))
    short.add(layers.GRU("last", 2))
    np.testing.assert_allclose(y, short.predict(ids[:, :3]), rtol=1e-5, atol=1e-7)


def test_a_batch_of_another_size_than_the_state_changes_nothing():
    made = stateful_net()
    before = bits_of(made)
    x, y = RNG.standard_normal((3, 7, 3)).astype("f"), RNG.standard_normal((3, 5)).astype("f")
    refused(lambda: made.train_one_batch(x, y), ShapeError, "'r'", "4 samples", "received 3")
    assert bits_of(made) == before
