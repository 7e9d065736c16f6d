"""StandIn: the host in the place of a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from first_run.machine import Machine, Types

#: Bytes of a timed copy.
COPIED = 1 << 20


class StandIn(Machine):
    """The CUDA kernels compiled for the host, and NumPy in the place of cuBLASLt and cuDNN; see tests/cuda_host."""

    @cached_property
    def on(self) -> Any:
        from host_device import host_cuda

        return host_cuda()

    def mark(self) -> Any:
        return time.perf_counter()

    def milliseconds(self, first: Any, second: Any) -> float:
        return float(second - first) * 1e3

    def microseconds(self, launch: Callable[[], Any], count: int, repeats: int = 5) -> float:
        """One launch: its time on the host says nothing."""
        return super().microseconds(launch, 1, 1)

    def captured_microseconds(self, launch: Callable[[], Any], count: int, repeats: int = 5) -> float:
        """One launch."""
        return super().captured_microseconds(launch, 1, 1)

    def compile(self, file: str, types: Types) -> None:
        from host_loader import compiled

        compiled(file, types)

    def versions(self) -> dict[str, Any]:
        return {"GPU": "none: the host stands in for it", "numpy": np.__version__}

    def copy_bandwidth(self) -> float:
        source, to = (np.ones(COPIED, np.uint8) for _ in range(2))
        taken = self.microseconds(lambda: np.copyto(to, source), 10)
        return 2 * COPIED / taken / 1e3
