"""What a checkpoint holds, when they are written, which stay, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from format_cases import WHOLE
from nets import state_of
from resume_run import SAMPLES, Kill, Killed, act, fit, images, outcome, steps, two_outputs
from singa_lite import SnapshotError
from singa_lite.fit import Callback, StopTraining, Training
from singa_lite.snapshots import Checkpoint, checkpoint, formats, latest
from singa_lite.snapshots.checkpoints.folder import BEST, checkpoints, step_of
from singa_lite.snapshots.checkpoints.stored_run import HISTORY, ORDER, PROGRESS
from singa_lite.snapshots.tree import Tree
from snapshot_nets import lazy


def killed(folder: Path, step: int, **options: Any) -> Any:
    net = images("Adam")
    with pytest.raises(Killed):
        fit(net, "images", Checkpoint(folder, every_steps=1, **options), Kill(step))
    return net


def tree_of(file: Path) -> Tree:
    """What a file holds, all in memory."""
    with formats.opened(file) as source:
        held = {path: one.fetch() for path, one in source.arrays.items()}
    return Tree({path: lazy(array) for path, array in held.items()}, source.attributes)


# --- what it holds ------------------------------------------------------------------------------------------


def test_metrics_by_name(tmp_path):
    net, again = two_outputs("SGD"), two_outputs("SGD")
    history = fit(net, "two outputs", Checkpoint(tmp_path, monitor="val_scores_accuracy", mode="max"))
    assert len(history["scores_accuracy"]) > 0
    assert fit(again, "two outputs", Checkpoint(tmp_path), resume=latest(tmp_path)).history == history.history


def entering(**values: Any) -> Callback:
    return act(on_epoch=lambda training: training.progress.history.append(**values))


def test_entries_of_other_callbacks(tmp_path):
    last = Checkpoint(tmp_path)
    values = {"whole": np.int16(3), "nan": np.nan, "inf": np.float32("inf"), "flag": True}
    history = fit(images("SGD"), "images", entering(**values), last)
    found = fit(images("SGD"), "images", last, resume="auto")
    assert found["whole"] == [3, 3, 3] and found["flag"] == [True, True, True]
    assert np.isnan(found["nan"]).all() and found["inf"] == history["inf"]
    for values in ({"text": "x"}, {"a/b": 1.0}, {"ragged": [1] * 2}, {"by name": {"a": "x"}}):
        with pytest.raises(SnapshotError, match=f"history.*{next(iter(values))}"):
            fit(images("SGD"), "images", entering(**values), Checkpoint(tmp_path / next(iter(values))[0]))


# --- when, and which stay -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [15, 10, 5]),
        ({"keep": 1}, [15]),
        ({"every_steps": 4, "keep": 9}, [15, 12, 8, 4]),
        ({"every_steps": 15}, [15]),
        ({"every_minutes": 60}, [15]),
        ({"every_minutes": 1e-9, "keep": 20}, list(range(15, 0, -1))),
    ],
    ids=str,
)
def test_when_it_is_written_and_what_stays(tmp_path, options, wanted):
    fit(images("SGD"), "images", Checkpoint(tmp_path / "made" / "here", **options))
    assert steps(tmp_path / "made" / "here") == wanted
    assert len(list((tmp_path / "made" / "here").iterdir())) == len(wanted)


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


@pytest.mark.parametrize(
    ("mode", "score", "best"),
    [
        ("min", Score({1: 3, 2: 1, 3: 2}), 10),
        ("max", Score({1: 1, 2: 1, 3: 0}), 5),
        ("max", Score({1: np.nan, 2: -3, 3: np.nan}), 10),
        ("min", Score({1: np.nan, 2: np.nan, 3: np.inf}), None),
        ("min", Score({1: -1, 3: -2}), 15),
        ("min", Score({1: -1, 2: -2}, stop=2), 10),
    ],
    ids=["least", "first of equals", "no NaN", "none", "an epoch without one", "the epoch that stops"],
)
def test_the_best_stays(tmp_path, monkeypatch, mode, score, best):
    if mode == "max":
        monkeypatch.setattr(os, "link", refuse)
    net = images("SGD")
    fit(net, "images", score, Checkpoint(tmp_path, monitor="score", mode=mode, keep=1))
    assert steps(tmp_path) == [15 if score.stop > 3 else 10]
    assert (tmp_path / BEST).exists() == (best is not None)
    if best is not None:
        net.load(tmp_path / BEST)
        assert net.optimizer.step == best


def refuse(*_: Any, **__: Any) -> None:
    raise PermissionError(1, "not here")


def test_the_best_of_a_process_that_was_killed_before_it_could_mark_it(tmp_path, monkeypatch):
    last = Checkpoint(tmp_path, monitor="score", mode="min")
    with monkeypatch.context() as context:
        context.setattr(last.folder, "mark_best", lambda file: killing())
        with pytest.raises(Killed):
            fit(images("SGD"), "images", Score({1: 3, 2: 4, 3: 5}), last)
    assert not (tmp_path / BEST).exists()
    net = images("SGD")
    fit(net, "images", Score({1: 3, 2: 4, 3: 5}), Checkpoint(tmp_path, monitor="score", mode="min"), resume="auto")
    net.load(tmp_path / BEST)
    assert net.optimizer.step == 5


def killing() -> None:
    raise Killed


class Saving(Callback):
    """Writes one by hand after so many steps, and ends the run."""

    def __init__(self, step: int, file: Path) -> None:
        self.step, self.file = step, file

    def on_batch(self, training: Training) -> None:
        if training.net.optimizer.step == self.step:
            checkpoint.save(training, self.file)
            raise Killed


@pytest.mark.parametrize("suffix", WHOLE)
def test_one_of_a_callbacks_own(tmp_path, suffix):
    file = tmp_path / f"mine{suffix}"
    with pytest.raises(Killed):
        fit(images("Adam"), "images", Saving(7, file))
    checkpoint.verify(file)
    net, whole = images("Adam"), images("Adam")
    assert outcome(net, fit(net, "images", resume=file)) == outcome(whole, fit(whole, "images"))


@pytest.mark.parametrize("suffix", [".weights.h5", ".bin", ".txt"])
def test_formats_that_cannot_hold_one(tmp_path, suffix):
    with pytest.raises(SnapshotError, match="wanted"):
        fit(images("Adam"), "images", Saving(2, tmp_path / f"mine{suffix}"))
    assert not list(tmp_path.iterdir())


def test_stopped_training_is_written(tmp_path):
    def stop() -> None:
        raise StopTraining

    fit(images("SGD"), "images", Checkpoint(tmp_path, every_minutes=60), Kill(7, stop))
    assert steps(tmp_path) == [7]
    assert fit(images("SGD"), "images", resume=latest(tmp_path))["loss"] == fit(images("SGD"), "images")["loss"]


# --- which one is gone on from ------------------------------------------------------------------------------


def flip_array(file: Path) -> None:
    """A bit of the largest array, which may lie anywhere."""
    largest = max((one.fetch() for one in tree_of(file).arrays.values()), key=lambda array: array.nbytes)
    data = bytearray(file.read_bytes())
    data[data.index(largest.tobytes()) + 1] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("damage", [flip_array, lambda file: os.truncate(file, 999)], ids=["a bit", "its end"])
def test_a_damaged_one_is_named_and_the_one_before_it_is_taken(tmp_path, damage):
    killed(tmp_path, 8)
    newest = latest(tmp_path)
    checkpoint.verify(newest)
    damage(newest)
    with pytest.raises(SnapshotError, match=newest.name):
        checkpoint.verify(newest)
    net, whole = images("Adam"), images("Adam")
    with pytest.warns(UserWarning, match=rf"{newest.name}.damaged"):
        history = fit(net, "images", Checkpoint(tmp_path), resume="auto")
    assert outcome(net, history) == outcome(whole, fit(whole, "images"))
    assert (tmp_path / f"{newest.name}.damaged").exists()


def test_only_damaged_ones_are_an_error(tmp_path):
    killed(tmp_path, 2)
    for file in checkpoints(tmp_path):
        flip_array(file)
    net = images("Adam")
    before = state_of(net)
    names = sorted(os.listdir(tmp_path))
    for _ in range(2):  # started again, as batch systems do
        with pytest.raises(SnapshotError, match=r"2 damaged.*'\w+/.*'"):
            fit(net, "images", Checkpoint(tmp_path), resume="auto")
        assert state_of(net) == before and sorted(os.listdir(tmp_path)) == names
    shutil.copyfile(latest(tmp_path), tmp_path / BEST)
    with pytest.raises(SnapshotError, match=r"best\.h5"):
        fit(net, "images", Checkpoint(tmp_path), resume="auto")


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (lambda: two_outputs("Adam"), {}, "a/weight|conv"),
        (lambda: images("SGD"), {}, "optimizer SGD, received Adam"),
        (lambda: images("Adam"), {"batch_size": 4}, "batch_size 4, received 5"),
        (lambda: images("Adam"), {"shuffle": False}, "shuffle False, received True"),
    ],
)
def test_one_that_does_not_fit_is_an_error_and_changes_nothing(tmp_path, make, options, words):
    killed(tmp_path, 2)
    net = make()
    before = state_of(net)
    kind = "images" if "conv" in net.layers else "two outputs"
    with pytest.raises(SnapshotError, match=words):
        fit(net, kind, Checkpoint(tmp_path), resume="auto", **options)
    assert state_of(net) == before
    assert steps(tmp_path) == [2, 1]


def test_a_snapshot_is_no_checkpoint(tmp_path):
    net = killed(tmp_path / "run", 2)
    net.save(tmp_path / "net.h5")
    with pytest.raises(SnapshotError, match=r"net\.h5"):
        fit(net, "images", resume=tmp_path / "net.h5")
    with pytest.raises(FileNotFoundError):
        fit(net, "images", resume=tmp_path / "no.h5")
    with pytest.raises(ValueError, match="Checkpoint"):
        fit(net, "images", resume="auto")


def test_auto_begins_where_there_is_nothing(tmp_path):
    net, whole = images("SGD"), images("SGD")
    history = fit(net, "images", Checkpoint(tmp_path / "none"), resume="auto")
    assert outcome(net, history) == outcome(whole, fit(whole, "images"))
    assert latest(tmp_path / "nowhere") is None


def test_the_folder_of_another_run_is_refused(tmp_path):
    killed(tmp_path, 2)
    with pytest.raises(SnapshotError, match="checkpoint-0000000002"):
        fit(images("Adam"), "images", Checkpoint(tmp_path))
    assert steps(tmp_path) == [2, 1]


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    left = [f".checkpoint-{7:010}.h5.0123456789abcdef.tmp", ".best.h5.fedcba9876543210.tmp"]
    young = f".checkpoint-{7:010}.h5.0000000000000000.tmp"  # perhaps of a process on another machine
    others = [".checkpoint.tmp", "notes.txt", "checkpoint-1.h5", young]
    for name in left + others:
        (tmp_path / name).write_text("x")
        if name != young:
            os.utime(tmp_path / name, (1e9, 1e9))
    fit(images("SGD"), "images", Checkpoint(tmp_path), epochs=0)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([*others, "checkpoint-0000000000.h5"])


def test_other_versions_and_settings_are_told(tmp_path):
    killed(tmp_path, 2)
    contents = tree_of(latest(tmp_path))
    told = json.loads(contents.arrays[PROGRESS].fetch().tobytes())
    told["environment"] |= {"NumPy": "0.9", "moon": "full"}
    told["settings"]["schedule"] = "Constant(value=7.0)"
    put(contents, told)
    formats.write(contents, latest(tmp_path))
    with pytest.warns(UserWarning, match=r"NumPy was 0\.9.*moon was full.*schedule was .*7\.0.*Cosine"):
        fit(images("Adam"), "images", resume=latest(tmp_path))


def put(contents: Tree, told: Any) -> None:
    text = told if isinstance(told, bytes) else json.dumps(told).encode()
    contents.arrays[PROGRESS] = lazy(np.frombuffer(text, np.uint8))


def changed(*path: str, to: Any) -> Callable[[Tree], None]:
    def change(contents: Tree) -> None:
        told = json.loads(contents.arrays[PROGRESS].fetch().tobytes())
        place = told
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = to
        put(contents, told)

    return change


def array_of(path: str, array: Any) -> Callable[[Tree], None]:
    return lambda contents: contents.arrays.update({path: lazy(np.asarray(array))})


WRONG = {
    "no JSON": lambda contents: put(contents, b"{"),
    "deep": lambda contents: put(contents, b"[" * 100_000),
    "long": lambda contents: put(contents, b" " * (1 << 20) + b"{}"),
    "a number": array_of(PROGRESS, np.uint8(3)),
    "version": changed("version", to=2),
    "batch": changed("batch", to=-1),
    "batch too late": changed("batch", to=6),
    "epoch": changed("epoch", to=1.5),
    "samples": changed("samples", to=1e400),
    "mean": changed("mean", to=[]),
    "sums": changed("mean", "sums", to={"loss": "x"}),
    "generator": changed("random", "bit_generator", to="MT19937"),
    "generator's state": changed("random", "state", "state", to=1 << 200),
    "seeds": changed("device_seeds", to=[1]),
    "settings": changed("settings", to=[[1, 2]]),
    "endless time": changed("seconds", to=1e999),
    "order twice": array_of(ORDER, np.zeros(SAMPLES, np.uint32)),
    "order short": array_of(ORDER, np.arange(SAMPLES - 1, dtype=np.uint32)),
    "no order": lambda contents: contents.arrays.pop(ORDER),
    "history": array_of(f"{HISTORY}loss", np.zeros((2, 2))),
}


@pytest.fixture(scope="module")
def seventh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a run that was killed behind step 7."""
    folder = tmp_path_factory.mktemp("seventh")
    killed(folder, 7, keep=1)
    return latest(folder)


