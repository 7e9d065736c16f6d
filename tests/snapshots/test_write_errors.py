"""Saving that fails or is killed: the old snapshot stands, or the new one is whole; the error names path and bytes."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import random
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from full_disk import disk_of
from nets import state_of
from singa_lite import FeedForwardNet, SnapshotError, layers
from singa_lite.snapshots import manifest
from singa_lite.snapshots.files.disk import Disk
from singa_lite.snapshots.formats import hdf5_writer, native
from snapshot_nets import make_net, number_in, set_all, trained

#: How many savers are killed.
KILLS = int(os.environ.get("SINGA_LITE_TEST_KILLS", "80"))


# ---- writing fails


def assert_not_written(net: FeedForwardNet, path: Path, before: bytes, message: str = "") -> None:
    with pytest.raises(SnapshotError, match=rf"net\.h5: cannot be written.*{message}") as caught:
        net.save(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["net.h5"]


def no_space(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("owner", "call"), [(os, "fsync"), (os, "replace"), (h5py.Group, "create_dataset")])
def test_an_error_of_any_part(saved, monkeypatch, owner, call):
    net, before = trained("SGD", seed=8), saved.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(owner, call, no_space)
        assert_not_written(net, saved, before, "No space left on device")
    net.save(saved)
    assert saved.read_bytes() != before


def test_an_error_midway(saved, monkeypatch):
    net, before, calls = trained("SGD", seed=8), saved.read_bytes(), []
    create = h5py.Group.create_dataset

    def fail_at_the_fifth(group: h5py.Group, name: str, **options: Any) -> h5py.Dataset:
        calls.append(name)
        return no_space() if len(calls) == 5 else create(group, name, **options)

    monkeypatch.setattr(h5py.Group, "create_dataset", fail_at_the_fifth)
    assert_not_written(net, saved, before, "No space left on device")
    assert len(calls) == 5


def test_a_disk_that_is_full_at_any_byte(saved):
    """Left to itself, HDF5 would lose such errors, or crash the process when it closes the file."""
    net, before = trained(seed=8), saved.read_bytes()
    for length in [*range(0, len(before), 499), len(before) - 1]:
        with disk_of(length):
            assert_not_written(net, saved, before, "File too large")
    net.save(saved)
    other = make_net("Adam")
    other.load(saved)
    assert state_of(other) == state_of(net)


def test_a_disk_that_gets_full_when_the_file_is_closed(saved, monkeypatch):
    close = h5py.File.close

    def close_without_space(file: h5py.File) -> None:
        with disk_of(0):
            close(file)

    monkeypatch.setattr(h5py.File, "close", close_without_space)
    assert_not_written(trained(seed=8), saved, saved.read_bytes(), "File too large")


def test_a_full_disk_stops_the_writing(saved, monkeypatch):
    names, create = [], h5py.Group.create_dataset

    def note(group: h5py.Group, name: str, **options: Any) -> h5py.Dataset:
        names.append(name)
        return create(group, name, **options)

    monkeypatch.setattr(h5py.Group, "create_dataset", note)
    with disk_of(0):
        assert_not_written(trained(seed=8), saved, saved.read_bytes(), "File too large")
    assert len(names) <= 1


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

    def __init__(self, patch: pytest.MonkeyPatch, failing: int | None = None, number: int = errno.ENOSPC) -> None:
        self.failing, self.number, self.made = failing, number, list[str]()
        for owner, name in ((os, "fsync"), (os, "replace"), (os, "open")):
            patch.setattr(owner, name, self.counted(name, getattr(owner, name)))
        file = type("File", (FileIO,), {n: self.counted(n, getattr(FileIO, n)) for n in ("write", "truncate")})
        write_through(patch, file)

    def counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def act(*given: Any, **options: Any) -> Any:
            self.made.append(name)
            if len(self.made) - 1 == self.failing:
                raise OSError(self.number, os.strerror(self.number))
            return call(*given, **options)

        return act


ERRORS = {"full": errno.ENOSPC, "broken": errno.EIO, "read-only": errno.EROFS}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_at_every_call(saved, monkeypatch, error):
    """One save for each call to the system that a save makes; of the many writes each error has every third."""
    number, turn = ERRORS[error], list(ERRORS).index(error)
    net, before = trained(seed=8), saved.read_bytes()
    with monkeypatch.context() as patch:
        calls = Calls(patch)
        net.save(saved)
        made = calls.made
    after = saved.read_bytes()
    assert {"write", "truncate", "fsync", "replace", "open"} == set(made) and len(made) > 40
    for place, name in enumerate(made):
        if name == "write" and place % len(ERRORS) != turn:
            continue
        saved.write_bytes(before)
        with monkeypatch.context() as patch, pytest.raises(SnapshotError, match=os.strerror(number)) as caught:
            Calls(patch, place, number)
            net.save(saved)
        assert str(caught.value).startswith(f"{saved}: "), name
        is_replaced = place > made.index("replace")  # the folder's fsync
        assert saved.read_bytes() == (after if is_replaced else before), name
        assert ("is written, but a power cut may undo it" if is_replaced else "all there is as before") in str(
            caught.value
        )
        if name == "write":
            assert "bytes not written" in str(caught.value)
        if not is_replaced:
            assert "bytes are free" in str(caught.value)
        assert os.listdir(saved.parent) == ["net.h5"]


@pytest.mark.parametrize("number", [0, 1, 9, 40])
def test_an_interrupt_while_hdf5_writes(saved, monkeypatch, number):
    """Ctrl-C in the middle passes on, and the old file stands."""
    before, calls = saved.read_bytes(), itertools.count()

    class Interrupted(FileIO):
        def write(self, data: Any) -> int:
            if next(calls) == number:
                raise KeyboardInterrupt
            return super().write(data)

    write_through(monkeypatch, Interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(seed=8).save(saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["net.h5"]


def large(seed: int) -> FeedForwardNet:
    """With three arrays of which each is written while threads hash and sync."""
    net = FeedForwardNet(seed=seed)
    for name in "abc":
        net.add(layers.Dense(name, 600, input_sample_shape=(600,) if name == "a" else None))
    return net


def test_large_arrays_go_to_the_disk_early(tmp_path, monkeypatch):
    real, calls = os.fsync, []

    def fsync(handle: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    net, other = large(1), large(2)
    net.save(tmp_path / "net.h5")
    assert calls[:-2] and set(calls[:-2]) == {"file"}
    assert calls[-2:] == ["file", "folder"]
    other.load(tmp_path / "net.h5")
    assert state_of(other) == state_of(net)


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_an_early_sync_is_not_lost(saved, monkeypatch, failing):
    """The system tells it once: the last sync would find nothing wrong."""
    real, calls, before = os.fsync, itertools.count(), saved.read_bytes()

    def fsync(handle: int) -> None:
        if next(calls) == failing:
            raise OSError(errno.EIO, "Input/output error")
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    assert_not_written(large(1), saved, before, "Input/output error")


@pytest.mark.parametrize("part", ["_write", "manifest.digest"])
def test_an_error_beside_the_writing(saved, monkeypatch, part):
    before = saved.read_bytes()
    owner = native if part == "_write" else manifest
    monkeypatch.setattr(owner, part.rpartition(".")[2], no_space)
    assert_not_written(large(1), saved, before, "No space")


def test_a_missing_folder(tmp_path):
    with pytest.raises(SnapshotError, match=r"net\.h5: cannot be written.*No such file"):
        trained().save(tmp_path / "none" / "net.h5")
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="this system has no POSIX permissions and links")
def test_permissions_and_links(saved):
    net, link = trained("SGD", seed=8), saved.parent / "best.h5"
    saved.chmod(0o640)
    link.symlink_to("net.h5")
    net.save(link)
    assert link.is_symlink() and not saved.is_symlink()
    assert saved.stat().st_mode & 0o777 == 0o640
    other = make_net("SGD")
    other.load(link)
    assert state_of(other) == state_of(net)


# ---- kills

# Forks savers, one a line of input. Each tells its process id, saves 1, 2, 3 and so on above the line's number and
# tells each when it is saved; after its end comes 0. Forking spares each the start of Python
# and the imports.
SAVERS = """
import os, sys
import singa_lite.snapshots.formats.native
from snapshot_nets import set_all, trained
net = trained()
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.write(1, b"%d\\n" % os.getpid())
        number = int(line)
        while True:
            number += 1
            set_all(net, number)
            net.save(sys.argv[1])
            os.write(1, b"%d\\n" % number)
    os.waitpid(child, 0)
    os.write(1, b"0\\n")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_killed_saver_leaves_the_old_file_or_the_new_one(tmp_path):
    """Each is killed after a save, at a random moment within the next two."""
    path, net, delays = tmp_path / "net.h5", trained(), random.Random(5)
    set_all(net, 0)
    net.save(path)
    last = 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SAVERS, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as savers:
        for _ in range(KILLS):
            savers.stdin.write(f"{last}\n")
            savers.stdin.flush()
            child = int(savers.stdout.readline())
            start = time.monotonic()
            reported = int(savers.stdout.readline())
            time.sleep(delays.uniform(0, 2) * (time.monotonic() - start))
            os.kill(child, signal.SIGKILL)
            last = max([reported, *(int(line) for line in iter(savers.stdout.readline, "0\n"))])
            net.load(path)
            assert number_in(net) in (last, last + 1)
            last = number_in(net)
        savers.stdin.close()
    assert savers.returncode == 0
    leftovers = set(os.listdir(tmp_path)) - {"net.h5"}
    assert leftovers, "no saver was killed while it wrote"
    for rest in leftovers:
        assert rest.startswith(".net.h5.") and rest.endswith(".tmp")
        os.utime(tmp_path / rest, (0, 0))
    net.save(path)
    assert os.listdir(tmp_path) == ["net.h5"]


def test_an_hdf5_file_that_is_dropped_behind_its_disk_says_nothing(tmp_path):
    """As Ctrl-C before the `with` block of HDF5's file begins; Python would tell of an error that nobody can catch."""
    with FileIO(tmp_path / "some.h5", "x+") as target:
        disk = Disk(target)
        file = h5py.File(disk, "w", libver="earliest")
        file["values"] = np.arange(5.0)
        disk.close()
        del file
        gc.collect()
