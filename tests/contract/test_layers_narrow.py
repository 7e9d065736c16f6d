"""Every layer trains where activations are stored in 16 bits, nearly as in float32, and stores them so."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import skips
from layer_cases import CASES, Case
from singa_lite import FeedForwardNet, device, layers, loss, optimizer, tensor
from singa_lite.errors import PrecisionWarning
from singa_lite.testing.gradients import spread

skips.library("ml_dtypes")
#: Layers of ids, which `test_text` has.
OF_IDS = {"Embedding", "PaddingMask", "TiedDense"}
#: What is a view of what it is given, or is written into by others, or gives whole numbers.
VIEWS = {"Concat", "Cropping2D", "Dummy", "Flatten", "Reshape", "Permute", "Slice", "Split", "TextStarts"}
#: A way of using each layer.
NAMES = {key: key.split(":")[0] for key in CASES}
FIRST = {name: key for key, name in reversed(NAMES.items())}
KEYS = [key for name, key in FIRST.items() if name not in OF_IDS]
#: Of a loss, by two steps. Half a last bit is 2**-9 and 2**-12.
TOLERANCES = {"bfloat16": 2.0**-6, "float16": 2.0**-9}


def compiled(net: FeedForwardNet, precision: str) -> FeedForwardNet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        net.compile(optimizer.SGD(0.05), precision=precision)
    return net


def net_of(case: Case, precision: str) -> FeedForwardNet:
    """The layer behind inputs that pass an activation, and scores of all that it gives."""
    net, ends = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels="numpy"), seed=3), []
    layer = case.make() if case.placed is None else case.placed("float32", net.device)
    inputs = (layers.Activation(f"in{at}", "tanh", input_sample_shape=shape) for at, shape in enumerate(case.shapes))
    net.add(layer, [net.add(each, []) for each in inputs])
    for state in layer.states.values():
        if np.isnan(tensor.to_numpy(state)).any():  # which is to be taken from data
            state.copy_from_numpy(np.full(state.shape, 1.5, state.dtype))
    for at, _ in enumerate(layer.output_sample_shapes):
        flat = net.add(layers.Flatten(f"flat{at}", 1), layer)
        ends.append(net.add(layers.Dense(f"scores{at}", 4), flat))
    if len(ends) > 1:
        net.add(layers.Merge("sum"), ends)
    return compiled(net, precision)


def losses(net: FeedForwardNet, x: Any, y: np.ndarray) -> list[float]:
    return [float(net.train_one_batch(x, y)[0]) for _ in range(3)]


def values_of(net: FeedForwardNet) -> list[np.ndarray]:
    return [tensor.to_numpy(value).copy() for value in net.param_values()]


def narrow_layers(net: FeedForwardNet, precision: str) -> set[str]:
    """The layers that have a call over something in 16 bits."""
    instructions = net.training_graph._executable("recorded").placed.planned.instructions
    return {i.layer for i in instructions if any(o is not None and o.dtype.name == precision for o in i.operands)}


@pytest.mark.parametrize("precision", ["bfloat16", pytest.param("float16", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("key", KEYS)
def test_a_layer_trains_nearly_as_in_float32(key, precision):
    case, rng = CASES[key], np.random.default_rng(6)
    shapes = {f"in{at}": (case.batch + 4, *shape) for at, shape in enumerate(case.shapes)}
    x = {name: spread(rng, shape, -case.reach, case.reach).astype(np.float32) for name, shape in shapes.items()}
    y = rng.integers(0, 4, case.batch + 4)
    wide, narrow = net_of(case, "float32"), net_of(case, precision)
    before = values_of(narrow)
    np.testing.assert_allclose(losses(narrow, x, y), losses(wide, x, y), rtol=TOLERANCES[precision])
    after = values_of(narrow)
    assert all(value.dtype == np.float32 and np.isfinite(value).all() for value in after)
    assert any((value != old).any() for value, old in zip(after, before, strict=True))
    own = list(narrow.layers)[len(case.shapes)]  # behind its inputs
    if NAMES[key] not in VIEWS:
        assert any(name.split("/")[0] == own for name in narrow_layers(narrow, precision)), "nothing is stored narrow"


@pytest.mark.parametrize("precision", TOLERANCES)
def test_text_trains_nearly_as_in_float32(precision):
    """An embedding, padding, positions, attention, a recurrent layer, and the embedding's table again as the head."""

    def net(wanted: str) -> FeedForwardNet:
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(-1), device=device.new_cpu(kernels="numpy"), seed=3)
        words = net.add(layers.Embedding("words", 13, 8, input_sample_shape=(6,)))
        net.add(layers.LearnedPositions("positions"))
        net.add(layers.TransformerBlock("block", 2, causal=True))
        net.add(layers.GRU("gru", 8, return_sequences=True))
        net.add(layers.TiedDense("head", words))
        return compiled(net, wanted)

    rng = np.random.default_rng(2)
    ids, y = rng.integers(0, 13, (5, 6)), rng.integers(0, 13, (5, 6))
    wide, narrow = net("float32"), net(precision)
    np.testing.assert_allclose(losses(narrow, ids, y), losses(wide, ids, y), rtol=TOLERANCES[precision])
    found = {name.split("/")[0] for name in narrow_layers(narrow, precision)}
    assert found >= {"words", "positions", "block", "gru", "head"}
    assert narrow.generate(ids[0, :3], 3).tolist() == narrow.generate(ids[0, :3], 3).tolist()
