"""A checkpoint: the net's tree, and under "training/" all that `fit` needs to go on to equal bits.

A checkpoint is a snapshot as any other: `net.load` reads the net's part of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from singa_lite.common.errors import SnapshotError
from singa_lite.common.notice import warn
from singa_lite.snapshots import formats, net_tree, sharded_state, tree
from singa_lite.snapshots.adapter_base import without_base
from singa_lite.snapshots.checkpoints import nets, stored_run
from singa_lite.snapshots.checkpoints.nets import net_of
from singa_lite.snapshots.checkpoints.stored_run import RUN, StoredRun, environment
from singa_lite.snapshots.tree import LazyArray, Tree
from singa_lite.training.fit import Training
from singa_lite.training.loop.means import MEAN
from singa_lite.training.loop.progress import Progress


def save(training: Training, path: str | os.PathLike[str]) -> None:
    """Write the training run as it stands, such as from a callback; `fit(..., resume=path)` goes on from it.

    SnapshotError for a format without the optimizer's state, after an unfinished step, and for what cannot be written.
    Of several processes rank 0 writes, and all call it where it has to collect: see `sharded_state.written`.
    """
    chosen = formats.of_path(path)
    if not chosen.has_optimizer:
        raise SnapshotError(f"{os.fsdecode(path)}: wanted a format with the optimizer's state, received {chosen.name}")

    def work(held: sharded_state.ShardedState) -> None:
        formats.write(contents(training).with_more(held.state()), path)

    sharded_state.written(net_of(training), "checkpoint", work)


def contents(training: Training) -> Tree:
    """The tree of a training run as it stands, as far as this process has it; of a net with adapters without the base.
    SnapshotError after an unfinished step.
    """
    held = without_base(net_tree.of_net(net_of(training)), net_of(training), training)
    for path, array in stored_run.arrays(training).items():
        held.arrays[path] = LazyArray(array.shape, array.dtype, array.copy)
    held.arrays |= nets.arrays(net_of(training))
    held.attributes["entries"] = len(held.arrays)
    return held


def restore(
    training: Training, path: str | os.PathLike[str], check: Callable[[int], object] = lambda step: None
) -> None:
    """Let the training go on from a checkpoint. SnapshotError if it does not fit; then nothing has changed.

    check: called with the checkpoint's step before anything changes. A warning names versions, kernels, threads and
    settings that differ, as the bits of results may then differ too.
    """
    where, net = os.fsdecode(path), net_of(training)
    kernels, chosen = environment(net.device.kernels.name), net.trainer.described_settings()
    with formats.opened(path, net_tree.of_net(net, whole_step=False)) as snapshot:
        run = stored_run.read(snapshot)
        _check_fit(where, training.progress, run.progress)

        def last_check() -> None:
            _check_metrics(where, run, chosen)
            check(tree.number_of(snapshot, "step"))
            left_out = {"schedule"} if any(each.sets_rate for each in training.callbacks) else set[str]()
            before, now = (_without_names(found, left_out) for found in (run.settings, chosen))
            if training.is_first:
                _warn_of_differences(where, (run.environment, kernels), (before, now))  # may be an error too
            _go_to(where, training, run.progress)

        nets.restore(net, snapshot, last_check)
    net.trainer.note_measures(key.removeprefix(MEAN) for key in run.progress.mean.sums if key.startswith(MEAN))
    training.progress = run.progress
    net.seed = run.seed
    net.device.restore_seeds(*run.device_seeds)
    _restore_callbacks(training, run)


def _restore_callbacks(training: Training, run: StoredRun) -> None:
    """Give each callback what one of its class kept, in their order."""
    left = list(run.callbacks)
    for callback in training.callbacks:
        found = next((index for index, (name, _) in enumerate(left) if name == type(callback).__name__), None)
        if found is not None:
            callback.restore(left.pop(found)[1])


def _without_names(settings: Mapping[str, str], names: set[str]) -> dict[str, str]:
    return {name: text for name, text in settings.items() if name not in names}


def verify(path: str | os.PathLike[str]) -> None:
    """SnapshotError unless every array of the file can be read and is as it was written."""
    with formats.opened(path) as snapshot:
        for entry in snapshot.arrays:
            snapshot.read(entry)


def _check_fit(where: str, wanted: Progress, found: Progress) -> None:
    """SnapshotError for a run over other batches: it would not be the same run."""
    for name in RUN:
        if getattr(wanted, name) != getattr(found, name):
            raise SnapshotError(
                f"{where}: wanted a checkpoint of fit with {name} {getattr(wanted, name)}, "
                f"received {getattr(found, name)}"
            )


def _go_to(where: str, training: Training, progress: Progress) -> None:
    """Let the data go on from there. SnapshotError where their place cannot be kept."""
    try:
        training.go_to(progress)
    except ValueError as error:
        raise SnapshotError(f"{where}: {error}") from error


def _check_metrics(where: str, run: StoredRun, now: Mapping[str, str]) -> None:
    """SnapshotError for another metric in the middle of an epoch: the epoch's mean would be of neither."""
    wanted, found = now["metric"], run.settings.get("metric")
    if run.progress.batch and wanted != found:
        raise SnapshotError(f"{where}: wanted a checkpoint within an epoch with metric {wanted}, received {found}")


def _warn_of_differences(where: str, *parts: tuple[Mapping[str, str], Mapping[str, str]]) -> None:
    """One warning of all that is not as it was. parts: (before, now), each."""
    differing = [
        f"{name} was {before.get(name)}, is {now.get(name)}"
        for before, now in parts
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    if differing:
        warn(f"{where}: numbers may differ from those of an uninterrupted run: {'; '.join(differing)}")
