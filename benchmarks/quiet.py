"""Whether the machine was quiet while a benchmark ran: times that were taken beside other work go into no table.

    watch = Watch(options.anyway)  # waits for the load of earlier work to go; ends the program if it does not
    watch.row(line, rounds)        # prints the line, if all was quiet since the row before

Looked at, in fractions of all cores' time: the work of processes that are not the benchmark's (what /proc/stat counts
as busy, less this process's and its descendants' time), and the time that a hypervisor took away ("steal"); and how far
the rounds of one measurement are apart. Linux only.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tiny import size

#: What others may take of all cores' time, and a hypervisor; how far apart the rounds' times may be, relatively.
OTHERS, STEAL, SPREAD = 0.05, 0.02, 0.10
#: Waiting and running processes a core, the mean of the last minute, before a benchmark starts.
LOAD = 0.25
#: Seconds that are always granted: the kernel counts in hundredths.
GRAIN = 0.05
#: Seconds that a benchmark waits for the machine to become quiet, as the mean of a minute falls slowly.
WAIT = 180.0
#: The exit status of a benchmark that did not write all that it measured.
BUSY = 4

#: A process as the kernel lists it: its parent, its name, its seconds with those of the children it has waited for.
Process = tuple[int, str, float]


class Sample(NamedTuple):
    """Seconds since some time: wall, all cores busy, stolen, and those of the benchmark's own processes."""

    wall: float
    busy: float
    steal: float
    own: float


def sample(proc: Path = Path("/proc")) -> Sample:
    """Of now. OSError where there is no such folder."""
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, _, _, irq, softirq, steal = (
        int(count) / tick for count in (proc / "stat").read_text().split()[1:9]
    )
    own = own_seconds(dict(processes(proc)), os.getpid())
    return Sample(time.monotonic(), user + nice + system + irq + softirq, steal, own)


def processes(proc: Path) -> list[tuple[int, Process]]:
    """(number, process) of all that run or wait to be waited for."""
    tick, found = os.sysconf("SC_CLK_TCK"), []
    for folder in proc.glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:  # it has ended meanwhile
            continue
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        found.append((int(folder.name), (int(fields[1]), name, sum(map(int, fields[11:15])) / tick)))
    return found


def own_seconds(every: dict[int, Process], root: int) -> float:
    """Seconds of a process, its descendants and the kernel's threads, which write the files of a benchmark."""
    own = {root, *(number for number, (_, name, _) in every.items() if name == "kthreadd")}
    size = 0
    while len(own) > size:
        size = len(own)
        own |= {number for number, (parent, _, _) in every.items() if parent in own}
    return sum(every[number][2] for number in own if number in every)


def disturbance(before: Sample, after: Sample, cores: int) -> str:
    """What took the cores away between two samples; "" if that was little."""
    whole = (after.wall - before.wall) * cores
    others = (after.busy - before.busy) - (after.own - before.own)
    stolen = after.steal - before.steal
    told = []
    for what, seconds, limit in (("other processes", others, OTHERS), ("the hypervisor", stolen, STEAL)):
        if seconds > limit * whole + GRAIN:
            told.append(f"{what} took {seconds / whole:.0%} of the machine (at most {limit:.0%})")
    return ", ".join(told)


def unsteady(rounds: Sequence[float]) -> str:
    """What is wrong with times of equal work in several rounds, such as each round's fastest step; "" if nothing."""
    apart = max(rounds) / min(rounds) - 1 if rounds else 0.0
    return f"rounds are {apart:.0%} apart (at most {SPREAD:.0%})" if apart > SPREAD else ""


def add_option(parser: argparse.ArgumentParser) -> None:
    """What every benchmark of times has."""
    words = "print on a busy machine too, and mark each row that was taken beside other work"
    parser.add_argument("--anyway", action="store_true", help=words)


class Watch:
    """Prints rows of a table that were measured in quiet.

    status: what the program should exit with. printed: the rows, without marks of what disturbed them.
    """

    def __init__(self, anyway: bool = False, wait: float = WAIT) -> None:
        self.anyway, self.status, self.cores = anyway, 0, os.cpu_count() or 1
        self.printed: list[str] = []
        self._program = Path(sys.argv[0]).name
        _adopt_orphans()
        why = self._settle(0.0 if anyway else wait)
        if why:
            self._say(f"the machine is busy: {why}; " + ("every row is marked" if anyway else "nothing was measured"))
            if not anyway:
                raise SystemExit(BUSY)
        self._before = why
        self._last = self._sample()

    def trouble(self, *rounds: Sequence[float]) -> str:
        """What disturbed since this was last asked; "" if nothing. rounds: times of equal work, a list a side."""
        before, self._last = self._last, self._sample()
        found = [self._between(before, self._last) or self._before, *map(unsteady, rounds)]
        return ", ".join(dict.fromkeys(filter(None, found)))

    def row(self, line: str, *rounds: Sequence[float]) -> None:
        """Print a line that was measured since the last one."""
        self.write(line, self.trouble(*rounds))

    def write(self, line: str, why: str) -> None:
        """Print a line, unless there was trouble; marked, if it is wanted anyway."""
        if why and not self.anyway:
            self.status = BUSY
            self._say(f"not written, as {why}: {line.strip('| ').split(' | ')[0][:60]}")
            return
        self.printed.append(line)
        print(marked(line, why) if why else line, flush=True)

    def _settle(self, seconds: float) -> str:
        """Wait until the machine is quiet, so long at most; what it is busy with then."""
        end = time.monotonic() + seconds
        why, said = self._now(), False
        while why and time.monotonic() < end:
            if not said:
                self._say(f"waits for a quiet machine, {seconds:.0f} s at most: {why}")
                said = True
            time.sleep(5)
            why = self._now()
        return why

    def _now(self) -> str:
        """What the machine is busy with while this process sleeps; "" if with nothing."""
        before = self._sample()
        time.sleep(size(1.0, 0.01))
        load = os.getloadavg()[0]
        high = f"the load is {load:.2f} (at most {LOAD * self.cores:.2f})" if load > LOAD * self.cores else ""
        return ", ".join(filter(None, [high, self._between(before, self._sample())]))

    def _between(self, before: Sample | None, after: Sample | None) -> str:
        if before is None or after is None:
            return "without /proc/stat none can tell"
        return disturbance(before, after, self.cores)

    @staticmethod
    def _sample() -> Sample | None:
        try:
            return sample()
        except OSError:
            return None

    def _say(self, text: str) -> None:
        print(f"{self._program}: {text}", file=sys.stderr, flush=True)


def marked(line: str, why: str) -> str:
    """The line with a word on how it was taken; in the last cell of a row in Markdown."""
    mark = f"(taken on a busy machine: {why})"
    return f"{line.rstrip()[:-1].rstrip()} {mark} |" if line.rstrip().endswith("|") else f"{line}  {mark}"


def _adopt_orphans() -> None:
    """Make descendants whose parent ends children of this process, so that their time is still known to be its own."""
    set_child_subreaper = 36
    getattr(ctypes.CDLL(None), "prctl", lambda *_: None)(set_child_subreaper, 1, 0, 0, 0)
