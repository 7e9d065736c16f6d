"""Data parallel training by several processes: each takes its part of every batch, and all make the same update.

    net.compile(optimizer.SGD(0.1), parallel=parallel.mpi())

Started by `mpiexec -n 4 python -m mpi4py train.py` four processes train; started by `python train.py` one alone.
"""

from singa_lite.parallel.data_parallel import DataParallel as DataParallel
from singa_lite.parallel.start import mpi as mpi
