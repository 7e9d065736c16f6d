"""One rank of several that train together: ours over MPI, PyTorch's over gloo. Each prints what it measured as JSON."""

from __future__ import annotations

import os
import sys
import time
from statistics import median
from typing import Any

import numpy as np

from peak_memory import high_water

from .process import Task, measured, read_batch


def ours(task: Task, shard: str | None = None) -> dict[str, Any]:
    """Ours, started by mpiexec. waited: seconds of each step in which sums are waited for with nothing beside; alone:
    what the same sums take with nothing beside at all; computed: a step of each rank by itself, all at the same time;
    latency, bandwidth: between ranks 0 and 1.
    """
    from singa_lite import parallel
    from singa_lite.data.loading.data_set import Share

    from . import singa_side

    ranks = parallel.mpi(shard=shard)
    singa_side.use_once()
    level = high_water()
    x, y = read_batch(task.folder)
    mine = Share(ranks.rank, ranks.size).slice_of(0, len(x))
    net = singa_side.built(task.net, 0.0)
    arrays = ((name, net.device.array(value)) for name, value in net.parameters().items())
    singa_side.read_weights(task.folder, arrays)
    net.compile(singa_side.OPTIMIZERS[task.optimizer](task.lr), parallel=ranks)
    waiting = _Waiting(ranks.communicator)
    part = x[mine].copy(), y[mine].copy()
    del x, y
    result = measured(task, level, lambda: waiting.step(lambda: float(net.train_one_batch(*part)[0])))
    state = sum(slot.nbytes for slots in net.optimizer.state.values() for slot in slots.values())
    result |= {"state": state, "waited": waiting.by_step[task.warmup :]}
    result["alone"] = _alone(net, parallel.mpi())
    result |= _network(ranks)
    net.compile(singa_side.OPTIMIZERS[task.optimizer](task.lr))
    result["computed"] = _computed(ranks, lambda: float(net.train_one_batch(*part)[0]))
    every = ranks.gathered(result)
    return {} if ranks.rank else {"ranks": every}


class _Waiting:
    """Adds up the time that a communicator waits for sums, by step."""

    def __init__(self, communicator: Any) -> None:
        self._wait, self._seconds = communicator.wait, 0.0
        self.by_step: list[float] = []
        communicator.wait = self._timed

    def _timed(self, *given: Any) -> None:
        start = time.perf_counter()
        self._wait(*given)
        self._seconds += time.perf_counter() - start

    def step(self, work: Any) -> Any:
        self._seconds = 0.0
        done = work()
        self.by_step.append(self._seconds)
        return done


def _computed(ranks: Any, step: Any, steps: int = 4) -> float:
    """Seconds of a step that begins on all ranks at once, and has nothing to do with the others: the median."""
    times = []
    for _ in range(1 + steps):
        ranks.barrier()
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return median(times[1:])


def _alone(net: Any, ranks: Any) -> float:
    """Seconds of a step's sums, one after the other, with nothing beside: the median of some rounds."""
    from singa_lite.compiler.ir.collectives import BEGIN, kind_of
    from singa_lite.kernels.collective import CollectiveKind, landing_elements
    from singa_lite.parallel.sums import Sum

    planned = net.memory_plan.placed.planned.instructions
    sizes = [i.operands[0].nbytes // 4 for i in planned if kind_of(i) == BEGIN and i.operands[0] is not None]
    if not sizes:
        return 0.0
    values = np.zeros(max(sizes), np.float32)
    landing = np.empty(landing_elements(max(sizes), ranks.size), np.float32)
    times, number = [], 0
    for _ in range(5):
        ranks.barrier()
        start = time.perf_counter()
        for size in sizes:
            room = landing[: landing_elements(size, ranks.size)]
            ranks.communicator.wait(Sum(ranks.communicator, values[:size], room, number, CollectiveKind.SUM), "a sum")
            number += 1
        times.append(time.perf_counter() - start)
    return median(times)


def _network(ranks: Any) -> dict[str, float]:
    """Seconds of a small message, and bytes a second of a large one, there and back between ranks 0 and 1."""
    from mpi4py import MPI

    comm, found = MPI.COMM_WORLD, dict[str, float]()
    if ranks.size == 1:
        return found
    for name, nbytes, times in (("latency", 8, 200), ("bandwidth", 4_000_000, 20)):
        data = np.zeros(nbytes, np.uint8)
        ranks.barrier()
        start = time.perf_counter()
        for _ in range(times if ranks.rank < 2 else 0):
            for sender in (0, 1):
                comm.Send(data, 1 - sender) if ranks.rank == sender else comm.Recv(data, sender)
        seconds = (time.perf_counter() - start) / (2 * times)
        found[name] = seconds if name == "latency" else nbytes / max(seconds, 1e-9)
    return found


def ddp(task: Task) -> dict[str, Any]:
    """PyTorch's DistributedDataParallel over gloo. RANK and WORLD_SIZE are set; they meet by the file STORE."""
    import torch
    import torch.distributed as dist
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel

    from . import torch_side
    from .torch_texts import Text

    torch.set_num_threads(task.threads)
    torch_side.use_once(task.way)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=size)
    level = high_water()
    x, y = (torch.from_numpy(array) for array in read_batch(task.folder))
    each = len(x) // size
    x, y = x[rank * each : (rank + 1) * each].clone(), y[rank * each : (rank + 1) * each].clone()
    net = torch_side.built(task.net)
    named = net.by_our_names() if isinstance(net, Text) else torch_side.parameters_by_our_names(net)
    torch_side.read_weights(task.folder, ((name, torch_side.as_ours(p, turned)) for name, p, turned in named))
    made = DistributedDataParallel(net, gradient_as_bucket_view=True)
    update = torch_side._after_backward(net, task)

    def step() -> float:
        loss = cross_entropy(made(x), y.flatten())
        loss.backward()
        update()
        return loss.item()

    result = measured(task, level, step)
    every: list[Any] = [None] * size
    dist.all_gather_object(every, result)
    dist.destroy_process_group()
    return {"ranks": every} if rank == 0 else {}


def tell(found: dict[str, Any]) -> None:
    """As the last line of what is printed."""
    import json

    if found:
        print(json.dumps(found), flush=True)
    sys.stdout.flush()
