"""Saving that fails or is killed: the old snapshot stands, or the new one is whole; the error names path and bytes."""

from __future__ import annotations

import errno
import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

import warm
from format_cases import WRITTEN, small_net
from full_disk import disk_of
from nets import state_of
from singa_lite import FeedForwardNet, SnapshotError
from singa_lite.snapshots import hdf5_writer, manifest
from snapshot_nets import dense_net, make_net, number_in, trained

# ---- writing fails


def assert_not_written(net: FeedForwardNet, path: Path, before: bytes, message: str) -> None:
    with pytest.raises(SnapshotError, match=message) as caught:
        net.save(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def no_space(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("suffix", WRITTEN)
def test_a_disk_that_is_full_at_any_byte(tmp_path, suffix):
    """Left to itself, HDF5 would lose such errors, or crash the process when it closes the file."""
    net, path = small_net(), tmp_path / f"net{suffix}"
    small_net(8).save(path)
    before = path.read_bytes()
    for length in [*range(0, len(before), 197), len(before) - 1]:
        with disk_of(length):
            assert_not_written(net, path, before, "File too large")


def write_through(monkeypatch: pytest.MonkeyPatch, kind: type[FileIO]) -> None:
    """Put a kind of file below the one that HDF5 writes to."""
    monkeypatch.setattr(hdf5_writer, "Disk", type("Disk", (hdf5_writer.Disk, kind), {}))


def test_calls_that_write_less_than_asked(saved, monkeypatch):
    """As Linux does for more than 2 GiB."""

    class Short(FileIO):
        def write(self, data: Any) -> int:
            return super().write(data[:101])

    net = trained(seed=8)
    write_through(monkeypatch, Short)
    net.save(saved)
    other = make_net("Adam")
    other.load(saved)
    assert state_of(other) == state_of(net)


class Calls:
    """Counts calls to the system that saving makes, and lets one of them fail."""

    def __init__(self, patch: pytest.MonkeyPatch, failing: int | None = None, error: Any = None) -> None:
        self.failing, self.error, self.made = failing, error, list[str]()
        for owner, name in ((os, "fsync"), (os, "replace"), (os, "open")):
            patch.setattr(owner, name, self.counted(name, getattr(owner, name)))
        file = type("File", (FileIO,), {n: self.counted(n, getattr(FileIO, n)) for n in ("write", "truncate")})
        write_through(patch, file)

    def counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **options: Any) -> Any:
            self.made.append(name)
            if len(self.made) - 1 == self.failing:
                raise self.error
            return call(*given, **options)

        return act


def test_an_error_at_every_call(saved, monkeypatch):
    """One save for each call to the system that a save makes, with one error in turn, Ctrl-C among them."""
    net, before = small_net(), saved.read_bytes()
    with monkeypatch.context() as patch:
        calls = Calls(patch)
        net.save(saved)
        made = calls.made
    after = saved.read_bytes()
    assert {"write", "truncate", "fsync", "replace", "open"} == set(made) and len(made) > 20
    for place, name in enumerate(made):
        number = (errno.ENOSPC, errno.EIO, errno.EROFS, None)[place % 4]
        error = KeyboardInterrupt() if number is None else OSError(number, os.strerror(number))
        saved.write_bytes(before)
        wanted = KeyboardInterrupt if number is None else SnapshotError
        with monkeypatch.context() as patch, pytest.raises(wanted) as caught:
            Calls(patch, place, error)
            net.save(saved)
        is_replaced = place > made.index("replace")  # the folder's fsync
        assert saved.read_bytes() == (after if is_replaced else before), name
        assert os.listdir(saved.parent) == ["net.h5"]
        if number is not None:
            told = str(caught.value)
            assert told.startswith(f"{saved}: ") and os.strerror(number) in told
            assert ("is written" if is_replaced else "all there is as before") in told
            assert ("bytes not written" in told) == (name == "write")


#: Each of the three arrays is written while threads hash and sync.
large = partial(dense_net, *"abc", features=600, outputs=600)


@pytest.mark.parametrize("failing", [0, 1, "digest"])
def test_an_error_of_a_thread_beside_the_writing_is_not_lost(saved, monkeypatch, failing):
    """The system tells that of an early sync once: the last sync would find nothing wrong."""
    real, calls, before = os.fsync, itertools.count(), saved.read_bytes()

    def fsync(handle: int) -> None:
        if next(calls) == failing:
            no_space()
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(*((manifest, "digest", no_space) if failing == "digest" else (os, "fsync", fsync)))
        assert_not_written(large(seed=1), saved, before, "No space")
    net, other = large(seed=1), large(seed=2)
    net.save(saved)
    other.load(saved)
    assert state_of(other) == state_of(net)


# ---- kills

SAVER = """
import itertools, sys
from snapshot_nets import set_all, trained
net = trained()
for number in itertools.count(int(sys.argv[2]) + 1):
    set_all(net, number)
    net.save(sys.argv[1])
    print(number, flush=True)
"""


def leftovers(folder: Path) -> set[str]:
    """Files of savers that were killed while they wrote."""
    return set(os.listdir(folder)) - {"net.h5"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("least", [4, pytest.param(200, marks=pytest.mark.nightly)])
def test_a_killed_saver_leaves_the_old_file_or_the_new_one(tmp_path, least):
    """Each is killed after a save, at a random moment within about the next two; at least one while it writes."""
    path, net, delays = tmp_path / "net.h5", trained(), random.Random(5)
    last = kills = 0
    while kills < least or not leftovers(tmp_path):
        assert kills < 1000, "no saver was killed while it wrote"
        kills += 1
        saver = warm.start("-c", SAVER, path, last)
        saver.stdout.readline()
        start = time.monotonic()
        reported = int(saver.stdout.readline())
        time.sleep(delays.uniform(0, 2) * (time.monotonic() - start))
        saver.send_signal(signal.SIGKILL)
        last = max([reported, *map(int, saver.communicate()[0].split())])
        net.load(path)
        assert number_in(net) in (last, last + 1)
        last = number_in(net)
    for rest in leftovers(tmp_path):
        assert rest.startswith(".net.h5.") and rest.endswith(".tmp")
        os.utime(tmp_path / rest, (0, 0))
    net.save(path)
    assert os.listdir(tmp_path) == ["net.h5"]
