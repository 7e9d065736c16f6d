"""`gpu_first.py` with faults in kernels: a worker that is started with this script has them.

    PLANTED='sigmoid=wrong sgd_plain=sticky softmax_short_rows=hang relu=crash' python planted_faults.py ARGUMENTS

wrong: results are changed. sticky: the launch fails, and every later one of the process too, as after an illegal
address. hang: the launch never ends. crash: the process is killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import gpu_first
import host_loader
from singa_lite.errors import DeviceError

PLANTED = dict(one.split("=") for one in os.environ["PLANTED"].split())
_broken: list[str] = []
_bind = host_loader.HostFunction.bind


def bind(self: Any, grid: Any, block: Any, shared: int, arguments: Any) -> Any:
    launch = _bind(self, grid, block, shared, arguments)
    fault = PLANTED.get(self.name, "")

    def run() -> None:
        if fault == "sticky":
            _broken.append(self.name)
        if _broken:
            raise DeviceError(f"launching kernel {self.name!r}: CUDA says 700, an illegal memory access")
        if fault == "hang":
            time.sleep(3600)
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        launch()
        if fault == "wrong":
            result = int(arguments.values[-1])
            host_loader.host_bytes(result, 4)[:] = 0x41

    return run


host_loader.HostFunction.bind = bind  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(gpu_first.main(program=__file__))
