"""Objects that tell `fit` how its data come: samples with targets, batches made anew each epoch, worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from singa_lite.common.arrays import kind
from singa_lite.common.checks import integer


class Paired:
    """Samples that have their targets with them: `net.fit(pair)`, `net.evaluate(pair)`, `validation_data=pair`.

    x: samples, or {input layer: samples}; y: as many targets, or {output layer: targets}; each of any kind that `fit`
    takes, such as a set on disk that is read by `[]`. len() is the number of samples.

    >>> pair = data.Paired(np.ones((8, 5)), np.ones((8, 3)), 8)
    >>> len(pair)
    8
    """

    def __init__(self, x: object, y: object, count: int) -> None:
        self.x, self.y = x, y
        self._count = count

    def __len__(self) -> int:
        return self._count


class Epochs:
    """The batches (x, y) of each epoch, which make(epoch) gives: `net.fit(data.Epochs(make), epochs=5)`, epochs counted
    from 0.

    make: gives the same batches whenever it is asked for the same epoch, such as a generator function that shuffles by
    `np.random.default_rng([seed, epoch])`. So training goes on from any checkpoint to equal bits: the batches that were
    done are made again and left out. TypeError for what cannot be called.

    >>> def make(epoch):
    ...     random = np.random.default_rng([7, epoch])
    ...     yield from ((random.random((2, 5), "float32"), np.ones((2, 3), "float32")) for _ in range(4))
    >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile("adam", "mse")
    >>> history = net.fit(data.Epochs(make), epochs=2, verbose=False)
    >>> net.optimizer.step
    8
    """

    def __init__(self, make: Callable[[int], Iterable[object]]) -> None:
        if not callable(make):
            raise TypeError(f"Epochs: wanted a function of the epoch's number, received {kind(make)}")
        self.make = make


class Processes:
    """The number of processes that transform samples, instead of threads: `fit(workers=data.Processes(2))`.

    For transforms written in Python, which hold the interpreter's lock: threads would slow the training step down. The
    transform is pickled, without the data, of which samples come batch by batch. So it is a function or an object of a
    module, and the script's own part stands under `if __name__ == "__main__":`, as each process imports the script.

    >>> data.Processes(2)  # net.fit(..., transform=function, workers=data.Processes(2))
    Processes(2)
    """

    def __init__(self, count: int) -> None:
        self.count = integer("Processes count", count, 1)

    def __repr__(self) -> str:
        return f"Processes({self.count})"
