"""Tables of numbers on disk, CSV and Parquet, read by blocks of rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from singa_lite.common import checks
from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import DataError
from singa_lite.common.keywords import explains_keywords
from singa_lite.data.blocks import Blocks, CsvBlocks, ParquetBlocks
from singa_lite.data.given import Paired

FilePath: TypeAlias = str | os.PathLike[str]


class Columns:
    """Columns of a table as one array (rows, columns), or (rows,) of one, of which `[]` reads the rows asked for.

    starts: the first row of each block, which is read whole.
    """

    def __init__(self, blocks: Blocks, names: list[str], single: bool, dtype: DType) -> None:
        self.names = names
        self.dtype = dtype
        self.starts = blocks.starts
        self.shape = (blocks.count,) if single else (blocks.count, len(names))
        self._blocks = blocks

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | Array) -> Array:
        numbers = np.arange(self.shape[0])[index]
        made = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        which = np.searchsorted(self.starts, numbers, side="right") - 1
        for block in np.unique(which).tolist():
            here = which == block
            rows = numbers[here] - self.starts[block]
            read = self._blocks.read(block, self.names)
            if self.dtype.kind == "i" and any(each.dtype.kind == "f" for each in read):
                raise DataError(
                    f"{self._blocks.path}: columns {self.names}: wanted integers, as in the first rows, received "
                    f"others behind row {self.starts[block]}"
                )
            made[here] = read[0][rows] if len(self.shape) == 1 else np.stack([each[rows] for each in read], axis=1)
        return made


class Table(Paired):
    """What `csv` and `parquet` make. features, targets: names of the columns that `x` and `y` have."""

    x: Columns
    y: Columns

    def __init__(self, x: Columns, y: Columns) -> None:
        super().__init__(x, y, len(x))
        self.features, self.targets = x.names, y.names


@explains_keywords(path=checks.path, dtype=checks.number_dtype)
def csv(
    path: FilePath,
    target: str | Sequence[str],
    *,
    features: Sequence[str] | None = None,
    dtype: str = "float32",
    separator: str = ",",
    encoding: str | None = None,
) -> Table:
    """Returns the table of a CSV file with a line of names first, for `net.fit(data.csv("t.csv", target=["price"]))`,
    whatever its size.

    One reading finds where lines begin; then blocks of 1 MiB are read as batches ask for them, shuffled within windows.
    target: a column, "kind", for targets (n,), as class ids come, or a list, ["price"], for targets (n, columns), as a
    regression wants them. features: the columns of the samples, by default all others, in the file's order, but for
    row names and an index: first columns without a name, as pandas and R write them. dtype: of samples, and of targets
    that are no integers; integer targets, such as class ids, are int64. Needs pandas, extra `data`.

    encoding: of the text; None: UTF-8, or what a byte order mark says. A file in another encoding, or packed by gzip,
    bz2 or xz, is unpacked into a temporary file, which goes with the table. Empty lines at the end are no rows.

    KeyError for a column that is not there, with those that are. DataError, with the path, for what is no number, for
    missing values, for quoted text with line ends in it, and DataFileError, also a ValueError, for an empty file, a
    folder, and what is no text. A file of at most 64 MiB is read once for this at the beginning; of a larger one, lines
    of too few or too many values are found then, and other faults as their block is read.

    >>> from pathlib import Path
    >>> _ = Path("flats.csv").write_text("rooms,size,price" + chr(10) + "2,60,300" + chr(10) + "3,80,400")
    >>> flats = data.csv("flats.csv", target=["price"])
    >>> flats.x[0:2].tolist(), flats.y[0:2].tolist()
    ([[2.0, 60.0], [3.0, 80.0]], [[300], [400]])
    """
    return _table("csv", CsvBlocks(path, separator, encoding), target, features, dtype)


@explains_keywords(path=checks.path, dtype=checks.number_dtype)
def parquet(
    path: FilePath, target: str | Sequence[str], *, features: Sequence[str] | None = None, dtype: str = "float32"
) -> Table:
    """Returns the table of a Parquet file, read by row groups and columns, for `net.fit(data.parquet("t.parquet",
    target=["price"]))`.

    target, features, dtype: as for `csv`; pandas' index, which is no column of the table that was written, is left out.
    DataError for columns without numbers and missing values, DataFileError for a file that is damaged, found as for
    `csv`. Needs pyarrow, extra `data`.

    >>> import pandas
    >>> pandas.DataFrame({"rooms": [2, 3], "size": [60, 80], "price": [300, 400]}).to_parquet("flats.parquet")
    >>> flats = data.parquet("flats.parquet", target=["price"])
    >>> flats.x[0:2].tolist(), flats.y[0:2].tolist()
    ([[2.0, 60.0], [3.0, 80.0]], [[300], [400]])
    """
    return _table("parquet", ParquetBlocks(path), target, features, dtype)


def _table(
    where: str, blocks: Blocks, target: str | Sequence[str], features: Sequence[str] | None, dtype: str
) -> Table:
    single = isinstance(target, str)
    targets = [target] if isinstance(target, str) else _names(f"{where} target", target)
    wanted = _names(f"{where} features", features) if features is not None else blocks.other_columns(targets)
    if not wanted:
        raise ValueError(f"{blocks.path}: wanted columns besides {targets} for features, received {blocks.columns}")
    blocks.check([*targets, *wanted])
    numbers = np.dtype(dtype)
    own = np.result_type(*blocks.dtypes(targets))
    x = Columns(blocks, wanted, False, numbers)
    y = Columns(blocks, targets, single, np.dtype(np.int64) if own.kind in "iub" else numbers)
    for rows in blocks.to_check():
        x[rows], y[rows]
    return Table(x, y)


def _names(where: str, given: object) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise TypeError(f"{where}: wanted a list of names of columns, received {given!r:.100}")
    return [str(name) for name in given]
