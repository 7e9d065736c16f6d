"""Files and pickles of earlier versions, which name modules by earlier paths, are still read.

The files in `earlier/` were written before modules moved to their present folders: a small net that was trained for
three steps, its output for `x`, and layers and an optimizer by themselves.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import singa_lite
from singa_lite import layers, optimizer, tensor

FOLDER = Path(__file__).with_name("earlier")
PAIRS = [
    ("errors", "common.errors"),
    ("rewriting.rule", "autograd.rewriting.rule"),
    ("memory.planner", "compiler.placement.planner"),
    ("layers.conv2d", "layers.convolution.convolution"),
    ("layers.convolution.conv2d", "layers.convolution.convolution"),
]


@pytest.mark.parametrize("name", ["net.pickle", "net.npz", "net.h5"])
def test_a_net(name):
    expected = np.load(FOLDER / "expected.npz")
    net = pickle.loads((FOLDER / name).read_bytes()) if name == "net.pickle" else singa_lite.load(FOLDER / name)
    np.testing.assert_allclose(tensor.to_numpy(net.predict(expected["x"])), expected["y"], rtol=1e-5)
    assert net.optimizer.step == 3


def test_layers_and_an_optimizer():
    conv, lstm, sgd = pickle.loads((FOLDER / "parts.pickle").read_bytes())
    assert (type(conv), type(lstm), type(sgd)) == (layers.Conv2D, layers.LSTM, optimizer.SGD)
    assert type(sgd.schedule) is singa_lite.schedule.Exponential


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_both_paths_are_one_module(old, new):
    script = f"import singa_lite.{old}, singa_lite.{new}; print(singa_lite.{old} is singa_lite.{new})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_commands_by_their_earlier_paths():
    for name in ("memory", "parallel.simulate"):
        done = subprocess.run([sys.executable, "-m", f"singa_lite.{name}", "--help"], capture_output=True, text=True)
        assert done.stdout.startswith(f"usage: python -m singa_lite.{name}"), done.stderr
