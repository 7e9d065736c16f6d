"""Data parallel training by several processes: each takes its part of every batch, and all make the same update.

    net.compile(optimizer.SGD(0.1), parallel=parallel.mpi())

Started by `mpiexec -n 4 python -m mpi4py train.py` four processes train; started by `python train.py` one alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from singa_lite.parallel.data_parallel import DataParallel as DataParallel
    from singa_lite.parallel.started import mpi as mpi
else:  # imported when asked for: training needs the sums of `gradients/` alone

    def __getattr__(name):
        if name in ("DataParallel", "mpi"):
            module = "data_parallel" if name == "DataParallel" else "started"
            return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
