"""TensorBoard: the history as event files, which the program `tensorboard --logdir` shows."""

from __future__ import annotations

import errno
import os
import time
from typing import Protocol

import numpy as np

from singa_lite.common import checks
from singa_lite.training.fit import Callback, Training


class _Writer(Protocol):
    def add_event(self, event: object) -> None: ...

    def close(self) -> None: ...


class TensorBoard(Callback):
    """Writes each epoch's numbers, and the learning rate, as event files to a folder. The step is the epoch, from 0.

    By the package tensorboard itself: `pip install "singa-lite[tensorboard]"`; ImportError at the start where it is
    missing, OSError for a folder that cannot be written to. Where the training goes on from a checkpoint, later epochs
    that are in the folder are hidden.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = checks.path("TensorBoard folder", folder)
        self._writer: _Writer | None = None

    def on_start(self, training: Training) -> None:
        """Open the folder."""
        try:
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise ImportError(
                'TensorBoard: wanted the package tensorboard, which pip install "singa-lite[tensorboard]" brings'
            ) from error
        if not training.is_first:
            return
        if "://" not in self.folder:  # else of a store that tensorboard knows; its thread would tell of errors later
            os.makedirs(self.folder, exist_ok=True)
            if not os.access(self.folder, os.W_OK):
                raise PermissionError(errno.EACCES, "TensorBoard: wanted a folder to write to", self.folder)
        writer: _Writer = EventFileWriter(self.folder)
        epoch = training.progress.epoch
        if epoch:
            begun = SessionLog(status=SessionLog.START)  # what TensorBoard drops later steps at
            writer.add_event(Event(wall_time=time.time(), step=epoch, session_log=begun))
        self._writer = writer

    def on_epoch(self, training: Training) -> None:
        """Write the epoch's numbers."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        epoch = training.progress.epoch - 1
        values = {name: entry[-1] for name, entry in training.progress.history.history.items()}
        shown = [
            Summary.Value(tag=name, simple_value=float(value)) for name, value in values.items() if not np.ndim(value)
        ]
        if self._writer is not None:
            self._writer.add_event(Event(wall_time=time.time(), step=epoch, summary=Summary(value=shown)))

    def on_end(self, training: Training, error: BaseException | None) -> None:
        """Close the files."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
