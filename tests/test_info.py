"""`python -m singa_lite`: what `info` says, with and without oneDNN, and bad command lines."""

from __future__ import annotations

import platform
from importlib.util import find_spec

import numpy as np
import pytest

import singa_lite
from in_process import start
from singa_lite import __main__ as program
from singa_lite import device
from singa_lite.commands.info import facts
from singa_lite.kernels.choice import find_onednn

NAMES = (
    *("singa_lite", "Python", "NumPy", "BLAS", "oneDNN", "loops", "kernels", "tuning", "threads"),
    *("processor", "instruction sets", "bfloat16", "memory", "CuPy"),
    *(("GPU", "NVRTC", "cuBLASLt", "cuDNN") if find_spec("cupy") else ()),
)


def info(**variables: object) -> dict[str, str]:
    """What a process of its own prints, by name; it must end well and warn of nothing."""
    done = start("-W", "error", "-m", "singa_lite", "info", **variables)
    assert (done.returncode, done.stderr) == (0, "")
    told = [line.split("  ", 1) for line in done.stdout.splitlines()]
    return {name: value.strip() for name, value in told}


def test_one_fact_a_line():
    told = info()
    assert tuple(told) == NAMES
    assert all(told.values())
    assert told["singa_lite"].startswith(f"{singa_lite.__version__}, ")
    assert told["Python"].startswith(platform.python_version())
    assert told["NumPy"] == np.__version__
    assert int(told["threads"].split(",")[0]) >= 1


def test_the_library_its_version_and_its_path(capsys):
    if isinstance(find_onednn(), str):
        pytest.skip(f"{find_onednn()}; pip install onednn-cpu-gomp")
    from singa_lite.kernels.onednn_kernels.library.library import load

    told = dict(facts("0"))
    assert told["oneDNN"] == f"{load().version}, {load().path}"
    assert told["oneDNN"].startswith("3.")
    assert told["kernels"] == device.cpu().kernels.name


def test_settings_are_told_and_where_the_library_was_looked_for(tmp_path):
    library = tmp_path / "libdnnl.so.3"
    told = info(SINGA_LITE_THREADS=3, SINGA_LITE_ONEDNN=library)
    assert told["threads"].startswith("3, on ") and "threads 3," in told["BLAS"]
    assert told["oneDNN"].startswith("none: ") and str(library) in told["oneDNN"]
    assert told["kernels"] == "numpy"


def test_settings_that_are_wrong_are_told():
    told = info(SINGA_LITE_THREADS="many", SINGA_LITE_KERNELS="abacus", SINGA_LITE_ONEDNN="off")
    assert told["threads"].startswith("error: SINGA_LITE_THREADS") and "'many'" in told["threads"]
    assert told["kernels"].startswith("error: SINGA_LITE_KERNELS")


def test_alone_it_prints_its_usage_and_refuses_an_unknown_command(capsys):
    assert program.main([]) == 0
    printed = capsys.readouterr()
    assert "info" in printed.out and printed.err == ""
    with pytest.raises(SystemExit) as caught:
        program.main(["inform"])
    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == "" and "'inform'" in printed.err
