"""Blocks of rows of a table on disk: lines of a CSV file, and row groups of a Parquet file."""

from __future__ import annotations

import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile
from typing import IO, Any

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import DataError, DataFileError
from singa_lite.data.reading import TextFile, reading, require

#: Bytes of a block of lines, or little more.
_BLOCK = 2**20
#: Files of at most so many bytes are read once at the beginning, so that all that is wrong in one is known at once.
_READ_AT_ONCE = 64 * 2**20
#: What pandas calls an index that it writes along: in Parquet, and, as it reads a name that is empty, in CSV.
_INDEX = re.compile(r"__index_level_\d+__|Unnamed: \d+(_level_\d+|\.\d+)*")


class Blocks(ABC):
    """A table by blocks of rows. starts: the first row of each, int64; count: rows; columns: names; kind: of file.

    index: those of the columns that are pandas' index, written along. What was read last is kept, as samples and
    targets of the same rows are asked for one after the other.
    """

    kind: str
    starts: Array
    count: int
    columns: list[str]
    index: Sequence[str]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._last: tuple[int, dict[str, Array]] = -1, {}
        with reading(self.path, self.kind):
            if not os.path.getsize(self.path):
                raise DataFileError(f"{self.path}: wanted {self.kind}, received an empty file")

    def other_columns(self, names: Sequence[str]) -> list[str]:
        """All other columns but the index, in the file's order."""
        return [name for name in self.columns if name not in names and name not in self.index]

    def to_check(self) -> Iterator[slice]:
        """The rows of each block that is to be read once at the beginning: those of a small file."""
        if os.path.getsize(self.path) <= _READ_AT_ONCE:
            for start, stop in pairwise([*self.starts.tolist(), self.count]):
                yield slice(start, stop)
            self._last = -1, {}

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
            with reading(self.path, self.kind):
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


def _index_columns(columns: Sequence[str]) -> list[str]:
    """The first columns, as far as they have names that stand for none, or those of an index."""
    return list(takewhile(_INDEX.fullmatch, columns))


