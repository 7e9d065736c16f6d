"""What stands in padding is never read: NaN and infinities there change no bit of what is trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import skips
from cuda_devices import new_device
from run_layer import prepared, run
from singa_lite import FeedForwardNet, GraphError, ShapeError, autograd, device, layers, loss, metric, optimizer, tensor
from singa_lite.layer import Layer

RNG = np.random.default_rng(4)
X = RNG.standard_normal((3, 5, 4)).astype(np.float32)
MASK = (np.arange(5) < np.array([[5], [2], [0]])).astype(np.float32)
Y = RNG.standard_normal((3, 2)).astype(np.float32)
NAN, INF = float("nan"), float("inf")

MAKERS: dict[str, Callable[[], Layer]] = {
    "LSTM": lambda: layers.LSTM("r", 3),
    "LSTM, both directions, two stacks": lambda: layers.LSTM("r", 3, 0.0, 2, bidirectional=True),
    "LSTM of sequences": lambda: layers.LSTM("r", 3, return_sequences=True),
    "GRU": lambda: layers.GRU("r", 3),
    "GRU, reset before": lambda: layers.GRU("r", 3, reset_after=False, bidirectional=True),
    "SimpleRNN": lambda: layers.SimpleRNN("r", 3, bidirectional=True),
    "SimpleRNN, rectified": lambda: layers.SimpleRNN("r", 3, activation="relu"),
    "Bidirectional": lambda: layers.Bidirectional("r", layers.GRU("g", 3, reset_after=False)),
    "MultiHeadAttention": lambda: layers.MultiHeadAttention("r", 2),
    "MultiHeadAttention, causal": lambda: layers.MultiHeadAttention("r", 2, causal=True, dropout=0.25),
    "TransformerBlock": lambda: layers.TransformerBlock("r", 2),
    "TransformerBlock, norm behind": lambda: layers.TransformerBlock("r", 2, normalize_first=False, norm="rms"),
}
SETS = {name: lambda name=name: device.new_cpu(kernels=name) for name in ("numpy", "onednn")}
SETS["CUDA on the host"] = lambda: new_device("stand-in")
ON_CUDA = ("LSTM", "TransformerBlock")


def trained(made: Callable[[], Layer], padding: float, on: Any, graph: bool) -> list[bytes]:
    """Parameters after two batches, and what is predicted then, where positions do not go out of it."""
    net = FeedForwardNet(loss.SquaredError(), device=on, seed=3)
    net.add(layers.Dummy("x", (5, 4)), [])
    net.add(layers.Dummy("mask", (5,)), [])
    y = net.add(made(), ["x", "mask"])
    if len(y.get_output_sample_shape()) > 1:
        net.add(layers.LSTM("last", 3), [y, "mask"])
    net.add(layers.Dense("out", 2))
    net.compile(optimizer.SGD(lr=0.1), graph=graph)
    given = {"x": np.where(MASK[..., None] != 0, X, np.float32(padding)), "mask": MASK}
    for _ in range(2):
        net.train_one_batch(given, Y)
    values = [*net.param_values(), net.predict(given)]
    assert all(np.isfinite(tensor.to_numpy(value)).all() for value in values)
    return [tensor.to_numpy(value).tobytes() for value in values]


@pytest.mark.filterwarnings("ignore:input of layer .* holds NaN", "ignore::UserWarning")
@pytest.mark.parametrize(("kind", "kernels"), [(k, s) for k in MAKERS for s in SETS if "CUDA" not in s or k in ON_CUDA])
def test_padding_is_not_read(kind, kernels):
    made, on = MAKERS[kind], SETS[kernels]()
    wanted = trained(made, 0.0, on, True)
    for padding in (NAN, INF, -INF):
        assert trained(made, padding, on, True) == wanted
    # On a GPU operations one by one do other products than recorded ones, and so round otherwise.
    eager = trained(made, 0.0, on, False) if "CUDA" in kernels else wanted
    assert trained(made, NAN, on, False) == eager


def test_a_mask_that_comes_with_the_tensor_hides_padding_too():
    """Of the memory and of what looks at it, each by its own mask."""
    layer = prepared(layers.MultiHeadAttention("r", 2), (5, 4), (5, 4), dtype=np.float32)
    found = []
    for padding in (0.0, NAN):
        given = [tensor.from_numpy(np.where(MASK[..., None] != 0, X, padding)) for _ in range(2)]
        for each, mask in zip(given, (MASK.astype(np.int32), MASK.astype(bool)), strict=True):
            each.requires_grad, each.mask = True, tensor.from_numpy(mask)
        y = layer.forward(True, *given)
        out = {id(p): tensor.to_numpy(g) for p, g in autograd.backward(autograd.reduce_mean(y * y))}
        found.append([tensor.to_numpy(y), *(out[id(p)] for name in ("query", "key") for p in _values(layer, name))])
    for wanted, received in zip(*found, strict=True):
        np.testing.assert_array_equal(received, wanted)


def _values(layer: Layer, name: str) -> list[Any]:
    return [*layer.layers[name].parameters.values()]


@pytest.mark.parametrize("kernels", ["numpy", "onednn"])
@pytest.mark.parametrize("causal", [False, True])
def test_keys_that_are_hidden_are_not_read(kernels, causal):
    on, found = device.new_cpu(kernels=kernels), []
    q, k, v = RNG.standard_normal((3, 3, 7, 2, 4)).astype(np.float32)
    seen = np.arange(7) < np.array([[7], [3], [0]])
    for padding in (0.0, NAN, INF):
        given = [np.where(seen[..., None, None], t, np.float32(padding)) for t in (k, v)]
        tensors = [tensor.from_numpy(t, on) for t in (q, *given)]
        for each in tensors:
            each.stores_grad = True
        y = autograd.attention(*tensors, tensor.from_numpy(seen, on), causal=causal)
        made = {id(p): tensor.to_numpy(g) for p, g in autograd.backward(autograd.reduce_mean(y * y))}
        found.append([tensor.to_numpy(y), *(made[id(each)] for each in tensors)])
    for received in found[1:]:
        for a, b in zip(received, found[0], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore:invalid value")  # infinity less infinity
@pytest.mark.parametrize("kernels", ["numpy", "onednn"])
def test_scores_of_positions_that_do_not_count_are_not_read(kernels):
    """PyTorch's loss is finite there and its derivative is NaN."""
    on = device.new_cpu(kernels=kernels)
    ids = np.array([[1, -100, 2], [-100, -100, 0]])
    scores = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    for smoothing in (0.0, 0.1):
        found = []
        for bad in (0.0, NAN, INF):
            criterion = loss.SoftmaxCrossEntropy(axis=-1, ignore_index=-100, label_smoothing=smoothing)
            given = np.where((ids != -100)[..., None], scores, np.float32(bad))
            value = criterion.evaluate(True, tensor.from_numpy(given, on), ids)
            found.append((float(value), tensor.to_numpy(criterion.backward())))
        for value, derivative in found[1:]:
            assert value == found[0][0]
            np.testing.assert_array_equal(derivative, found[0][1])
        assert (found[0][1][ids == -100] == 0).all()


