"""Texts that a net writes id by id: equal to asking it for the growing text, at a cost that is planned beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuda_devices import KINDS, new_device
from misuse import STRANGERS, assert_clear
from nets import state_of
from singa_lite import (
    FeedForwardNet,
    GraphError,
    Layer,
    ShapeError,
    autograd,
    device,
    layers,
    loss,
    models,
    optimizer,
    tensor,
)
from singa_lite.net.generation.checked import Drawing
from singa_lite.net.generation.draws import Draws

TIME, IDS, FEATURES = 23, 13, 12
PROMPT = np.random.default_rng(5).integers(1, IDS, (3, 11))


def embedding(**options: Any) -> Layer:
    return layers.Embedding("tokens", IDS, FEATURES, weight_init="normal", input_sample_shape=(TIME,), **options)


def block(name: str, causal: bool = True, **options: Any) -> Layer:
    return layers.TransformerBlock(name, 4, causal, hidden_size=9, **options)


def net_of(*added: Layer, classes: int = IDS, dtype: str = "float32", on: Any = None) -> FeedForwardNet:
    """Layers one behind the other, and a product that gives scores."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1), dtype=dtype, seed=4, device=on or device.new_cpu())
    for layer in (*added, layers.Dense("head", classes)):
        net.add(layer)
    return net


def gpt(**options: Any) -> FeedForwardNet:
    """Learned positions, two blocks with dropout."""
    positions = layers.LearnedPositions("positions", weight_init="normal")
    return net_of(embedding(), positions, block("first", dropout=0.2), block("second"), **options)


def compiled(net: FeedForwardNet, **options: Any) -> FeedForwardNet:
    net.compile(optimizer.Adam(lr=0.02), **options)
    return net


def scores(net: FeedForwardNet, ids: np.ndarray) -> np.ndarray:
    """(n, classes) of the id behind these, by the whole text, the rest of it padded with an id that no one sees."""
    padded = np.zeros((len(ids), TIME), np.int64)
    padded[:, : ids.shape[1]] = ids
    return tensor.to_numpy(net.predict(padded))[:, ids.shape[1] - 1]


def growing(net: FeedForwardNet, ids: np.ndarray, steps: int) -> np.ndarray:
    """The text that goes on by the largest score each time."""
    for _ in range(steps):
        ids = np.concatenate([ids, scores(net, ids).argmax(1)[:, None]], 1)
    return ids


def nested() -> list[Layer]:
    """Layers within layers, each position by itself but for the attention, which has no positions at all."""
    parts = layers.Dense("a", 7), layers.Activation("b", "silu"), layers.Dense("c", FEATURES)
    inner = layers.Sequential("inner", parts)
    attention = layers.MultiHeadAttention("attention", 3, 5, True, kv_heads=1, use_bias=False)
    return [
        embedding(),
        layers.Residual("outer", [layers.RMSNormalization("norm"), attention]),
        layers.Residual("each", [layers.TimeDistributed("apart", inner)]),
    ]


NETS: dict[str, Any] = {
    "learned positions": lambda dtype: gpt(dtype=dtype),
    "rotary, grouped": lambda dtype: net_of(
        embedding(), block("first", rotary=True, head_size=6, kv_heads=2), block("second", kv_heads=1), dtype=dtype
    ),
    "rotary within a window": lambda dtype: net_of(
        embedding(),
        block("first", rotary=True, head_size=6, kv_heads=2, window=5, query_key_norm=True),
        block("second", window=1),
        dtype=dtype,
    ),
    "sinusoidal, norms behind": lambda dtype: net_of(
        embedding(), layers.SinusoidalPositions("p"), block("b", normalize_first=False, activation="relu"), dtype=dtype
    ),
    "layers within layers": lambda dtype: net_of(*nested(), dtype=dtype),
    "recurrent": lambda dtype: net_of(
        embedding(mask_zero=True), layers.LSTM("l", 5, num_stacks=2, return_sequences=True, dropout=0.3), dtype=dtype
    ),
    "masked": lambda dtype: net_of(embedding(mask_zero=True), block("b", rotary=True, head_size=2), dtype=dtype),
}


