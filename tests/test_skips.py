"""A test that is skipped says what is missing and what brings it, or it fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import skips

CONFTEST = Path(__file__).with_name("conftest.py")


@pytest.mark.parametrize(
    ("reason", "helps"),
    [
        ("wants torch, pip install torch", True),
        ("the CUDA kernels on the host want g++, apt install g++", True),
        ("this system has no fork", True),
        ("device.cuda(0): wanted an NVIDIA GPU and its driver", True),
        ("could not import 'torch': No module named 'torch'", False),
        ("pip install", False),
        ("", False),
    ],
)
def test_a_reason_names_what_is_missing(reason, helps):
    assert (skips.complaint(reason) == "") == helps
    assert helps or repr(reason) in skips.complaint(reason)


def test_packages_are_named_as_pip_knows_them():
    assert [skips.package(name) for name in ("torch", "cupy", "google.protobuf.message")] == [
        "torch",
        "cupy-cuda13x",
        "protobuf",
    ]
    with pytest.raises(pytest.skip.Exception, match=r"wants no_such_module\.part, pip install no_such_module"):
        skips.library("no_such_module.part")
    assert skips.library("json").loads("1") == 1


def test_files_that_workers_begin_with_are_there():
    named = set(re.findall(r'^    "(test_\w+\.py)",$', CONFTEST.read_text(), re.MULTILINE))
    assert "test_random_graphs.py" in named
    assert named <= {path.name for path in CONFTEST.parent.rglob("test_*.py")}


WHOLE = 'import pytest\npytest.skip("not now", allow_module_level=True)\n'
SINGLE = """
import pytest

@pytest.fixture
def silent():
    pytest.skip("not here")

def test_fixture(silent): ...

@pytest.mark.skipif(True, reason="not today")
def test_mark(): ...

@pytest.mark.skipif(True, reason="wants torch, pip install torch")
def test_told(): ...

@pytest.mark.xfail(strict=True)
def test_expected(): raise ValueError
"""


def test_silent_skips_fail(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "skips.py").write_text(Path(skips.__file__).read_text())
    (tmp_path / "test_whole.py").write_text(WHOLE)
    (tmp_path / "test_single.py").write_text(SINGLE)
    command = [sys.executable, "-m", "pytest", "-q", "--continue-on-collection-errors", "-p", "no:cacheprovider"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run([*command, "--rootdir=."], cwd=tmp_path, env=plain, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 skipped, 1 xfailed, 3 errors in "), done.stdout
    for reason in ("not now", "not here", "not today"):
        assert f"received '{reason}'" in done.stdout
