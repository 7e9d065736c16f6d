"""Blocks of rows of a table on disk: lines of a CSV file, and row groups of a Parquet file."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.data.extras import needed
from singa_lite.errors import DataError

#: Bytes of a block of lines, or little more.
_BLOCK = 2**20


class Blocks(ABC):
    """A table by blocks of rows. starts: the first row of each, int64; count: rows; columns: names.

    What was read last is kept, as samples and targets of the same rows are asked for one after the other.
    """

    starts: Array
    count: int
    columns: list[str]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._last: tuple[int, dict[str, Array]] = -1, {}

    def without(self, names: Sequence[str]) -> list[str]:
        """All other columns, in the file's order."""
        return [name for name in self.columns if name not in names]

    def check(self, names: Sequence[str]) -> None:
        """KeyError for columns that are not there, ValueError for none, or one that is named twice."""
        for name in names:
            if name not in self.columns:
                raise KeyError(f"{self.path}: wanted a column {name!r}, received {self.columns}")
        if len(set(names)) != len(names) or not names:
            raise ValueError(f"{self.path}: wanted each column once, received {list(names)}")

    def read(self, block: int, names: Sequence[str]) -> list[Array]:
        """These columns of one block, (rows,) each, of numbers. DataError for missing values and what is no number."""
        if self._last[0] != block:
            self._last = block, {}
        missing = [name for name in names if name not in self._last[1]]
        if missing:
            self._last[1].update(self._read(block, missing))
        for name in names:
            self._check_numbers(block, name, self._last[1][name])
        return [self._last[1][name] for name in names]

    def _check_numbers(self, block: int, name: str, values: Array) -> None:
        if values.dtype.kind not in "biuf":
            raise DataError(f"{self.path}: column {name!r}: wanted numbers, received {values.dtype}")
        if values.dtype.kind == "f" and np.isnan(values).any():
            row = int(self.starts[block]) + int(np.isnan(values).argmax())
            raise DataError(f"{self.path}: column {name!r}: wanted a number in each row, received none in row {row}")

    def dtypes(self, names: Sequence[str]) -> list[DType]:
        """Those of the first block's columns."""
        return [values.dtype for values in self.read(0, names)]

    @abstractmethod
    def _read(self, block: int, names: Sequence[str]) -> dict[str, Array]:
        """These columns of one block."""


class CsvBlocks(Blocks):
    """Lines of a CSV file, whose names are in its first line."""

    def __init__(self, path: str | os.PathLike[str], separator: str) -> None:
        super().__init__(path)
        if not isinstance(separator, str) or len(separator) != 1:
            raise ValueError(f"csv separator: wanted one character, received {separator!r:.100}")
        self._pandas = needed("csv", "pandas")
        self._separator = separator
        self.columns = [str(name) for name in self._pandas.read_csv(self.path, sep=separator, nrows=0).columns]
        self._offsets, lines = self._scanned()
        self.starts = np.concatenate([[0], np.cumsum(lines[:-1])]).astype(np.int64)
        self.count = sum(lines)
        if not self.count:
            raise ValueError(f"{self.path}: wanted at least one row behind the names, received none")

    def _scanned(self) -> tuple[list[int], list[int]]:
        """Offsets of blocks of whole lines, and of the file's end; and how many lines each has."""
        with open(self.path, "rb") as file:
            file.readline()
            offsets, lines = [file.tell()], []
            while block := file.read(_BLOCK):
                block += file.readline()
                lines.append(block.count(b"\n") + (not block.endswith(b"\n")))
                offsets.append(offsets[-1] + len(block))
        return offsets, lines or [0]

    def _read(self, block: int, names: Sequence[str]) -> dict[str, Array]:
        first, stop = self._offsets[block : block + 2]
        with open(self.path, "rb") as file:
            file.seek(first)
            text = file.read(stop - first)
        here = f"{self.path}: rows from {self.starts[block]}"
        try:
            frame = self._pandas.read_csv(
                io.BytesIO(text), sep=self._separator, header=None, names=self.columns, index_col=False,
                skip_blank_lines=False,
            )  # fmt: skip
        except ValueError as error:  # pandas' ParserError too
            raise DataError(f"{here}: wanted lines of {len(self.columns)} values, received {error}") from error
        wanted = int(np.append(self.starts, self.count)[block + 1] - self.starts[block])
        if len(frame) != wanted:
            raise DataError(f"{here}: wanted a row for each of {wanted} lines, received {len(frame)} rows")
        return {name: frame[name].to_numpy() for name in self.columns}


class ParquetBlocks(Blocks):
    """Row groups of a Parquet file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        parquet = needed("parquet", "pyarrow.parquet")
        self._file = parquet.ParquetFile(self.path)
        facts = self._file.metadata
        rows = [facts.row_group(number).num_rows for number in range(facts.num_row_groups)]
        self.columns = list(self._file.schema_arrow.names)
        self.starts = np.concatenate([[0], np.cumsum(rows[:-1])]).astype(np.int64)
        self.count = sum(rows)
        if not self.count or 0 in rows:
            raise ValueError(f"{self.path}: wanted rows in each row group, received groups of {rows[:8]} rows")

    def _read(self, block: int, names: Sequence[str]) -> dict[str, Array]:
        table = self._file.read_row_group(block, columns=list(names))
        return {name: table.column(name).to_numpy() for name in names}
