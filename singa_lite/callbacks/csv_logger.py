"""CSVLogger: the history as a table in a file, a row an epoch."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np

from singa_lite.common.checks import flag
from singa_lite.fit import Callback, Training


class CSVLogger(Callback):
    """Writes each epoch's numbers as a row of a CSV file, with the epoch, counted from 0, first.

    append: behind the rows that are there, of the same columns; else the file begins anew, but for the rows of epochs
    before a checkpoint that the training goes on from. OSError where it cannot be written, ValueError for a file of
    other columns, before the first batch.
    """

    def __init__(self, path: str | os.PathLike[str], append: bool = False) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"CSVLogger path: wanted a path, received {path!r}")
        self.path = Path(path)
        self.append = flag("CSVLogger append", append)
        self._columns: list[str] = []

    def on_start(self, training: Training) -> None:
        """Begin the file."""
        self._columns = ["epoch", *training.entries]
        if not training.is_first:
            return
        going_on = training.progress.epoch > 0
        rows = self._rows() if (self.append or going_on) and self.path.exists() else []
        if not self.append:
            rows = [row for row in rows if int(row[0]) < training.progress.epoch]
        with self.path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([self._columns, *rows])

    def _rows(self) -> list[list[str]]:
        """The rows that are there, without their header."""
        with self.path.open(newline="", encoding="utf-8") as file:
            header, *rows = list(csv.reader(file)) or [self._columns]
        whole = [row for row in rows if len(row) == len(header) and row[0].isdigit()]
        if header != self._columns:
            raise ValueError(f"CSVLogger: wanted {self.path} with columns {self._columns}, received {header}")
        return whole

    def on_epoch(self, training: Training) -> None:
        """Write the row."""
        if not training.is_first:
            return
        history = training.progress.history.history
        values = [history[name][-1] if name in history else "" for name in self._columns[1:]]
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow([training.progress.epoch - 1, *(_plain(value) for value in values)])


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value
