"""Callbacks: when they stop, what they restore, what they write, and that they go on from a checkpoint."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import skips
from singa_lite import FeedForwardNet, callbacks, layers, metric, optimizer, schedule

X = np.random.default_rng(3).normal(0, 1, (13, 5)).astype(np.float32)
Y = np.random.default_rng(4).integers(0, 3, 13)


def made(lr=0.1) -> FeedForwardNet:
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=5)
    net.add(layers.Dense("hidden", 6, input_sample_shape=(5,)))
    net.add(layers.Dense("scores", 3))
    net.compile(optimizer.SGD(lr, momentum=0.9))
    return net


class Given(callbacks.Callback):
    """Puts given numbers into the history."""

    def __init__(self, values):
        self.values = values

    def on_start(self, training):
        training.progress.history.history.setdefault("given", [])

    def on_epoch(self, training):
        training.progress.history.append(given=self.values[training.progress.epoch - 1])


def fit(net, *given, epochs=8, **options):
    options = {"validation_data": (X[:4], Y[:4])} | options
    return net.fit(X, Y, batch_size=5, epochs=epochs, verbose=False, callbacks=given, **options)


def values(net):
    return {name: np.asarray(value) for name, value in net.parameters().items()}


@pytest.mark.parametrize(
    ("numbers", "patience", "min_delta", "epochs"),
    [
        ([5, 4, 4, 4, 4], 2, 0.0, 4),
        ([5, 4, 3, 3.5, 2, 2, 2, 2], 2, 0.0, 7),
        ([5, 4.9, 4.8, 4.7], 3, 0.5, 4),
        ([np.nan, np.nan, 1, 1], 2, 0.0, 2),
        ([1, 2], 0, 0.0, 2),
    ],
)
def test_early_stopping_waits(numbers, patience, min_delta, epochs):
    stop = callbacks.EarlyStopping("given", patience, min_delta, "min")
    assert len(fit(made(), Given(numbers), stop, epochs=len(numbers))["loss"]) == epochs


@pytest.mark.parametrize("kind", [callbacks.EarlyStopping, callbacks.ReduceLROnPlateau])
def test_an_unknown_monitor_is_refused_at_the_start(kind):
    net = made()
    with pytest.raises(ValueError, match="val_metric"):
        fit(net, kind("val_metric"))
    with pytest.raises(ValueError, match="validation_data"):
        fit(net, kind("val_loss"), validation_data=None)
    assert net.optimizer.step == 0


def test_the_rate_is_lowered_on_a_plateau():
    net, rates = made(0.5), []
    lower = callbacks.ReduceLROnPlateau("given", 0.5, 2, cooldown=1, min_lr=0.1, mode="min")
    look = callbacks.LambdaCallback(on_epoch=lambda training: rates.append(training.net.optimizer.lr))
    fit(net, Given([1] * 11), lower, look, epochs=11)
    assert rates == [0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.1, 0.1, 0.1]
    with pytest.raises(ValueError, match="lr"):
        fit(made(schedule.Step(0.1, 3)), callbacks.ReduceLROnPlateau())


def test_going_on_from_a_checkpoint_is_equal(tmp_path):
    """Rates, patience and the history of metrics over epochs, from within an epoch."""

    def net():
        one = made(0.5)
        one.compile(optimizer.SGD(0.5, momentum=0.9), metric=["accuracy", metric.F1(), metric.ConfusionMatrix()])
        return one

    def watching():
        return [callbacks.ReduceLROnPlateau("loss", 0.5, 1, min_delta=1.0), callbacks.CSVLogger(tmp_path / "log.csv")]

    def stop_at_7(training):
        if training.progress.epoch * 3 + training.progress.batch == 7:
            raise callbacks.StopTraining

    whole, first, second = net(), net(), net()
    wanted = fit(whole, *watching(), epochs=4)
    rows = (tmp_path / "log.csv").read_text().splitlines()
    checkpoint = callbacks.Checkpoint(tmp_path / "run", every_steps=2)
    fit(first, *watching(), callbacks.LambdaCallback(on_batch=stop_at_7), checkpoint, epochs=4)
    found = fit(second, *watching(), checkpoint, epochs=4, resume="auto")
    for name in ("loss", "accuracy", "f1", "val_f1"):
        assert found[name] == wanted[name]
    np.testing.assert_array_equal(found["confusion_matrix"], wanted["confusion_matrix"])
    assert second.optimizer.lr == whole.optimizer.lr < 0.5
    assert [row.split(",")[:4] for row in (tmp_path / "log.csv").read_text().splitlines()] == [
        row.split(",")[:4] for row in rows
    ]


def test_csv_has_a_row_an_epoch(tmp_path):
    file = tmp_path / "log.csv"
    history = fit(made(), callbacks.CSVLogger(file), epochs=3)
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [float(row["val_accuracy"]) for row in rows] == history["val_accuracy"]
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    fit(made(), callbacks.CSVLogger(file, append=True), epochs=2)
    assert len(file.read_text().splitlines()) == 6
    with pytest.raises(ValueError, match="columns"):
        fit(made(), callbacks.CSVLogger(file, append=True), epochs=2, validation_data=None)


def test_tensorboard_reads_what_is_written(tmp_path):
    skips.library("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    history = fit(made(), callbacks.TensorBoard(tmp_path), epochs=3)
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert [event.value for event in found.Scalars("val_loss")] == pytest.approx(history["val_loss"])
    assert [event.step for event in found.Scalars("lr")] == [0, 1, 2]
    assert [event.value for event in found.Scalars("lr")] == pytest.approx(history["lr"])
    net = made()
    with pytest.raises(OSError, match="log"):
        (tmp_path / "log").write_text("")
        fit(net, callbacks.TensorBoard(tmp_path / "log"))
    assert net.optimizer.step == 0


def test_the_rate_is_read_and_set_between_recorded_steps():
    nets = made(0.1), made(0.1)
    nets[1].compile(optimizer.SGD(0.1, momentum=0.9), graph=False)
    for net in nets:
        net.train_one_batch(X, Y)
        net.optimizer.lr = 0.025
        assert net.optimizer.lr == 0.025
        net.train_one_batch(X, Y)
    for name, value in values(nets[0]).items():
        np.testing.assert_array_equal(values(nets[1])[name], value)
    scheduled = made(schedule.Step(0.1, 1))
    scheduled.train_one_batch(X, Y)
    assert scheduled.optimizer.lr == pytest.approx(0.01)
    scheduled.optimizer.lr = 0.5
    assert scheduled.optimizer.lr == 0.5 and isinstance(scheduled.optimizer.schedule, schedule.Constant)


def test_validation_split_takes_the_last_samples():
    split = made().fit(X, Y, 5, 2, validation_split=0.3, verbose=False)
    given = made().fit(X[:9], Y[:9], 5, 2, validation_data=(X[9:], Y[9:]), verbose=False)
    assert split["val_loss"] == given["val_loss"] and split["loss"] == given["loss"]
    with pytest.raises(ValueError, match="validation_split"):
        made().fit(X, Y, validation_split=0.99)
    with pytest.raises(ValueError, match="validation_data"):
        made().fit(X, Y, validation_split=0.5, validation_data=(X, Y))
    with pytest.raises(TypeError, match="validation_split"):
        made().fit(iter([(X, Y)]), validation_split=0.5)


def test_limits():
    net = made()
    assert not fit(net, callbacks.TimeLimit(1e-9), epochs=3).history and net.optimizer.step == 1


def test_initial_epoch_counts_as_done(tmp_path):
    history = fit(made(), epochs=5, initial_epoch=3)
    assert len(history["loss"]) == 2
    with pytest.raises(ValueError, match="initial_epoch"):
        fit(made(), epochs=5, initial_epoch=-1)
    with pytest.raises(ValueError, match="resume"):
        fit(made(), epochs=5, initial_epoch=3, resume="auto")
