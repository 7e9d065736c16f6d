"""A case of `budget.py` in a process of its own, which is asked for turns, and its compiler's caches."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from .budget_task import BudgetTask
from .process import environment

#: Seconds that a process may take to set up, and for a turn.
LONGEST = 900.0
PROGRAM = Path(__file__).resolve().parents[1] / "budget.py"


def caches(folder: str) -> dict[str, str]:
    """Settings by which what PyTorch's compiler makes is kept there, for later processes; it starts none of its own."""
    return {
        "TORCHINDUCTOR_CACHE_DIR": folder,
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


class Worker:
    """A process that does a task. Every call is a RuntimeError with its last line if it fails, or takes too long."""

    def __init__(self, task: BudgetTask, cache: str) -> None:
        self.task, self._rest, self._errors = task, b"", tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), "--task", task.to_json()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env={**environment(task.threads), **caches(cache)},
        )  # fmt: skip

    def answer(self, longest: float = LONGEST) -> dict[str, Any]:
        """What it tells next: first that it has set up, then of each turn. longest: seconds to wait for it."""
        end, number = time.monotonic() + longest, cast(IO[bytes], self._process.stdout).fileno()
        while b"\n" not in self._rest:
            if not select.select([number], [], [], max(0.0, end - time.monotonic()))[0]:
                self.close()
                raise RuntimeError(f"{self.task.way}: took longer than {longest:.0f} s")
            piece = os.read(number, 1 << 16)
            if not piece:
                raise RuntimeError(f"{self.task.way}: {self._last_words()}")
            self._rest += piece
        line, self._rest = self._rest.split(b"\n", 1)
        return dict(json.loads(line))

    def turn(self, steps: int, longest: float = LONGEST) -> dict[str, Any]:
        """Do so many steps, more if they are short."""
        pipe = cast(IO[bytes], self._process.stdin)
        with suppress(BrokenPipeError):  # `answer` says why
            pipe.write(b"%d\n" % steps)
            pipe.flush()
        return self.answer(longest)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            if file is not None:
                file.close()

    def _last_words(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        return (text or f"exit status {status}").splitlines()[-1]


def asked_once(task: BudgetTask, cache: str = "", longest: float = LONGEST) -> dict[str, Any]:
    """The only answer of a task that does no turns. RuntimeError if it fails or takes too long."""
    worker = Worker(task, cache)
    try:
        return worker.answer(longest)
    finally:
        worker.close()
