"""Pages that go back to the system: what is lost, what stays, and what the process takes less."""

from __future__ import annotations

import mmap
import re
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.common import pages
from singa_lite.runtime.host import Host

pytestmark = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="this system has no /proc/self/smaps")

PAGE = mmap.PAGESIZE


def resident(field: str) -> int:
    """Bytes of a field of the process's status."""
    return int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024


def code_bytes(path: str) -> int:
    """Bytes of a library's code that the process has mapped in."""
    found = re.findall(
        rf"^\w+-\w+ r-xp [^\n]*{re.escape(path)}\nSize:.*\n(?:\w+PageSize:.*\n)*Rss: +(\d+)", smaps(), re.M
    )
    return sum(map(int, found)) * 1024


def smaps() -> str:
    return Path("/proc/self/smaps").read_text()


@pytest.mark.parametrize(
    ("begin", "nbytes", "lost"),
    [
        (0, 3 * PAGE, range(3)),
        (1, 3 * PAGE, range(1, 3)),
        (PAGE - 1, 2 * PAGE, range(1, 2)),
        (PAGE, 2 * PAGE - 1, range(1, 2)),
        (5, PAGE, ()),
        (0, 0, ()),
    ],
)
def test_whole_pages_alone_are_lost(begin, nbytes, lost):
    memory = mmap.mmap(-1, 4 * PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array = np.frombuffer(memory, np.uint8)
    array[:] = 7
    pages.drop(array.ctypes.data + begin, nbytes)
    wanted = np.full((4, PAGE), 7)
    wanted[list(lost)] = 0
    np.testing.assert_array_equal(array.reshape(4, PAGE), wanted)


def test_the_process_takes_less_by_what_was_dropped():
    array = np.ones(64 << 20, np.uint8)
    before = resident("RssAnon")
    pages.drop(array.ctypes.data, array.nbytes)
    assert before - resident("RssAnon") > 60 << 20


def test_code_goes_and_comes_back():
    path = zlib.__file__ if hasattr(zlib, "__file__") else sys.modules["_ctypes"].__file__
    pages.may_drop_code(path)
    wanted = zlib.crc32(b"abc")
    assert code_bytes(path) > 0
    pages.drop_code()
    assert code_bytes(path) == 0
    assert zlib.crc32(b"abc") == wanted == 0x352441C2


@pytest.mark.parametrize("why", ["a library that came later", "a debugger"])
def test_code_stays(why, monkeypatch, tmp_path):
    path = sys.modules["_ctypes"].__file__
    if why == "a debugger":  # it writes to code
        for name in ("maps", "status"):
            text = Path("/proc/self", name).read_text()
            (tmp_path / name).write_text(text.replace("TracerPid:\t0\n", "TracerPid:\t77\n"))
        monkeypatch.setattr(pages, "_PROCESS", tmp_path)
    else:
        monkeypatch.setattr(pages, "_libraries", set())
    before = code_bytes(path)
    pages.may_drop_code(None)  # as of a module without a file
    pages.drop_code()
    assert code_bytes(path) == before > 0


def losses(sizes, budget=None):
    """Of steps of so many samples each."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), seed=1)
    net.add(layers.Dense("a", 3000, input_sample_shape=(500,)))
    net.add(layers.Activation("b", "relu"))
    net.add(layers.Dense("c", 7))
    net.compile(optimizer.SGD(lr=0.1), memory_budget=budget)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 500)).astype("float32"), np.arange(64) % 7
    return [float(net.train_one_batch(x[:n], y[:n])[0]) for n in sizes]


def test_no_arena_is_in_memory_while_another_form_is_planned_within_a_budget(monkeypatch):
    dropped, drop = [], Host.drop

    def seen(runtime, memory):
        memory[:] = 1
        drop(runtime, memory)
        dropped.append((memory.nbytes, int(memory.sum())))

    monkeypatch.setattr(Host, "drop", seen)
    sizes = (64, 33, 64, 5, 33)
    assert losses(sizes, "60 MiB") == losses(sizes)
    assert len(dropped) == 2, "of a budget alone, and for what is recorded while an arena is there"
    for nbytes, left in dropped:
        assert nbytes > 20 * PAGE
        assert left < 2 * PAGE
