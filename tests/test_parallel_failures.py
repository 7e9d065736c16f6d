"""One of several processes is killed, hangs, raises or differs: all end within seconds, with one message that names it
unless it was killed, and the last checkpoint is whole.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pytest

import failing_ranks
from rank_programs import TESTS, environment, mpiexec, start, two_at_a_time
from singa_lite.snapshots import checkpoint, latest

SCRIPT = str(Path(TESTS, "failing_ranks.py"))
#: Seconds within which a job is to be over, on a machine that is shared with others.
SOON = 40


#: Ranks of each job that does not come to its end, by how.
JOBS = {
    **{"killed": 3, "killed writing": 3, "killed giving": 3, "hangs": 3, "comes late": 2, "raises": 2, "nan": 2},
    "short": 3,
}


class Ended(NamedTuple):
    """A job that has ended. folder: of its checkpoints."""

    folder: Path
    out: str


Jobs: TypeAlias = dict[str, Future[Ended]]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: Any) -> Iterator[Jobs]:
    folders = {how: tmp_path_factory.mktemp("job") for how in JOBS}
    with two_at_a_time({how: partial(ended, how, folders[how], ranks) for how, ranks in JOBS.items()}) as found:
        yield found


def ended(how: str, folder: Path, ranks: int) -> Ended:
    """One that did not come to its end, and what it printed."""
    begun = time.monotonic()
    status, out = start(ranks, SCRIPT, how, str(folder), seconds=SOON)
    assert status != 0 and "came to its end" not in out, out
    assert time.monotonic() - begun < SOON
    return Ended(folder, out)


def check_goes_on(folder: Path, least: int) -> None:
    """The newest checkpoint is whole, and one process goes on from it."""
    newest = latest(folder)
    assert newest is not None and int(newest.stem.split("-")[1]) >= least
    checkpoint.verify(newest)
    net = failing_ranks.net_for(None)
    with pytest.warns(UserWarning, match="processes was 3, is None"):
        net.fit(failing_ranks.X, failing_ranks.Y, 8, 5, verbose=False, resume=newest)
    assert net.optimizer is not None and net.optimizer.step == 40


@pytest.mark.parametrize("how", ["killed", "killed writing", "killed giving"])
def test_a_rank_that_is_killed_ends_all(how: str, jobs: Jobs):
    """Also within a checkpoint, whose file is begun: by rank 0 that writes it, or one that gives its part of it."""
    folder, out = jobs[how].result()
    check_goes_on(folder, 9)
    ranks = dict(re.findall(r"rank (\d) is (\d+)", out))
    assert len(ranks) == 3 and "signal 9" in out


def test_a_rank_that_hangs_is_named_after_the_limit(jobs: Jobs):
    folder, out = jobs["hangs"].result()
    assert "within 3 s, received nothing from rank 1" in out or "received nothing from rank 1, 2" in out
    check_goes_on(folder, 9)


def test_a_rank_that_does_not_begin_ends_all_at_the_limit(jobs: Jobs):
    """MPI itself waits for it, without any."""
    out = jobs["comes late"].result().out
    assert "rank 0: wanted parallel.mpi() to be called by all ranks within 3 s" in out


def test_a_rank_that_raises_is_named_and_tells_why(jobs: Jobs):
    out = jobs["raises"].result().out
    assert "rank 1 of 2:" in out and "OSError: the disk of rank 1 is full" in out
    assert out.count("Traceback") == 1
    out = jobs["nan"].result().out
    assert "rank 1 of 2:" in out and "NonFiniteError" in out


def test_what_all_ranks_see_is_told_once_by_rank_0(jobs: Jobs):
    out = jobs["short"].result().out
    assert "ValueError: fit: " in out and "rank 0 of 3:" in out
    assert out.count("Traceback") == 1


def test_ctrl_c_leaves_at_one_step_with_a_checkpoint_that_is_whole(tmp_path: Path):
    command = [mpiexec(), "-n", "2", sys.executable, "-m", "mpi4py", SCRIPT, "ctrl-c", str(tmp_path)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment(), start_new_session=True, **pipes) as process:
        try:
            assert process.stdout is not None and "ready" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=SOON)
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode != 0 and "KeyboardInterrupt: a checkpoint is in" in out, out
    newest = latest(tmp_path)
    assert newest is not None
    checkpoint.verify(newest)
    assert np.isfinite(int(newest.stem.split("-")[1]))