@pytest.mark.parametrize("name", NETS)
def test_a_text_is_that_of_the_growing_text(name, monkeypatch):
    """The same ids, and scores to rounding: of prompts that are read in several pieces, and of one id."""
    net, seen = NETS[name]("float64"), []
    draw = Draws.ids
    monkeypatch.setattr(Draws, "ids", lambda self, given, step: seen.append(given) or draw(self, given, step))
    for prompt in (PROMPT, PROMPT[:, :1]):
        seen.clear()
        steps = TIME + 1 - prompt.shape[1]
        text = net.generate(prompt, steps, temperature=0)
        np.testing.assert_array_equal(text, growing(net, prompt, steps))
        for step, given in enumerate(seen):
            np.testing.assert_allclose(given, scores(net, text[:, : prompt.shape[1] + step]), rtol=0, atol=1e-12)


def test_a_net_that_is_trained_on_rows_of_several_texts_writes_texts_that_are_alone_in_theirs():
    sizes = {"width": 8, "layers": 2, "heads": 4, "kv_heads": 2, "hidden_size": 12, "vocabulary": IDS, "window": 6}
    config = models.LanguageConfig(architecture="mistral", **sizes)
    packed, alone = (
        models.language_model(config, TIME, packed=is_packed, weight_init="he_normal", seed=3)
        for is_packed in (True, False)
    )
    wanted = alone.generate(PROMPT, 7, temperature=0)
    np.testing.assert_array_equal(packed.generate(PROMPT, 7, temperature=0), wanted)
    np.testing.assert_array_equal(wanted, growing(alone, PROMPT, 7))
    assert packed.plan_generation(3, 18).arena_bytes == alone.plan_generation(3, 18).arena_bytes


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "SimpleRNN"])
def test_a_recurrent_net_that_gives_the_next_id_alone(kind):
    """Of texts of any length, as far as nothing in the net counts positions."""
    net = compiled(net_of(embedding(), getattr(layers, kind)("r", 5), dtype="float64"))
    text = net.generate(PROMPT, 9, 0)
    for time in range(11, 20):
        np.testing.assert_array_equal(tensor.to_numpy(net.predict(text[:, :time])).argmax(1), text[:, time])
    assert net.generate(PROMPT, 2 * TIME).shape == (3, 11 + 2 * TIME)


def test_padding_is_not_seen():
    """Ids 0 in the prompt change nothing behind them but positions, of which there are none here."""
    net = net_of(embedding(mask_zero=True), block("b"), dtype="float64")
    padded = np.concatenate([np.zeros((3, 4), int), PROMPT[:, :6]], 1)
    np.testing.assert_array_equal(net.generate(padded, 3, 0)[:, 4:7], net.generate(PROMPT[:, :6], 3, 0)[:, :3])


def test_forms_of_prompts():
    net = compiled(gpt())
    alone = net.generate(PROMPT[0].astype(np.uint8), 3, 0)
    assert (alone.dtype, alone.shape) == (np.int64, (14,))
    assert net.generate(tensor.from_numpy(PROMPT[:1]), 3, 0).tolist() == [alone.tolist()]
    np.testing.assert_array_equal(alone[:11], PROMPT[0])


def test_texts_of_a_batch_are_those_alone():
    """Drawn ones too, the first: each text has numbers of its own."""
    net = gpt(dtype="float64")
    np.testing.assert_array_equal(net.generate(PROMPT, 8, 0)[2:], net.generate(PROMPT[2:], 8, 0))
    np.testing.assert_array_equal(net.generate(PROMPT, 8, seed=7)[:1], net.generate(PROMPT[:1], 8, seed=7))
    assert (net.generate(PROMPT, 8, seed=7) != net.generate(PROMPT, 8, seed=8)).any()


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.5, 3), (2.0, 2)])
def test_ids_are_drawn_by_their_shares(temperature, top_k):
    given = np.tile([0.3, 1.5, -np.inf, 0.3, 1.0], (2_000, 1))
    draws = Draws(Drawing(temperature, top_k, 3), 2_000, 5)
    found = np.bincount(np.concatenate([draws.ids(given, step) for step in range(5)]), minlength=5) / 10_000
    kept = {0: [0, 1, 3, 4], 3: [0, 1, 4], 2: [1, 4]}[top_k]  # of equal scores the first
    wanted = np.zeros(5)
    wanted[kept] = np.exp(given[0, kept] / temperature)
    np.testing.assert_allclose(found, wanted / wanted.sum(), atol=0.015)
    assert not found[wanted == 0].any()


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_scores_that_are_no_numbers(wrong):
    with pytest.raises(ValueError, match="text 1"):
        Draws(Drawing(0.0, 0, 0), 2, 1).ids(np.array([[1.0, 2], [wrong, 1]]), 0)


