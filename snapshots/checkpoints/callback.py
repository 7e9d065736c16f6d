"""Checkpoint: the callback that writes checkpoints while `fit` trains, and which epoch is the best."""

from __future__ import annotations

import os
import time
from math import inf

from singa_lite.common.checks import above_zero, flag, integer
from singa_lite.common.notice import warn
from singa_lite.snapshots.checkpoints.folder import Folder
from singa_lite.snapshots.checkpoints.nets import is_between_updates, steps_of
from singa_lite.snapshots.checkpoints.saver import Saver
from singa_lite.snapshots.checkpoints.signals import Signals
from singa_lite.training.fit import Callback, Training, enters, is_stop
from singa_lite.training.loop.measures import checked_mode
from singa_lite.training.loop.progress import History


class Monitor:
    """entry: of the history, "val_loss", or "val_metric/scores" where it is a dict; None: no epoch is the best.

    given_mode: "min", "max" or "auto"; mode: "min" or "max", "auto" until the training says which that is. TypeError or
    ValueError for others.
    """

    def __init__(self, entry: str | None, mode: str) -> None:
        if entry is not None and not (isinstance(entry, str) and entry):
            raise TypeError(f"Checkpoint monitor: wanted the name of an entry of the history, received {entry!r}")
        self.mode = self.given_mode = checked_mode("Checkpoint", mode)
        if entry is None and mode != "auto":
            raise ValueError(f"Checkpoint mode: wanted it beside a monitor only, received {mode!r} and no monitor")
        self.entry = entry
        self._seen = 0

    def begin(self, history: History, epochs: int) -> bool:
        """Look at what is there when a run begins; whether the last of so many epochs is the best.

        If some epochs lack the entry, it is not known which of them its last value is of, and none is the best.
        """
        values = self._values(history) if self._has_entry(history) else []
        self._seen = len(values)
        return len(values) == epochs and self._is_best(values)

    def has_new_best(self, history: History) -> bool:
        """Whether there is a value since the last look that is better than all before; a NaN never is.

        ValueError where there is no such entry, or one that holds no numbers.
        """
        if self.entry is None or not history.history:
            return False
        values = self._values(history)
        is_new, self._seen = len(values) > self._seen, len(values)
        return is_new and self._is_best(values)

    def is_best(self, history: History) -> bool:
        """Whether the last epoch of the history is the best; `has_new_best` then says so too."""
        return self._is_best(self._values(history))

    def _is_best(self, values: list[float]) -> bool:
        sign = 1 if self.mode == "min" else -1
        return bool(values) and sign * values[-1] < min([sign * v for v in values[:-1] if v == v], default=inf)

    def _has_entry(self, history: History) -> bool:
        return self.entry is not None and self.entry.partition("/")[0] in history.history

    def _values(self, history: History) -> list[float]:
        name, _, output = str(self.entry).partition("/")
        try:
            return [float(value[output] if output else value) for value in history[name]]
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(
                f"Checkpoint monitor: wanted numbers in the history, {sorted(history.history)}, or in an entry's "
                f"dict as 'entry/name', received {self.entry!r}"
            ) from error


