"""Which entry a callback watches and which direction is better; callbacks and metrics of another form are refused
before the first batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from own_steps import X as NOISE
from own_steps import gan
from singa_lite import FeedForwardNet, callbacks, metric, optimizer
from test_callback_ends import Given, StopAt, X, Y, fit, made

MONITORING = {
    "EarlyStopping": lambda folder, monitor, **options: callbacks.EarlyStopping(monitor, **options),
    "ReduceLROnPlateau": lambda folder, monitor, **options: callbacks.ReduceLROnPlateau(monitor, **options),
    "Checkpoint": lambda folder, monitor, **options: callbacks.Checkpoint(folder, monitor=monitor, **options),
}


class Dice(metric.EpochMetric):
    def statistics(self, scores, target):
        return np.array([float((scores.argmax(1) == target).sum()), len(target)])

    def result(self, statistics):
        return statistics[0] / statistics[1]


class StatedDice(Dice):
    higher_is_better = True


class StatedFault(metric.Metric):
    """Its name says the other direction."""

    higher_is_better = False
    name = "my_accuracy"

    def compute(self, x, target):
        return (x - x)[:, 0]


class ToldWrong(Dice):
    higher_is_better = "max"


def net_of(*metrics) -> FeedForwardNet:
    net = made()
    net.compile(optimizer.SGD(0.1), metric=list(metrics))
    return net


def mode_of(callback):
    return callback.monitor.mode if isinstance(callback, callbacks.Checkpoint) else callback.mode


DIRECTIONS: list[tuple[str, tuple[Any, ...], str]] = [
    ("loss", (), "min"),
    ("val_loss", (), "min"),
    ("val_top_2_accuracy", (metric.TopKAccuracy(2),), "max"),
    ("val_f1", ("f1",), "max"),
    ("perplexity", ("perplexity",), "min"),
    ("val_stated_dice", (StatedDice(),), "max"),
    ("my_accuracy", (StatedFault(),), "min"),
    ("samples_per_second", (), "max"),
    ("high_water", (), "min"),
]


@pytest.mark.parametrize("name", MONITORING)
def test_known_entries_have_a_direction(tmp_path, name):
    for monitor, metrics, wanted in DIRECTIONS:
        callback, net = MONITORING[name](tmp_path / monitor, monitor), net_of(*metrics)
        fit(net, callback, epochs=1)
        assert mode_of(callback) == wanted, monitor
    given = MONITORING[name](tmp_path / "given", "samples_per_second", mode="min")
    fit(net_of(), given, epochs=1)
    assert mode_of(given) == "min"


@pytest.mark.parametrize("name", MONITORING)
def test_others_want_a_mode(tmp_path, name):
    make = MONITORING[name]
    net = net_of(Dice())
    for monitor in ("dice", "val_dice"):
        with pytest.raises(ValueError, match=f"{name} mode.*'{monitor}'"):
            fit(net, make(tmp_path, monitor))
        assert net.optimizer.step == 0
    fit(net, make(tmp_path / "dice", "dice", mode="max"), epochs=1)
    with pytest.raises(ValueError, match="'lr'"):
        fit(made(), make(tmp_path, "lr"))
    with pytest.raises(TypeError, match="ToldWrong higher_is_better"):
        fit(net_of(ToldWrong()), make(tmp_path, "told_wrong"))
    with pytest.raises(ValueError, match=f"{name} mode"):
        make(tmp_path, "loss", mode="larger")


def test_one_callback_serves_nets_of_other_directions(tmp_path):
    stop = callbacks.EarlyStopping("my_accuracy", 9)
    fit(net_of(StatedFault()), stop, epochs=1)
    assert stop.mode == "min"
    better = metric.Accuracy()
    better.name = "my_accuracy"
    fit(net_of(better), stop, epochs=1)
    assert stop.mode == "max"


def test_the_most_accurate_epoch_stays(tmp_path):
    net, given = made(), Given([0.1, 0.9, 0.5])
    last = callbacks.Checkpoint(tmp_path, monitor="given_accuracy")

    class Named(Given):
        def on_epoch(self, training):
            training.progress.history.append(given_accuracy=self.numbers[training.progress.epoch - 1])

    fit(net, Named(given.numbers), last, epochs=3)
    net.load(tmp_path / "best.h5")
    assert net.optimizer.step == 6


@pytest.mark.parametrize("name", MONITORING)
def test_entries_of_a_step_of_ones_own(tmp_path, name):
    critic, _ = gan()
    unknown = MONITORING[name](tmp_path, "generato", mode="min")
    for given, words in ((MONITORING[name](tmp_path, "generator"), "mode"), (unknown, "monitor.*'generato'")):
        with pytest.raises(ValueError, match=f"{name} {words}"):
            critic.fit(NOISE, batch_size=5, verbose=False, callbacks=given)


@pytest.mark.parametrize("name", MONITORING)
def test_unknown_monitors(tmp_path, name):
    net = made()
    for monitor in ("val_los", "confusion_matrix", "loss/scores"):
        with pytest.raises(ValueError, match=f"{name} monitor.*'{monitor}'"):
            fit(net, StopAt(1), MONITORING[name](tmp_path, monitor, mode="min"))
    with pytest.raises(ValueError, match=f"{name} monitor"):
        fit(net, MONITORING[name](tmp_path, "val_accuracy"), validation_data=None)
    assert net.optimizer.step == 0


@pytest.mark.parametrize("entered", [{}, {"given": None}, {"given": [1, 2]}], ids=str)
def test_an_entry_that_stays_without_a_number(entered):
    class Entering(Given):
        def on_epoch(self, training):
            training.progress.history.append(**entered)

    with pytest.raises(ValueError, match=r"EarlyStopping monitor.*'given'"):
        fit(made(), Entering([]), callbacks.EarlyStopping("given", mode="min"))


# ---- callbacks of another form


def without_training():
    pass


def of_three(epoch, logs, more):
    pass


@pytest.mark.parametrize("at", ["on_start", "on_batch", "on_validation_batch", "on_epoch", "on_end"])
def test_methods_of_another_form(at):
    net = made()
    for wrong in (without_training, of_three, 3):
        with pytest.raises(TypeError, match=f"LambdaCallback {at}"):
            callbacks.LambdaCallback(**{at: wrong})
        own = type("Own", (callbacks.Callback,), {at: staticmethod(wrong) if callable(wrong) else wrong})
        with pytest.raises(TypeError, match=rf"{at}\(training.*Own"):
            fit(net, own())
    assert net.optimizer.step == 0


def test_one_object_twice():
    stop = callbacks.EarlyStopping()
    with pytest.raises(ValueError, match="EarlyStopping"):
        fit(made(), stop, callbacks.TerminateOnNaN(), stop)


# ---- metrics of another form


def dice(**methods):
    return type("Own", (Dice,), methods)()


WRONG_METRICS = [
    ({"result": lambda self, s: None}, "result"),
    ({"result": lambda self, s: {"a": 1.0}}, "result"),
    ({"result": lambda self, s: "high"}, "result"),
    ({"result": lambda self: 1.0}, "takes 1 positional"),
    ({"statistics": lambda self, scores, target: None}, "statistics"),
    ({"statistics": lambda self, scores, target: [[1.0], [2.0, 3.0]]}, "statistics"),
    ({"statistics": lambda self, scores: scores}, "takes 2 positional"),
    ({"joined": lambda self, before, more: None}, "joined"),
    ({"gathers": True, "statistics": lambda self, scores, target: 1.0}, "statistics"),
    ({"name": 3}, "name"),
    ({"name": "loss"}, "'loss'"),
    ({"name": "high_water"}, "'high_water'"),
]


@pytest.mark.parametrize(("methods", "word"), WRONG_METRICS)
def test_metrics_of_another_form(methods, word):
    net = made()
    for data in ((X, Y), (((X[:5], Y[:5]) for _ in range(3)),)):
        with pytest.raises((TypeError, ValueError), match=word):
            net.compile(optimizer.SGD(0.1), metric=[dice(**methods)])
            net.fit(*data, verbose=False)
        assert net.optimizer.step == 0


@pytest.mark.filterwarnings("error")
def test_metrics_that_do_not_like_zeros_are_let_be():
    class Correlation(Dice):
        def statistics(self, scores, target):
            if not scores.any():
                raise ValueError("constant scores")
            return super().statistics(scores, target) / np.std(scores)

    history = fit(net_of(Correlation()), epochs=1)
    assert 0 <= history["correlation"][0] <= 1


def test_a_value_a_class_is_no_number_to_monitor(tmp_path):
    own = dice(result=lambda self, statistics: statistics)
    own.name = "by_class"
    history = fit(net_of(own), callbacks.CSVLogger(tmp_path / "log.csv"), epochs=1)
    assert history["by_class"][0].shape == (2,) and "by_class" not in (tmp_path / "log.csv").read_text()
    net = net_of(own)
    with pytest.raises(ValueError, match=r"EarlyStopping monitor.*'by_class'"):
        fit(net, callbacks.EarlyStopping("by_class", mode="max"))
    assert net.optimizer.step == 0


def test_a_list_is_an_array_of_statistics():
    class Listed(Dice):
        def statistics(self, scores, target):
            return list(super().statistics(scores, target))

    history = fit(net_of(Listed(), "accuracy"), epochs=2)
    assert history["listed"] == pytest.approx(history["accuracy"])


# ---- the learning rate


def test_the_history_has_the_rate_of_each_epoch(tmp_path):
    lower = callbacks.ReduceLROnPlateau("given", 0.5, 1, mode="min")
    history = fit(made(0.4), Given([1, 1, 1]), lower, epochs=3)
    assert history["lr"] == pytest.approx([0.4, 0.4, 0.2])
    stepped = fit(made(lambda step: 1 / (step + 1)), epochs=2)
    assert stepped["lr"] == pytest.approx([1 / 3, 1 / 6])
    assert [axis.get_title() for axis in history.plot("lr").axes] == ["lr"]
    assert "lr" not in [axis.get_title() for axis in history.plot().axes]