def test_training_goes_on_as_if_nothing_had_been_written():
    """Dropout, the optimizer's state and a budget's plans among it."""
    x, y = np.random.default_rng(1).integers(0, IDS, (2, 4, TIME))
    nets = compiled(gpt()), compiled(gpt())
    for number in range(3):
        for net in nets:
            net.train_one_batch(x, y)
        nets[0].generate(PROMPT[:, : 3 + number], 4, seed=number)
    assert state_of(nets[0]) == state_of(nets[1])


def test_each_mode_writes_the_same_text(monkeypatch):
    """Recorded and at once, planned and with bytes of its own for each block, to the bit."""
    text = compiled(gpt()).generate(PROMPT, 9, seed=2)
    np.testing.assert_array_equal(compiled(gpt(), graph=False).generate(PROMPT, 9, seed=2), text)
    np.testing.assert_array_equal(gpt().generate(PROMPT, 9, seed=2), text)
    np.testing.assert_array_equal(compiled(gpt(), memory_budget="4 MiB").generate(PROMPT, 9, seed=2), text)
    monkeypatch.setenv("SINGA_LITE_PLAN", "off")
    np.testing.assert_array_equal(compiled(gpt()).generate(PROMPT, 9, seed=2), text)


def test_a_net_that_was_not_compiled_records_what_writes_text_alone():
    net = gpt()
    net.predict(PROMPT)
    assert not net.recorded_forms
    net.generate(PROMPT, 9, seed=2)
    assert {kind for kind, _ in net.recorded_forms} == {"generate"}


def test_the_plan_states_what_a_text_takes():
    net = compiled(gpt())
    plan = net.plan_generation(3, 20)
    kept = 2 * 2 * 3 * 19 * FEATURES * 4  # keys and values of two blocks
    assert plan.by_role["state"] == kept
    before = net.device.pool.used
    net.generate(np.tile(PROMPT, 2)[:, :19], 1)  # the prompt in pieces of all sizes
    parameters = sum(value.nbytes for value in net.param_values())
    taken = net.device.pool.used - before + parameters
    assert taken <= plan.total_bytes
    assert taken >= 0.9 * (plan.total_bytes - plan.overhead_bytes)
    plan.check()


def test_a_shorter_text_is_written_over_the_same_bytes():
    """Two records for all positions: of 8 ids, and of one with its scores."""
    net = compiled(gpt())
    first = net.generate(PROMPT, 12, 0)
    forms, used = net.recorded_forms, net.device.pool.used
    assert [kind for kind, _ in forms] == ["generate"] * 2
    np.testing.assert_array_equal(net.generate(PROMPT, 9, 0), first[:, :20])
    assert (net.recorded_forms, net.device.pool.used) == (forms, used)
    net.generate(PROMPT[:1], 2)
    assert {form[0][2][0] for _, form in net.recorded_forms} == {1}  # the others went with their bytes


def test_options_that_change_are_followed():
    net = compiled(net_of(embedding(), layers.LearnedPositions("p"), block("b")))
    net.generate(PROMPT, 2, 0)
    net.layers["b"].layers["attention"].causal = False
    with pytest.raises(GraphError, match="'b/attention'"):
        net.generate(PROMPT, 2, 0)


class Running(Layer):
    """y = the sum of x so far."""

    def setup(self, shape):
        return shape

    def forward(self, training, x):
        rows, sums = autograd.split(x, 1, tuple(range(1, x.shape[1]))), []
        for row in rows:
            sums.append(row if not sums else autograd.add(sums[-1], row))
        return autograd.concat(sums, 1)

    def kept_of_past(self, batch, length):
        return {"sum": (batch, 1, FEATURES)}

    def continued(self, past, *inputs):
        first, *others = autograd.split(inputs[0], 1, tuple(range(1, inputs[0].shape[1]))) or (inputs[0],)
        sums = [autograd.add(past["sum"], first)]
        for row in others:
            sums.append(autograd.add(sums[-1], row))
        first.device.run("copy", sums[-1], past["sum"])
        return autograd.concat(sums, 1) if others else sums[0]


def test_a_layer_of_ones_own_goes_on_by_its_state():
    """From zeros for each text, whatever was written before."""
    net = compiled(net_of(embedding(), Running("sums"), dtype="float64"))
    for prompt in (PROMPT, PROMPT[::-1]):
        np.testing.assert_array_equal(net.generate(prompt, 6, 0), growing(net, prompt, 6))


def of(*added: Layer, **options: Any) -> Any:
    return lambda: net_of(*added, **options).generate(PROMPT[:, :4], 2)


