"""Samples changed on their way: the same whoever changes them, new ones each epoch, and errors with their number."""

from __future__ import annotations

import os
import pickle
import time
from typing import Any

import numpy as np
import pytest

import skips
from data_nets import COUNT, Failing, X, Y, classifier, divided, dying, noisy
from nets import state_of
from singa_lite import GraphError, ShapeError, data
from singa_lite.data import transforms
from singa_lite.data.loading.samples import MemoryArray
from singa_lite.data.loading.transformed import BatchMaker, Transformed, random_of
from singa_lite.errors import DataError


def fitted(**options: Any) -> Any:
    net = classifier()
    net.fit(X, Y, 8, epochs=2, verbose=False, **options)
    return state_of(net)


@pytest.mark.parametrize(
    "options", [{"workers": 3}, {"prefetch": 2}, {"workers": 1, "prefetch": 1}, {"workers": data.Processes(2)}]
)
def test_it_is_the_same_to_the_bit_whoever_does_it(options):
    assert fitted(transform=noisy, **options) == fitted(transform={"flat": noisy})


class OneArray:
    """Returns one array for all samples, as some transforms do to save memory, and takes its time to fill it."""

    def __init__(self) -> None:
        self.made = np.empty(5, "f")

    def __call__(self, sample: np.ndarray, random: np.random.Generator) -> np.ndarray:
        for place in range(5):
            self.made[place] = 2 * sample[place]
            time.sleep(1e-5)
        return self.made


def test_a_transform_that_returns_one_array_for_all_samples():
    assert fitted(transform=OneArray(), workers=4) == fitted(transform=lambda sample, random: 2 * sample)


def stored_as(kind: str, folder: Any) -> tuple[Any, Any]:
    """The samples and their targets, in a file of this kind."""
    if kind == "memmap":
        X.tofile(folder / "x")
        return np.memmap(folder / "x", np.float32, "r", shape=X.shape), Y
    if kind == "hdf5":
        import h5py

        file = h5py.File(folder / "set.h5", "w")
        return file.create_dataset("x", data=X, chunks=(4, 5)), file.create_dataset("y", data=Y)
    frame = skips.library("pandas").DataFrame(X, columns=list("abcde")).assign(label=Y)
    if kind == "csv":
        frame.to_csv(folder / "t.csv", index=False)
        return data.csv(folder / "t.csv", "label"), None
    skips.library("pyarrow")
    frame.to_parquet(folder / "t.parquet", row_group_size=9)
    return data.parquet(folder / "t.parquet", "label"), None


@pytest.mark.parametrize("kind", ["memmap", "hdf5", "csv", "parquet"])
def test_processes_take_samples_of_any_store(tmp_path, kind):
    x, y = stored_as(kind, tmp_path)
    net = classifier()
    net.fit(x, y, 8, epochs=2, transform=noisy, workers=data.Processes(1), verbose=False)
    assert state_of(net) == fitted(transform=noisy)


def test_what_goes_to_a_process_is_no_data():
    rows = {"flat": Transformed("here", MemoryArray("here", np.zeros((10**6, 5), "f")), noisy)}
    assert len(pickle.dumps(BatchMaker(rows))) < 2000


def test_each_sample_has_other_numbers_in_each_epoch_and_its_own_ones_whenever_asked():
    seen: list[tuple[bytes, float]] = []

    def note(sample: np.ndarray, random: np.random.Generator) -> np.ndarray:
        seen.append((sample.tobytes(), random.random()))
        return sample

    classifier().fit(X, Y, 8, epochs=2, transform=note, verbose=False)
    drawn = [number for _, number in seen[1:]]  # the first sample is tried before
    assert len(seen) == 1 + 2 * COUNT and len(set(drawn)) == 2 * COUNT
    assert random_of(3, 5).random() == random_of(3, 5).random() != random_of(3, 6).random()
    assert random_of(3, 5).random() != random_of(4, 5).random()


def halved(sample: np.ndarray, random: np.random.Generator) -> np.ndarray:
    sample *= 2
    return sample[::2]


