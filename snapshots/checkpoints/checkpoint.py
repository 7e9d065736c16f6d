"""What a checkpoint holds: the net's tree, and under "training/" all that `fit` needs to go on to equal bits.

A checkpoint is a snapshot as any other: `net.load` reads the net's part of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from singa_lite.array_types import Array
from singa_lite.checks import finite, whole
from singa_lite.errors import SnapshotError
from singa_lite.fit import Training
from singa_lite.notice import warn
from singa_lite.snapshots import formats, net_tree, tree
from singa_lite.snapshots.checkpoints import history
from singa_lite.snapshots.checkpoints.environment import environment, settings
from singa_lite.snapshots.tree import LazyArray, Tree
from singa_lite.training.progress import Mean, Progress

#: JSON in an array of bytes: position, means, random state, recorded shapes, versions.
PROGRESS = "training/progress"
#: The shuffled order of this epoch's samples, uint32 or uint64 (samples,); none before it is drawn.
ORDER = "training/order"
#: Before the name of an entry of the history, whose numbers are int64 or float64 (epochs,); "metric/<output>" of dicts.
HISTORY = "training/history/"

#: Of the form of PROGRESS.
VERSION = 1

#: Bytes of PROGRESS, which takes some forty times as many when it is parsed. It grows with nothing but the outputs.
_MOST = 1 << 20
_MOST_RECORDED = 20

#: What parts of a damaged or foreign PROGRESS may raise.
_WRONG = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def save(training: Training, path: str | os.PathLike[str]) -> None:
    """Write the training run as it stands, such as from a callback; `fit(..., resume=path)` goes on from it.

    SnapshotError for a format without the optimizer's state, after an unfinished step, and for what cannot be written.
    """
    form = formats.of_path(path)
    if not form.has_optimizer:
        raise SnapshotError(f"{os.fsdecode(path)}: wanted a format with the optimizer's state, received {form.name}")
    formats.write(contents(training), path)


def contents(training: Training) -> Tree:
    """The tree of a training run as it stands. SnapshotError after an unfinished step."""
    held = net_tree.of_net(training.net)
    text = json.dumps(_told(training), default=_plain).encode()
    if len(text) > _MOST:
        raise SnapshotError(f"checkpoint: wanted at most {_MOST} bytes of {PROGRESS!r}, received {len(text)}")
    arrays: dict[str, Array] = {PROGRESS: np.frombuffer(text, np.uint8)}
    order = training.progress.order
    if order is not None:
        arrays[ORDER] = order.astype(np.uint32 if order.size <= 1 << 32 else np.uint64)
    arrays |= history.arrays(training.progress.history, HISTORY)
    for path, array in arrays.items():
        held.arrays[path] = LazyArray(array.shape, array.dtype, array.copy)
    held.attributes["entries"] = len(held.arrays)
    return held


def restore(
    training: Training, path: str | os.PathLike[str], check: Callable[[int], object] = lambda step: None
) -> None:
    """Let the training go on from a checkpoint. SnapshotError if it does not fit; nothing has changed then.

    check: called with the checkpoint's step before anything changes. A warning says what differs of versions, kernels,
    threads and settings, as bits then may too.
    """
    where, net, now = os.fsdecode(path), training.net, _told(training)
    with formats.opened(path, net_tree.of_net(net, whole_step=False)) as source:
        told = _read(source)
        progress = _progress(source, told)
        _check_fit(where, training.progress, progress)

        def last_check() -> None:
            _check_metrics(where, progress, told["settings"], now["settings"])
            check(tree.step_of(source))
            _warn_of_differences(where, told, now)  # may be an error too

        net_tree.restore(net, source, optimizer=True, last_check=last_check)
    training.progress = progress
    net.seed = told["seed"]
    net.device.restore_seeds(*told["device_seeds"])


def verify(path: str | os.PathLike[str]) -> None:
    """SnapshotError unless every array of the file can be read and is as it was written."""
    with formats.opened(path) as source:
        for entry in source.arrays:
            source.read(entry)


# ---- what is told


def _told(training: Training) -> dict[str, Any]:
    progress, net = training.progress, training.net
    return {
        "version": VERSION,
        "samples": progress.samples,
        "batch_size": progress.batch_size,
        "shuffle": progress.shuffle,
        "epoch": progress.epoch,
        "batch": progress.batch,
        "seconds": progress.seconds,
        "mean": vars(progress.mean),
        "random": progress.random.bit_generator.state,
        "seed": net.seed,
        "device_seeds": net.device.seeds_given,
        "recorded": net.recorded_forms[-_MOST_RECORDED:],
        "environment": environment(net.device.kernels.name),
        "settings": settings(net),
    }


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise SnapshotError(f"checkpoint: wanted numbers, received {value!r}")


# ---- what is read


def _read(source: Tree) -> dict[str, Any]:
    """PROGRESS, its parts of the right kinds."""
    if PROGRESS not in source.arrays:
        raise SnapshotError(
            f"{source.path}: wanted a checkpoint, received a snapshot without {PROGRESS!r}; net.load() reads it"
        )
    shape, dtype = source.specs[PROGRESS]
    if len(shape) != 1 or shape[0] > _MOST or dtype != np.uint8:
        raise _damaged(source, f"an array {shape} {dtype}, wanted at most {_MOST} bytes")
    try:
        told = json.loads(source.read(PROGRESS).tobytes())
        if told["version"] != VERSION:
            raise ValueError(f"version {told['version']!r}, wanted {VERSION}")
        told["seed"] = whole("seed", told["seed"], 0)
        seed, given = told["device_seeds"]
        told["device_seeds"] = whole("device seed", seed, 0) % 2**64, whole("device seeds given", given, 0)
        for name in ("environment", "settings"):
            told[name] = {str(key): str(value) for key, value in told[name].items()}
    except _WRONG as error:
        raise _damaged(source, error) from error
    return dict(told)


def _progress(source: Tree, told: Mapping[str, Any]) -> Progress:
    try:
        progress = Progress(
            whole("samples", told["samples"], 1), whole("batch_size", told["batch_size"], 1), bool(told["shuffle"]), 0
        )
        progress.epoch = whole("epoch", told["epoch"], 0)
        progress.batch = whole("batch", told["batch"], 0)
        progress.seconds = finite("seconds", told["seconds"])
        progress.mean = _mean(told["mean"])
        progress.random.bit_generator.state = told["random"]
        progress.history = history.read(source, HISTORY)
        begun = min(progress.batch * progress.batch_size, progress.samples)
        if progress.batch > progress.batches or (progress.batch and progress.mean.count != begun):
            raise ValueError(f"batch {progress.batch} of {progress.batches}, {progress.mean.count} samples")
        if progress.batch and ("loss" not in progress.mean.sums or progress.seconds <= 0):
            raise ValueError(f"an epoch with losses {progress.mean.sums}, in {progress.seconds} seconds")
        if not progress.batch:
            progress.mean, progress.seconds = Mean(), 0.0  # perhaps those of the epoch before
    except _WRONG as error:
        raise _damaged(source, error) from error
    if progress.shuffle and (progress.batch or ORDER in source.arrays):
        progress.order = _order(source, progress.samples)
    return progress


def _mean(told: Mapping[str, Any]) -> Mean:
    mean = Mean()
    mean.count = whole("count", told["count"], 0)
    mean.sums = {str(name): float(value) for name, value in told["sums"].items()}
    mean.by_name, mean.has_metric = bool(told["by_name"]), bool(told["has_metric"])
    return mean


def _order(source: Tree, samples: int) -> NDArray[np.integer[Any]]:
    """The order of the samples, each of which is in it once."""
    shape, dtype = source.specs.get(ORDER, ((), None))
    if shape != (samples,) or dtype is None or dtype.kind != "u":
        raise _damaged(source, f"wanted {ORDER!r} of {samples} samples, received {shape} {dtype}")
    order = source.read(ORDER)
    seen = np.zeros(samples, bool)
    seen[order[order < samples]] = True
    if not seen.all():
        raise _damaged(source, f"wanted each of {samples} samples once in {ORDER!r}")
    return order


def _damaged(source: Tree, why: object) -> SnapshotError:
    return SnapshotError(f"{source.path}: entry {PROGRESS!r}: wanted a place in a training run, received {why!r}")


def _check_fit(where: str, wanted: Progress, found: Progress) -> None:
    """SnapshotError for a run over other batches: it would not be the same run."""
    for name in ("samples", "batch_size", "shuffle"):
        if getattr(wanted, name) != getattr(found, name):
            raise SnapshotError(
                f"{where}: wanted a checkpoint of fit with {name} {getattr(wanted, name)}, "
                f"received {getattr(found, name)}"
            )


def _check_metrics(where: str, progress: Progress, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """SnapshotError for another metric in the middle of an epoch: the epoch's mean would be of neither."""
    wanted, found = now["metric"], before.get("metric")
    if progress.batch and wanted != found:
        raise SnapshotError(f"{where}: wanted a checkpoint within an epoch with metric {wanted}, received {found}")


def _warn_of_differences(where: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """One warning of all that is not as it was."""
    told = [
        f"{name} was {before[part].get(name)}, is {now[part].get(name)}"
        for part in ("environment", "settings")
        for name in sorted({*before[part], *now[part]})
        if before[part].get(name) != now[part].get(name)
    ]
    if told:
        text = f"{where}: numbers may differ from those of an uninterrupted run: {'; '.join(told)}"
        warn(text)
