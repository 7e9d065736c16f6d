"""What goes wrong in a job of several processes, and what each rank is told: {case: message}, written as JSON.

Run as a script by each rank. A case that all ranks survive gives the message and goes on; the last ones end the job.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rank_cases import mlp, sgd
from singa_lite import FeedForwardNet, device, layers, loss, optimizer, parallel

Ranks = Any


def compiled(ranks: Ranks, net: FeedForwardNet | None = None, **options: Any) -> FeedForwardNet:
    net = net or mlp()
    net.compile(sgd(), parallel=ranks, **options)
    return net


def batch(count: int = 4, features: int = 20) -> tuple[np.ndarray, np.ndarray]:
    return np.ones((count, features), np.float32), np.zeros(count, np.int64)


def told(work: Callable[[], object]) -> str:
    try:
        work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def differing(ranks: Ranks) -> str:
    net = compiled(ranks)
    if ranks.rank == 1:
        value = dict(zip(net.param_names(), net.param_values(), strict=True))["b/weight"]
        value.copy_from_numpy(np.nextafter(np.array(value), 1))
    return told(lambda: net.train_one_batch(*batch()))


def differing_later(ranks: Ranks) -> str:
    net = compiled(ranks)
    net.train_one_batch(*batch())
    if ranks.rank == 0:
        net.param_values()[1].copy_from_numpy(np.full(30, 0.5, np.float32))
    net.train_one_batch(*batch())  # nobody looks
    return told(lambda: net.train_one_batch(*batch()))


def other_net(ranks: Ranks) -> str:
    net = mlp()
    if ranks.rank == 1:
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=3)
        net.add(layers.Dense("a", 31, input_sample_shape=(20,)))
        net.add(layers.Dense("c", 7))
    return told(lambda: compiled(ranks, net).train_one_batch(*batch()))


def other_settings(ranks: Ranks) -> str:
    """Rank 1 has one option otherwise, each in its turn; gradients and sums are the same."""
    found = []
    for made, options, lr in (
        ({}, {}, 0.3),
        ({}, {"clip_global_norm": 1.0}, 0.2),
        ({}, {"accumulate": 2}, 0.2),
        ({"check_every": 3}, {}, 0.2),
    ):
        net, is_other = mlp(), ranks.rank == 1
        own = parallel.mpi(timeout=30, **(made if is_other else {}))
        net.compile(optimizer.SGD(lr if is_other else 0.2), parallel=own, **(options if is_other else {}))
        found.append(told(lambda net=net: net.train_one_batch(*batch())))
    net = mlp()
    net.seed = 3 + ranks.rank % 2
    compiled(parallel.mpi(timeout=30), net, parameter_dtype="bfloat16")
    return "\n".join([*found, told(lambda: net.train_one_batch(*batch()))])


def refused_batch(ranks: Ranks) -> str:
    """One rank's batch does not fit: nothing changes anywhere, and the next step is as the first."""
    net = compiled(ranks)
    before = np.array(net.param_values()[0])
    message = told(lambda: net.train_one_batch(*batch(features=20 + (ranks.rank == 1))))
    unchanged = np.array_equal(before, np.array(net.param_values()[0]))
    net.train_one_batch(*batch())
    return message + f" | unchanged {unchanged}, step {net.optimizer.step}"


def two_nets(ranks: Ranks) -> str:
    net = compiled(ranks)
    other = told(lambda: compiled(ranks))
    net.train_one_batch(*batch())
    return other


def copied(ranks: Ranks) -> str:
    import copy

    net = compiled(ranks)
    return told(lambda: copy.deepcopy(net).train_one_batch(*batch()))


def lies_otherwise(ranks: Ranks) -> str:
    """Rank 1 has other kernels, which like filters in another order of memory."""
    on = device.new_cpu(kernels="numpy") if ranks.rank == 1 else device.new_cpu()
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on, seed=3)
    net.add(layers.Conv2D("conv", 5, 3, input_sample_shape=(2, 6, 7)))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 4))
    x, y = np.ones((3, 2, 6, 7), np.float32), np.zeros(3, np.int64)
    return told(lambda: compiled(ranks, net).train_one_batch(x, y))


SURVIVED = (
    differing,
    differing_later,
    other_net,
    other_settings,
    refused_batch,
    two_nets,
    copied,
    lies_otherwise,
)


def leaves(ranks: Ranks) -> None:
    """One rank's program ends."""
    net = compiled(ranks)
    net.train_one_batch(*batch())
    if ranks.rank == 0:
        net.train_one_batch(*batch())


def main(folder: str, *cases: str) -> None:
    seconds = 3 if "leaves" in cases else 30
    found = {case: globals()[case](parallel.mpi(timeout=seconds, check_every=2)) for case in cases}
    if "leaves" in cases:
        return
    rank = parallel.mpi().rank
    Path(folder, f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