ENDS: dict[str, Callable[[], Layer]] = {
    "Flatten": lambda: layers.Flatten("end"),
    "Permute": lambda: layers.Permute("end", (2, 1)),
    "Conv1D": lambda: layers.Conv1D("end", 2, 3),
    "BatchNormalization": lambda: layers.BatchNormalization("end"),
    "MaxPooling1D": lambda: layers.MaxPooling1D("end", 2, 2),
    "GlobalAvgPooling1D": lambda: layers.GlobalAvgPooling1D("end"),
    "within a layer": lambda: layers.Sequential("outer", [layers.Dense("d", 4), layers.Flatten("end")]),
}
#: Behind these it is still there, or it is used up.
GO_ON: dict[str, Callable[[], Layer]] = {
    "Dense": lambda: layers.Dense("d", 4),
    "Softmax": lambda: layers.Softmax("s", -1),
    "PReLU": lambda: layers.PReLU("p", shared_axes=(1,)),
    "TimeDistributed": lambda: layers.TimeDistributed("t", layers.Dense("d", 4)),
    "Sequential": lambda: layers.Sequential("q", [layers.Dense("d", 4), layers.Dropout("o", 0.5)]),
    "TransformerBlock": lambda: layers.TransformerBlock("b", 2),
}


def words(made: Layer, *behind: Layer) -> FeedForwardNet:
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(), seed=1)
    net.add(layers.Embedding("e", 9, 4, mask_zero=True, input_sample_shape=(5,)))
    for layer in (made, *behind):
        net.add(layer)
    return net


@pytest.mark.parametrize("name", ENDS)
def test_a_mask_that_ends_is_told_once(name, recwarn):
    net = words(ENDS[name]())
    for _ in range(2):
        net.predict(np.ones((2, 5), np.int64))
    assert [str(each.message).split(":")[0] for each in recwarn] == [
        f"layer {'outer/end' if 'within' in name else 'end'!r}"
    ]


@pytest.mark.parametrize("name", GO_ON)
def test_a_mask_that_goes_on_is_not_told_of(name, recwarn):
    ids = np.array([[1, 2, 3, 0, 0], [4, 5, 6, 7, 8]])
    net = words(GO_ON[name](), layers.GRU("last", 3))
    found = np.asarray(net.predict(ids))
    assert not recwarn
    ids[0, 3:] = 0
    net.layers["e"].parameters["weight"].copy_from_numpy(
        np.concatenate([np.full((1, 4), 9, np.float32), np.asarray(net.layers["e"].parameters["weight"])[1:]])
    )
    if name != "TransformerBlock":
        np.testing.assert_array_equal(np.asarray(net.predict(ids)), found)


