"""CPU devices."""

from __future__ import annotations

import os
from functools import cache
from itertools import count

from singa_lite.common import threads
from singa_lite.common.checks import integer
from singa_lite.common.contexts import OneAtATime
from singa_lite.device.base import Device
from singa_lite.kernels.choice import cpu_kernels
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.runtime.pool import Pool

_one_at_a_time = OneAtATime()
_further = count(1)


def cpu(kernels: str = "auto") -> Device:
    """Returns the CPU's device. kernels: "auto" (the fastest set there is), "onednn" or "numpy"; "auto" heeds
    SINGA_LITE_KERNELS.

    One device a set, the same each time. DeviceError for a set that is not there.

    >>> device.cpu("numpy").name
    'cpu'
    """
    with _one_at_a_time.lock:
        return _cpu(cpu_kernels(kernels).name)


@cache
def _cpu(kernels: str) -> Device:
    return _new_cpu("cpu", None, cpu_kernels(kernels))


def new_cpu(limit: int | None = None, kernels: str = "auto") -> Device:
    """Returns a further CPU device, with a pool of its own. limit: the most bytes that the pool may hold; kernels: as
    `cpu`.

    >>> small = device.new_cpu(limit=1_000_000)
    >>> x = tensor.zeros((100, 50), device=small)
    >>> small.pool.used
    20032
    """
    limit = None if limit is None else integer("new_cpu limit", limit, 0)
    return _new_cpu(f"cpu#{next(_further)}", limit, cpu_kernels(kernels))


def _new_cpu(name: str, limit: int | None, kernels: KernelSet) -> Device:
    threads.start()
    pool = Pool(limit)
    pool.checked = os.environ.get("SINGA_LITE_CHECKED", "") == "1"
    return Device(name, kernels, pool)
