"""Replacing a file: the new one or the old one, whatever fails; and what killed savers left."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from singa_lite import SnapshotError
from singa_lite.common import leftovers
from singa_lite.common.atomic import replacing

posix = pytest.mark.skipif(os.name == "nt", reason="this system has no POSIX permissions, links and fsync of folders")


def replace(path: Any, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


def mode(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file that is there already."""
    path = tmp_path / "net.h5"
    path.write_bytes(b"old")
    return path


def assert_untouched(old: Path) -> None:
    assert old.read_bytes() == b"old"
    assert os.listdir(old.parent) == [old.name]


# ---- what is written, and where


def test_an_old_file_stands_until_the_end(old):
    with replacing(old) as file:
        file.write(b"new")
        assert old.read_bytes() == b"old"
        (other,) = set(os.listdir(old.parent)) - {"net.h5"}
        assert other.startswith(".net.h5.") and other.endswith(".tmp")
    assert old.read_bytes() == b"new"
    assert os.listdir(old.parent) == ["net.h5"]


def test_a_relative_path_means_the_folder_of_the_beginning(tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with replacing("net.h5") as file:
        file.write(b"new")
        monkeypatch.chdir(tmp_path / "other")
    assert (tmp_path / "net.h5").read_bytes() == b"new"


@posix
@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_is_followed_and_stays(tmp_path, tmp_path_factory, is_there):
    target, link = tmp_path / "net.h5", tmp_path_factory.mktemp("links") / "best"
    if is_there:
        target.write_bytes(b"old")
    link.symlink_to(target)
    replace(link, b"new")
    assert link.is_symlink() and not target.is_symlink()
    assert target.read_bytes() == b"new"
    assert os.listdir(link.parent) == ["best"]


def test_two_at_once_are_both_whole(old):
    with replacing(old) as first:
        first.write(b"first")
        with replacing(old) as second:
            second.write(b"second")
        first.write(b" of two")
        assert old.read_bytes() == b"second"
    assert old.read_bytes() == b"first of two"
    assert os.listdir(old.parent) == ["net.h5"]


# ---- permissions


@posix
@pytest.mark.parametrize("mask", [0o077, 0o002])
def test_a_new_file_has_what_the_mask_allows(tmp_path, mask):
    with umask(mask):
        replace(tmp_path / "net.h5", b"new")
    assert mode(tmp_path / "net.h5") == 0o666 & ~mask


@posix
@pytest.mark.parametrize("before", [0o640, 0o444])
def test_a_replaced_file_keeps_its_permissions_from_the_start(old, before):
    old.chmod(before)
    with umask(0), replacing(old) as file:
        assert mode(file.fileno()) == before
        file.write(b"new")
    assert mode(old) == before
    assert old.read_bytes() == b"new"


@posix
def test_nobody_reads_a_file_that_is_private_while_it_is_made(old, monkeypatch):
    """Between the making of the new file and its permissions."""
    real, seen = shutil.copymode, []

    def copymode(source: str, target: str) -> None:
        seen.append(mode(target) & 0o077)
        real(source, target)

    monkeypatch.setattr(shutil, "copymode", copymode)
    old.chmod(0o600)
    with umask(0):
        replace(old, b"new")
    assert seen == [0]


# ---- failures


class Stop(Exception):
    """Raised by a body."""


@pytest.mark.parametrize("error", [Stop(), KeyboardInterrupt(), SnapshotError("of the body")], ids=repr)
def test_an_error_of_the_body_passes_and_changes_nothing(old, error):
    for path in (old, old.with_name("first.h5")):
        with pytest.raises(type(error)) as caught, replacing(path) as file:
            file.write(b"half of the n")
            raise error
        assert caught.value is error
        assert_untouched(old)


@posix
def test_a_file_system_without_fsync_of_folders_is_written_to(old, monkeypatch):
    real = os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    replace(old, b"new")
    assert old.read_bytes() == b"new"


@posix
def test_the_file_is_synced_before_the_rename_and_the_folder_after(old, monkeypatch):
    """What a power cut would show: the order of calls is the only trace that a test can see."""
    calls, real = [], {"fsync": os.fsync, "replace": os.replace}

    def fsync(handle: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else os.fstat(handle).st_size)
        real["fsync"](handle)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append("replace"), real["replace"](*paths)))
    replace(old, b"newer")
    assert calls == [5, "replace", "folder"]


@pytest.mark.parametrize("folder", ["none", "net.h5"])
def test_what_is_no_folder_is_named(old, folder):
    with pytest.raises(SnapshotError, match=rf"{folder}.inner\.h5"):
        replace(old.parent / folder / "inner.h5", b"new")
    assert_untouched(old)