@pytest.mark.parametrize("name", WRONG)
def test_hand_made_ones_are_refused(tmp_path, seventh, name):
    """With digests that hold, so by what they say."""
    contents, file = tree_of(seventh), tmp_path / "made.h5"
    WRONG[name](contents)
    formats.write(Tree(contents.arrays, contents.attributes | {"entries": len(contents.arrays)}), file)
    net = images("Adam")
    before = state_of(net)
    with pytest.raises(SnapshotError, match=r"made\.h5.*training/"):
        fit(net, "images", resume=file)
    assert state_of(net) == before


# --- errors while writing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("background", [False, True])
def test_what_cannot_be_written_ends_the_training(tmp_path, monkeypatch, background):
    """In the thread: at a later step, or at the end; the checkpoint before stands."""
    write, last = formats.write, Checkpoint(tmp_path, every_steps=3, background=background)

    def failing(contents: Tree, path: Path) -> None:
        if step_of(path) > 3:
            raise SnapshotError(f"{path}: no space")
        write(contents, path)

    monkeypatch.setattr(formats, "write", failing)
    net = images("SGD")
    with pytest.raises(SnapshotError, match=r"checkpoint-00000000\d\d\.h5: no space"):
        fit(net, "images", last)
    assert 6 <= net.optimizer.step <= 15
    assert steps(tmp_path) == [3]
    with (
        pytest.raises(Killed),
        pytest.warns(UserWarning, match="not written.*no space") if background else nullcontext(),
    ):
        fit(images("SGD"), "images", last, Kill(6 if background else 5), resume="auto")
