"""The state of a training run, as entries of a tree below "training/", and the environment that numbers depend on."""

from __future__ import annotations

import json
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import numpy as np

from singa_lite.common import machine, threads
from singa_lite.common.array_types import Array
from singa_lite.common.checks import finite, integer
from singa_lite.common.errors import SnapshotError
from singa_lite.kernels.onednn_kernels.library import library
from singa_lite.snapshots.checkpoints import history
from singa_lite.snapshots.checkpoints.nets import net_of
from singa_lite.snapshots.readers.guarded_json import Unchecked
from singa_lite.snapshots.tree import Tree
from singa_lite.training.fit import Training
from singa_lite.training.loop.progress import Mean, Progress

#: JSON in an array of bytes: position, means, random state, recorded shapes, versions.
PROGRESS = "training/progress"
#: The shuffled order of this epoch's samples, uint32 or uint64 (samples,); none before it is drawn.
ORDER = "training/order"
#: Before the number of a metric: what it keeps of the samples of this epoch, float64.
STATISTICS = "training/statistics/"
#: Before the name of an entry of the history, whose numbers are int64 or float64 (epochs,); "metric/<output>" of dicts.
HISTORY = "training/history/"

#: The version of PROGRESS that is written and read.
VERSION = 1

#: The most bytes of PROGRESS, which takes some forty times as many when it is parsed. It grows with the outputs alone.
_MOST = 1 << 20
_MOST_RECORDED = 20

#: What Python raises where a part of PROGRESS is damaged, or of another kind.
_WRONG = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class StoredRun(NamedTuple):
    """The state of a run in a checkpoint. device_seeds: the device's seed, and how many it has given; callbacks:
    (class, state) of those that keep any.
    """

    progress: Progress
    seed: int
    device_seeds: tuple[int, int]
    environment: dict[str, str]
    settings: dict[str, str]
    callbacks: list[tuple[str, dict[str, object]]]


def arrays(training: Training) -> dict[str, Array]:
    """The entries of a run as it stands. SnapshotError for a history that is no numbers, and for too many outputs."""
    text = json.dumps(_json_of(training), default=_plain).encode()
    if len(text) > _MOST:
        raise SnapshotError(f"checkpoint: wanted at most {_MOST} bytes of {PROGRESS!r}, received {len(text)}")
    found: dict[str, Array] = {PROGRESS: np.frombuffer(text, np.uint8)}
    order = training.progress.order
    if order is not None:
        found[ORDER] = order.astype(np.uint32 if order.size <= 1 << 32 else np.uint64)
    for number, kept in enumerate(training.progress.mean.statistics.values()):
        found[f"{STATISTICS}{number}"] = np.concatenate(kept) if len(kept) > 1 else kept[0]
    return found | history.arrays(training.progress.history, HISTORY)


def _json_of(training: Training) -> dict[str, object]:
    progress, net = training.progress, net_of(training)
    return {
        "version": VERSION,
        "samples": progress.samples,
        "batch_size": progress.batch_size,
        "shuffle": progress.shuffle,
        "buckets": progress.buckets,
        "batches": progress.batches,
        "steps": progress.steps,
        "key": progress.key,
        "place": progress.place,
        "epoch": progress.epoch,
        "batch": progress.batch,
        "seconds": progress.seconds,
        "mean": vars(progress.mean) | {"statistics": list(progress.mean.statistics)},
        "random": progress.random.bit_generator.state,
        "entries": list(progress.history),
        "callbacks": [[type(each).__name__, state] for each in training.callbacks if (state := each.state())],
        "seed": net.seed,
        "device_seeds": net.device.seeds_given,
        "recorded": net.trainer.steps.recorded_forms[-_MOST_RECORDED:],
        "environment": environment(net.device.kernels.name),
        "settings": net.trainer.described_settings(),
    }


def _plain(value: object) -> object:
    """NumPy's numbers as Python's."""
    if isinstance(value, np.generic):
        number: object = value.item()
        return number
    raise SnapshotError(f"checkpoint: wanted numbers, received {value!r}")


def read(snapshot: Tree) -> StoredRun:
    """The run of a checkpoint. SnapshotError for a snapshot of a net alone, and for a damaged one."""
    given = _parsed(snapshot)
    try:
        if given["version"] != VERSION:
            raise ValueError(f"version {given['version']!r}, wanted {VERSION}")
        seed = integer("seed", given["seed"], 0)
        device_seed, count = given["device_seeds"]
        device_seeds = integer("device seed", device_seed, 0) % 2**64, integer("device seeds given", count, 0)
        before, chosen = (
            {str(name): str(text) for name, text in given[part].items()} for part in ("environment", "settings")
        )
        callbacks = [(str(name), dict(state)) for name, state in given.get("callbacks", [])]
    except _WRONG as error:
        raise _damaged(snapshot, error) from error
    return StoredRun(_progress(snapshot, given), seed, device_seeds, before, chosen, callbacks)


