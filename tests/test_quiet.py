"""benchmarks/quiet.py: work of other processes is told from the benchmark's own, and a disturbed row is not written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmark_modules import FOLDER, benchmark_modules

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="this copy has no benchmarks, the checkout has")


@pytest.fixture(scope="module")
def quiet() -> Iterator[Any]:
    """The module."""
    with benchmark_modules() as load:
        yield load("quiet")


STATUS = "{number} ({name}) S {parent} 1 1 0 -1 4194304 0 0 0 0 {user} {system} {children} 0 20 0 1 0 5 6 7\n"


def written(proc: Path, stat: str, *processes: tuple[int, int, str, int]) -> Path:
    """A folder such as /proc. processes: (number, parent, name, ticks)."""
    proc.mkdir()
    (proc / "stat").write_text(stat)
    for number, parent, name, ticks in processes:
        (proc / str(number)).mkdir()
        text = STATUS.format(number=number, name=name, parent=parent, user=ticks, system=0, children=0)
        (proc / str(number) / "stat").write_text(text)
    return proc


def test_the_kernels_counters_are_read(quiet, tmp_path):
    tick, own = os.sysconf("SC_CLK_TCK"), os.getpid()
    stat = f"cpu  {tick} {2 * tick} {3 * tick} 99999 77777 {4 * tick} {5 * tick} {6 * tick} 0 0\ncpu0 1 2 3\n"
    proc = written(tmp_path / "proc", stat, (own, 1, "a) (b", 2 * tick), (own + 1, own, "child", tick))
    taken = quiet.sample(proc)
    assert (taken.busy, taken.steal, taken.own) == (1 + 2 + 3 + 4 + 5, 6, 3)  # waiting for a disk is idle


@pytest.mark.parametrize(
    ("busy", "steal", "own", "said"),
    [
        (20.9, 0.0, 20.0, ""),
        (24.0, 0.0, 20.0, "20%"),
        (10.0, 1.0, 10.0, "hypervisor took 5%"),
        (10.0, 0.0, 12.0, ""),
    ],
)
def test_what_is_too_much(quiet, busy, steal, own, said):
    """Of two cores over ten seconds."""
    before = quiet.Sample(50.0, 100.0, 10.0, 7.0)
    found = quiet.disturbance(before, quiet.Sample(60.0, 100.0 + busy, 10.0 + steal, 7.0 + own), 2)
    assert said in found and bool(found) == bool(said)


class Clock:
    """Samples that are told beforehand: what others took of one core, a second apart; the load of each second."""

    def __init__(self, others: list[float], loads: list[float]) -> None:
        self.others, self.loads, self.now, self.busy = others, loads, 0.0, 0.0

    def sample(self, quiet: Any) -> Any:
        self.now += 1.0
        self.busy += self.others.pop(0)
        return quiet.Sample(self.now, self.busy, 0.0, 0.0)


@pytest.fixture
def watch(quiet, monkeypatch):
    """Makes a Watch over told numbers, on a machine of one core."""

    def make(others: list[float], loads: list[float], **options: Any) -> Any:
        clock = Clock(others, loads)
        monkeypatch.setattr(quiet.os, "cpu_count", lambda: 1)
        monkeypatch.setattr(quiet.os, "getloadavg", lambda: (clock.loads.pop(0), 0.0, 0.0))
        monkeypatch.setattr(quiet.time, "sleep", lambda seconds: None)
        monkeypatch.setattr(quiet, "sample", lambda: clock.sample(quiet))
        monkeypatch.setattr(quiet, "_adopt_orphans", lambda: None)
        return quiet.Watch(**options)

    return make


def test_a_disturbed_row_is_refused_and_others_are_printed(quiet, watch, capsys):
    watched = watch([0, 0, 0, 0.5, 0, 0.02], [0.1])
    for name in "abc":
        watched.row(f"| {name} | 1 |", [1.0, 1.05])
    out, err = capsys.readouterr()
    assert out == "| b | 1 |\n| c | 1 |\n"
    assert err.endswith(": a\n")
    assert watched.status == quiet.BUSY


def test_a_busy_machine_is_waited_for(quiet, watch, capsys):
    watch([0, 0, 0, 0.9, 0, 0, 0], [3.0, 0.1, 0.1], wait=1e9)
    assert "waits" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        watch([0, 0], [3.0], wait=0.0)
    assert ended.value.code == quiet.BUSY
