"""Files that are written anew, whatever fails: the new one or the old one, and logs lose no row."""

from __future__ import annotations

import csv
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import skips
from full_disk import disk_of
from own_steps import gan
from singa_lite import FeedForwardNet, callbacks, layers, optimizer, reports
from singa_lite.compiler.placement.__main__ import main as place
from test_callback_ends import StopAt, X, fit, made

posix = pytest.mark.skipif(os.name == "nt", reason="this system has no limit of a file's size")


def rows(file):
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


# ---- CSVLogger


@posix
@pytest.mark.parametrize("append", [True, False])
@pytest.mark.parametrize("room", [-40, 15])
def test_a_full_disk_loses_no_row(tmp_path, append, room):
    file, net = tmp_path / "log.csv", made()
    fit(made(), callbacks.CSVLogger(file), epochs=5)
    before = file.read_bytes()
    size = len(before) + room if append else (20 if room < 0 else 130)
    with disk_of(size), pytest.raises(OSError, match=r"File too large.*|log\.csv"):
        fit(net, callbacks.CSVLogger(file, append=append), epochs=3)
    assert os.listdir(tmp_path) == ["log.csv"]
    if append or room < 0:
        assert file.read_bytes() == before
    assert (net.optimizer.step == 0) == (room < 0), "told before the first batch where it can be"


def test_a_bad_call_leaves_the_log_as_it_is(tmp_path):
    file = tmp_path / "log.csv"
    fit(made(), callbacks.CSVLogger(file), epochs=2)
    before = file.read_bytes()
    with pytest.raises(ValueError, match="val_los"):
        fit(made(), callbacks.CSVLogger(file), callbacks.EarlyStopping("val_los"))
    assert file.read_bytes() == before
    fit(made(), callbacks.CSVLogger(file), StopAt(1))
    assert rows(file) == [] and file.read_text().startswith("epoch,loss,accuracy,val_loss")


def test_rows_of_fewer_columns_stay_and_half_a_row_is_left_out(tmp_path):
    """Such as those of an earlier version, or without a validation."""
    file = tmp_path / "log.csv"
    fit(made(), callbacks.CSVLogger(file), epochs=2, validation_data=None)
    file.write_bytes(file.read_bytes() + b"2,0.5")
    fit(made(), callbacks.CSVLogger(file, append=True), epochs=1)
    assert [(row["epoch"], row["val_loss"] != "") for row in rows(file)] == [("0", False), ("1", False), ("0", True)]
    assert [row["lr"] for row in rows(file)] == ["0.1"] * 3


def test_numbers_of_a_step_of_ones_own_are_columns(tmp_path):
    file = tmp_path / "log.csv"
    critic, _ = gan()
    history = critic.fit(X, batch_size=5, epochs=2, verbose=False, callbacks=callbacks.CSVLogger(file))
    assert [float(row["generator"]) for row in rows(file)] == history["generator"]


NO_LOGS = {
    "a folder": None,
    "of other columns": b"epoch,nothing\n0,1\n",
    "of other rows": b"x,y\n0,1\n",
    "binary": b"epoch,\xff\xfe\x00",
}


@pytest.mark.parametrize("name", NO_LOGS)
def test_what_is_no_log_is_refused_before_the_first_batch(tmp_path, name):
    file, net = tmp_path / "log.csv", made()
    if NO_LOGS[name] is None:
        file.mkdir()
    else:
        file.write_bytes(NO_LOGS[name])
    with pytest.raises((OSError, ValueError), match=r"log\.csv"):
        fit(net, callbacks.CSVLogger(file, append=True))
    with pytest.raises(OSError, match="missing"):
        fit(net, callbacks.CSVLogger(tmp_path / "missing" / "log.csv"))
    assert net.optimizer.step == 0
    assert file.is_dir() or file.read_bytes() == NO_LOGS[name]


# ---- pages, pictures, solutions


def a_net():
    net = FeedForwardNet("mse", seed=1)
    net.add(layers.Dense("größe", 3, input_sample_shape=(2,)))
    net.compile(optimizer.SGD(0.1))
    net.train_one_batch(np.ones((2, 2), np.float32), np.ones((2, 3), np.float32))
    return net


def page(path):
    skips.library("plotly")
    a_net().memory_plan.to_html(path)


def picture(path):
    reports.plot_net(a_net(), path)


def solution(path):
    problem = path.with_name("problem.csv")
    if not problem.exists():
        problem.write_text("id,lower,upper,size\n" + "".join(f"größe{n},0,{n + 1},64\n" for n in range(30)))
    if place(["solve", str(problem), "--out", str(path)]) == 2:
        raise OSError("status 2")


@posix
@pytest.mark.parametrize("write", [page, picture, solution], ids=lambda write: write.__name__)
def test_a_file_is_the_old_one_or_the_new_one(tmp_path, write):
    path = tmp_path / "made.txt"
    write(path)
    before = path.read_bytes()
    assert "größe" in before.decode()
    path.write_bytes(b"old")
    with disk_of(len(before) // 2), pytest.raises(OSError, match=r"made\.txt|status 2"):
        write(path)
    assert path.read_bytes() == b"old" and not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
    write(path)
    assert len(path.read_bytes()) == len(before)


@posix
def test_a_pipe_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        found = reader.submit(pipe.read_text)
        picture(pipe)
        assert found.result().startswith("<svg")