def _parsed(snapshot: Tree) -> Unchecked:
    """What is in PROGRESS."""
    if PROGRESS not in snapshot.arrays:
        raise SnapshotError(
            f"{snapshot.path}: wanted a checkpoint, received a snapshot without {PROGRESS!r}; net.load() reads it"
        )
    shape, dtype = snapshot.specs[PROGRESS]
    if len(shape) != 1 or shape[0] > _MOST or dtype != np.uint8:
        raise _damaged(snapshot, f"an array {shape} {dtype}, wanted at most {_MOST} bytes")
    try:
        return json.loads(snapshot.read(PROGRESS).tobytes())
    except _WRONG as error:
        raise _damaged(snapshot, error) from error


def _progress(snapshot: Tree, given: Unchecked) -> Progress:
    try:
        batches = _count("batches", given.get("batches"), 0)
        progress = Progress(
            integer("samples", given["samples"], 1 if batches is None else 0),
            integer("batch_size", given["batch_size"], 1 if batches is None else 0),
            bool(given["shuffle"]),
            0,
            tuple(
                (integer("length", length, 1), integer("size", size, 1)) for length, size in given.get("buckets", [])
            ),
            batches,
            _count("steps", given.get("steps"), 1),
        )
        progress.key, progress.place = integer("key", given.get("key", 0), 0), given.get("place")
        progress.epoch = integer("epoch", given["epoch"], 0)
        progress.batch = integer("batch", given["batch"], 0)
        progress.seconds = finite("seconds", given["seconds"])
        progress.mean = _mean(snapshot, given["mean"])
        progress.random.bit_generator.state = given["random"]
        progress.history = history.read(snapshot, HISTORY, given.get("entries", []))
        progress.check_place()
        if progress.batch and ("loss" not in progress.mean.sums or progress.seconds <= 0):
            raise ValueError(f"an epoch with losses {progress.mean.sums}, in {progress.seconds} seconds")
        if not progress.batch:
            progress.mean, progress.seconds = Mean(), 0.0  # the file may have those of the epoch before
    except _WRONG as error:
        raise _damaged(snapshot, error) from error
    if progress.shuffle and progress.ordered and (progress.batch or ORDER in snapshot.arrays):
        progress.order = _order(snapshot, progress.ordered)
    return progress


def _count(where: str, given: Unchecked, least: int) -> int | None:
    return None if given is None else integer(where, given, least)


def _mean(snapshot: Tree, given: Unchecked) -> Mean:
    mean = Mean()
    mean.count = integer("count", given["count"], 0)
    mean.sums = {str(name): float(value) for name, value in given["sums"].items()}
    mean.counts = {str(name): float(value) for name, value in given.get("counts", {}).items()}
    for number, key in enumerate(given.get("statistics", [])):
        mean.statistics[str(key)] = [snapshot.read(f"{STATISTICS}{number}")]
    return mean


def _order(snapshot: Tree, samples: int) -> Array:
    """The order of the samples. SnapshotError unless each of them is in it once."""
    shape, dtype = snapshot.specs.get(ORDER, ((), None))
    if shape != (samples,) or dtype is None or dtype.kind != "u":
        raise _damaged(snapshot, f"wanted {ORDER!r} of {samples} samples, received {shape} {dtype}")
    order = snapshot.read(ORDER)
    seen = np.zeros(samples, bool)
    seen[order[order < samples]] = True
    if not seen.all():
        raise _damaged(snapshot, f"wanted each of {samples} samples once in {ORDER!r}")
    return order


def _damaged(snapshot: Tree, why: object) -> SnapshotError:
    return SnapshotError(f"{snapshot.path}: entry {PROGRESS!r}: wanted a place in a training run, received {why!r}")


#: Packages of a GPU's kernels.
_CUDA = ("cupy-cuda13x", "nvidia-cublas", "nvidia-cudnn-cu13")


@cache  # it takes a millisecond, during a training step
def environment(kernels: str) -> dict[str, str]:
    """Versions, processor and threads, as text. kernels: the set's name."""
    found = {name: _installed(name) for name in ("singa-lite", "h5py", *(_CUDA if kernels == "cuda" else ()))}
    found |= {"Python": platform.python_version(), "NumPy": np.__version__}
    if kernels == "onednn":
        found["oneDNN"] = library.load().version
    return found | {"kernels": kernels, "threads": str(threads.threads()), "processor": machine.processor()}


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
