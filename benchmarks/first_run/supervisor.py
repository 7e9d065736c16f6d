"""Supervisor: runs items in one worker process at a time, each within its share of the deadline."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from first_run.cache import CompileCache
from first_run.item import Item, Options, Values
from first_run.worker import ANSWERS, append

#: Seconds in which nothing can be begun any more; seconds that a worker may take to start.
LEAST, START = 2.0, 90.0
#: Workers in a row that ended before they were ready: then no further one is started.
MOST_STARTS = 3


class Worker:
    """A process that does items of one side. log: where its output goes."""

    def __init__(self, options: Options, side: str, log: Path, environment: dict[str, str]) -> None:
        self.side = side
        reading, writing = os.pipe()
        self._answers = os.fdopen(reading, "rb", buffering=0)
        command = [sys.executable, options.program, *options.arguments, f"--worker={side}"]
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                pass_fds=[writing],
                env={**os.environ, **environment, ANSWERS: str(writing), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        os.close(writing)
        self._held = b""

    def ask(self, name: str) -> None:
        """Begin an item. BrokenPipeError if the process is gone."""
        stdin = self._process.stdin
        if stdin is None:
            raise BrokenPipeError
        stdin.write(f"{name}\n".encode())
        stdin.flush()

    def answer(self, seconds: float) -> str | None:
        """Its next line; "" if the process ended, None if the time is over."""
        end = time.monotonic() + seconds
        while b"\n" not in self._held:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                return None
            got = self._answers.read(4096)
            if not got:
                return ""
            self._held += got
        line, _, self._held = self._held.partition(b"\n")
        return line.decode()

    def end(self) -> int:
        """Kill it with all that it started; its exit status, below 0 for a signal."""
        status = self._process.poll()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        killed = self._process.wait()
        self._answers.close()
        return killed if status is None else status


class Supervisor:
    """Runs items in order. cache: of compiled kernels, saved behind the items that compile."""

    def __init__(self, options: Options, deadline: float, cache: CompileCache) -> None:
        self._options = options
        self._deadline = deadline
        self._end = time.monotonic() + deadline
        self._cache = cache
        self._worker: Worker | None = None
        self._failed_starts = 0
        self._out = Path(options.out)
        self._log = self._out / "worker.log"

    @property
    def left(self) -> float:
        """Seconds to the deadline."""
        return self._end - time.monotonic()

    def run(self, items: Sequence[Item]) -> list[Values]:
        """The lines of all items, those that were never begun included."""
        for item in items:
            if self.left < LEAST:
                self._write(item, "cut off", f"not begun: the deadline of {self._deadline:g} seconds is over")
            elif self._failed_starts >= MOST_STARTS:
                self._write(item, "died", f"no worker starts: {self._tail()}")
            else:
                self._run(item)
            if item.name == "compile":
                self._cache.save()
        self._close()
        self._cache.save()
        return self._results([item.name for item in items])

    def _run(self, item: Item) -> None:
        if self._worker is not None and self._worker.side != item.side:
            self._close()
        if self._worker is None and not self._start(item):
            return
        worker, share = self._worker, item.share * self._deadline
        if worker is None:
            return
        seconds = min(share, self.left)
        try:
            worker.ask(item.name)
            status = worker.answer(seconds)
        except BrokenPipeError:
            status = ""
        if status is None:
            self._close()
            if share > seconds:
                self._write(item, "cut off", f"stopped after {seconds:.1f} s: the deadline is over")
            else:
                self._write(item, "hung", f"no answer within its share of {share:.1f} s")
        elif not status:
            self._write(item, "died", f"{self._close_with_reason()}; {self._tail()}")
        elif status == "poisoned":
            self._close()

    def _start(self, item: Item) -> bool:
        """A new worker. If it does not start, the item's line says so."""
        self._worker = Worker(self._options, item.side, self._log, self._cache.environment)
        ready = self._worker.answer(min(START, self.left))
        if ready == "ready":
            self._failed_starts = 0
            return True
        self._failed_starts += 1
        self._write(item, "died", f"the worker did not start: {self._close_with_reason()}; {self._tail()}")
        return False

    def _close(self) -> int:
        worker, self._worker = self._worker, None
        return 0 if worker is None else worker.end()

    def _close_with_reason(self) -> str:
        status = self._close()
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"

    def _tail(self) -> str:
        """The end of what workers printed."""
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        return " / ".join(text.strip().splitlines()[-4:])

    def _write(self, item: Item, status: str, error: str) -> None:
        append(self._out, {"item": item.name, "status": status, "error": error})

    def _results(self, names: Sequence[str]) -> list[Values]:
        """The last line of each item, in order."""
        lines = [json.loads(line) for line in (self._out / "results.jsonl").read_text().splitlines()]
        last = {line["item"]: line for line in lines if "status" in line}
        return [last[name] for name in names]
