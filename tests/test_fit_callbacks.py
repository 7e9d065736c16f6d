"""What `fit` calls on its way, in which order, and what ends it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nets import state_of
from singa_lite import FeedForwardNet, GraphError, device, layers, loss, optimizer
from singa_lite.fit import Callback, StopTraining, Training

RNG = np.random.default_rng(8)
X = RNG.standard_normal((7, 5)).astype("f")
Y = (X[:, :3]).argmax(axis=1)


def classifier() -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), seed=2)
    net.add(layers.Dense("out", 3, input_sample_shape=(5,)))
    net.compile(optimizer.SGD(lr=0.5))
    return net


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
        assert float(training.loss) > 0 and training.metric is None

    def on_validation_batch(self, training: Training) -> None:
        self.note("validation", training)

    def on_epoch(self, training: Training) -> None:
        self.note("epoch", training)
        assert len(training.progress.history["loss"]) == training.progress.epoch

    def on_end(self, training: Training, error: BaseException | None) -> None:
        self.note("end" if error is None else f"end by {error}", training)


def fit(net: FeedForwardNet, *callbacks: Any, **options: Any) -> Any:
    return net.fit(X, Y, batch_size=3, verbose=False, callbacks=callbacks, **options)


def test_what_is_called_and_when():
    notes: list[str] = []
    fit(classifier(), Noting(notes), epochs=2, validation_data=(X[:4], Y[:4]))
    epoch = "batch {0}.1, batch {0}.2, batch {0}.3, validation {0}.3, validation {0}.3, epoch {1}.0"
    assert ", ".join(notes) == f"start 0.0, {epoch.format(0, 1)}, {epoch.format(1, 2)}, end 2.0"


def test_callbacks_that_look_change_nothing():
    alone, watched = classifier(), classifier()
    assert fit(alone, epochs=2)["loss"] == fit(watched, Callback(), Noting([]), epochs=2)["loss"]
    assert state_of(alone) == state_of(watched)


def test_the_last_that_began_ends_first():
    notes: list[str] = []
    fit(classifier(), Noting(notes, "a "), Noting(notes, "b "), epochs=0)
    assert notes == ["a start 0.0", "b start 0.0", "b end 0.0", "a end 0.0"]


def test_stop_training_ends_it_without_an_error():
    notes: list[str] = []
    history = fit(classifier(), Noting(notes, at="epoch", error=StopTraining()), epochs=5)
    assert len(history["loss"]) == 1
    assert notes[-2:] == ["epoch 1.0", "end 1.0"]


@pytest.mark.parametrize("at", ["start", "batch", "validation", "epoch"])
@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_errors_come_out_and_every_callback_hears_of_them(at, kind):
    notes: list[str] = []
    with pytest.raises(kind, match="broken"):
        fit(
            classifier(),
            Noting(notes, "a "),
            Noting(notes, "b ", at, kind("broken")),
            Noting(notes, "c "),
            validation_data=(X, Y),
        )
    ends = [note.rpartition(" ")[0] for note in notes if "end by" in note]
    assert ends == [f"{name} end by broken" for name in ("ba" if at == "start" else "cba")]


def test_an_error_at_the_end_does_not_keep_others_from_ending():
    notes: list[str] = []
    with pytest.raises(RuntimeError, match="late"):
        fit(classifier(), Noting(notes, "a "), Noting(notes, "b ", "end", RuntimeError("late")), epochs=0)
    assert notes[-2:] == ["b end 0.0", "a end by late 0.0"]


def test_what_is_refused():
    with pytest.raises(TypeError, match="Callback, received a function"):
        fit(classifier(), lambda: None)
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu())
    net.add(layers.Dense("out", 3, input_sample_shape=(5,)))
    with pytest.raises(GraphError, match="optimizer"):
        fit(net, Noting([]))
