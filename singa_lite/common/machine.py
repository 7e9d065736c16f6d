"""The computer: cores that this process may use, the processor, memory. All is known on Linux, less elsewhere."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from math import ceil
from pathlib import Path

from singa_lite.common import pages

ROOT = Path("/")


def give_back() -> None:
    """Hand what was freed back to the system: Python and C's library keep it for calls to come, and it counts as the
    process's.

    Some milliseconds, so it is for the end of planning. By `malloc_trim`, which glibc has; nothing elsewhere.
    """
    clear_free_lists()
    pages.drop_code()
    if sys.platform.startswith("linux"):
        _trim()(0)


def clear_free_lists() -> None:
    """Free the tuples, lists and dicts that Python keeps for calls to come, each of which keeps a MiB around it in use.

    A collection of garbage does that at its end. Here it finds nothing to look through: all objects are set aside.
    Nothing from the first time on that somebody else has set objects aside, who would find them among the others again.
    """
    _clear_type_cache()
    if _others_freeze:
        return
    if gc.get_freeze_count():
        _others_freeze.append(True)  # counting them each time would take longer than a small plan
        return
    gc.freeze()
    try:
        gc.collect()
    finally:
        gc.unfreeze()


_others_freeze: list[bool] = []

#: Of Python's cache of attributes by type and name: NumPy asks by names that it makes anew each time, and thousands of
#: these stay, scattered.
_clear_type_cache: Callable[[], object] = getattr(
    sys, "_clear_internal_caches", getattr(sys, "_clear_type_cache", lambda: None)
)


@cache
def _trim() -> Callable[[int], object]:
    return getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)


#: Instruction sets that kernels are chosen by, as Linux names them: x86-64, then Arm.
INSTRUCTION_SETS = (
    *("sse4_2", "avx", "fma", "f16c", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512dq", "avx512vl"),
    *("avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "bf16", "i8mm", "sve", "sve2", "sme"),
)


def cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_cores(root: Path = ROOT) -> int:
    """Cores worth a thread each: `cores`, or fewer where a control group (a container) has less CPU time, rounded up.

    root: where `proc` and `sys` are.
    """
    return max(1, min([cores(), *(ceil(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """CPU seconds a second that each control group around this process may use, where it is bounded."""
    for folder in _control_groups(root, "cpu"):
        match _words(folder / "cpu.max") or _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us"):
            case [quota, period] if quota.isdigit() and period.isdigit():  # "max" or "-1" is no bound
                yield int(quota) / int(period)


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the control groups that this process is in, from its own outwards, of version 2 and 1."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            mount, own = root / "sys/fs/cgroup" / (controller if controllers else ""), Path(path.lstrip("/"))
            yield from (mount / folder for folder in (own, *own.parents))


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _lines(path: Path) -> list[str]:
    """The lines of a text file; none where it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def processor(root: Path = ROOT) -> str:
    """The processor's name."""
    return _cpuinfo(root).get("model name") or platform.processor() or platform.machine()


def instruction_sets(root: Path = ROOT) -> tuple[str, ...]:
    """Those of INSTRUCTION_SETS that the processor has; empty where the system does not say."""
    cpuinfo = _cpuinfo(root)
    has = {*cpuinfo.get("flags", "").split(), *cpuinfo.get("Features", "").split()}
    return tuple(name for name in INSTRUCTION_SETS if name in has)


def memory(root: Path = ROOT) -> dict[str, int]:
    """Bytes: {"total", "available"}, and "limit" where a control group has less. Empty where unknown."""
    meminfo = _table(root / "proc/meminfo")
    names = {"total": "MemTotal", "available": "MemAvailable"}
    found = {name: int(meminfo[entry].split()[0]) * 1024 for name, entry in names.items() if entry in meminfo}
    limits = [
        int(word)
        for folder in _control_groups(root, "memory")
        for word in _words(folder / "memory.max") or _words(folder / "memory.limit_in_bytes")
        if word.isdigit() and int(word) < found.get("total", 0)  # version 1 has a number for no bound
    ]
    return {**found, "limit": min(limits)} if limits else found


def _cpuinfo(root: Path) -> Mapping[str, str]:
    return _table(root / "proc/cpuinfo")


def _table(path: Path) -> dict[str, str]:
    """Lines "name : value"; of equal names the first."""
    entries = [line.partition(":") for line in _lines(path)]
    return {name.strip(): value.strip() for name, _, value in reversed(entries)}
