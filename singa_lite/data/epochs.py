"""Epochs: batches that a function makes anew for each epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from singa_lite.common.arrays import kind


class Epochs:
    """`net.fit(data.Epochs(make), epochs=5)`: make(epoch) gives that epoch's batches (x, y), epochs counted from 0.

    make: gives the same batches whenever it is asked for the same epoch, such as a generator function that shuffles by
    `np.random.default_rng([seed, epoch])`. So training goes on from any checkpoint to equal bits: the batches that were
    done are made again and left out. TypeError for what cannot be called.
    """

    def __init__(self, make: Callable[[int], Iterable[object]]) -> None:
        if not callable(make):
            raise TypeError(f"Epochs: wanted a function of the epoch's number, received {kind(make)}")
        self.make = make
