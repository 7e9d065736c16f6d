"""A folder of checkpoints: names them, finds the newest, removes old ones, and marks the best."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread, current_thread
from weakref import WeakValueDictionary

from singa_lite.common import checks, leftovers
from singa_lite.common.atomic import replacing
from singa_lite.common.errors import SnapshotError
from singa_lite.common.keywords import explains_keywords
from singa_lite.common.notice import warn
from singa_lite.training.fit import Training

if sys.platform != "win32":
    import fcntl

BEST = "best.h5"

_NAME = re.compile(r"checkpoint-(\d{10,})\.h5")
#: Temporary files of killed processes: of a checkpoint, see `atomic.replacing`, or of the link to the best.
_LEFT = re.compile(r"\.((?:checkpoint-\d{10,}|best)\.h5)\.[0-9a-f]+\.tmp")


#: {path: the object that held it last in this process}.
_holders: WeakValueDictionary[str, Folder] = WeakValueDictionary()


class Folder:
    """One training run's checkpoints. keep: how many of the newest stay; the best one stays beside them."""

    _lock: int | None = None
    _process = 0

    def __init__(self, path: str | os.PathLike[str], keep: int) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"Checkpoint folder: wanted a path, received {path!r}")
        self.path = Path(path)
        self.keep = keep
        #: Returns once nothing is written here in the background; None before the first run.
        self.wait_for_writer: Callable[[], None] | None = None
        self._holder: tuple[Training, Thread] | None = None

    def settle(self) -> None:
        """Wait for the checkpoint that a run of this process was writing here when an interrupt ended it.

        Else it may come to the folder after others have looked what is there.
        """
        last = _holders.get(os.path.realpath(self.path))
        if last is not None and last._was_interrupted and last.wait_for_writer is not None:
            last.wait_for_writer()

    def prepare(self, step: int) -> None:
        """Make the folder; remove what killed processes left half written, as `leftovers` says.

        SnapshotError where there are checkpoints of later steps than `step`. They are of another run; beside them new
        ones would count as old, and be removed.
        """
        self.settle()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.probe().touch()  # raises before training if nothing can be written
            self.probe().unlink()
            for entry in list(self.path.iterdir()):
                left = _LEFT.fullmatch(entry.name)
                if left:
                    leftovers.remove(str(self.path), left[1])
        except OSError as error:
            raise SnapshotError(f"{self.path}: cannot be used for checkpoints: {error}") from error
        later = [entry.name for entry in self.checkpoints() if step_of(entry) > step]
        if later:
            raise SnapshotError(
                f"{self.path}: wanted no checkpoints of later steps than {step}, received {later[0]}; "
                'fit(..., resume="auto") goes on from it, a new run wants a folder of its own'
            )

    def hold(self, training: Training) -> None:
        """Keep the folder for this run. SnapshotError if a run that is alive keeps it.

        A lock does that, which the system drops with the process. Where folders have no locks, other runs are let in.
        """
        self.release()
        if sys.platform == "win32":
            return
        self._holder, self._process = (training, current_thread()), os.getpid()
        left = _holders.get(os.path.realpath(self.path))
        if left is None or left._was_interrupted:
            if left is not None:
                left.release()
            _holders[os.path.realpath(self.path)] = self
        try:
            self._lock = os.open(self.path, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise SnapshotError(
                f"{self.path}: wanted a folder for this run alone, received one that another run is writing to"
            ) from error
        except OSError:
            self.release()

    @property
    def _was_interrupted(self) -> bool:
        """Whether an interrupt ended the run before it released the folder."""
        if self._holder is None:
            return True
        training, thread = self._holder
        return not thread.is_alive() or (thread is current_thread() and not training.is_under_way)

    def release(self) -> None:
        """Let others have the folder."""
        if self._lock is not None:
            if self._process == os.getpid():  # a forked child has the same lock
                fcntl.flock(self._lock, fcntl.LOCK_UN)  # first, so that after an interrupt here the folder is free
            lock, self._lock = self._lock, None
            os.close(lock)

    def __del__(self) -> None:
        """Free the folder if an interrupt came before `release`. Only by closing: a forked child has the same lock."""
        if self._lock is not None:
            os.close(self._lock)

    def probe(self) -> Path:
        """The path of a file that is written and removed again, to see whether that works."""
        return self.path / ".probe.h5"

    def file(self, step: int) -> Path:
        """The path of the checkpoint after `step` steps."""
        return self.path / f"checkpoint-{step:010}.h5"

    def checkpoints(self) -> list[Path]:
        """Newest first."""
        return checkpoints(self.path)

    def prune(self) -> None:
        """Remove all but the newest. One that cannot be removed is a warning, so that training goes on."""
        for old in self.checkpoints()[self.keep :]:
            try:
                old.unlink(missing_ok=True)
            except OSError as error:
                warn(f"an old checkpoint cannot be removed: {error}")

    def mark_best(self, file: Path) -> None:
        """Give this file the name of the best one too, which it keeps after it is pruned."""
        temporary = self.path / leftovers.temporary_name(BEST)
        try:
            os.link(file, temporary)
            os.replace(temporary, self.path / BEST)
        except OSError:  # a file system without hard links
            with open(file, "rb") as source, replacing(self.path / BEST) as target:
                shutil.copyfileobj(source, target, 1 << 20)
        finally:
            with suppress(OSError):
                temporary.unlink()  # `os.replace` leaves it if both names are of one file already


def checkpoints(folder: str | os.PathLike[str]) -> list[Path]:
    """The checkpoints in a folder, newest first; none where there is no folder. SnapshotError if it cannot be read."""
    try:
        found = [entry for entry in Path(folder).iterdir() if _NAME.fullmatch(entry.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SnapshotError(f"{os.fsdecode(folder)}: wanted a folder of checkpoints: {error}") from error
    return sorted(found, key=step_of, reverse=True)


@explains_keywords(folder=checks.path)
def latest(folder: str | os.PathLike[str]) -> Path | None:
    """Returns the path of the newest checkpoint in a folder, None if there is none.

    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile("adam", "mse")
    >>> saving = callbacks.Checkpoint("run")
    >>> history = net.fit(np.ones((8, 5)), np.ones((8, 3)), callbacks=saving, verbose=False)
    >>> snapshots.latest("run").name, snapshots.latest("other")
    ('checkpoint-0000000001.h5', None)
    """
    return next(iter(checkpoints(folder)), None)


def step_of(file: Path) -> int:
    """The number of steps after which it was written."""
    return int(file.name.removeprefix("checkpoint-").removesuffix(".h5"))


def set_aside(file: Path) -> Path:
    """Give a damaged checkpoint a name that is no checkpoint's; returns its path, the same if it cannot be renamed."""
    aside = file.with_name(f"{file.name}.damaged")
    try:
        os.replace(file, aside)
    except OSError:
        return file
    return aside
