"""Plans of one rank of several that do not exist: nothing runs."""

from __future__ import annotations

from typing import NoReturn

from singa_lite import FeedForwardNet, layers, loss, optimizer
from singa_lite.parallel import DataParallel
from singa_lite.parallel.communicator import Communicator, Through
from singa_lite.passes.collectives import kind_of


class Nobody(Communicator):
    """The others never come."""

    def __init__(self, size: int, rank: int = 0) -> None:
        self.rank, self.size = rank, size

    def exchange(self, given):
        return [given] * self.size

    def spread(self, sent, received, number):
        return Through()

    def wait(self, pending, doing):
        raise AssertionError

    def abort(self, message) -> NoReturn:
        raise AssertionError(message)


def ranks(size=2, bucket=2000, in_flight=1 << 24, shard=None, rank=0):
    return DataParallel(Nobody(size, rank), bucket, in_flight, shard, None, False, 100)


def mlp(parallel, sizes=(40, 30, 20, 10), opt=None, **options):
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=1)
    net.add(layers.Dense("dense", sizes[1], input_sample_shape=(sizes[0],)))
    for number, size in enumerate(sizes[2:]):
        net.add(layers.Activation(f"tanh{number}", "tanh"))
        net.add(layers.Dense(f"dense{number}", size))
    net.compile(opt or optimizer.SGD(0.1, momentum=0.9), parallel=parallel, **options)
    return net


def planned(net, batch=8):
    return net.plan_batch(batch).placed.planned


def steps(program, kind):
    return [step for step, instruction in enumerate(program.instructions) if kind_of(instruction) == kind]
