"""What is printed where a stream is missing, closed, broken, or of a narrow encoding."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys

import numpy as np
import pytest

from singa_lite import FeedForwardNet, layers, metric, optimizer
from singa_lite.common import terminal

X = np.random.default_rng(3).normal(0, 1, (7, 5)).astype(np.float32)
Y = np.random.default_rng(4).integers(0, 3, 7)
NAME = "größe_精度"


def made() -> FeedForwardNet:
    score = metric.Accuracy()
    score.name = NAME
    net = FeedForwardNet("softmax_cross_entropy", score, seed=5)
    net.add(layers.Dense(NAME, 3, input_sample_shape=(5,)))
    net.compile(optimizer.SGD(0.1))
    return net


def trained() -> FeedForwardNet:
    """Prints all that `fit` does."""
    net = made()
    net.verbose = 1
    net.fit(X, Y, 4, 2, validation_data=(X, Y))
    net.summary()
    return net


class Broken(io.StringIO):
    def write(self, text):
        raise OSError(errno.EBADF, "gone")

    def flush(self):
        raise OSError(errno.EBADF, "gone")


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("which", [("stderr",), ("stdout",), ("stdout", "stderr")], ids=str)
@pytest.mark.parametrize("make", [lambda: None, closed, Broken], ids=["none", "closed", "broken"])
def test_a_training_outlives_its_streams(monkeypatch, make, which):
    for name in which:
        monkeypatch.setattr(sys, name, make())
    assert trained().optimizer.step == 4


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "utf-16"])
def test_narrow_encodings_get_escapes(monkeypatch, encoding):
    found = {name: io.TextIOWrapper(io.BytesIO(), encoding, newline="\n") for name in ("stdout", "stderr")}
    for name, stream in found.items():
        monkeypatch.setattr(sys, name, stream)
    trained()
    out, err = (stream.buffer.getvalue().decode(encoding) for stream in found.values())
    wide = encoding.startswith("utf")
    shown = NAME if wide else NAME.encode(encoding, "backslashreplace").decode(encoding)
    assert "validation: loss" in out and shown in out and shown in err
    assert ("┌" if wide else "+--") in out


@pytest.mark.parametrize(
    ("text", "encoding", "wanted"),
    [
        ("│ a ─ b │", "ascii", "| a - b |"),
        ("┌─┬─┐ é", "cp1252", "+-+-+ é"),
        ("é 精", "ascii", r"\xe9 \u7cbe"),
        ("\udcff", "utf-8", r"\udcff"),
        ("精", None, "精"),
    ],
)
def test_what_is_shown(text, encoding, wanted):
    stream = io.StringIO() if encoding is None else io.TextIOWrapper(io.BytesIO(), encoding)
    assert terminal.printable(text, stream) == wanted


SCRIPT = """
import numpy as np
from singa_lite import FeedForwardNet, layers, optimizer
net = FeedForwardNet("mse", seed=1)
net.add(layers.Dense("größe", 3, input_sample_shape=(2,)))
net.compile(optimizer.SGD(0.1))
x, y = np.ones((5, 2), np.float32), np.ones((5, 3), np.float32)
net.fit(x, y, 2, 2, validation_data=(x, y))
net.summary()
net.save("made.h5")
"""


@pytest.mark.skipif(os.name == "nt", reason="this system's shell closes no streams")
@pytest.mark.parametrize("streams", [">&- 2>&- <&-", ">/dev/full 2>/dev/full"])
def test_a_process_without_streams_trains(tmp_path, streams):
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    subprocess.run(
        f'"{sys.executable}" script.py {streams}', shell=True, cwd=tmp_path, capture_output=True, check=False
    )
    assert (tmp_path / "made.h5").exists()


def run(folder, *arguments, encoding):
    environment = os.environ | {"PYTHONIOENCODING": f"{encoding}:strict", "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-m", *arguments], cwd=folder, env=environment, capture_output=True)
    assert found.returncode == 0, found.stderr
    return found.stdout.decode(encoding)


def test_commands_escape_what_a_terminal_lacks(tmp_path, encoding="ascii"):
    shown = NAME.encode(encoding, "backslashreplace").decode(encoding)
    made().save(tmp_path / f"{NAME}.h5")
    (tmp_path / "problem.csv").write_text(f"id,lower,upper,size\n{NAME},0,2,64\n", encoding="utf-8")
    (tmp_path / "script.py").write_text(
        SCRIPT.partition("x, y")[0].replace("net = ", "def make():\n  net = ").replace("\nnet.", "\n  net.")
        + "  return net\n",
        encoding="utf-8",
    )
    assert shown in run(tmp_path, "singa_lite", "snapshot", "inspect", f"{NAME}.h5", encoding=encoding)
    assert shown in run(tmp_path, "singa_lite.memory", "solve", "problem.csv", encoding=encoding)
    assert "arena" in run(tmp_path, "singa_lite", "plan", "script.py:make", "--batch", "3", encoding=encoding)
