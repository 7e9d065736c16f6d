"""CSV and Parquet, read by blocks of rows: values, what an epoch reads, and what is no table of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skips
from data_nets import X, Y, classifier
from nets import state_of
from singa_lite import data
from singa_lite.data import blocks
from singa_lite.errors import DataError

NAMES = [f"f{number}" for number in range(5)]


@pytest.fixture(params=["csv", "parquet"])
def table(request: Any, tmp_path: Path) -> Any:
    """A way to store and open the samples, with column "label" in the middle, in blocks of few rows."""
    pandas = skips.library("pandas")
    if request.param == "parquet":
        skips.library("pyarrow")
    frame = pandas.DataFrame(X, columns=NAMES)
    frame.insert(2, "label", Y)
    path = tmp_path / f"table.{request.param}"

    def opened(**options: Any) -> Any:
        if request.param == "csv":
            frame.to_csv(path, index=False)
            return data.csv(path, **options)
        frame.to_parquet(path, row_group_size=6)
        return data.parquet(path, **options)

    opened.frame, opened.path = frame, path
    return opened


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "_BLOCK", 300)


def test_values_and_training_are_those_of_arrays(table):
    found = table(target="label")
    assert found.features == NAMES and found.targets == ["label"] and len(found) == 37
    assert len(found.x.starts) > 3 and found.x.shape == (37, 5) and found.y.shape == (37,)
    order = np.array([3, 17, 18, 36])
    assert np.array_equal(found.x[order], X[order]) and np.array_equal(found.y[5:30], Y[5:30])
    assert found.y.dtype == np.int64
    net, arrays = classifier(), classifier()
    net.fit(found, batch_size=8, epochs=2, validation_data=found, verbose=False)
    arrays.fit(X, Y, 8, epochs=2, verbose=False)
    assert state_of(net) == state_of(arrays)
    assert net.evaluate(found) == net.evaluate(X, Y)
    assert np.array_equal(net.predict(found), net.predict(X))


def test_each_block_is_read_once_an_epoch(table, monkeypatch):
    found = table(target="label")
    kind, count = type(found.x._blocks), len(found.x.starts)
    read: list[int] = []
    plain = kind._read
    monkeypatch.setattr(kind, "_read", lambda self, block, names: read.append(block) or plain(self, block, names))
    classifier().fit(found, batch_size=8, epochs=2, verbose=False, shuffle_window=26 * 28)
    parts = 2 if table.path.suffix == ".parquet" else 1  # samples and targets are read by columns, or by lines
    assert 2 * parts * count <= len(read) <= 2 * parts * count + 5


def test_columns_that_are_asked_for(table):
    found = table(target=["f1", "f3"], features=["f4", "f0"], dtype="float64")
    assert found.x.shape == (37, 2) and found.x.dtype == np.float64 and found.y.shape == (37, 2)
    assert np.array_equal(found.x[:].astype("f"), X[:, [4, 0]]) and np.array_equal(found.y[:].astype("f"), X[:, [1, 3]])


def test_what_is_no_table_of_numbers(table):
    with pytest.raises(KeyError, match="wanted a column 'price', received"):
        table(target="price")
    with pytest.raises(ValueError, match="wanted each column once"):
        table(target="label", features=["f1", "f1"])
    with pytest.raises(TypeError, match="features: wanted a list of names"):
        table(target="label", features="f1")
    table.frame.loc[29, "f1"] = np.nan
    with pytest.raises(DataError, match="column 'f1': wanted a number in each row, received none in row 29"):
        table(target="label").x[:]
    table.frame["f1"] = "red"
    with pytest.raises(DataError, match="column 'f1': wanted numbers, received "):
        table(target="label").x[:]


def test_integers_that_become_others(table):
    table.frame["label"] = Y.astype("d")
    if table.path.suffix == ".csv":
        table.frame["label"] = [str(label) for label in Y[:-1]] + ["0.5"]
        with pytest.raises(DataError, match="wanted integers, as in the first rows"):
            table(target="label").y[:]
    else:
        assert table(target="label").y.dtype == np.float32


def test_lines_that_are_no_rows(tmp_path):
    skips.library("pandas")
    path = tmp_path / "t.csv"
    for text, words in [
        ("a,b\n1,2\n3,4,5\n", "wanted lines of 2 values"),
        ('a,b\n1,2\n"3\n",4\n', "wanted a row for each of 3 lines, received 2 rows"),
        ("a,b\n1,2\n\n3,4\n", "wanted a number in each row, received none in row 1"),
    ]:
        path.write_text(text)
        with pytest.raises(DataError, match=words):
            data.csv(path, target="b").x[:]
    path.write_text("a,b\n")
    with pytest.raises(ValueError, match="wanted at least one row"):
        data.csv(path, target="b")
    with pytest.raises(FileNotFoundError):
        data.csv(tmp_path / "none.csv", target="b")
