"""As `rank_cases.py`, run as a script by each rank, on a GPU whose streams do their work late, and NCCL over MPI."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "cuda_host"))

import rank_cases
from late_cupy import LateCupy
from late_gpu import late_gpu
from late_nccl import nccl_of
from singa_lite import device
from singa_lite.parallel.mpi_communicator import MpiCommunicator


def main(folder: str, *cases: str) -> None:
    """Write what the cases give."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    with late_gpu(seed=rank) as (machine, _, gpu):
        machine.__name__ = "cupy"
        machine.elsewhere = waits
        nccl = machine.cuda.nccl = nccl_of(machine, MPI)
        machine.runtime.deviceGetPCIBusId = lambda index: f"0000:{rank:02x}:00.0"
        modules = patch.dict(sys.modules, {"cupy.cuda": machine.cuda, "cupy.cuda.nccl": nccl})
        with modules, device.as_default(gpu), communicating(machine):
            rank_cases.main(folder, *cases)
    np.savez(Path(folder, f"asked{rank}.npz"), names=np.unique(nccl.asked))


def waits() -> bool:
    """What streams wait for comes from other processes."""
    time.sleep(20e-6)
    return True


def communicating(machine: LateCupy) -> patch:
    """Communicators of MPI that are made inside let the machine go on while they wait."""
    made = MpiCommunicator.__init__

    def make(self: MpiCommunicator, *arguments: object) -> None:
        made(self, *arguments)
        self.meanwhile = machine.some

    return patch.object(MpiCommunicator, "__init__", make)


if __name__ == "__main__":
    warnings.simplefilter("error", UserWarning)  # such as that a step cannot be captured
    main(*sys.argv[1:])
