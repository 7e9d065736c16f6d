"""fit, evaluate and predict over many samples: every sample counts once, whatever the batches are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nets import all_bits, state_of
from singa_lite import FeedForwardNet, GraphError, ShapeError, device, layers, loss, metric, optimizer, tensor
from singa_lite.fit import Callback, Training

RNG = np.random.default_rng(8)
X = RNG.standard_normal((23, 5)).astype("f")
Y = (X[:, :3]).argmax(axis=1)


def classifier(score: Any = None, **options: Any) -> FeedForwardNet:
    score = metric.Accuracy() if score is None else score
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), score or None, device.new_cpu(), seed=2)
    net.add(layers.Dense("hidden", 7, input_sample_shape=(5,)))
    net.add(layers.Activation("act", "tanh"))
    net.add(layers.Dense("out", 3))
    net.compile(optimizer.SGD(lr=0.5), **options)
    return net


class Seen:
    """A net whose batches are noted down."""

    def __init__(self, net: FeedForwardNet) -> None:
        self.batches: list[tuple[np.ndarray, np.ndarray]] = []
        self.train = net.train_one_batch
        net.train_one_batch = self.note

    def note(self, x: Any, y: Any) -> Any:
        self.batches.append((np.array(x), np.array(y)))
        return self.train(x, y)


# --- fit ----------------------------------------------------------------------------------------------------


def test_it_learns_and_tells_each_epoch():
    net = classifier()
    history = net.fit(X, Y, batch_size=4, epochs=20, validation_data=(X[:9], Y[:9]), verbose=False)
    entries = {"loss", "accuracy", "val_loss", "val_accuracy", "samples_per_second", "high_water", "lr"}
    assert set(history.history) == entries
    assert all(len(values) == 20 for values in history.history.values())
    assert history["loss"][-1] < 0.4 * history["loss"][0]
    assert history["accuracy"][-1] > 0.9
    assert (history["val_loss"][-1], history["val_accuracy"][-1]) == net.evaluate(X[:9], Y[:9], batch_size=4)
    assert min(history["samples_per_second"]) > 0
    assert history["high_water"][-1] == net.device.pool.high_water > sum(v.nbytes for v in net.param_values())


@pytest.mark.parametrize("batch_size", [4, 100])
def test_each_epoch_sees_each_sample_once_with_its_target(batch_size):
    net = classifier()
    seen = Seen(net)
    net.fit(X, Y, batch_size=batch_size, epochs=2, verbose=False)
    sizes = [len(x) for x, _ in seen.batches]
    whole, rest = divmod(23, batch_size)
    assert sizes == ([batch_size] * whole + [rest] * (rest > 0)) * 2
    epochs = [seen.batches[: len(sizes) // 2], seen.batches[len(sizes) // 2 :]]
    orders = []
    for epoch in epochs:
        xs, ys = (np.concatenate(parts) for parts in zip(*epoch, strict=True))
        orders.append([int(np.flatnonzero((row == X).all(axis=1))[0]) for row in xs])
        np.testing.assert_array_equal(ys, Y[orders[-1]])
        assert sorted(orders[-1]) == list(range(23))
    assert orders[0] != orders[1]
    assert list(range(23)) not in orders


def test_fit_without_shuffling_is_a_loop_over_batches():
    fitted, stepped = classifier(), classifier()
    history = fitted.fit(X, Y, batch_size=10, epochs=2, shuffle=False, verbose=False)
    losses, hits = [], []
    for _ in range(2):
        for start in range(0, 23, 10):
            loss_value, metric_value = stepped.train_one_batch(X[start : start + 10], Y[start : start + 10])
            losses.append(float(loss_value))
            hits.append(float(metric_value))
    assert state_of(fitted) == state_of(stepped)
    assert history["loss"] == pytest.approx([np.dot(part, (10, 10, 3)) / 23 for part in (losses[:3], losses[3:])])
    assert history["accuracy"] == pytest.approx([np.dot(part, (10, 10, 3)) / 23 for part in (hits[:3], hits[3:])])


@pytest.mark.parametrize("kind", ["tensor", "list", "float64 labels as int32"])
def test_data_of_any_kind(kind):
    plain, other = classifier(), classifier()
    plain.fit(X, Y, batch_size=10, verbose=False)
    data: Any = {
        "tensor": (tensor.from_numpy(X), tensor.from_numpy(Y)),
        "list": (X, list(map(int, Y))),
        "float64 labels as int32": (np.asfortranarray(X), Y.astype("int32")),
    }[kind]
    other.fit(*data, batch_size=10, verbose=False)
    assert all_bits(plain.parameters()) == all_bits(other.parameters())


def two_in_two_out() -> FeedForwardNet:
    net = FeedForwardNet(device=device.new_cpu(), seed=2)
    net.add(layers.Dense("a", 4, input_sample_shape=(5,)))
    net.add(layers.Dense("b", 4, input_sample_shape=(2,)), src=[])
    net.add(layers.Merge("sum"), src=["a", "b"])
    net.add(layers.Dense("scores", 3))
    net.add(layers.Dense("number", 1), src="sum")
    losses = {"scores": loss.SoftmaxCrossEntropy(), "number": loss.SquaredError()}
    net.compile(optimizer.SGD(lr=0.05), losses, {"scores": metric.Accuracy()})
    return net


def test_several_inputs_and_outputs(capsys):
    net = two_in_two_out()
    x, y = {"a": X, "b": X[:, :2]}, {"scores": Y, "number": X[:, 3:4]}
    history = net.fit(x, y, batch_size=5, epochs=20, validation_data=(x, y))
    assert history["loss"][-1] < history["loss"][0]
    assert {"scores": history["val_scores_accuracy"][-1]} == net.evaluate(x, y, batch_size=5)[1]
    assert "scores_accuracy" in history.history
    assert "scores" in capsys.readouterr().out


# --- what it shows ------------------------------------------------------------------------------------------


def test_the_bar_shows_loss_metric_speed_and_high_water(capsys):
    net = classifier()
    history = net.fit(X, Y, batch_size=10, epochs=2, validation_data=(X, Y))
    out, err = capsys.readouterr()
    for words in ("epoch 1/2", "epoch 2/2", "samples/s", "23/23", "high water", "MiB"):
        assert words in err
    assert f"loss {history['loss'][1]:.4f}, accuracy {history['accuracy'][1]:.4f}" in err
    assert f"loss {history['val_loss'][1]:.4f}, accuracy {history['val_accuracy'][1]:.4f}" in out


# --- evaluate and predict -----------------------------------------------------------------------------------


def by_hand(net: FeedForwardNet, x: np.ndarray) -> np.ndarray:
    w0, b0, w1, b1 = map(tensor.to_numpy, net.param_values())
    return np.tanh(x @ w0 + b0) @ w1 + b1


@pytest.mark.parametrize("batch_size", [1, 5])
def test_means_are_over_samples_and_not_over_batches(batch_size):
    net = classifier()
    scores = by_hand(net, X).astype("float64")
    wanted = np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(23), Y])
    loss_value, metric_value = net.evaluate(X, Y, batch_size=batch_size)
    assert loss_value == pytest.approx(wanted, rel=1e-5)
    assert metric_value == pytest.approx(np.mean(scores.argmax(axis=1) == Y))
    predicted = tensor.to_numpy(net.predict(X, batch_size=batch_size))
    np.testing.assert_allclose(predicted, scores, rtol=1e-4, atol=1e-6)


def test_tensors_are_evaluated_and_predicted_too():
    net = classifier()
    x, y = tensor.from_numpy(X, net.device), tensor.from_numpy(Y, device.new_cpu())
    assert net.evaluate(x, y) == net.evaluate(X, Y)
    np.testing.assert_array_equal(tensor.to_numpy(net.predict(x)), tensor.to_numpy(net.predict(X)))
    assert net.predict(x).device is net.device


def test_predicting_takes_the_memory_of_the_whole_output_and_of_one_batch():
    net = classifier(graph=False)
    x = np.repeat(X, 40, axis=0)
    level = net.device.pool.used
    marks = []
    for batch_size in (20, 920):
        net.device.pool.reset_high_water()
        net.predict(x, batch_size=batch_size)
        marks.append(net.device.pool.high_water - level)
    whole = 920 * 3 * 4
    batch = 20 * (5 + 7 + 7 + 3) * 4  # all of a batch's tensors, if they lived together
    assert whole < marks[0] < whole + batch + 4 * 64 < marks[1]


# --- errors -------------------------------------------------------------------------------------------------

#: (x, y, options of fit, error, the culprit's name)
REFUSED: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
    (X, Y[:-1], {}, ShapeError, "22 for 23"),
    (X[:0], Y[:0], {}, ShapeError, "at least one"),
    (np.float32(3), Y, {}, ShapeError, r"\(\)"),
    ({"a": X, "b": X[1:]}, Y, {}, GraphError, "'hidden'"),
    (X[:, :4], Y, {}, ShapeError, r"'hidden'.*\(23, 4\)"),
    (X, Y + 1, {}, ValueError, "received 3"),
    (X, Y, {"validation_data": (X, Y[:3])}, ShapeError, "3 for 23"),
    *((X, Y, {"batch_size": value}, ValueError, f"batch_size.*{value}") for value in (0, 2.5)),
    *((X, Y, {"batch_size": value}, TypeError, "batch_size") for value in (True, np.True_, np.array(True), "32")),
    *((X, Y, {"epochs": value}, ValueError, "epochs") for value in (-1, 1.5, float("nan"))),
    *((X, Y, {"epochs": value}, TypeError, "epochs") for value in (True, [3])),
    (X, Y, {"prefetch": True}, TypeError, "prefetch"),
    (X, Y, {"prefetch": -1}, ValueError, "prefetch"),
    *((X, Y, {"shuffle": value}, TypeError, "shuffle") for value in ("yes", 5, None, 1.0)),
    (X, Y, {"verbose": 3}, ValueError, "verbose"),
    *((X, Y, {"validation_data": v}, TypeError, "validation_data") for v in (X, {"x": X, "y": Y}, True, (X, None))),
    *((X, Y, {"validation_data": value}, ValueError, "validation_data") for value in ((X,), (X, Y, Y, Y))),
    *((X, Y, {"callbacks": value}, TypeError, "callbacks") for value in (5, None, "early", [5], [Callback], Callback)),
    *((X, Y, {"resume": value}, TypeError, "resume") for value in (True, 3)),
]


def test_what_does_not_fit_is_refused_and_changes_nothing():
    net = classifier()
    before = state_of(net)
    for x, y, options, error, words in REFUSED:
        with pytest.raises(error, match=words):
            net.fit(x, y, **{"verbose": False, "batch_size": 23, **options})
        assert state_of(net) == before, options
    for call, data in ((net.evaluate, (X, Y)), (net.predict, (X,))):
        for size, error in ((True, TypeError), ("8", TypeError), (0, ValueError), (2.5, ValueError)):
            with pytest.raises(error, match="batch_size"):
                call(*data, batch_size=size)
    net.fit(X, Y, verbose=False)


def test_fit_needs_an_optimizer_and_evaluate_a_loss():
    net = FeedForwardNet(device=device.new_cpu())
    net.add(layers.Dense("out", 3, input_sample_shape=(5,)))
    with pytest.raises(GraphError, match="optimizer"):
        net.fit(X, Y, verbose=False)
    with pytest.raises(GraphError, match="loss"):
        net.evaluate(X, Y)
    assert net.predict(X).shape == (23, 3)


def test_callbacks_in_any_iterable_or_one_alone():
    called: list[str] = []

    class Noting(Callback):
        def on_end(self, training: Training, error: BaseException | None) -> None:
            called.append("end")

    for callbacks in ([Noting()], (Noting(),), (Noting() for _ in range(1)), Noting()):
        classifier().fit(X, Y, epochs=0, verbose=False, callbacks=callbacks)
    assert called == ["end"] * 4


def test_numbers_and_flags_of_numpy():
    nets = [classifier(), classifier()]
    nets[0].fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=False)
    nets[1].fit(X, Y, np.int8(4), np.float32(2), shuffle=np.False_, verbose=False, validation_data=[X, Y])
    assert state_of(nets[0]) == state_of(nets[1])