def test_a_transform_may_change_the_shape_and_not_the_users_array():
    before = X.copy()
    classifier((3,)).fit(X, Y, 8, transform=halved, validation_data=(X[:, ::2], Y), shuffle=False, verbose=False)
    assert np.array_equal(X, before)


#: {name: (what is made of sample 20, what is told beside its number)}.
FAILING = {
    "an error": (divided, "ZeroDivisionError"),
    "another shape": (lambda sample: sample[1:], r"\(4,\) float32"),
    "another dtype": (lambda sample: sample.astype("d"), r"\(5,\) float64"),
}


@pytest.mark.parametrize(
    ("name", "workers"),
    [*((name, workers) for name in FAILING for workers in (0, 2)), ("an error", data.Processes(1))],
)
def test_an_error_names_its_sample(name, workers):
    made, told = FAILING[name]
    net, two = classifier(), classifier()
    for first in (0, 8):
        two.train_one_batch(X[first : first + 8], Y[first : first + 8])
    with pytest.raises(DataError, match=rf"sample 20: .*{told}"):
        net.fit(X, Y, 8, shuffle=False, transform=Failing(made), workers=workers, verbose=False)
    assert state_of(net) == state_of(two)


#: (transform, options of fit, error, what is told). The last one ends the worker process.
REFUSED: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    (3, {}, TypeError, "transform.* int"),
    ({"x": noisy}, {}, GraphError, r"'flat'.*'x'"),
    (lambda sample: sample, {}, DataError, "sample 0: .*TypeError"),
    (lambda sample, random: None, {}, TypeError, "sample 0"),
    (lambda sample, random: sample[:4], {}, ShapeError, r"\(37, 4\)"),
    (lambda sample, random: sample, {"workers": data.Processes(1)}, TypeError, "pickled"),
    (transforms.RandomColor(0.2), {"x": 9 * np.ones((COUNT, 5, 1, 1), "f")}, DataError, "sample 0: .*RandomColor.* 9"),
    (dying, {"workers": data.Processes(1)}, DataError, r"Processes\(1\).*died"),
]


@pytest.mark.parametrize(("transform", "options", "error", "told"), REFUSED)
def test_transforms_that_are_refused_change_nothing(monkeypatch, transform, options, error, told):
    monkeypatch.setenv("SINGA_LITE_TEST_PARENT", str(os.getpid()))
    x = options.get("x", X)
    net = classifier(x.shape[1:])
    before = state_of(net)
    with pytest.raises(error, match=told):
        net.fit(x, Y, transform=transform, verbose=False, **{k: v for k, v in options.items() if k != "x"})
    assert state_of(net) == before


# --- those that come with it --------------------------------------------------------------------------------

IMAGE = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


class Fixed:
    """Stands for a generator: random() and uniform() give this, integers() the last number."""

    def __init__(self, share: float) -> None:
        self.share = share

    def random(self) -> float:
        return self.share

    def uniform(self, low: float, high: float) -> float:
        return low + self.share * (high - low)

    def integers(self, stop: int) -> int:
        return stop - 1


def test_flips():
    both = transforms.RandomFlip(vertical=True)
    assert np.array_equal(both(IMAGE, Fixed(0.4)), IMAGE[:, ::-1, ::-1])
    assert np.array_equal(both(IMAGE, Fixed(0.5)), IMAGE)
    assert np.array_equal(transforms.RandomFlip()(IMAGE, Fixed(0.0)), IMAGE[:, :, ::-1])


def test_crops():
    assert np.array_equal(transforms.RandomCrop((2, 3))(IMAGE, Fixed(0)), IMAGE[:, 1:, 1:])
    padded = transforms.RandomCrop(3, padding=1)(IMAGE, Fixed(0))
    assert padded.shape == (2, 3, 3) and not padded[:, 2].any() and np.array_equal(padded[:, :2, :2], IMAGE[:, 1:, 2:])


def test_several_one_behind_the_other():
    both = transforms.Compose([transforms.RandomCrop((3, 3)), transforms.RandomFlip()])
    assert np.array_equal(both(IMAGE, Fixed(0.0)), IMAGE[:, :, :0:-1])


