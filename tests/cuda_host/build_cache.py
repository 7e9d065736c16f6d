"""What compilers made, kept for other tests, workers and runs: each thing is made once.

An entry is a file. Its name has a hash of all that it was made of, and it ends with a hash of its own bytes, so that a
damaged one is seen and made again. It is made in a folder aside and renamed: nobody sees half of one. Of several
processes and threads that want the same entry, one makes it while the others wait.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

#: Names the folder of entries; without it they lie in one of this user's own below the system's temporary folder.
VARIABLE = "SINGA_LITE_TEST_CACHE"
DIGEST = hashlib.sha256().digest_size


def folder() -> Path:
    """Where entries are kept. PermissionError if that is another user's, who could put anything there."""
    default = Path(tempfile.gettempdir()) / f"singa_lite_tests_{os.getuid()}"
    path = Path(os.environ.get(VARIABLE) or default).absolute()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path}: wanted a folder of this user, received another user's; set {VARIABLE}")
    return path


def entry(name: str, made_of: Sequence[str], make: Callable[[Path], None]) -> Path:
    """The file of an entry, made unless it is there. A library can be loaded from it as it is.

    name: of the file, which gets a hash before its suffix. made_of: all that the contents depend on. make: writes them
    to the path that it is given, in a folder that holds nothing else.
    """
    stem, suffix = os.path.splitext(name)
    path = folder() / f"{stem}-{_hash(repr(list(made_of)))}{suffix}"
    if not _is_whole(path):
        with _alone(path):
            if not _is_whole(path):
                _make(path, make)
    return path


def contents(path: Path) -> bytes:
    """What was put into the file of an entry."""
    return path.read_bytes()[:-DIGEST]


def sources(texts: Mapping[str, str]) -> Path:
    """A folder of files, {name: text}, at the same path for all that ask: what is compiled names it in its messages."""
    place = folder() / f"sources-{_hash(repr(sorted(texts.items())))}"
    place.mkdir(exist_ok=True)
    for name, text in texts.items():
        file = place / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            with tempfile.NamedTemporaryFile("w", dir=place, delete=False, encoding="utf-8") as written:
                written.write(text)
            os.replace(written.name, file)
    return place


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _is_whole(path: Path) -> bool:
    """Whether the file is there and undamaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return False
    return hashlib.sha256(data[:-DIGEST]).digest() == data[-DIGEST:]


def _make(path: Path, make: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        made = Path(work) / path.name
        make(made)
        digest = hashlib.sha256(made.read_bytes()).digest()
        with made.open("ab") as file:
            file.write(digest)
        os.replace(made, path)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Waits until no other process or thread makes this entry. The system ends the lock of one that was killed."""
    import fcntl  # not every system has it, but every one that these compilers run on

    lock = path.with_suffix(".lock")
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:  # whoever waits for this very file finds the entry made; after a failure two may try at once
            lock.unlink(missing_ok=True)
