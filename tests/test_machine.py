"""What is known of the computer: from made up /proc and /sys, and from the real ones."""

from __future__ import annotations

import os

import pytest

from singa_lite.common import machine

CPUINFO = """processor : 0
model name : Abacus 3000
flags : fpu avx avx2 fma avx512f

processor : 1
model name : another
flags : fpu
"""
MEMINFO = "MemTotal:  2048 kB\nMemFree: 5 kB\nMemAvailable: 1024 kB\n"


@pytest.fixture
def system(tmp_path):
    """Writes files below a root that takes the place of "/"."""

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 8)


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 3),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "5000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "9900000 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "400000 100000\n"}, 4),
        (
            {
                "proc/self/cgroup": "7:memory:/x\n3:cpu,cpuacct:/pod\n",
                "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us": "150000\n",
                "sys/fs/cgroup/cpu/pod/cpu.cfs_period_us": "100000\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/seen/from/outside\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
)
def test_a_control_group_bounds_the_cores(system, files, wanted):
    assert machine.usable_cores(system(files)) == wanted


def test_processor_and_instruction_sets(system):
    root = system({"proc/cpuinfo": CPUINFO})
    assert machine.processor(root) == "Abacus 3000"
    assert machine.instruction_sets(root) == ("avx", "fma", "avx2", "avx512f")
    root = system({"proc/cpuinfo": "processor : 0\nFeatures : fp asimd sve\n"})  # of ARM
    assert machine.instruction_sets(root) == ("asimd", "sve")


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, {}),
        ({"sys/fs/cgroup/memory.max": "1000000\n", "proc/self/cgroup": "0::/\n"}, {"limit": 1000000}),
        (
            {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "proc/self/cgroup": "4:memory:/\n"},
            {},
        ),
        (
            {"sys/fs/cgroup/memory/pod/memory.limit_in_bytes": "500000\n", "proc/self/cgroup": "4:memory:/pod\n"},
            {"limit": 500000},
        ),
    ],
)
def test_memory_and_what_a_control_group_leaves_of_it(system, files, wanted):
    root = system({"proc/meminfo": MEMINFO, **files})
    assert machine.memory(root) == {"total": 2 << 20, "available": 1 << 20, **wanted}


def test_a_system_that_tells_nothing(system):
    root = system({})
    assert machine.usable_cores(root) == 8
    assert machine.instruction_sets(root) == ()
    assert machine.memory(root) == {}
    assert isinstance(machine.processor(root), str)


def test_this_system(monkeypatch):
    monkeypatch.undo()
    assert 1 <= machine.usable_cores() <= machine.cores() <= os.cpu_count()