@posix
@pytest.mark.parametrize("make", ["mkdir", "mkfifo"])
def test_only_files_are_replaced(tmp_path, make):
    getattr(os, make)(tmp_path / "net.h5")
    before = os.stat(tmp_path / "net.h5").st_ino
    with pytest.raises(SnapshotError, match=r"net\.h5"):
        replace(tmp_path / "net.h5", b"new")
    assert os.stat(tmp_path / "net.h5").st_ino == before
    assert os.listdir(tmp_path) == ["net.h5"]


# ---- paths that are hard to write to


@posix
def test_links_that_lead_in_a_circle_stay(tmp_path):
    one, other = tmp_path / "one.h5", tmp_path / "other.h5"
    one.symlink_to(other)
    other.symlink_to(one)
    with pytest.raises(SnapshotError, match=r"one\.h5"):
        replace(one, b"new")
    assert one.is_symlink() and other.is_symlink() and len(os.listdir(tmp_path)) == 2


@pytest.mark.parametrize("name", ["half \ud800 a letter.h5", "nul \0.h5"])
def test_names_that_no_file_can_have(tmp_path, name):
    with pytest.raises(SnapshotError, match="path"):
        replace(tmp_path / name, b"new")
    assert not os.listdir(tmp_path)


# ---- what killed savers leave is removed by the next one; what may belong to a living one is not

OLD = ".net.h5.0123456789abcdef.tmp"


def left(folder: Path, name: str, hours: float) -> Path:
    """A file that was last written so long ago."""
    path = folder / name
    path.write_bytes(b"half of a snap")
    at = time.time() - 3600 * hours
    os.utime(path, (at, at))
    return path


def save(folder: Path) -> list[str]:
    """Replace net.h5; what is in the folder then."""
    replace(folder / "net.h5", b"new")
    assert (folder / "net.h5").read_bytes() == b"new"
    return sorted(set(os.listdir(folder)) - {"net.h5"})


@pytest.mark.parametrize("name", ["net.h5", "n" * 250 + ".h5"])
def test_all_of_a_name_are_removed(tmp_path, name):
    for _ in range(3):
        left(tmp_path, leftovers.temporary_name(name), 2)
    replace(tmp_path / name, b"new")
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(("hours", "stays"), [(1.1, False), (0.9, True), (0, True), (-5, True)])
def test_only_what_is_old_is_removed(tmp_path, hours, stays):
    left(tmp_path, OLD, hours)
    assert save(tmp_path) == [OLD] * stays


def test_other_files_stay(tmp_path):
    names = [".net.h5.tmp", ".best.h5.0123456789abcdef.tmp", ".net_h5.0123456789abcdef.tmp", OLD + "x", "x" + OLD]
    names += [".net.h5.0123456789abcde.tmp", ".net.h5.0123456789ABCDEF.tmp", ".net.h5..0123456789abcdef.tmp"]
    for name in names:
        left(tmp_path, name, 99)
    assert save(tmp_path) == sorted(names)


@posix
def test_a_link_leads_to_the_folder_of_its_target(tmp_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("targets")
    left(folder, OLD, 2)
    (tmp_path / "net.h5").symlink_to(folder / "net.h5")
    save(tmp_path)
    assert os.listdir(folder) == ["net.h5"]


@posix
def test_a_saver_that_is_alive_keeps_its_file_however_old(tmp_path):
    for replaced in range(2):
        with replacing(tmp_path / "net.h5") as file:
            file.write(b"slow")
            os.utime(file.fileno(), (0, 0))
            (mine,) = save(tmp_path)
            assert leftovers.temporary_name("net.h5")[:8] == mine[:8], replaced
        assert (tmp_path / "net.h5").read_bytes() == b"slow"
        assert os.listdir(tmp_path) == ["net.h5"]


@posix
@pytest.mark.parametrize("make", ["symlink", "mkdir", "mkfifo"])
def test_what_is_no_file_stays(tmp_path, make):
    target = left(tmp_path, "target", 9)
    if make == "symlink":
        (tmp_path / OLD).symlink_to(target)
    else:
        getattr(os, make)(tmp_path / OLD)
        os.utime(tmp_path / OLD, (0, 0))
    assert save(tmp_path) == [OLD, "target"]


@posix
def test_where_files_cannot_be_removed_or_locked_they_stay(tmp_path, monkeypatch):
    left(tmp_path, OLD, 9)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    for owner, name in ((os, "unlink"), (os, "scandir"), (leftovers.fcntl, "flock")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, refuse)
            assert save(tmp_path) == [OLD]
