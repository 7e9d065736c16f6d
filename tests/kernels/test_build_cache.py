"""What compilers made is made once, for each thing that it is made of, and never served damaged."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np
import pytest

import build_cache
import host_loader
from singa_lite.kernels.cuda_kernels.routine import Arguments

pytestmark = pytest.mark.skipif(os.name == "nt", reason="this system has no POSIX locks")


@pytest.fixture
def made(tmp_path, monkeypatch) -> list[Path]:
    """Where entries were made so far, in a cache of this test's own."""
    monkeypatch.setenv(build_cache.VARIABLE, str(tmp_path / "cache"))
    return []


def entry(made: list[Path], *parts: str) -> Path:
    """An entry whose contents are its parts."""

    def make(path: Path) -> None:
        assert not os.listdir(path.parent)
        made.append(path)
        path.write_text(" ".join(parts))

    return build_cache.entry("thing.txt", parts, make)


def test_the_same_is_made_once_and_another_one_by_itself(made):
    first, again, other, joined = (entry(made, *parts) for parts in (["a", "b"], ["a", "b"], ["a", "c"], ["a b"]))
    assert first == again
    assert len({first, other, joined}) == len(made) == 3
    assert [build_cache.contents(path) for path in (first, other, joined)] == [b"a b", b"a c", b"a b"]


def test_a_damaged_one_is_made_again(made):
    path = entry(made, "a long word or two")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert entry(made, "a long word or two").read_bytes() == whole
    assert len(made) == 2


@pytest.mark.skipif(bool(host_loader.missing()), reason=f"wants {host_loader.missing()}")
def test_kernels_depend_on_compiler_and_headers_and_load_as_they_are_kept(made, monkeypatch):
    source = build_cache.sources({"twice.cu": 'extern "C" __global__ void twice(float* y) { y[0] *= 2; }\n'})
    file = str(source / "twice.cu")
    kept = host_loader.compiled(file, ())
    assert ctypes.CDLL(str(kept)).run_twice
    version, *headers = host_loader.surroundings()
    assert "gcc version" in version and len(headers) > 50
    for changed in ((f"{version} of tomorrow", *headers), (version, *headers[:-1], "of tomorrow")):
        monkeypatch.setattr(host_loader, "surroundings", lambda changed=changed: changed)
        assert host_loader.compiled(file, ()) != kept


@pytest.mark.skipif(not host_loader.rounds_once(), reason="this processor rounds a product before a sum is made of it")
@pytest.mark.skipif(bool(host_loader.missing()), reason=f"wants {host_loader.missing()}")
def test_numbers_are_rounded_as_a_build_says_whichever_is_kept(made):
    """(1 + 2**-12)**2 - (1 + 2**-11) is 2**-24, and 0 where the square is rounded to float32 before."""
    text = 'extern "C" __global__ void squared(float* y) { y[0] = y[1] * y[1] - y[2]; }\n'
    file = str(build_cache.sources({"squared.cu": text}) / "squared.cu")
    for as_gpu, wanted in ((True, 2.0**-24), (False, 0.0), (True, 2.0**-24)):
        y = np.array([5, 1 + 2.0**-12, 1 + 2.0**-11], np.float32)
        kernel = ctypes.CDLL(str(host_loader.compiled(file, (), host_loader.Build(as_gpu=as_gpu)))).run_squared
        arguments = Arguments((y.ctypes.data,))
        host_loader.HostFunction(kernel, "squared").bind((1, 1, 1), (1, 1, 1), 0, arguments)()
        assert y[0] == wanted
