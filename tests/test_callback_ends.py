"""Callbacks: what `fit` calls on its way, what ends it, what each of them does, and how they go on."""

from __future__ import annotations

import csv
import tracemalloc
import warnings

import numpy as np
import pytest

import skips
from every_row import over_rows
from own_steps import gan
from singa_lite import FeedForwardNet, callbacks, layers, metric, optimizer, schedule
from singa_lite.fit import Callback, Training

X = np.random.default_rng(3).normal(0, 1, (13, 5)).astype(np.float32)
Y = np.random.default_rng(4).integers(0, 3, 13)
BATCHES = 3  # of 5 samples


def made(lr=0.1, **options) -> FeedForwardNet:
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=5)
    net.add(layers.Dense("hidden", 6, input_sample_shape=(5,)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Dense("scores", 3))
    net.compile(optimizer.SGD(lr, momentum=0.9), **options)
    return net


def fit(net, *given, epochs=8, **options):
    options = {"validation_data": (X[:4], Y[:4]), "verbose": False} | options
    return net.fit(X, Y, batch_size=5, epochs=epochs, callbacks=given, **options)


def values(net):
    return {name: np.array(value) for name, value in (net.parameters() | net.states()).items()}


def same(one, other):
    return all(np.array_equal(one[name], other[name], equal_nan=True) for name in other)


class Given(callbacks.Callback):
    """Puts given numbers into the history, and notes the net's values at the end of each epoch."""

    def __init__(self, numbers):
        self.numbers, self.seen = numbers, []

    def on_start(self, training):
        training.progress.history.history.setdefault("given", [])

    def on_epoch(self, training):
        training.progress.history.append(given=self.numbers[training.progress.epoch - 1])
        self.seen.append(values(training.net))


class Noting(Callback):
    """Notes what is called; raises `error` there, the first time."""

    def __init__(self, notes: list[str], name: str = "", at: str = "", error: BaseException | None = None) -> None:
        self.notes, self.name, self.at, self.error = notes, name, at, error

    def note(self, what: str, training: Training) -> None:
        place = training.progress.epoch, training.progress.batch
        self.notes.append(f"{self.name}{what} {place[0]}.{place[1]}")
        if what == self.at and self.error is not None:
            raise self.error

    def on_start(self, training: Training) -> None:
        self.note("start", training)

    def on_batch(self, training: Training) -> None:
        self.note("batch", training)
        assert float(training.loss) > 0

    def on_validation_batch(self, training: Training) -> None:
        self.note("validation", training)

    def on_epoch(self, training: Training) -> None:
        self.note("epoch", training)
        assert len(training.progress.history["loss"]) == training.progress.epoch

    def on_end(self, training: Training, error: BaseException | None) -> None:
        self.note("end" if error is None else f"end by {error}", training)


class StopAt(callbacks.Callback):
    """Ends the training behind so many batches, or in the validation of this epoch."""

    def __init__(self, batches=0, validation=0):
        self.left, self.validation = batches, validation

    def on_batch(self, training):
        self.left -= 1
        if not self.left:
            raise callbacks.StopTraining

    def on_validation_batch(self, training):
        if training.progress.epoch + 1 == self.validation:
            raise callbacks.StopTraining


class Spoil(callbacks.Callback):
    """Makes the parameters NaN after a step, so that the next loss is."""

    def __init__(self, step):
        self.step = step

    def on_batch(self, training):
        if training.net.optimizer.step == self.step:
            for value in training.net.parameters().values():
                value.copy_from_numpy(np.full(value.shape, np.nan, value.dtype))


#: {what ends it: (callbacks, best epoch)}: of epochs whose "given" is 3, 1, 2, ...
ENDS = {
    "in the epoch right after the best": (lambda: [StopAt(2 * BATCHES + 1)], 1),
    "at that epoch's last batch": (lambda: [StopAt(3 * BATCHES)], 1),
    "in its validation": (lambda: [StopAt(validation=3)], 1),
    "two epochs after the best": (lambda: [StopAt(3 * BATCHES + 2)], 1),
    "NaN in the epoch right after the best": (lambda: [callbacks.TerminateOnNaN(), Spoil(2 * BATCHES + 1)], 1),
    "NaN at an epoch's end": (lambda: [callbacks.TerminateOnNaN(), Spoil(3 * BATCHES - 1)], 1),
    "in the second epoch": (lambda: [StopAt(BATCHES + 1)], 0),
}


@pytest.mark.filterwarnings("ignore:fit was ended", "ignore:a checkpoint was not written")
@pytest.mark.parametrize("behind", ["nothing", "often", "in the background", "of less improvement"])
def test_the_best_comes_back_from_within_an_epoch(tmp_path, behind):
    over_rows(comes_back, ((name, (tmp_path / str(at), name, behind)) for at, name in enumerate(ENDS)))


def comes_back(folder, name, behind):
    make, best = ENDS[name]
    often, aside = 1 if behind == "often" else None, behind == "in the background"
    last = callbacks.Checkpoint(folder, every_steps=often, background=aside, monitor="given", mode="min")
    delta = 0.5 if "less" in behind else 0.0
    net, given = made(), Given([3, 1, 0.9 if delta else 2, 2, 2, 2])
    stop = callbacks.EarlyStopping("given", 9, delta, "min", restore_best=True)
    fit(net, *make(), given, stop, *([] if behind == "nothing" else [last]), epochs=6)
    assert stop.best_epoch == best
    assert same(values(net), given.seen[best])


def test_a_time_limit_within_a_group_of_batches(tmp_path):
    for last in ([], [callbacks.Checkpoint(tmp_path, monitor="loss")]):
        net, given = made(accumulate=4), Given([1, 2, 3])
        stop = callbacks.EarlyStopping("loss", 9, restore_best=True)
        fit(net, given, StopAt(5), stop, *last, epochs=3)
        assert stop.best_epoch == 0 and same(values(net), given.seen[0])


def test_the_other_nets_of_a_step_come_back_too(tmp_path):
    for last in ([], [callbacks.Checkpoint(tmp_path, monitor="given", mode="min")]):
        (critic, generator), seen, given = gan(), [], Given([1, 2, 3])
        look = callbacks.LambdaCallback(on_epoch=lambda training, seen=seen, net=generator: seen.append(values(net)))
        stop = callbacks.EarlyStopping("given", 2, mode="min", restore_best=True)
        critic.fit(X, batch_size=5, epochs=3, verbose=False, callbacks=[given, look, stop, *last])
        assert same(values(generator), seen[0]) and same(values(critic), given.seen[0])


def test_a_run_that_goes_on_behind_its_best_epoch_has_it(tmp_path):
    first, second = made(), made()
    checkpoint = callbacks.Checkpoint(tmp_path)
    given, stop = Given([3, 1, 2, 2]), callbacks.EarlyStopping("given", 9, mode="min", restore_best=True)
    fit(first, given, stop, checkpoint, epochs=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(second, Given([3, 1, 2, 2]), stop, checkpoint, epochs=4, resume="auto")
    assert stop.best_epoch == 1 and same(values(second), given.seen[1])


def test_one_copy_of_the_net_is_held():
    net = FeedForwardNet("mse", seed=5)
    net.add(layers.Dense("wide", 1000, input_sample_shape=(700,)))
    net.add(layers.Dense("out", 900))
    net.compile(optimizer.SGD(1e-4))
    nbytes = sum(value.nbytes for value in net.parameters().values())
    peaks = []

    class Watched(callbacks.EarlyStopping):
        def on_epoch(self, training):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            super().on_epoch(training)
            peaks.append((tracemalloc.get_traced_memory()[1] - before) / nbytes)

    x, y = np.ones((4, 700), np.float32), np.zeros((4, 900), np.float32)
    tracemalloc.start()
    try:
        net.fit(x, y, epochs=3, verbose=False, callbacks=[Watched("loss", restore_best=True)])
    finally:
        tracemalloc.stop()
    assert 0.9 < peaks[0] < 1.1, "the first copy"
    assert max(peaks[1:]) < 0.8, "into the same bytes, an array at a time"


# ---- what is called, when, and who sees the end


def test_what_is_called_and_when():
    notes: list[str] = []
    fit(made(), Noting(notes), epochs=2, validation_data=(X[:8], Y[:8]))
    epoch = "batch {0}.1, batch {0}.2, batch {0}.3, validation {0}.3, validation {0}.3, epoch {1}.0"
    assert ", ".join(notes) == f"start 0.0, {epoch.format(0, 1)}, {epoch.format(1, 2)}, end 2.0"


def test_the_last_that_began_ends_first():
    notes: list[str] = []
    fit(made(), Noting(notes, "a "), Noting(notes, "b "), epochs=0)
    assert notes == ["a start 0.0", "b start 0.0", "b end 0.0", "a end 0.0"]


@pytest.mark.parametrize("at", ["start", "batch", "validation", "epoch"])
@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_errors_come_out_and_every_callback_hears_of_them(at, kind):
    notes: list[str] = []
    with pytest.raises(kind, match="broken"):
        fit(
            made(),
            Noting(notes, "a "),
            Noting(notes, "b ", at, kind("broken")),
            Noting(notes, "c "),
            epochs=1,
        )
    ends = [note.rpartition(" ")[0] for note in notes if "end by" in note]
    assert ends == [f"{name} end by broken" for name in ("ba" if at == "start" else "cba")]


def test_an_error_at_the_end_does_not_keep_others_from_ending():
    notes: list[str] = []
    with pytest.raises(RuntimeError, match="late"):
        fit(made(), Noting(notes, "a "), Noting(notes, "b ", "end", RuntimeError("late")), epochs=0)
    assert notes[-2:] == ["b end 0.0", "a end by late 0.0"]


@pytest.mark.parametrize("at", ["on_start", "on_batch", "on_validation_batch", "on_epoch", "on_end"])
def test_every_callback_sees_the_end(at):
    def stop(*_):
        raise callbacks.StopTraining

    before, behind = [], []
    ending = callbacks.LambdaCallback(**{at: stop})
    fit(made(), Noting(before), ending, Noting(behind), epochs=2 if at != "on_end" else 1)
    assert behind == before and behind[-1].startswith("end ")
    counts = {"on_start": 0, "on_batch": 1, "on_validation_batch": BATCHES, "on_epoch": BATCHES, "on_end": BATCHES}
    assert sum(note.startswith("batch") for note in behind) == counts[at]
    assert sum(note.startswith("epoch") for note in behind) == (at in ("on_epoch", "on_end"))


def test_the_last_epoch_has_its_row_and_its_best(tmp_path):
    file, rates = tmp_path / "log.csv", []
    second = callbacks.EarlyStopping("given", 5, mode="max")
    given = [
        Given([1, 2, 3, 4]),
        callbacks.EarlyStopping("given", 2, mode="min"),
        second,
        callbacks.CSVLogger(file),
        callbacks.LambdaCallback(on_epoch=lambda training: rates.append(training.progress.epoch)),
    ]
    history = fit(made(), *given, epochs=4)
    with file.open(newline="") as opened:
        assert [row["epoch"] for row in csv.DictReader(opened)] == ["0", "1", "2"]
    assert len(history["loss"]) == 3 and rates == [1, 2, 3]
    assert second.best_epoch == 2


# ---- from which epoch on


@pytest.mark.parametrize(("start", "epochs", "best"), [(0, 3, 0), (1, 4, 3), (2, 4, 3), (3, 4, 3), (9, 4, None)])
def test_epochs_at_the_beginning_are_passed_over(start, epochs, best):
    net, given = made(), Given([1, 4, 5, 2])
    stop = callbacks.EarlyStopping("given", 2, mode="min", restore_best=True, start_from_epoch=start)
    history = fit(net, given, stop, epochs=4)
    assert (len(history["loss"]), stop.best_epoch) == (epochs, best)
    assert same(values(net), given.seen[-1 if best is None else best])


def test_a_checkpoint_of_the_epochs_that_are_passed_over_is_not_taken(tmp_path):
    net, given = made(), Given([1, 4, 5, 6])
    stop = callbacks.EarlyStopping("given", 9, mode="min", restore_best=True, start_from_epoch=1)
    fit(net, given, stop, callbacks.Checkpoint(tmp_path, monitor="given", mode="min"), epochs=4)
    assert stop.best_epoch == 1 and same(values(net), given.seen[1])


# ---- what each of them does


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
