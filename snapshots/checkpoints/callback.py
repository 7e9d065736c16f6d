"""Checkpoint: the callback that writes checkpoints while `fit` trains."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from functools import partial
from math import inf
from threading import Event

from singa_lite.checks import whole
from singa_lite.fit import Callback, Training
from singa_lite.graph import Pause
from singa_lite.progress import History
from singa_lite.snapshots import formats, tree
from singa_lite.snapshots.checkpoints import checkpoint
from singa_lite.snapshots.checkpoints.background import Copying, HostCopy, Writer
from singa_lite.snapshots.checkpoints.folder import Folder
from singa_lite.snapshots.checkpoints.signals import Signals


class Checkpoint(Callback):
    """Writes checkpoints to a folder: `fit(..., callbacks=[Checkpoint("run")], resume="auto")`.

    folder: of this run alone, made if it is not there. every_steps, every_minutes: when to write; with neither at the
    end of each epoch. In any case at the end of the training, and at SIGTERM and Ctrl-C: after the step that is under
    way the process then leaves, by SystemExit(143) or KeyboardInterrupt. A second Ctrl-C interrupts at once.
    keep: how many of the newest stay. monitor: an entry of the history, such as "val_loss", or "val_metric/scores"
    of an output's: where an epoch's is the smallest of this history (mode "min"; "max": the largest), its checkpoint
    stays as best.h5. background: write in a thread, from a copy of the net on the host, which takes as many bytes as
    the net; one that is due while another is being written comes after it. Errors in the thread are raised at the
    next step or at the end.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every_steps: int | None = None,
        every_minutes: float | None = None,
        keep: int = 3,
        monitor: str | None = None,
        mode: str = "min",
        background: bool = False,
    ) -> None:
        if every_steps is not None:
            every_steps = whole("Checkpoint every_steps", every_steps, 1)
        if every_minutes is not None and not every_minutes > 0:
            raise ValueError(f"Checkpoint every_minutes: wanted a number above 0, received {every_minutes}")
        if mode not in ("min", "max"):
            raise ValueError(f"Checkpoint mode: wanted 'min' or 'max', received {mode!r}")
        self.folder = Folder(folder, whole("Checkpoint keep", keep, 1))
        self.every_steps = every_steps
        self.every_seconds = inf if every_minutes is None else 60.0 * every_minutes
        self.every_epoch = every_steps is None and every_minutes is None
        self.monitor = monitor
        self.mode = mode
        self._writer = Writer(background)
        self._signals = Signals()
        self._copy = HostCopy()
        self._waiting: Callable[[], Pause] | None = None
        self._due = False
        self._written_at = (-1, -1, -1)
        self._last = 0.0

    # ---- what fit calls

    def on_start(self, training: Training) -> None:
        """Prepare the folder, and note signals from now on."""
        step = training.net.optimizer.step
        formats.of_path(self.folder.file(step)).load_module()  # now, as what is not installed is an error
        self.folder.prepare(step)
        self._written_at, self._due, self._last = (-1, -1, -1), False, time.monotonic()
        file = self.folder.file(step)
        if training.progress.batch == 0 and self._is_best(training.progress.history) and file.exists():
            self.folder.mark_best(file)  # as a process that was killed may not have come to it
        self._signals.install()

    def on_batch(self, training: Training) -> None:
        """Write if it is time."""
        self._writer.check()
        step = training.net.optimizer.step
        self._due |= self.every_steps is not None and step % self.every_steps == 0
        self._due |= time.monotonic() - self._last >= self.every_seconds
        if self._due and not self._writer.busy:
            self._write(training)
        self._leave_if_asked(training)

    def on_validation_batch(self, training: Training) -> None:
        """Leave if asked to: the validation is done anew then. What waits for the next step would wait too long."""
        self._begin_waiting().wait()
        self._leave_if_asked(training)

    def on_epoch(self, training: Training) -> None:
        """Write if it is time, or if there is none better."""
        self._writer.check()
        best = self._is_best(training.progress.history)
        if best or self.every_epoch:
            self._write(training, best)
        self._leave_if_asked(training)

    def on_end(self, training: Training, error: BaseException | None) -> None:
        """Write what has not been written, unless an error ended it: a net may be half updated then."""
        try:
            if error is None:
                self._write_rest(training)
                if self._signals.received:
                    self._signals.leave(self._told())
            elif not isinstance(error, KeyboardInterrupt):
                self._wait_warning()
        finally:
            self._waiting = None
            self._copy = HostCopy()
            self._writer.close()
            self._signals.restore()

    # ---- how

    def _write(self, training: Training, best: bool = False) -> None:
        """Begin to write the training as it stands, once the one before is written; or when the next step begins."""
        self._writer.wait()
        self._due, self._last = False, time.monotonic()
        self._waiting = partial(self._begin, training, best)
        if self._writer.background:
            training.net.beside_next_step(self._begin_waiting)
        else:
            self._begin_waiting()

    def _begin_waiting(self) -> Pause:
        """Write what waits for the next step; where that must wait in turn."""
        begin, self._waiting = self._waiting, None
        return Pause((), _nothing) if begin is None else begin()

    def _begin(self, training: Training, best: bool) -> Pause:
        contents, file = checkpoint.contents(training), self.folder.file(training.net.optimizer.step)
        copying = Copying(contents, _nothing, frozenset())
        if self._writer.background:
            copying = self._copy.begin(contents, tree.tensors(training.net))
        copied = Event()

        def work() -> None:
            try:
                copying.finish()
            finally:
                copied.set()
            formats.write(copying.contents, file)
            if best:
                self.folder.mark_best(file)
            self.folder.prune()

        self._written_at = _place(training)
        self._writer.start(work)
        return Pause(copying.read_later, copied.wait)

    def _write_rest(self, training: Training) -> None:
        """Write unless it is written; wait until it is."""
        if self._written_at != _place(training) and self._waiting is None:
            self._write(training)
        self._begin_waiting()
        self._writer.wait()

    def _leave_if_asked(self, training: Training) -> None:
        if self._signals.received:
            self._write_rest(training)
            self._signals.leave(self._told())

    def _told(self) -> str:
        return f"a checkpoint is in {self.folder.path}"

    def _wait_warning(self) -> None:
        """Write what waits for the next step, and wait for the thread; an error is a warning: another is raised."""
        try:
            self._begin_waiting()
            self._writer.wait()
        except Exception as error:
            warnings.warn(f"a checkpoint was not written: {error}", stacklevel=2)

    def _is_best(self, history: History) -> bool:
        """Whether the last epoch's monitored value is better than all before; a NaN never is."""
        values = self._monitored(history)
        sign = 1 if self.mode == "min" else -1
        return bool(values) and sign * values[-1] < min([sign * v for v in values[:-1] if v == v], default=inf)

    def _monitored(self, history: History) -> list[float]:
        if self.monitor is None or not history.history:
            return []
        name, _, output = self.monitor.partition("/")
        try:
            return [float(value[output] if output else value) for value in history[name]]
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(
                f"Checkpoint monitor: wanted numbers in the history, {sorted(history.history)}, or in an entry's "
                f"dict as 'entry/name', received {self.monitor!r}"
            ) from error


def _nothing() -> None:
    """Nothing is left to be copied, or to wait for."""


def _place(training: Training) -> tuple[int, int, int]:
    return training.net.optimizer.step, training.progress.epoch, training.progress.batch