class CsvBlocks(Blocks):
    """Lines of a CSV file, whose names are in its first line. encoding: see `TextFile`."""

    kind = "a CSV file"

    def __init__(self, path: str | os.PathLike[str], separator: str, encoding: str | None = None) -> None:
        if not isinstance(separator, str) or len(separator) != 1:
            raise ValueError(f"csv separator: wanted one character, received {separator!r:.100}")
        self._pandas = require("csv", "pandas")
        self._separator = separator
        super().__init__(path)
        with reading(self.path, self.kind):
            self._text = TextFile(self.path, encoding)
            self._offsets, lines = self._scanned()
        self.index = _index_columns(self.columns)
        self.starts = np.concatenate([[0], np.cumsum(lines[:-1])]).astype(np.int64)
        self.count = sum(lines)
        if not self.count:
            raise DataFileError(f"{self.path}: wanted at least one row behind the names, received none")

    def _scanned(self) -> tuple[list[int], list[int]]:
        """Offsets of blocks of whole lines, and of the last one's end; and how many lines each has."""
        with open(self._text.path, "rb") as file:
            end = self._end(file)
            file.seek(self._text.start)
            while not (names := file.readline()).strip() and file.tell() < end:
                pass
            offsets, lines, row = [file.tell()], list[int](), 0
            self._take_names(names, file.readline())
            file.seek(offsets[0])
            while offsets[-1] < end:
                block = file.read(min(_BLOCK, end - offsets[-1])) + file.readline()
                lines.append(block.count(b"\n") + (not block.endswith(b"\n")))
                self._check_lines(self._text_of(block, offsets[-1]), row, lines[-1])
                row += lines[-1]
                offsets.append(offsets[-1] + len(block))
        return offsets, lines or [0]

    def _end(self, file: IO[bytes]) -> int:
        """Where the last line that is not empty ends."""
        blank = bytes(set(b" \t\r\n") - set(self._separator.encode()))
        at = file.seek(0, os.SEEK_END)
        while at > self._text.start:
            first = max(self._text.start, at - _BLOCK)
            file.seek(first)
            if text := file.read(at - first).rstrip(blank):
                return first + len(text)
            at = first
        return at

    def _take_names(self, names: bytes, row: bytes) -> None:
        """Read the names of columns. A row of one value more has its own name first, as R's write.table writes it, or
        a separator at its end.
        """
        found = [str(name) for name in self._parsed(self._text_of(names, 0), header=0).columns]
        values = self._parsed(self._text_of(row, len(names)), header=None).shape[1] if row.strip() else len(found)
        last = self._separator.encode()
        ends = [line.rstrip(b"\r\n").endswith(last) for line in (names, row)]
        self.columns = found[:-1] if all(ends) else found
        is_ended = ends[1] and values == len(self.columns) + 1
        has_row_names = not is_ended and values == len(found) + 1
        self._names = [*[""] * has_row_names, *self.columns, *[""] * is_ended]
        self._check_values(0, values)

    def _check_lines(self, text: str, first: int, lines: int) -> None:
        """DataFileError for a line that has not as many values as there are names, as far as separators tell.

        Where all lines of a block have more, pandas would cut them off. first: the first line's row.
        """
        if '"' in text or text.count(self._separator) == lines * (len(self._names) - 1):
            return
        for row, line in enumerate(text.split("\n"), first):
            self._check_values(row, line.count(self._separator) + 1 if line.strip() else len(self._names))

    def _check_values(self, row: int, values: int) -> None:
        wanted = len(self._names)
        if values != wanted:
            raise DataFileError(f"{self.path}: row {row}: wanted lines of {wanted} values, received {values}")

    def _text_of(self, given: bytes, offset: int) -> str:
        if b"\0" in given:
            raise DataFileError(f"{self.path}: wanted text, received a byte 0 at {offset + given.index(0)}")
        try:
            return given.decode()
        except UnicodeDecodeError as error:
            raise DataFileError(
                f"{self.path}: wanted UTF-8, or csv(encoding=), such as 'latin-1', received byte "
                f"{given[error.start]:#x} at {offset + error.start}"
            ) from error

    def _parsed(self, text: str, **options: object) -> Any:
        return self._pandas.read_csv(io.StringIO(text), sep=self._separator, index_col=False, **options)

    def _read(self, block: int, names: Sequence[str]) -> dict[str, Array]:
        first, stop = self._offsets[block : block + 2]
        with open(self._text.path, "rb") as file:
            file.seek(first)
            text = self._text_of(file.read(stop - first), first)
        here = f"{self.path}: rows from {self.starts[block]}"
        try:
            frame = self._parsed(text, header=None, names=self._names, skip_blank_lines=False)
        except ValueError as error:  # pandas' ParserError too
            raise DataFileError(f"{here}: wanted lines of {len(self._names)} values, received {error}") from error
        wanted = int(np.append(self.starts, self.count)[block + 1] - self.starts[block])
        if len(frame) != wanted:
            raise DataFileError(f"{here}: wanted a row for each of {wanted} lines, received {len(frame)} rows")
        return {name: frame[name].to_numpy() for name in self.columns}


class ParquetBlocks(Blocks):
    """Row groups of a Parquet file."""

    kind = "a Parquet file"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        parquet = require("parquet", "pyarrow.parquet")
        super().__init__(path)
        with reading(self.path, self.kind):
            self._file = parquet.ParquetFile(self.path, page_checksum_verification=True)
            facts, schema = self._file.metadata, self._file.schema_arrow
            rows = [facts.row_group(number).num_rows for number in range(facts.num_row_groups)]
            self.columns = list(schema.names)
            written = (schema.pandas_metadata or {}).get("index_columns", [])
            self.index = [*_index_columns(self.columns), *(name for name in self.columns if name in written)]
        self.starts = np.concatenate([[0], np.cumsum(rows[:-1])]).astype(np.int64)
        self.count = sum(rows)
        if not self.count or 0 in rows:
            raise DataFileError(f"{self.path}: wanted rows in each row group, received groups of {rows[:8]} rows")

    def _read(self, block: int, names: Sequence[str]) -> dict[str, Array]:
        table = self._file.read_row_group(block, columns=list(names))
        return {name: table.column(name).to_numpy() for name in names}
