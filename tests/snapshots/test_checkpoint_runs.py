"""Runs as people start them: twice in a folder, with several checkpoints, callbacks that stop, other settings."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from nets import state_of
from resume_run import Kill, Killed, fit, images, outcome
from singa_lite import SnapshotError, initializer, loss, metric, optimizer, schedule
from singa_lite.fit import Callback, StopTraining, Training
from singa_lite.snapshots import Checkpoint, checkpoint, formats, latest, tree
from singa_lite.snapshots.checkpoints.folder import BEST, checkpoints, step_of
from singa_lite.snapshots.checkpoints.stored_run import PROGRESS
from singa_lite.training.settings import described

posix = pytest.mark.skipif(os.name == "nt", reason="this system has no POSIX signals, locks and permissions")


def steps(folder: Path) -> list[int]:
    return [step_of(file) for file in checkpoints(folder)]


def told(file: Path) -> dict[str, Any]:
    with formats.opened(file) as source:
        return json.loads(source.read(PROGRESS).tobytes())


def step_of_best(folder: Path) -> int:
    with formats.opened(folder / BEST) as source:
        return tree.step_of(source)


# --- which one is the best ----------------------------------------------------------------------------------


class Score(Callback):
    """Enters {epoch: score}, and stops training at an epoch."""

    def __init__(self, scores: dict[int, float], stop: int = 99) -> None:
        self.scores, self.stop = scores, stop

    def on_epoch(self, training: Training) -> None:
        epoch = training.progress.epoch
        if epoch in self.scores:
            training.progress.history.append(score=self.scores[epoch])
        if epoch == self.stop:
            raise StopTraining


def test_an_epoch_without_a_value_is_not_the_best(tmp_path):
    last = Checkpoint(tmp_path, monitor="score", mode="min")
    fit(images("SGD"), "images", Score({1: -1, 3: -2}), last, epochs=4)
    assert step_of_best(tmp_path) == 15


def test_an_epoch_that_another_callback_stops_at_may_be_the_best(tmp_path):
    last = Checkpoint(tmp_path, monitor="score", mode="min")
    fit(images("SGD"), "images", Score({1: -1, 2: -2}, stop=2), last)
    assert step_of_best(tmp_path) == 10


@pytest.mark.parametrize("monitor", [3, b"loss", ["loss"]])
def test_a_monitor_is_a_name(tmp_path, monitor):
    with pytest.raises(TypeError, match="Checkpoint monitor: wanted the name of an entry"):
        Checkpoint(tmp_path, monitor=monitor)


def test_a_monitor_of_a_validation_that_there_is_not_is_told_before_training(tmp_path):
    net = images("SGD")
    with pytest.raises(ValueError, match="wanted fit with validation_data for 'val_loss'"):
        fit(net, "images", Checkpoint(tmp_path, monitor="val_loss"), validation_data=None)
    assert net.optimizer.step == 0


def test_another_monitor_that_is_not_there_is_told_before_training_or_loses_no_epoch(tmp_path):
    net = images("SGD")
    with pytest.raises(ValueError, match=r"Checkpoint monitor: wanted one of.*'val_loss'.*received 'nothing'"):
        fit(net, "images", Checkpoint(tmp_path, monitor="nothing", mode="min"))
    assert net.optimizer.step == 0 and steps(tmp_path) == []
    with pytest.raises(ValueError, match=r"wanted numbers in the history.*'val_loss'.*received 'nothing'"):
        fit(net, "images", Score({}), Checkpoint(tmp_path, monitor="nothing", mode="min"))  # a callback's, perhaps
    assert steps(tmp_path) == [5]


def test_a_run_may_go_on_with_a_validation_that_it_had_not(tmp_path):
    with pytest.raises(Killed):
        fit(images("SGD"), "images", Checkpoint(tmp_path), Kill(7), validation_data=None)
    net = images("SGD")
    fit(net, "images", Checkpoint(tmp_path, monitor="val_loss"), resume="auto")
    assert net.optimizer.step == 15 and (tmp_path / BEST).exists()


# --- folders ------------------------------------------------------------------------------------------------


@posix
def test_a_folder_serves_one_run_at_a_time(tmp_path):
    class Second(Callback):
        def on_batch(self, training: Training) -> None:
            with pytest.raises(SnapshotError, match="received one that another run is writing to"):
                fit(images("SGD"), "images", Checkpoint(tmp_path), resume="auto")
            raise Killed

    with pytest.raises(Killed):
        fit(images("SGD"), "images", Second(), Checkpoint(tmp_path))
    fit(images("SGD"), "images", Checkpoint(tmp_path), epochs=1)
    assert steps(tmp_path) == [5]


def test_going_back_to_an_earlier_one_changes_nothing_where_later_ones_are(tmp_path):
    fit(images("SGD"), "images", Checkpoint(tmp_path, every_steps=5))
    net = images("SGD")
    before = state_of(net)
    earlier = tmp_path / f"checkpoint-{5:010}.h5"
    with pytest.raises(SnapshotError, match=r"later steps than 5, received checkpoint-0000000015"):
        fit(net, "images", Checkpoint(tmp_path), resume=earlier)
    assert state_of(net) == before
    fit(net, "images", Checkpoint(tmp_path / "branch"), resume=earlier)
    assert net.optimizer.step == 15


@pytest.mark.parametrize("resume", [None, "auto"])
def test_a_file_is_no_folder(tmp_path, resume):
    (tmp_path / "run").write_text("x")
    with pytest.raises(SnapshotError, match=r"run: (cannot be used|wanted a folder)"):
        fit(images("SGD"), "images", Checkpoint(tmp_path / "run"), resume=resume)


def test_an_old_one_that_cannot_be_removed_does_not_end_the_training(tmp_path, monkeypatch):
    unlink = Path.unlink

    def refusing(path: Path, **options: Any) -> None:
        if path.name == f"checkpoint-{5:010}.h5":
            raise PermissionError(1, "not here")
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", refusing)
    with pytest.warns(UserWarning, match="an old checkpoint cannot be removed.*not here"):
        fit(images("SGD"), "images", Checkpoint(tmp_path, keep=1))
    assert steps(tmp_path) == [15, 5]


def test_a_file_of_a_later_version_is_not_damaged(tmp_path, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(tree, "VERSION", 3)
        fit(images("SGD"), "images", Checkpoint(tmp_path), epochs=1)
    with pytest.raises(SnapshotError, match="wanted a snapshot of version 1 to 2, received 3"):
        fit(images("SGD"), "images", Checkpoint(tmp_path), resume="auto")
    assert os.listdir(tmp_path) == [f"checkpoint-{5:010}.h5"]


def test_several_checkpoints_go_on_from_the_newest_of_all(tmp_path):
    def several() -> list[Checkpoint]:
        return [Checkpoint(tmp_path / "often", every_steps=1), Checkpoint(tmp_path / "seldom", every_steps=4)]

    for order, step in ((1, 7), (-1, 11)):
        with pytest.raises(Killed):
            fit(images("Adam"), "images", *several()[::order], Kill(step), resume="auto")
    net, whole = images("Adam"), images("Adam")
    assert outcome(net, fit(net, "images", *several(), resume="auto")) == outcome(whole, fit(whole, "images"))


@posix
@pytest.mark.parametrize("background", [False, True])
def test_each_of_several_is_written_before_leaving(tmp_path, background):
    several = [Checkpoint(tmp_path / name, every_minutes=60, background=background) for name in "ab"]
    with pytest.raises(SystemExit):
        fit(images("SGD"), "images", Kill(7, lambda: os.kill(os.getpid(), signal.SIGTERM)), *several)
    assert steps(tmp_path / "a") == steps(tmp_path / "b") == [7]


@pytest.mark.parametrize("resume", [True, 3, 1.5, b"auto"])
def test_what_to_go_on_from_is_a_path(tmp_path, resume):
    with pytest.raises(TypeError, match=r"fit resume: wanted \"auto\" or the path of a checkpoint"):
        fit(images("SGD"), "images", Checkpoint(tmp_path), resume=resume)


@pytest.mark.parametrize("options", [{"every_minutes": "5"}, {"every_steps": "5"}, {"keep": None}])
def test_numbers_that_are_none(tmp_path, options):
    with pytest.raises(TypeError, match=f"Checkpoint {next(iter(options))}: wanted"):
        Checkpoint(tmp_path, **options)


# --- signals ------------------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("background", [False, True])
def test_a_signal_that_comes_with_an_error_is_obeyed(tmp_path, background):
    def both() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise Killed("in the middle")

    with pytest.warns(UserWarning, match=r"asked to leave.*in the middle"), pytest.raises(SystemExit) as raised:
        fit(images("SGD"), "images", Kill(7, both), Checkpoint(tmp_path, background=background))
    assert raised.value.args == (143,)


@posix
def test_a_child_process_has_the_signals_that_there_were(tmp_path):
    class Forking(Callback):
        exit_code: int | None = None

        def on_batch(self, training: Training) -> None:
            child = get_context("fork").Process(target=time.sleep, args=(60,))
            child.start()
            time.sleep(0.2)
            child.terminate()
            child.join(20)
            self.exit_code = child.exitcode
            child.kill()
            raise StopTraining

    forking = Forking()
    fit(images("SGD"), "images", Checkpoint(tmp_path), forking)
    assert forking.exit_code == -signal.SIGTERM


# --- writing ------------------------------------------------------------------------------------------------


def test_the_last_one_is_tried_though_one_before_it_failed(tmp_path, monkeypatch):
    write = formats.write

    def failing(contents: Any, path: Path) -> None:
        if step_of(path) == 14:
            time.sleep(0.5)  # until the training is over
            raise SnapshotError("no space")
        write(contents, path)

    monkeypatch.setattr(formats, "write", failing)
    with pytest.warns(UserWarning, match="a checkpoint was not written: no space"):
        history = fit(images("SGD"), "images", Checkpoint(tmp_path, every_steps=14, background=True))
    assert len(history["loss"]) == 3 and steps(tmp_path)[0] == 15


def test_an_error_of_a_run_that_was_interrupted_is_not_the_next_one_s(tmp_path, monkeypatch):
    last = Checkpoint(tmp_path, every_steps=2, background=True)

    def failing(contents: Any, path: Path) -> None:
        time.sleep(0.1)
        raise SnapshotError("no space")

    def interrupt() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(formats, "write", failing)
        fit(images("SGD"), "images", last, Kill(3, interrupt))
    with pytest.warns(UserWarning, match="a checkpoint was not written: no space"):
        fit(images("SGD"), "images", last)
    assert steps(tmp_path)[0] == 15


# --- settings -----------------------------------------------------------------------------------------------


def test_a_schedule_is_asked_for_the_steps_that_are_taken_only(tmp_path):
    asked: list[int] = []
    rates = [0.1] * 15

    def rate(step: int) -> float:
        asked.append(step)
        return rates[step]

    net = images("SGD")
    net.compile(optimizer.SGD(rate), metric=metric.Accuracy())
    fit(net, "images", Checkpoint(tmp_path, every_steps=4))
    assert asked == list(range(15))
    fit(net, "images", resume=latest(tmp_path))
    assert asked == list(range(15))


class Renamed(loss.SoftmaxCrossEntropy):
    """Another loss for the same targets."""


OTHERS = {
    "loss": lambda: {"loss": Renamed()},
    "schedule": lambda: {"optimizer": optimizer.SGD(schedule.Step(0.1, 5, 0.5), momentum=0.9)},
    "rules": lambda: {"optimizer": halving()},
    "momentum": lambda: {"optimizer": optimizer.SGD(schedule.Step(0.1, 5), momentum=0.8)},
}


def halving() -> optimizer.Optimizer:
    made = optimizer.SGD(schedule.Step(0.1, 5), momentum=0.9)
    made.register("*/bias", lr_mult=0.5)
    return made


def compiled(**options: Any) -> Any:
    net = images("SGD")
    settings = {"optimizer": optimizer.SGD(schedule.Step(0.1, 5), momentum=0.9), "metric": metric.Accuracy(), **options}
    net.compile(settings.pop("optimizer"), **settings)
    return net


@pytest.mark.parametrize("what", OTHERS)
def test_settings_that_are_not_what_they_were_are_told(tmp_path, what):
    with pytest.raises(Killed):
        fit(compiled(), "images", Checkpoint(tmp_path, every_steps=1), Kill(3))
    net = compiled(**OTHERS[what]())
    with pytest.warns(UserWarning, match=f"numbers may differ.*: {what} was "):
        fit(net, "images", Checkpoint(tmp_path), resume="auto")


def test_another_metric_in_the_middle_of_an_epoch_is_refused(tmp_path):
    with pytest.raises(Killed):
        fit(compiled(), "images", Checkpoint(tmp_path, every_steps=1), Kill(7))
    net = compiled(metric=metric.TopKAccuracy(2))
    before = state_of(net)
    wanted = r"within an epoch with metric TopKAccuracy\(axis=None, ignore_index=None, k=2, .*\), received Acc"
    with pytest.raises(SnapshotError, match=wanted):
        fit(net, "images", Checkpoint(tmp_path), resume="auto")
    assert state_of(net) == before


def test_differences_that_are_errors_change_nothing(tmp_path):
    with pytest.raises(Killed):
        fit(compiled(), "images", Checkpoint(tmp_path, every_steps=1), Kill(3))
    net = compiled(**OTHERS["momentum"]())
    before = state_of(net)
    with warnings.catch_warnings(), pytest.raises(UserWarning, match="momentum was"):
        warnings.simplefilter("error")
        fit(net, "images", Checkpoint(tmp_path), resume="auto")
    assert state_of(net) == before


def test_versions_are_in_it(tmp_path):
    fit(images("SGD"), "images", Checkpoint(tmp_path), epochs=1)
    assert {"singa-lite", "Python", "NumPy", "h5py", "kernels", "threads", "processor"} <= told(latest(tmp_path))[
        "environment"
    ].keys()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (0.1, "0.1"),
        ({"scores": metric.Accuracy()}, "{scores: Accuracy(axis=None, ignore_index=None, k=1)}"),
        (schedule.Exponential(0.1, 9, 0.5), "Exponential(base=0.1, decay_rate=0.5, decay_steps=9, staircase=False)"),
        ([initializer.Constant(2), True], "[Constant(value=2), True]"),
        (os.path.join, f"{os.path.__name__}.join"),
    ],
)
def test_settings_as_text(value, text):
    assert described(value) == text


def test_a_checkpoint_by_hand_is_verified(tmp_path):
    fit(images("SGD"), "images", Checkpoint(tmp_path), epochs=1)
    checkpoint.verify(latest(tmp_path))