class Checkpoint(Callback):
    """Writes checkpoints to a folder: `fit(..., callbacks=[..., Checkpoint("run")], resume="auto")`.

    Give it last: what a callback behind it does at a step or an epoch's end is not in the checkpoint of then.

    folder: of this run alone, made if it is not there. every_steps, every_minutes: when to write; with neither at the
    end of each epoch. In any case at the end of the training, and at SIGTERM and Ctrl-C: after the step that is under
    way the process then leaves, by SystemExit(143) or KeyboardInterrupt. A second Ctrl-C interrupts at once.
    keep: how many of the newest stay. monitor: an entry of the history, such as "val_loss", "val_accuracy", or
    "val_scores_accuracy" of an output's: where an epoch's is the smallest of this history (mode "min"; "max": the
    largest; "auto": by the entry, as of `callbacks.EarlyStopping`), its checkpoint stays as best.h5. background: write
    in a thread, from a copy of the net on the host, which takes as many bytes as the net; one that is due while another
    is being written comes after it. Errors in the thread are raised at the next step or at the end.

    Where several processes train together, rank 0 writes for all, each asks the others at every step whether to leave,
    and none leaves before the last checkpoint is there.

    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile("adam", "mse")
    >>> saving = callbacks.Checkpoint("run", keep=2)
    >>> history = net.fit(np.ones((8, 5)), np.ones((8, 3)), epochs=3, callbacks=saving, verbose=False)
    >>> snapshots.latest("run").name
    'checkpoint-0000000003.h5'
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every_steps: int | None = None,
        every_minutes: float | None = None,
        keep: int = 3,
        monitor: str | None = None,
        mode: str = "auto",
        background: bool = False,
    ) -> None:
        self.every_steps = None if every_steps is None else integer("Checkpoint every_steps", every_steps, 1)
        minutes = inf if every_minutes is None else above_zero("Checkpoint every_minutes", every_minutes)
        self.every_seconds = 60.0 * minutes
        self.every_epoch = every_steps is None and every_minutes is None
        self.folder = Folder(folder, integer("Checkpoint keep", keep, 1))
        self.monitor = Monitor(monitor, mode)
        self.background = flag("Checkpoint background", background)
        self._saver = Saver(self.folder, self.background)
        self._signals = Signals()
        self._due = False
        self._is_prepared = False
        self._leaves_by = 0

    # ---- what fit calls

    def on_start(self, training: Training) -> None:
        """Take the folder for this run, and note signals from now on."""
        self._check_monitor(training)
        self._saver.give_up()  # wait for the thread of a run that was interrupted
        self._due, self._is_prepared, self._leaves_by = False, False, 0
        best = self.monitor.begin(training.progress.history, training.progress.epoch)
        if training.is_first:
            self._take_folder(training, best)
        self._signals.install(training)

    def _take_folder(self, training: Training, best: bool) -> None:
        """best: whether the epoch that the training stands behind is."""
        step = steps_of(training)
        file = self.folder.file(step)
        self.folder.prepare(step)
        self.folder.hold(training)
        self._saver = Saver(self.folder, self.background)
        if best and training.progress.batch == 0 and file.exists():
            self.folder.mark_best(file)  # a process that was killed may not have done it

    def on_batch(self, training: Training) -> None:
        """Write if it is time."""
        if training.is_first and not self._is_prepared:
            self._saver.prepare(training)
            self._is_prepared = True
        self._saver.check()
        counts = self.every_steps is not None and not is_between_updates(training)
        self._due |= counts and steps_of(training) % (self.every_steps or 1) == 0
        self._due |= time.monotonic() - self._saver.last >= self.every_seconds
        self._write_if_due(training)
        self._leave_if_asked(training)

    def on_validation_batch(self, training: Training) -> None:
        """Leave if asked to; the validation is done anew then. A checkpoint does not wait for the step after it."""
        self._saver.begin().wait()
        if training.ranks is None:  # whose batches differ in number, and which meet at the end of the epoch
            self._leave_if_asked(training)

    def on_epoch(self, training: Training) -> None:
        """Write if it is time, or if this epoch is the best."""
        self._saver.check()
        self._due |= self.every_epoch
        try:
            best = self.monitor.has_new_best(training.progress.history)
        except ValueError:
            self._write_if_due(training)  # so that this epoch is not lost
            raise
        if best:  # it must be of this epoch, so `start` waits for one under way
            self._due = False
            self._saver.start(training, best)
        self._write_if_due(training)
        self._leave_if_asked(training)

    def on_end(self, training: Training, error: BaseException | None) -> None:
        """Write what has not been written, unless an error ended the training: the net may be half updated then."""
        try:
            if error is None:
                self._finish(training)
                self._leave_if_received()
            elif is_stop(error):  # another Checkpoint left, after a whole step
                self._finish(training)
            elif not isinstance(error, KeyboardInterrupt):
                self._saver.give_up()
                self._leave_with(error)
        finally:
            self._saver.close()
            self._signals.restore()
            self.folder.release()

    # ---- how

    def _check_monitor(self, training: Training) -> None:
        """ValueError for entries that it cannot keep, and a monitor that will not be there: now, not after an epoch."""
        unfit = [entry for entry in training.entries if "/" in entry]
        if unfit:
            raise ValueError(f"Checkpoint: wanted names of metrics without '/', received {unfit[0]!r}")
        entry = self.monitor.entry
        if entry is None:
            return
        if entry.startswith("val_") and not training.validates:
            raise ValueError(f"Checkpoint monitor: wanted fit with validation_data for {entry!r}, received none")
        if not any(enters(each) for each in training.callbacks):
            training.check_entry("Checkpoint monitor", entry)
        self.monitor.mode = training.direction("Checkpoint", entry, self.monitor.given_mode)

    def _write_if_due(self, training: Training) -> None:
        """Of several processes it is due where rank 0 says so, as it goes by its clock and what it has to do."""
        told = training.gathered((self._due and not self._saver.busy, self._signals.received), "Checkpoint")
        self._leaves_by = max(number for _, number in told)  # which all leave by, at the same step
        if told[0][0]:
            self._due = False
            self._saver.start(training)

    def _finish(self, training: Training) -> None:
        """Write what is not written. An epoch may have ended without `on_epoch`, as another Checkpoint left."""
        best = False
        try:
            best = training.progress.batch == 0 and self.monitor.has_new_best(training.progress.history)
        finally:
            self._saver.finish(training, best)
        # Nobody leaves, and so ends the others, before it is there.
        self._leaves_by = max(training.gathered(self._signals.received, "Checkpoint: the last one"))

    def _leave_if_asked(self, training: Training) -> None:
        if training.ranks is None:
            self._leaves_by = self._signals.received
        if self._leaves_by:
            self._finish(training)
            self._leave_if_received()

    def _leave_if_received(self) -> None:
        if self._leaves_by:
            self._signals.received = self._leaves_by
            self._signals.leave(f"a checkpoint is in {self.folder.path}")

    def _leave_with(self, error: BaseException) -> None:
        """Leave if a signal came together with an error, which becomes a warning."""
        self._leaves_by = self._signals.received
        if self._leaves_by and isinstance(error, Exception):
            warn(f"fit was asked to leave, and ended by {error!r}")
            self._leave_if_received()
