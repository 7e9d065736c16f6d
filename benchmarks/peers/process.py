"""What both sides share: the task, the weights' way from one process to another, and the measuring itself."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from peak_memory import high_water

Array = np.ndarray[Any, Any]

#: Bytes of a piece of a weight on its way, so that reading needs no memory to speak of.
PIECE = 1 << 20
#: Our side within a budget, "within-1800MiB", is a way of its own.
WITHIN = "within-"
#: Library settings that count threads; read when the libraries are loaded, so they are set from outside.
THREAD_VARIABLES = ("SINGA_LITE_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Task:
    """What one process does. way: "singa_lite", a peer's name or "write"; folder: where weights and batch are."""

    way: str
    net: str
    batch: int
    optimizer: str = "momentum"
    lr: float = 0.01
    warmup: int = 3
    steps: int = 7
    threads: int = 1
    folder: str = ""

    @staticmethod
    def from_json(text: str) -> Task:
        """The task that `to_json` wrote."""
        return Task(**json.loads(text))

    def to_json(self) -> str:
        """As one line of text."""
        return json.dumps(asdict(self))


def environment(threads: int) -> dict[str, str]:
    """This process's environment, with the number of threads that every library may use."""
    return {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}


def write_batch(folder: str, x: Array, y: Array) -> None:
    """The batch of all steps: float32 (n, ...) and int64 class ids (n,)."""
    np.save(Path(folder) / "x.npy", x)
    np.save(Path(folder) / "y.npy", y)


def read_batch(folder: str) -> tuple[Array, Array]:
    """What `write_batch` wrote."""
    return np.load(Path(folder) / "x.npy"), np.load(Path(folder) / "y.npy")


def path_of(folder: str, name: str) -> Path:
    """The file of a parameter."""
    return Path(folder) / f"{name.replace('/', '.')}.weight.npy"


def write_weights(folder: str, weights: Iterable[tuple[str, Array]]) -> None:
    """One .npy file a parameter."""
    for name, array in weights:
        np.save(path_of(folder, name), np.ascontiguousarray(array))


def read_weights(folder: str, targets: Iterable[tuple[str, Array]]) -> None:
    """Fill arrays, of any strides, with what was written, piece by piece: no whole array exists beside its target.

    ValueError for names or shapes that differ from the files', missing and superfluous ones alike.
    """
    missing = {path.name for path in Path(folder).glob("*.weight.npy")}
    for name, target in targets:
        path = path_of(folder, name)
        if path.name not in missing:
            raise ValueError(f"parameter {name!r}: wanted one of {sorted(missing)}")
        missing.remove(path.name)
        _fill(path, target)
    if missing:
        raise ValueError(f"wanted a parameter for every file, received none for {sorted(missing)}")


def _fill(path: Path, target: Array) -> None:
    with open(path, "rb") as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if shape != target.shape or dtype != target.dtype:
            raise ValueError(f"{path.name}: wanted {target.shape} {target.dtype}, received {shape} {dtype}")
        row = int(np.prod(shape[1:]))
        rows = max(1, PIECE // (row * dtype.itemsize))
        for start in range(0, shape[0], rows):
            piece = target[start : start + rows]
            piece[...] = np.fromfile(file, dtype, len(piece) * row).reshape(piece.shape)


def measured(task: Task, level: int, step: Callable[[], float]) -> dict[str, Any]:
    """Do the steps; losses of all of them, seconds of those after the warm-up, on the clock and of all processors, peak
    bytes over `level`.
    """
    losses, seconds, processor = [], [], []
    for _ in range(task.warmup + task.steps):
        start, begun = time.perf_counter(), time.process_time()
        losses.append(step())
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - begun)
    done = {"seconds": seconds[task.warmup :], "processor": processor[task.warmup :]}
    return {"losses": losses, **done, "peak": high_water() - level}
