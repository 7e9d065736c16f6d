"""What killed savers leave is removed by the next one; what may belong to a living one is not."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from singa_lite.common import leftovers
from singa_lite.snapshots.files.atomic import replacing

OLD = ".net.h5.0123456789abcdef.tmp"

posix = pytest.mark.skipif(os.name == "nt", reason="this system has no POSIX locks and links")


def left(folder: Path, name: str, hours: float) -> Path:
    """A file that was last written so long ago."""
    path = folder / name
    path.write_bytes(b"half of a snap")
    at = time.time() - 3600 * hours
    os.utime(path, (at, at))
    return path


def save(folder: Path) -> list[str]:
    """Replace net.h5; what is in the folder then."""
    with replacing(folder / "net.h5") as file:
        file.write(b"new")
    assert (folder / "net.h5").read_bytes() == b"new"
    return sorted(set(os.listdir(folder)) - {"net.h5"})


@pytest.mark.parametrize("name", ["net.h5", "n" * 250 + ".h5"])
def test_all_of_a_name_are_removed(tmp_path, name):
    for _ in range(3):
        left(tmp_path, leftovers.temporary_name(name), 2)
    with replacing(tmp_path / name) as file:
        file.write(b"new")
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
