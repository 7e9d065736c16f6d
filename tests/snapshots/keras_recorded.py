"""What Keras wrote and predicted, in keras_recorded.json, for values that are made anew; `python keras_models.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import h5py
import numpy as np

FILE = Path(__file__).with_name("keras_recorded.json")

#: Ids below this are the inputs of one axis.
WORDS = 9


def models() -> dict[str, Any]:
    """{name: names of groups, shapes of arrays, output}."""
    found = json.loads(FILE.read_text())
    del found["keras"]
    return found


def values(place: str, shape: tuple[int, ...]) -> np.ndarray:
    """Of the array at this place of any model's file; a variance is no less than 0."""
    low = 0.5 if "batch_normalization" in place else -1
    return np.random.default_rng(crc32(place.encode())).uniform(low, 1, shape).astype("float32")


def inputs(name: str, number: int, shape: tuple[int, ...]) -> np.ndarray:
    """Three samples for an input of Keras's model of this name."""
    rng = np.random.default_rng(crc32(f"{name} {number}".encode()))
    return rng.integers(0, WORDS, (3, *shape)) if len(shape) == 1 else rng.normal(size=(3, *shape)).astype("float32")


def write(name: str, path: Path) -> np.ndarray:
    """The file of a model; returns its output for `inputs`."""
    model = models()[name]
    with h5py.File(path, "w") as file:
        for place, text in model["names"].items():
            file.create_group(place).attrs["name"] = text
        for place, shape in model["arrays"].items():
            file[place] = values(place, tuple(shape))
    return np.array(model["output"])