class Twice(Layer):
    """A layer after itself."""

    positionwise = True

    def __init__(self, name, layer):
        super().__init__(name)
        self.add_layer(layer)

    def setup(self, shape):
        return self.set_up(next(iter(self.layers.values())), shape)

    def forward(self, training, x):
        (layer,) = self.layers.values()
        return self.run(layer, training, self.run(layer, training, x))


REFUSED = {
    "each sees later ones": (of(embedding(), block("b", False)), "'b/attention'"),
    "both directions": (
        of(embedding(), layers.Bidirectional("both", layers.GRU("r", 3, return_sequences=True))),
        "'both'",
    ),
    "from the end": (of(embedding(), layers.GRU("r", 3, bidirectional=True, return_sequences=True)), "'r'"),
    "a permutation": (of(embedding(), layers.Permute("turn", (2, 1))), "'turn'"),
    "two of them": (
        of(embedding(), layers.BatchNormalization("b"), layers.Reshape("r", (TIME, FEATURES))),
        "'b'.*'r'",
    ),
    "a norm over all": (of(embedding(), layers.LayerNormalization("n", axis=1)), "'n'"),
    "too many classes": (of(embedding(), classes=IDS + 1), "14"),
    "no ids": (lambda: net_of(layers.Dummy("x", (TIME, 3))).generate(PROMPT, 2), "ids"),
    "sigmoids": (lambda: (net := gpt()).add(layers.Activation("s", "sigmoid")) and net.generate(PROMPT, 2), "'s'"),
    "two runs": (of(embedding(), Twice("t", layers.MultiHeadAttention("a", 1, causal=True))), "'t/a'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nets_that_cannot_go_on(name):
    call, words = REFUSED[name]
    with pytest.raises(GraphError, match=words):
        call()


@pytest.mark.parametrize(
    ("options", "error", "culprit"),
    [
        ({"prompt": PROMPT * 1.0}, TypeError, "float64"),
        ({"prompt": PROMPT[:, :0]}, ShapeError, r"\(3, 0\)"),
        ({"prompt": PROMPT[None]}, ShapeError, r"\(1, 3, 11\)"),
        ({"prompt": PROMPT * 0 + IDS}, ValueError, "13 in sample 0, position 0"),
        ({"prompt": -PROMPT[0]}, ValueError, "prompt.*-"),
        ({"steps": 0}, ValueError, "steps"),
        ({"temperature": -0.1}, ValueError, "temperature"),
        ({"top_k": IDS + 1}, ValueError, "top_k"),
        ({"top_k": -1}, ValueError, "top_k"),
        ({"seed": -1}, ValueError, "seed"),
        ({"steps": TIME + 2 - 11}, ShapeError, "'positions'"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_recorded(options, error, culprit):
    net = compiled(gpt())
    with pytest.raises(error, match=culprit):
        net.generate(**{"prompt": PROMPT, "steps": 2, **options})
    assert not net.recorded_forms


@pytest.mark.parametrize(("batch", "length", "culprit"), [(0, 9, "batch"), (1, 1, "length")])
def test_a_plan_wants_a_batch_and_a_length(batch, length, culprit):
    with pytest.raises(ValueError, match=culprit):
        gpt().plan_generation(batch, length)


@pytest.mark.parametrize("option", ["prompt", "steps", "temperature", "top_k", "seed"])
def test_whatever_is_given_is_taken_or_refused(option):
    net = compiled(gpt())
    for stranger in STRANGERS.values():
        try:
            net.generate(**{"prompt": PROMPT[:, :2], "steps": 1, option: stranger})
        except Exception as error:
            assert_clear(error)


def test_gpt2_writes():
    """Its head uses the table of the ids."""
    net = models.gpt2(IDS, TIME, FEATURES, 3, 2, seed=3, device=device.new_cpu())
    net.compile(optimizer.SGD())
    np.testing.assert_array_equal(net.generate(PROMPT, 6, 0), growing(net, PROMPT, 6))


@pytest.mark.filterwarnings("ignore:this step cannot be one CUDA graph:UserWarning")  # attention is done on the host
@pytest.mark.parametrize("kind", KINDS)
def test_texts_on_a_gpu_are_those_of_the_host(kind):
    texts = [
        compiled(net_of(embedding(), layers.LearnedPositions("p"), block("b"), on=on)).generate(PROMPT[:2, :4], 3, 0)
        for on in (new_device(kind), device.new_cpu(kernels="numpy"))
    ]
    np.testing.assert_array_equal(*texts)