# --- ids, masks and positions by hand, and their losses and metrics


def test_an_embedding_gathers_rows():
    net = FeedForwardNet(device=device.new_cpu(), seed=0)
    net.add(layers.Embedding("e", 4, 2, input_sample_shape=(3,)))
    weight = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
    net.param_values()[0].copy_from_numpy(weight)
    ids = np.array([[3, 0, 3], [1, 1, 2]])
    found = tensor.to_numpy(net.predict(ids))
    np.testing.assert_array_equal(found, [[[7, 8], [1, 2], [7, 8]], [[3, 4], [3, 4], [5, 6]]])


def test_a_padding_mask():
    net = FeedForwardNet(device=device.new_cpu(), seed=0)
    net.add(layers.PaddingMask("mask", 3, input_sample_shape=(4,)))
    ids = np.array([[3, 0, 5, 3], [1, 3, 3, 3]], np.uint8)
    np.testing.assert_array_equal(net.predict(ids), [[0, 1, 1, 0], [1, 0, 0, 0]])
    assert net.predict(ids).dtype == np.float32


def masked_net(explicit: bool, graph: bool) -> FeedForwardNet:
    """Blocks of attention where id 0 is padding, told by a mask of its own or by the embedding."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(-1), device=device.new_cpu(), seed=3, dtype="float64")
    ids = net.add(layers.Dummy("ids", input_sample_shape=(5,)))
    x = net.add(layers.Embedding("e", 9, 6, mask_zero=not explicit), ids)
    x = net.add(layers.Dropout("drop", 0.0), net.add(layers.LearnedPositions("p"), x))
    mask = [net.add(layers.PaddingMask("mask"), ids)] if explicit else []
    for name in ("one", "two"):
        x = net.add(layers.TransformerBlock(name, 2), [x, *mask])
    net.add(layers.Dense("scores", 4), x)
    net.compile(optimizer.SGD(0.1), graph=graph)
    return net


@pytest.mark.parametrize("graph", [True, False], ids=["recorded", "eager"])
def test_a_mask_follows_the_layers(graph):
    ids, y = np.array([[3, 1, 4, 0, 0], [1, 5, 0, 0, 0]]), np.array([[1, 2, 3, 0, 0], [2, 1, 0, 0, 0]])
    given, followed = masked_net(True, graph), masked_net(False, graph)
    for _ in range(2):
        assert float(given.train_one_batch(ids, y)[0]) == float(followed.train_one_batch(ids, y)[0])
    out = tensor.to_numpy(followed.predict(ids))
    np.testing.assert_array_equal(out, tensor.to_numpy(given.predict(ids)))
    table = followed.parameters()["e/weight"]
    moved = tensor.to_numpy(table)
    moved[0] += 1  # the row of padding, at which nobody looks
    table.copy_from_numpy(moved)
    again = tensor.to_numpy(followed.predict(ids))
    np.testing.assert_array_equal(again[ids != 0], out[ids != 0])
    assert np.abs(again - out)[ids == 0].min() > 0


# --- PyTorch ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch():
    return skips.library("torch")


LOSSES = {
    "last axis": ((3, 5, 4), -1, {}),
    "ignored": ((3, 5, 4), -1, {"ignore_index": 1}),
    "ignored, beside the classes": ((3, 5, 4), -1, {"ignore_index": -100}),
    "smoothed": ((3, 5, 4), 2, {"label_smoothing": 0.2}),
    "both": ((3, 5, 4), -1, {"ignore_index": 2, "label_smoothing": 0.1}),
    "images": ((3, 5, 2, 4), 1, {"ignore_index": 0, "label_smoothing": 0.3}),
    "vectors": ((7, 5), 1, {"ignore_index": 3, "label_smoothing": 0.3}),
}


@pytest.mark.peer
@pytest.mark.parametrize(("shape", "axis", "options"), LOSSES.values(), ids=LOSSES)
def test_cross_entropy_equals_torch(torch, shape, axis, options):
    x = RNG.standard_normal(shape)
    ids = RNG.integers(0, shape[axis], np.delete(shape, axis))
    ids.flat[::4] = options.get("ignore_index", 0)
    theirs = torch.from_numpy(x).requires_grad_()
    wanted = torch.nn.functional.cross_entropy(theirs.movedim(axis, 1), torch.from_numpy(ids), **options)
    wanted.backward()
    mine = loss.SoftmaxCrossEntropy(axis, **options)
    values = mine.forward(True, tensor.from_numpy(x), ids)
    assert values.shape == shape[:1]
    np.testing.assert_allclose(tensor.to_numpy(values).mean(), wanted.item(), rtol=1e-13)
    np.testing.assert_allclose(tensor.to_numpy(mine.backward()), theirs.grad.numpy(), rtol=1e-12, atol=1e-14)


# --- losses and metrics -------------------------------------------------------------------------------------


def test_where_nothing_counts_loss_and_derivative_are_0():
    x = tensor.from_numpy(RNG.standard_normal((2, 3, 4)))
    ids = np.full((2, 3), 9)
    mine = loss.SoftmaxCrossEntropy(ignore_index=9)
    np.testing.assert_array_equal(tensor.to_numpy(mine.forward(True, x, ids)), 0)
    np.testing.assert_array_equal(tensor.to_numpy(mine.backward()), 0)
    assert float(metric.Accuracy(ignore_index=9).evaluate(x, ids)) == 0
    assert float(metric.Perplexity(ignore_index=9).evaluate(x, ids)) == 1


def test_accuracy_and_perplexity_of_what_counts():
    x = np.zeros((2, 3, 4))
    best = np.array([[0, 1, 2], [3, 3, 0]])
    np.put_along_axis(x, best[..., None], 2.0, -1)
    ids = np.array([[0, 9, 1], [9, 3, 0]])  # of four that count, three are right
    scores = tensor.from_numpy(x)
    assert float(metric.Accuracy(ignore_index=9).evaluate(scores, ids)) == 0.75
    np.testing.assert_allclose(float(metric.Accuracy().evaluate(scores, best)), 1)
    np.testing.assert_allclose(
        tensor.to_numpy(metric.Accuracy(ignore_index=9).forward(scores, ids)), [2 * 1 / 4, 2 * 2 / 4]
    )
    total = np.log(np.exp(2) + 3)
    wanted = np.exp((3 * (total - 2) + total) / 4)
    np.testing.assert_allclose(float(metric.Perplexity(ignore_index=9).evaluate(scores, ids)), wanted, rtol=1e-13)


def test_the_axis_of_classes_must_be_said_where_ids_go_with_two():
    x = tensor.from_numpy(RNG.standard_normal((2, 3, 3)))
    ids = np.zeros((2, 3), np.int64)
    for one in (loss.SoftmaxCrossEntropy(), metric.Accuracy()):
        with pytest.raises(ValueError, match=r"wanted to be told the axis of the classes, axis=1 or axis=-1"):
            one.check(x.shape, x.dtype, ids)
    last = loss.SoftmaxCrossEntropy(-1).evaluate(False, x, ids)
    first = loss.SoftmaxCrossEntropy(1).evaluate(False, x, ids)
    assert float(last) != float(first)


BAD_TARGETS = {
    "an id beyond": (np.array([[0, 4, 1]]), ValueError, r"class ids from 0 to 3, or 9, .* received 4 at \[0, 1\]"),
    "rows": (np.ones((1, 3, 4)), TypeError, "ignore_index: wanted class ids, received rows"),
    "another shape": (np.zeros((1, 2), np.int64), ShapeError, r"wanted class ids of shape \(1, 3\)"),
}


@pytest.mark.parametrize(("ids", "error", "said"), BAD_TARGETS.values(), ids=BAD_TARGETS)
def test_bad_targets(ids, error, said):
    for one in (loss.SoftmaxCrossEntropy(-1, ignore_index=9), metric.Accuracy(-1, ignore_index=9)):
        with pytest.raises(error, match=said):
            one.check((1, 3, 4), np.dtype("float64"), ids)


class Contrast(loss.SquaredError):
    """Of samples beside each other."""

    of_whole_batch = True


def test_micro_batches_want_a_loss_of_each_sample():
    net = FeedForwardNet(Contrast(), device=device.new_cpu(), seed=1)
    net.add(layers.Dense("d", 4, input_sample_shape=(3, 5)))
    with pytest.raises(GraphError, match=r"micro_batches: wanted losses and metrics .*Contrast"):
        net.compile(optimizer.SGD(0.1), micro_batches=2)


def test_a_tied_head_scores_ids_by_the_rows_of_the_table():
    table = prepared(layers.Embedding("e", 3, 2), (4,))
    head = prepared(layers.TiedDense("t", table), (2,))
    assert head.get_output_sample_shape() == (3,)
    y = run(head, [[1, 2], [-1, 0.5]], parameters={"weight": [[1, 0], [3, 4], [0, -2]]})
    np.testing.assert_array_equal(y, [[1, 11, -4], [-1, -1, -1]])
    assert head.parameters["weight"] is table.parameters["weight"]
