"""Ids, masks and positions of sequences, and their losses and metrics: by hand, and PyTorch's from equal weights."""

from __future__ import annotations

import numpy as np
import pytest

import skips
from run_layer import prepared, run
from singa_lite import FeedForwardNet, GraphError, ShapeError, autograd, device, layers, loss, metric, optimizer, tensor
from singa_lite.layer_parts.positions import rotary_table

RNG = np.random.default_rng(8)


def test_an_embedding_gathers_rows():
    net = FeedForwardNet(device=device.new_cpu(), seed=0)
    net.add(layers.Embedding("e", 4, 2, input_sample_shape=(3,)))
    weight = np.array([[1, 2], [3, 4], [5, 6], [7, 8]], np.float32)
    net.param_values()[0].copy_from_numpy(weight)
    ids = np.array([[3, 0, 3], [1, 1, 2]])
    found = tensor.to_numpy(net.predict(ids))
    np.testing.assert_array_equal(found, [[[7, 8], [1, 2], [7, 8]], [[3, 4], [3, 4], [5, 6]]])


def test_a_rotary_position_depends_on_distance_alone():
    q, k = RNG.standard_normal((2, 6))
    table = tensor.from_numpy(rotary_table(9, 6))
    turned = [tensor.to_numpy(autograd.rotary(tensor.from_numpy(np.tile(v, (1, 9, 1))), table))[0] for v in (q, k)]
    products = turned[0] @ turned[1].T
    for distance in range(-8, 9):
        np.testing.assert_allclose(np.diff(np.diagonal(products, distance)), 0, atol=1e-12)
    assert np.ptp(products) > 0.1


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