def test_turns():
    square = np.arange(2 * 25, dtype=np.float32).reshape(2, 5, 5)
    turned = transforms.RandomRotation(90)(square, Fixed(1.0))
    back = transforms.RandomRotation(90)(square, Fixed(0.0))
    np.testing.assert_allclose(turned, np.rot90(square, 1, (1, 2)), atol=1e-5)
    np.testing.assert_allclose(back, np.rot90(square, -1, (1, 2)), atol=1e-5)
    assert np.array_equal(transforms.RandomRotation(30)(IMAGE, Fixed(0.5)), IMAGE)
    corners = transforms.RandomRotation(45)(np.ones((1, 7, 7), "f"), Fixed(1.0))[0]
    assert corners[0, 0] == 0 and corners[3, 3] == 1


def test_colours_by_hand():
    image = np.array([[[100]], [[50]], [[200]]], np.uint8)  # grey: 29.9 + 29.35 + 22.8 = 82.05
    assert transforms.RandomColor(brightness=0.5)(image, Fixed(1.0)).ravel().tolist() == [150, 75, 255]
    assert transforms.RandomColor(contrast=0.5)(image, Fixed(0.0)).ravel().tolist() == [91, 66, 141]
    assert transforms.RandomColor(saturation=1.0)(image, Fixed(0.0)).ravel().tolist() == [82, 82, 82]
    floats = transforms.RandomColor(brightness=1.0)(np.full((1, 1, 2), 0.8, "f"), Fixed(1.0))
    assert floats.dtype == np.float32 and floats.tolist() == [[[1.0, 1.0]]]


COLOURS = (transforms.RandomColor(0.2), transforms.RandomColor(contrast=0.2), transforms.RandomColor())
MOVES = (
    *(transforms.RandomFlip(), transforms.RandomRotation(9)),
    *(transforms.RandomCrop(2), transforms.RandomCrop(2, 1)),
)


@pytest.mark.parametrize(
    ("changes", "image", "error", "culprit"),
    [
        (COLOURS, np.full((3, 2, 2), 200, "f"), ValueError, "RandomColor.* 200"),
        (COLOURS, np.full((3, 2, 2), -0.5, "f"), ValueError, "RandomColor.* -0.5"),
        (COLOURS, np.full((3, 2, 2), np.nan, "f"), ValueError, "RandomColor"),
        (COLOURS, np.full((3, 2, 2), 200, "d"), ValueError, "float64"),
        (COLOURS, np.full((3, 2, 2), 200, "i"), TypeError, "int32"),
        (COLOURS, np.full((3, 2, 2), 200, "H"), TypeError, "uint16"),
        (COLOURS, np.full((3, 2, 2), True), TypeError, "bool"),
        (COLOURS, np.full((2, 2), 200, "B"), ShapeError, r"\(2, 2\)"),
        ([transforms.RandomColor(saturation=0.1)], IMAGE, ShapeError, "RandomColor.* 3 channels"),
        ([transforms.RandomCrop(4)], IMAGE, ShapeError, r"RandomCrop.*\(2, 3, 4\)"),
        (MOVES, np.zeros(4, "f"), ShapeError, r"Random.*\(4,\)"),
        (MOVES, np.zeros((4, 4), "f"), ShapeError, r"Random.*\(4, 4\)"),
        (MOVES, np.zeros((2, 1, 4, 4), "f"), ShapeError, r"Random.*\(2, 1, 4, 4\)"),
        (MOVES, np.zeros((6, 5, 3), "f"), ShapeError, r"Random.*\(6, 5, 3\)"),
        ([lambda image, random: transforms.Compose([transforms.RandomFlip])], IMAGE, TypeError, "RandomFlip"),
    ],
)
def test_what_no_change_is_made_for(changes, image, error, culprit):
    for change in changes:
        with pytest.raises(error, match=culprit):
            change(image, Fixed(0.5))


def test_pixels_of_any_range_are_moved():
    for change in MOVES:
        for dtype in ("B", "i", "f", "d", "?"):
            moved = change(np.ones((1, 4, 4), dtype), Fixed(0.5))
            assert moved.dtype == dtype and moved.max() == 1
            if moved.dtype.kind == "f":
                assert change(np.full((1, 4, 4), -300, dtype), Fixed(0.5)).min() == -300
