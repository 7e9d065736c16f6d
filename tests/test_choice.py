"""Which kernels a CPU device gets, and what is said, and how often, where the oneDNN library is missing or wrong."""

from __future__ import annotations

import ctypes.util

import pytest

from in_process import output
from singa_lite.kernels.choice import find_onednn

# Ask for the kernels as `WANTED` names them, three times; print the warnings, then the set or the error.
CHOOSE = """
import sys, warnings
{before}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from singa_lite import device
    from singa_lite.errors import DeviceError
    chosen = set()
    for _ in range(3):
        try:
            chosen.add(device.new_cpu(kernels={wanted!r}).kernels.name)
        except DeviceError as error:
            chosen.add("DeviceError " + str(error))
    print(len(caught), *(warning.message for warning in caught))
    print(*chosen, sep="; ")
"""


def choose(wanted: str = "auto", before: str = "", **variables: object) -> tuple[int, str, str]:
    """(number of warnings, their text, the set or "DeviceError ...")."""
    warned, chosen = output(CHOOSE.format(before=before, wanted=wanted), **variables).splitlines()
    number, _, text = warned.partition(" ")
    return int(number), text, chosen


LIBRARY = ctypes.util.find_library("m")

# A library that is another version of oneDNN, and one that loads but does not start.
IMPOSTOR = """
import ctypes
from singa_lite.kernels.onednn_kernels.library import library
class Impostor:
    def __getitem__(self, name):
        if name == "dnnl_version":
            version = library._Version(*{version})
            return lambda: ctypes.pointer(version)
        def broken(*arguments):
            return broken.errcheck({status}, broken, arguments)
        return broken
library.c = type("c", (), {{**vars(ctypes), "CDLL": lambda path: Impostor()}})
"""


@pytest.fixture
def no_library(tmp_path):
    path = tmp_path / "libdnnl.so.3"
    path.write_text("not a library")
    return path


@pytest.fixture(params=["missing", "no library", "no oneDNN", "version 2", "does not start"])
def trouble(request, tmp_path, no_library):
    """(settings of the test, what the error must say)."""
    match request.param:
        case "missing":
            path = tmp_path / "there" / "libdnnl.so.3"
            return {"SINGA_LITE_ONEDNN": path}, [str(path)]
        case "no library":
            return {"SINGA_LITE_ONEDNN": no_library}, [str(no_library)]
        case "no oneDNN":
            if LIBRARY is None:
                pytest.skip("this system has no C library to take for oneDNN")
            return {"SINGA_LITE_ONEDNN": LIBRARY}, [f"{LIBRARY}: wanted oneDNN 3, received a library without dnnl_"]
        case "version 2":
            before = IMPOSTOR.format(version=(2, 7, 1), status=0)
            return {"before": before, "SINGA_LITE_ONEDNN": "x.so"}, ["x.so: wanted oneDNN 3, received version 2.7.1"]
        case _:
            before = IMPOSTOR.format(version=(3, 9, 0), status=5)
            return {"before": before, "SINGA_LITE_ONEDNN": "x.so"}, ["engine_create", "runtime error"]


def test_without_the_library_numpy_serves_and_says_so_once_unless_it_is_asked_for(trouble):
    settings, says = trouble
    number, text, chosen = choose(**settings)
    assert (number, chosen) == (1, "numpy")
    assert not [part for part in (*says, "onednn-cpu-gomp") if part not in text]
    number, _, chosen = choose("onednn", **settings)
    assert number == 0 and chosen.startswith("DeviceError kernels: ")
    assert not [part for part in says if part not in chosen]


def test_what_is_meant_is_silent(no_library):
    assert choose(SINGA_LITE_ONEDNN="off") == (0, "", "numpy")
    assert choose(SINGA_LITE_ONEDNN=no_library, SINGA_LITE_KERNELS="numpy") == (0, "", "numpy")
    assert choose("numpy", SINGA_LITE_ONEDNN=no_library) == (0, "", "numpy")
    assert "SINGA_LITE_ONEDNN=off" in choose("onednn", SINGA_LITE_ONEDNN="off")[2]


def test_names_that_are_no_set():
    for where, (number, _, chosen) in {
        "kernels": choose("abacus"),
        "SINGA_LITE_KERNELS": choose(SINGA_LITE_KERNELS="abacus"),
    }.items():
        assert number == 0 and chosen.startswith(f"DeviceError {where}: ") and "'abacus'" in chosen


# Eight threads ask for a device at once, changing places as often as can be.
AT_ONCE = """
import sys, threading, warnings
from singa_lite import device
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(8)
found = []
def ask():
    barrier.wait(30)
    found.append(device.{ask}())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    workers = [threading.Thread(target=ask) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
print(len(found), len(set(map(id, found))), len({{id(one.kernels) for one in found}}), len(caught))
"""


def test_threads_that_ask_at_once_get_one_device_and_one_warning(no_library):
    assert output(AT_ONCE.format(ask="cpu"), SINGA_LITE_ONEDNN=no_library).split() == ["8", "1", "1", "1"]
    assert output(AT_ONCE.format(ask="new_cpu"), SINGA_LITE_ONEDNN=no_library).split() == ["8", "8", "1", "1"]


# How many primitives whose launches are gone the library keeps.
KEPT = """
import ctypes
from singa_lite.kernels.onednn_kernels.library.library import load
kept = ctypes.c_int()
load()._library.dnnl_get_primitive_cache_capacity(ctypes.byref(kept))
print(kept.value)
"""


def test_the_library_keeps_few_primitives_unless_the_user_says_how_many():
    """Its own 1,024 would be some 60 MiB of the process after many sizes of batch."""
    if isinstance(find_onednn(), str):
        pytest.skip(f"{find_onednn()}; pip install onednn-cpu-gomp")
    assert int(output(KEPT)) == 64
    assert int(output(KEPT, ONEDNN_PRIMITIVE_CACHE_CAPACITY=7)) == 7
