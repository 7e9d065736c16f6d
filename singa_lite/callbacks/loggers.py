"""Callbacks that write the history to files: CSVLogger a table, TensorBoard event files."""

from __future__ import annotations

import csv
import errno
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Protocol

import numpy as np

from singa_lite.common import checks
from singa_lite.common.atomic import replacing, write_all
from singa_lite.training.fit import Callback, Training


class _Writable(Exception):
    """The file could be written."""


class CSVLogger(Callback):
    """Writes each epoch's numbers as a row of a CSV file, with the epoch, counted from 0, first.

    append: behind the rows that are there; else the file begins anew with the first epoch, but for the rows of epochs
    before a checkpoint that the training goes on from. Until then the file stays as it is, and a failure loses no row.
    Rows that are there have empty fields in columns that are new. OSError where it cannot be written, ValueError for a
    file with columns that this training lacks, before the first batch.

    >>> from pathlib import Path
    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile("adam", "mse")
    >>> logger = callbacks.CSVLogger("log.csv")
    >>> history = net.fit(np.ones((8, 5)), np.ones((8, 3)), epochs=2, callbacks=logger, verbose=False)
    >>> Path("log.csv").read_text().split(",")[:2]
    ['epoch', 'loss']
    """

    def __init__(self, path: str | os.PathLike[str], append: bool = False) -> None:
        self.path = Path(checks.path("CSVLogger path", path))
        self.append = checks.flag("CSVLogger append", append)
        self._has_begun = False
        self._columns: list[str] = []
        self._before: list[dict[str, str]] = []

    def on_start(self, training: Training) -> None:
        """Read the rows that are there, and try whether the file can be written."""
        self._has_begun = False
        if not training.is_first:
            return
        first = training.progress.epoch
        rows = self._rows() if (self.append or first) and self.path.exists() else []
        self._before = [row for row in rows if self.append or int(row["epoch"]) < first]
        if self.path.exists() and not os.access(self.path, os.W_OK):
            raise PermissionError(errno.EACCES, "CSVLogger: wanted a file that may be written", str(self.path))
        with suppress(_Writable), replacing(self.path) as file:
            write_all(file, self._text(self._columns_of(training), self._before))
            raise _Writable

    def _columns_of(self, training: Training) -> list[str]:
        """ValueError where rows that are there have others. Those of a step of the user's own are known behind it."""
        columns, header = ["epoch", *training.entries], list(self._before[0]) if self._before else []
        if training.net.knows_measures and not set(header) <= set(columns):
            raise ValueError(f"CSVLogger: wanted {self.path} with columns {columns}, received {header}")
        return columns

    def _rows(self) -> list[dict[str, str]]:
        """The whole rows that are there, by column. ValueError for a file that is no such table."""
        try:
            with self.path.open(newline="", encoding="utf-8") as file:
                header, *rows = list(csv.reader(file)) or [["epoch"]]
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"CSVLogger: wanted {self.path} to be CSV in UTF-8, received {error}") from error
        if header[:1] != ["epoch"]:
            raise ValueError(f"CSVLogger: wanted {self.path} with the columns epoch, loss, ..., received {header}")
        whole = [row for row in rows if len(row) == len(header) and row[0].isdigit()]
        return [dict(zip(header, row, strict=True)) for row in whole]

    def on_epoch(self, training: Training) -> None:
        """Write the row."""
        if not training.is_first:
            return
        if not self._has_begun:
            self._begin(training)
        history = training.progress.history.history
        row = {name: _plain(values[-1]) for name, values in history.items() if values}
        line = self._text([], [row | {"epoch": training.progress.epoch - 1}])
        with self.path.open("ab", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            try:
                write_all(file, line)
            except OSError:
                file.truncate(end)  # no half a row
                raise

    def on_end(self, training: Training, error: BaseException | None) -> None:
        """A training without an epoch leaves a file without its rows."""
        if error is None and training.is_first and not self._has_begun:
            self._begin(training)

    def _begin(self, training: Training) -> None:
        """Write the file anew: columns, which are all known now, and the rows that stay."""
        self._columns = self._columns_of(training)
        with replacing(self.path) as file:
            write_all(file, self._text(self._columns, self._before))
        self._has_begun = True

    def _text(self, header: Sequence[str], rows: Iterable[Mapping[str, object]]) -> bytes:
        """Lines of CSV, in UTF-8. header: none if it is empty."""
        text = StringIO(newline="")
        writer = csv.DictWriter(text, header or self._columns, extrasaction="ignore")
        if header:
            writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


class _Writer(Protocol):
    def add_event(self, event: object) -> None: ...

    def close(self) -> None: ...


class TensorBoard(Callback):
    """Writes each epoch's numbers, and the learning rate, as event files to a folder. The step is the epoch, from 0.

    By the package tensorboard itself: `pip install "singa-lite[tensorboard]"`; ImportError at the start where it is
    missing, OSError for a folder that cannot be written to. Where the training goes on from a checkpoint, later epochs
    that are in the folder are hidden.

    >>> logger = callbacks.TensorBoard("logs")  # net.fit(..., callbacks=logger), then: tensorboard --logdir logs
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
