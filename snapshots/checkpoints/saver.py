"""Writes the checkpoints of one training run, at once or in a thread; on other ranks than 0, gives what it lacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np

from singa_lite.common.errors import SnapshotError
from singa_lite.common.notice import warn
from singa_lite.graph.graph import Pause
from singa_lite.snapshots import formats
from singa_lite.snapshots import sharded_state as apart
from singa_lite.snapshots.checkpoints import checkpoint, nets
from singa_lite.snapshots.checkpoints.background import Copying, HostCopy, Writer
from singa_lite.snapshots.checkpoints.folder import Folder
from singa_lite.snapshots.checkpoints.nets import net_of, steps_of
from singa_lite.snapshots.tree import LazyArray, Tree
from singa_lite.training.fit import Training

_NEVER = (-1, -1, -1)

#: What ranks are at, for the message where one is elsewhere.
_WHERE = "Checkpoint: its file"

#: The most bytes of an array that is written to try the folder.
_SMALL = 1 << 16


class Saver:
    """Writes to a folder. In the background a checkpoint begins with the next step, beside its forward pass.

    On ranks other than 0 it writes nothing: `start` and `finish` give what rank 0 lacks.

    last: when the last one was asked for, as `time.monotonic` tells it.
    """

    def __init__(self, folder: Folder, background: bool) -> None:
        self.last = time.monotonic()
        self._folder = folder
        self._writer = Writer(background)
        folder.wait_for_writer = self._writer.settle
        self._copy = HostCopy()
        self._waiting: Callable[[], Pause] | None = None
        self._written_at = _NEVER

    @property
    def busy(self) -> bool:
        """Whether one is being written."""
        return self._writer.busy

    def check(self) -> None:
        """Raise the error of one that could not be written."""
        self._writer.check()

    def prepare(self, training: Training) -> None:
        """After the first step: take the memory that writing takes, and find out whether the folder takes a file.

        It writes the small arrays, in the thread if there is one. So h5py and the thread take their memory now, and not
        when the first checkpoint is due, perhaps hours later.
        """
        if self._writer.background:
            self._copy.reserve(nets.tensors(net_of(training)))
        contents, file = checkpoint.contents(training), self._folder.probe()
        small = {path: lazy for path, lazy in contents.arrays.items() if lazy.nbytes <= _SMALL}
        write = formats.writer(file)
        self._writer.start(lambda: write(replace(contents, arrays=small), file))
        try:
            self._writer.wait()
        finally:
            file.unlink(missing_ok=True)

    def start(self, training: Training, best: bool = False) -> None:
        """Write the training as it stands once the checkpoint before is written, in the background with the next step.

        best: whether this one is the best of the folder.
        """
        apart.written(net_of(training), _WHERE, partial(self._start, training, best))

    def _start(self, training: Training, best: bool, held: apart.ShardedState) -> None:
        self._writer.wait()
        self.last = time.monotonic()
        self._waiting = partial(self._begin, training, best, self._collected(held))
        if self._writer.background:
            net_of(training).trainer.runner.readers.at_next_step(self.begin)
        else:
            self.begin()

    def begin(self) -> Pause:
        """Begin the checkpoint that waits for the next step. Returns where that step must wait for the copy."""
        begin, self._waiting = self._waiting, None
        return Pause((), _no_op) if begin is None else begin()

    def finish(self, training: Training, best: bool = False) -> None:
        """Write the training as it stands unless it is written, and wait. A failure of the one before is a warning."""
        apart.written(net_of(training), _WHERE, partial(self._finish, training, best))

    def _finish(self, training: Training, best: bool, held: apart.ShardedState) -> None:
        try:
            self._writer.wait()
        except SnapshotError as error:
            _warn(error)
            self._written_at = _NEVER
        if best or (self._waiting is None and self._written_at != _position(training)):
            self._waiting = partial(self._begin, training, best, self._collected(held))
        self.begin()
        self._writer.wait()

    def _collected(self, held: apart.ShardedState) -> Mapping[str, LazyArray]:
        """What other ranks have of it: for a thread, which cannot ask them, at once."""
        arrays = held.state()
        return self._copy.of(arrays) if self._writer.background else arrays

    def give_up(self) -> None:
        """Write what is due. An error is a warning, as another one is being raised."""
        try:
            self.begin()
            self._writer.wait()
        except Exception as error:
            _warn(error)

    def close(self) -> None:
        """Drop what has not begun, and give back the memory and the thread."""
        self._waiting = None
        self._copy = HostCopy()
        self._writer.close()

    def _begin(self, training: Training, best: bool, more: Mapping[str, LazyArray]) -> Pause:
        """more: what this process does not have itself."""
        contents, file = checkpoint.contents(training).with_more(more), self._folder.file(steps_of(training))
        copying = Copying(contents, _no_op, frozenset())
        if self._writer.background:
            copying = self._copy.begin(contents, nets.tensors(net_of(training)))
        checks = net_of(training).on_nan is not None
        takes_nan = any(callback.takes_nan for callback in training.callbacks)
        copied = Event()
        claims: dict[str, bool] = {}  # whether to copy: the first to ask decides, as setdefault is atomic

        def work() -> None:
            if not claims.setdefault("copied", True):
                return
            try:
                copying.finish()
            finally:
                copied.set()
            bad = _not_finite(copying.contents, file) if checks else None
            if bad is not None and not takes_nan:
                raise bad
            if bad is not None:
                _warn(bad)
                return
            formats.write(copying.contents, file)
            if best:
                self._folder.mark_best(file)
            self._folder.prune()

        def give_up() -> None:
            if claims.setdefault("copied", False):
                copied.wait()

        pause = Pause(copying.read_later, copied.wait, give_up)
        try:
            net_of(training).trainer.runner.readers.note(pause)
            self._writer.start(work)
        except BaseException:  # Ctrl-C too: a step would wait for ever for a copy that nobody makes
            if not claims.setdefault("copied", False):
                copied.set()
            raise
        self._written_at = _position(training)
        return pause


def _position(training: Training) -> tuple[int, int, int]:
    return steps_of(training), training.progress.epoch, training.progress.batch


def _not_finite(contents: Tree, file: Path) -> SnapshotError | None:
    """The error of a parameter that is not finite, if there is one: the checkpoints before are what to go on from."""
    for entry, lazy in contents.arrays.items():
        if entry.startswith("parameters/") and not np.isfinite(lazy.fetched(f"{file}: {entry}")).all():
            return SnapshotError(
                f"{file}: wanted finite parameters, as compile(on_nan=) does not go on with others, received {entry!r} "
                "with NaN or infinity; nothing was written, the checkpoint before stays"
            )
    return None


def _no_op() -> None:
    """Nothing is left to be copied, or to wait for."""


def _warn(error: Exception) -> None:
    warn(f"a checkpoint was not written: {error}")
