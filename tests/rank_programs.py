"""Programs for several processes: started by mpiexec, with what each rank found; ended, all of them, after a time."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest

from in_process import ROOT, UNSET

TESTS = str(Path(__file__).parent)
SECONDS = 100

T = TypeVar("T")


def mpiexec() -> str:
    """The program, of this environment; or a skip that says what brings it."""
    pytest.importorskip("mpi4py", reason='wants mpi4py, pip install ".[mpi]"')
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        pytest.skip('wants mpiexec, pip install ".[mpi]"')
    return found


def environment(**variables: object) -> dict[str, str]:
    """Of each rank: one thread, and this project's modules."""
    found = {name: value for name, value in os.environ.items() if name not in UNSET}
    found |= {"PYTHONPATH": os.pathsep.join([ROOT, TESTS]), "OMP_NUM_THREADS": "1"}
    return found | {name: str(value) for name, value in variables.items()}


def start(ranks: int, *arguments: str, seconds: float = SECONDS, **variables: object) -> tuple[int, str]:
    """(exit status, what was printed) of `mpiexec -n ranks python -m mpi4py arguments`. Nothing of it lives on."""
    command = [mpiexec(), "-n", str(ranks), sys.executable, "-m", "mpi4py", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment(**variables), start_new_session=True, **pipes) as process:
        try:
            out, _ = process.communicate(timeout=seconds)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)  # mpiexec ends its ranks
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, out


@contextlib.contextmanager
def two_at_a_time(works: Mapping[str, Callable[[], T]]) -> Iterator[dict[str, Future[T]]]:
    """What gives their results, begun in this order: jobs that end by a failure wait more than they compute."""
    threads = ThreadPoolExecutor(2)
    try:
        yield {name: threads.submit(work) for name, work in works.items()}
    finally:
        threads.shutdown(cancel_futures=True)


def found_by(ranks: int, folder: Path, *cases: str) -> list[dict[str, np.ndarray]]:
    """What functions of `rank_cases.py` found on each rank: {"case/name": array}."""
    status, out = start(ranks, str(Path(TESTS, "rank_cases.py")), str(folder), *cases)
    assert status == 0, out
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(ranks)]
