"""CSV and Parquet, read by blocks of rows: values, what an epoch reads, and what is no table of numbers."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import skips
from data_nets import X, Y, classifier
from every_row import over_rows
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
    with pytest.raises(KeyError, match="'price'"):
        table(target="price")
    with pytest.raises(ValueError, match="f1"):
        table(target="label", features=["f1", "f1"])
    with pytest.raises(TypeError, match="features"):
        table(target="label", features="f1")
    table.frame.loc[29, "f1"] = np.nan
    with pytest.raises(DataError, match=r"'f1'.* row 29"):
        table(target="label").x[:]
    table.frame["f1"] = "red"
    with pytest.raises(DataError, match="'f1'"):
        table(target="label").x[:]


def test_integers_that_become_others(table):
    table.frame["label"] = Y.astype("d")
    if table.path.suffix == ".csv":
        table.frame["label"] = [str(label) for label in Y[:-1]] + ["0.5"]
        with pytest.raises(DataError, match="integers"):
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


# --- how other programs write tables ------------------------------------------------------------------------

PLAIN = "a,b,y\n1,2,0\n3,4,1\n"
WRITTEN = {
    "R's write.table": PLAIN.replace("\n1", '\n"1",1').replace("\n3", '\n"2",3'),
    "R's write.table, no quotes": PLAIN.replace("\n1", "\n1,1").replace("\n3", "\n2,3"),
    "R's write.csv": PLAIN.replace("a", '"",a').replace("\n1", '\n"1",1').replace("\n3", '\n"2",3'),
    "pandas with its index": PLAIN.replace("a", ",a").replace("\n1", "\n0,1").replace("\n3", "\n1,3"),
    "pandas, an index of two": PLAIN.replace("a", ",,a").replace("\n1", "\n0,7,1").replace("\n3", "\n1,7,3"),
    "an index written twice": PLAIN.replace("a", ",Unnamed: 0,a").replace("\n1", "\n0,0,1").replace("\n3", "\n1,1,3"),
    "a separator at the end of rows": PLAIN.replace(",0\n", ",0,\n").replace(",1\n", ",1,\n"),
    "a separator at the end of lines": PLAIN.replace("\n", ",\n"),
    "an empty last line": PLAIN + "\n",
    "several empty last lines": PLAIN + "\r\n  \n\n",
    "no last line end": PLAIN[:-1],
    "an empty first line": "\n" + PLAIN,
    "lines of Windows": PLAIN.replace("\n", "\r\n"),
    "lines of old Macs": PLAIN.replace("\n", "\r"),
    "UTF-8 with a mark": PLAIN.encode("utf-8-sig"),
    "UTF-16": PLAIN.encode("utf-16"),
    "UTF-16, the other order": b"\xfe\xff" + PLAIN.encode("utf-16-be"),
    "gzip": gzip.compress(PLAIN.encode()),
    "gzip of UTF-16": gzip.compress(PLAIN.encode("utf-16")),
    "bz2": bz2.compress(PLAIN.encode()),
    "xz": lzma.compress(PLAIN.encode()),
}


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_csv_of_other_programs(tmp_path):
    skips.library("pandas")

    def check(content):
        found = data.csv(write(tmp_path / "t.csv", content), target="y")
        assert (found.features, found.x[:].tolist(), found.y[:].tolist()) == (["a", "b"], [[1, 2], [3, 4]], [0, 1])

    over_rows(check, ((name, (content,)) for name, content in WRITTEN.items()))


def test_encodings_that_are_named(tmp_path):
    skips.library("pandas")
    for encoding in ("latin-1", "utf-16-le", "cp1252"):
        path = write(tmp_path / "t.csv", "größe,y\n1.5,2\n".encode(encoding))
        with pytest.raises(DataError, match=r"t\.csv: wanted"):
            data.csv(path, target="y")
        found = data.csv(path, target="y", encoding=encoding)
        assert found.features == ["größe"] and found.x[:].tolist() == [[1.5]]
    for encoding in ("no encoding", 3):
        with pytest.raises(ValueError, match=r"encoding|lookup"):
            data.csv(path, target="y", encoding=encoding)  # type: ignore[arg-type]


def test_a_temporary_file_goes_with_its_table(tmp_path, monkeypatch):
    skips.library("pandas")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = data.csv(write(tmp_path / "t.csv.gz", gzip.compress(PLAIN.encode())), target="y")
    assert len(list(tmp_path.iterdir())) == 2 and found.x[:].tolist() == [[1, 2], [3, 4]]
    del found
    assert len(list(tmp_path.iterdir())) == 1


def test_an_index_is_a_feature_only_where_it_is_asked_for(table):
    for name in [None] if table.path.suffix == ".csv" else [None, "row"]:  # in CSV a name makes it a usual column
        index = np.roll(np.arange(37), 3)
        written = table.frame.set_index(index).rename_axis(name)
        if table.path.suffix == ".csv":
            written.to_csv(table.path)
            opened, written_as = data.csv, "Unnamed: 0"
        else:
            written.to_parquet(table.path)
            opened, written_as = data.parquet, name or "__index_level_0__"
        assert opened(table.path, "label").features == NAMES
        assert np.array_equal(opened(table.path, "label", features=[written_as, "f1"]).x[:][:, 0], index)


DAMAGED = {
    "empty": b"",
    "no row": b"a,y\n",
    "empty lines": b"\n\n",
    "no text": b"a,y\n1,0\n\0\0\0\n",
    "an image": b"\x89PNG\r\n\x1a\n",
    "a header short of two": b"a,y\n1,2,3,0\n",
    "a header short of two, in quotes": b'"a","y"\n"1","2","3","0"\n',
    "a longer line, late": b"a,y\n" + b"1,0\n" * 200 + b"1,0,0\n",
    "a shorter line, late": b"a,y\n" + b"1,0\n" * 200 + b"1\n",
    "a value cut off, late": b"a,y\n" + b"1,0\n" * 200 + b"1,",
    "text, late": b"a,y\n" + b"1,0\n" * 200 + b"?,0\n",
    "another encoding, late": b"a,y\n" + b"1,0\n" * 200 + b"\xe4,0\n",
    "gzip, cut off": gzip.compress(PLAIN.encode())[:-9],
    "gzip, damaged": gzip.compress(PLAIN.encode())[:20] + b"?" * 20,
}


def test_a_damaged_csv_file_is_named_at_once(tmp_path, monkeypatch):
    skips.library("pandas")

    def check(content):
        with pytest.raises(DataError, match=r"t\.csv: "):
            data.csv(write(tmp_path / "t.csv", content), target="y")

    over_rows(check, ((name, (content,)) for name, content in DAMAGED.items()))
    monkeypatch.setattr(blocks, "_READ_AT_ONCE", 0)  # as in large files
    late = ("a longer line, late", "a shorter line, late", "another encoding, late")
    over_rows(check, ((name, (DAMAGED[name],)) for name in late))


def test_a_damaged_parquet_file_is_named_at_once(table):
    if table.path.suffix == ".csv":
        return
    table(target="label")
    whole = table.path.read_bytes()
    late = whole.rindex(b"PAR1", 0, -4) if whole.count(b"PAR1") > 2 else len(whole) // 3
    for content in (b"", b"PAR1", b"a,y\n1,2\n", whole[:-100], whole[:late] + b"\xff" * 60 + whole[late + 60 :]):
        table.path.write_bytes(content)
        with pytest.raises(DataError, match=r"table\.parquet: wanted"):
            data.parquet(table.path, target="label")


def test_a_folder_is_no_table(table):
    for opened in (data.csv, data.parquet):
        with pytest.raises(DataError, match="received a folder"):
            opened(table.path.parent, target="label")
