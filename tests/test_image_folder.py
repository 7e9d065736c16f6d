"""Images in folders by class: pixels, classes, workers, and files that are none."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skips
from data_nets import classifier
from nets import state_of
from singa_lite import data
from singa_lite.data import images
from singa_lite.errors import DataError

RANDOM = np.random.default_rng(8)
COUNTS = {"ants": 5, "bees": 7, "cats": 4}


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder of small images, 6 rows of 9 pixels, one of them in a folder below its class."""
    image = skips.library("PIL.Image")
    for name, count in COUNTS.items():
        (tmp_path / name / "more").mkdir(parents=True)
        for number in range(count):
            pixels = RANDOM.integers(0, 255, (6, 9, 3), dtype=np.uint8)
            folder = tmp_path / name / ("more" if number == 1 else ".")
            image.fromarray(pixels).save(folder / f"{number}.png")
    (tmp_path / "ants" / ".hidden").write_text("left by a system")
    return tmp_path


def test_images_are_read_as_they_are_by_class(pictures):
    image = skips.library("PIL.Image")
    found = data.image_folder(pictures, (6, 9))
    assert found.classes == tuple(COUNTS) and len(found) == 16
    assert found.y.tolist() == [0] * 5 + [1] * 7 + [2] * 4
    assert found.x.shape == (16, 3, 6, 9) and found.x.dtype == np.uint8
    assert found.files[-1].endswith("cats/more/1.png")
    for number in (0, 6, 15):
        wanted = np.asarray(image.open(found.files[number])).transpose(2, 0, 1)
        assert np.array_equal(found.x[number : number + 1][0], wanted)
    grey = data.image_folder(pictures, 4, channels=1).x[np.array([1, 3])]
    assert grey.shape == (2, 1, 4, 4)
    assert not np.array_equal(grey, data.image_folder(pictures, 4, channels=1, crop=True).x[np.array([1, 3])])


def test_training_is_the_same_to_the_bit_with_workers(pictures):
    found = data.image_folder(pictures, (6, 9))

    def small(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return data.transforms.RandomFlip()(image, random).astype("f") / 512

    states = []
    for options in ({}, {"workers": 2}, {"prefetch": 2}):
        net = classifier((3, 6, 9))
        net.fit(found, batch_size=5, epochs=2, transform=small, verbose=False, **options)
        states.append(state_of(net))
    arrays = classifier((3, 6, 9))
    arrays.fit(found.x[:], found.y, 5, epochs=2, transform=small, verbose=False)
    assert states[0] == states[1] == states[2] == state_of(arrays)


def test_parts_have_all_images_once(pictures):
    found = data.image_folder(pictures, 4)
    most, rest = found.split(0.25, seed=3)
    assert len(rest) == 4 and sorted(most.files + rest.files) == sorted(found.files)
    assert [found.classes[label] in file for label, file in zip(rest.y, rest.files, strict=True)] == [True] * 4
    with pytest.raises(ValueError, match="split"):
        found.split(0.01)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_image_is_named_and_the_net_is_as_before_its_batch(pictures, workers):
    whole = (pictures / "bees" / "3.png").read_bytes()
    found = data.image_folder(pictures, (6, 9))
    number = next(at for at, file in enumerate(found.files) if file.endswith("bees/3.png"))

    def small(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return image.astype("f") / 512

    for content in (whole[:60], b"no image", b""):
        (pictures / "bees" / "3.png").write_bytes(content)
        net, before = classifier((3, 6, 9)), classifier((3, 6, 9))
        before.fit(found.x[:number], found.y[:number], number, shuffle=False, transform=small, verbose=False)
        options: Any = {"batch_size": number, "shuffle": False, "transform": small, "workers": workers}
        with pytest.raises(DataError, match=rf"bees/3\.png: sample {number}: wanted an image, received "):
            net.fit(found, verbose=False, **options)
        assert state_of(net) == state_of(before)


FORMATS = {"jpg": "JPEG", "png": "PNG", "gif": "GIF", "webp": "WEBP", "bmp": "BMP", "tiff": "TIFF"}


@pytest.mark.parametrize(
    ("ending", "is_large"), [*((ending, False) for ending in FORMATS), ("png", True), ("jpg", True)]
)
def test_a_damaged_file_is_named_before_any_batch(pictures, ending, is_large, monkeypatch):
    image = skips.library("PIL.Image")
    if is_large:
        monkeypatch.setattr(images, "_DECODED_AT_ONCE", 0)
    file = pictures / "cats" / f"last.{ending}"
    image.fromarray(RANDOM.integers(0, 255, (60, 50, 3), dtype=np.uint8)).save(file, FORMATS[ending])
    whole = file.read_bytes()
    file.write_bytes(whole + (b"" if ending == "bmp" else b"written behind it" * 9))
    assert data.image_folder(pictures, (6, 9)).x[16:].any()
    within = whole[:-700] + bytes(600) + whole[-100:]
    parts = [within] if ending == "png" and not is_large else []
    for content in (*parts, whole[: len(whole) // 2], whole[:20], whole[:4], b"no image, but a text", b""):
        file.write_bytes(content)
        with pytest.raises(DataError, match=rf"last\.{ending}: wanted an image, received "):
            data.image_folder(pictures, (6, 9))


def test_images_behind_links_are_there_too(pictures, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "deep" / "er"
    shutil.copytree(pictures / "bees", other)
    (pictures / "dogs").symlink_to(other.parent)  # a class behind a link
    (pictures / "cats" / "linked").symlink_to(other)  # a folder below a class
    (pictures / "cats" / "linked.png").symlink_to(pictures / "ants" / "0.png")
    for place in (pictures / "ants" / "more" / "round", other / "round"):
        place.symlink_to(pictures)  # which would never end
    found = data.image_folder(pictures, (6, 9))
    assert np.bincount(found.y).tolist() == [5, 7, 4 + 7 + 1, 7]


def test_links_to_nothing_are_named(pictures):
    for folder in (pictures, pictures / "cats" / "more"):
        (folder / "gone").symlink_to(pictures / "never")
        with pytest.raises(DataError, match=r"gone.*never"):
            data.image_folder(pictures, 4)
        (folder / "gone").unlink()
    assert len(data.image_folder(pictures, 4)) == 16


def test_what_is_no_folder_of_images(pictures):
    image = skips.library("PIL.Image")
    for folder, error in ((pictures / "dogs", NotADirectoryError), (pictures / "ants" / "more", ValueError)):
        with pytest.raises(error, match=folder.name):
            data.image_folder(folder, 4)
    for options in ({"size": "4"}, {"size": (4,)}, {"size": 0}, {"size": 2.5}, {"size": 4, "channels": 2}):
        with pytest.raises((TypeError, ValueError), match="image_folder"):
            data.image_folder(pictures, **options)
    image.fromarray(np.zeros((2, 2), np.int32)).save(pictures / "ants" / "deep.tiff")
    with pytest.raises(DataError, match="'I'"):
        data.image_folder(pictures, 4).x[:]
    for stranger in ("ants/notes.txt", "beside.png"):
        (pictures / stranger).write_text("x")
        with pytest.raises(ValueError, match=stranger.rpartition("/")[2]):
            data.image_folder(pictures, 4)
        (pictures / stranger).unlink()
    (pictures / "dogs").mkdir()
    with pytest.raises(ValueError, match="dogs"):
        data.image_folder(pictures, 4)


def test_without_pillow_the_extra_is_named(pictures, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(ImportError, match=r"PIL.*singa-lite\[data\]"):
        data.image_folder(pictures, 4)
