"""DataParallelStep: what a training step does because other processes do it too: meet, compare, weigh samples, sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

import numpy as np

from singa_lite.autograd.ops.arithmetic import product
from singa_lite.autograd.ops.noise import drawing
from singa_lite.autograd.ops.synced_normalization import RankShare, across
from singa_lite.common.array_types import Array
from singa_lite.common.errors import ParallelError
from singa_lite.device import Device, device_of
from singa_lite.graph.graph import Phase
from singa_lite.layer.layer import Layer
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.parallel.gradients.buckets import Buckets, ShardedBuckets, Take
from singa_lite.parallel.gradients.ownership import Ownership
from singa_lite.tensor import Tensor, from_numpy

#: In the place of an output: all samples; and, in that of a share, how many the ranks have together.
SAMPLES = ""
TOTAL = "/total"
#: In that of a share: of how many values the first output's loss is the mean, of all ranks together.
COUNTED = "/counted"


class Arrival(NamedTuple):
    """A rank's message to the others before a step. step: its number; sums: which sums over the ranks its plan has;
    counts: {output: of how many values its loss is the mean}, and of samples; values: a digest of its parameters, where
    they are compared; settings: before the first step what it was compiled with; failed: what is wrong with it, if
    anything is.
    """

    step: int
    sums: int
    counts: Mapping[str, int]
    values: bytes = b""
    settings: Mapping[str, str] | None = None
    failed: str = ""


class DataParallelStep:
    """One net's. A loss's derivative is multiplied by this rank's share of what the whole batch's mean is of, which
    lies in memory and is read at replay: the sum of all ranks' gradients is then that of the mean.

    values: gives the net's parameters; settings: what it was compiled with, as text; ownership: whose parts of the
    optimizer's state are, with shard="state".
    """

    def __init__(
        self,
        ranks: DataParallel,
        outputs: Sequence[str],
        values: Callable[[], Mapping[str, Tensor]],
        settings: Callable[[], dict[str, str]],
        ownership: Ownership | None = None,
    ) -> None:
        self.ranks = ranks
        self.ownership = ownership
        self._shares: dict[Device, dict[str, Tensor]] = {}
        self._names = [SAMPLES, *outputs]
        self._values = values
        self._settings = settings
        self._comparison = Comparison(values)
        self._step = 0
        self._is_synchronized = False
        self._counts: Mapping[str, int] = dict.fromkeys(self._names, 0)
        #: Whether this rank has no samples in the step that has begun.
        self.is_idle = False

    def shares(self, device: Device) -> dict[str, Tensor]:
        """{output, or SAMPLES: this rank's share of the batch}, float64 (); under TOTAL the samples of all ranks,
        under COUNTED the values that count.
        """
        if device not in self._shares:
            self._shares[device] = {
                name: from_numpy(np.float64(0.0), device) for name in (*self._names, TOTAL, COUNTED)
            }
        return self._shares[device]

    def begin(self) -> None:
        """A step begins, and has not met the others."""
        self._is_synchronized = False

    def synchronize(self, sums: int, counts: Mapping[str, int], device: Device) -> None:
        """Before anything changes: every rank says what it is about to do. ParallelError where they differ."""
        counts = dict.fromkeys(self._names, 0) if self.is_idle else counts
        compares = self._step % self.ranks.check_every == 0
        values = self._comparison.digest() if compares else b""
        settings = None if self._step else self._settings()
        found = self._exchanged(Arrival(self._step, sums, counts, values, settings))
        _check_equal(found)
        if len({each.values for each in found}) > 1:
            self._comparison.refuse(self.ranks, f"step {self._step}")
        shares = self.shares(device)
        for name in self._names:
            total = sum(each.counts[name] for each in found)
            shares[name].copy_from_numpy(np.float64(counts[name] / total if total else 0.0))
        for of_all, name in ((TOTAL, SAMPLES), (COUNTED, self._names[-1])):
            shares[of_all].copy_from_numpy(np.float64(sum(each.counts[name] for each in found)))
        self.ranks.connect(device)
        self.ranks.set_idle(self.is_idle)
        self._counts = counts
        self._step += 1

    @property
    def loss_weight(self) -> float:
        """Of how many values this rank's loss of the last step was the mean."""
        return float(self._counts[self._names[1]])

    def fail(self, error: Exception) -> None:
        """The step that has begun fails here: tell the others, if they still wait for this rank."""
        if not self._is_synchronized:
            self._exchanged(Arrival(self._step, 0, {}, failed=f"{type(error).__name__}: {error}"))

    def _exchanged(self, mine: Arrival) -> list[Arrival]:
        self._is_synchronized = True
        found = self.ranks.gathered(mine)
        arrivals = [each for each in found if isinstance(each, Arrival)]
        for rank, each in enumerate(arrivals):
            if each.failed and not mine.failed:
                raise ParallelError(
                    f"step {mine.step}: wanted all ranks to do it, received from rank {rank} {each.failed}"
                )
        if len(arrivals) < len(found):
            raise ParallelError(f"step {mine.step}: wanted all ranks to train, received ranks that do something else")
        return arrivals

    # ---- within the step

    @contextmanager
    def in_step(self, device: Device) -> Iterator[Tensor]:
        """Operations inside are a step's: random numbers are this rank's. Gives what keeps sums in their order."""
        turn: Tensor = device.empty((), np.dtype(np.float64))
        with device.scope(Phase.FORWARD, ""):
            device.run("copy", self.shares(device)[SAMPLES], turn)  # sums on a GPU read there who has no samples
        token = drawing.set(self.ranks.draw_key)
        synced = across.set(self._rank_share(device, turn) if self.ranks.sync else None)
        try:
            yield turn
        finally:
            across.reset(synced)
            drawing.reset(token)

    def _rank_share(self, device: Device, turn: Tensor) -> RankShare:
        shares = self.shares(device)

        def add_up(values: Tensor) -> None:
            self.ranks.add_up(values, turn, is_urgent=True)

        return RankShare(shares[SAMPLES], shares[TOTAL], add_up)

    def scales(self, device: Device, scale: Tensor | None) -> dict[str, Tensor]:
        """What each output's derivative is multiplied by: this rank's share, and the loss's scale if there is one."""
        shares = {name: self.shares(device)[name] for name in self._names[1:]}
        return shares if scale is None else {name: product(scale, share) for name, share in shares.items()}

    def gradients(
        self, turn: Tensor, parameters: Iterable[Tensor], take: Take, at_once: bool, updates: bool
    ) -> Buckets:
        """Sums gradients over the ranks, and gives each to `take` when its sum is there.

        at_once, updates: see `ShardedBuckets`.
        """
        if self.ownership is None:
            return Buckets(self.ranks, turn, parameters, take)
        return ShardedBuckets(self.ranks, turn, parameters, take, self.ownership, at_once, updates)

    def follow_device(self) -> None:
        """Drop the shares: the parameters were moved to another device, where they are made anew."""
        self._shares.clear()

    def add_up_squares(self, squares: Tensor, turn: Tensor) -> None:
        """Squares of gradients that each rank has a part of, float64 (), become those of all."""
        if self.ownership is not None:
            self.ranks.add_up(squares, turn, is_urgent=True, of_samples=False)  # a part of the sums of all

    def add_up_norms(self, squares: Sequence[Tensor], turn: Tensor) -> None:
        """As `add_up_squares`, of several at once."""
        if self.ownership is None or not squares:
            return
        device, item = device_of(turn), np.dtype(np.float64).itemsize
        together: Tensor = device.empty((len(squares),), np.dtype(np.float64))
        places = [together.view((), (), number * item) for number in range(len(squares))]
        for value, place in zip(squares, places, strict=True):
            device.run("copy", value, place)
        self.ranks.add_up(together, turn, is_urgent=True, of_samples=False)
        for value, place in zip(squares, places, strict=True):
            device.run("copy", place, value)

    def share_statistics(self, turn: Tensor, layers: Iterable[Layer]) -> None:
        """Running statistics become the mean of those of all ranks, each by its share of the samples."""
        if self.ranks.sync:
            return
        states = [value for layer in layers if layer.batch_statistics for value in layer.states.values()]
        states = [value for value in states if value.dtype.kind == "f"]
        if not states:
            return
        device = device_of(turn)
        buckets = Buckets(self.ranks, turn, states, lambda name, value, total: device.run("copy", total, value))
        for value in states:
            with device.scope(Phase.UPDATE, value.name.rpartition("/")[0]):
                buckets.take(value.name, value, product(value, self.shares(device)[SAMPLES]))
        buckets.end()


def _check_equal(found: Sequence[Arrival]) -> None:
    first = found[0]
    for rank, other in enumerate(found):
        if other.step != first.step:
            raise ParallelError(
                f"train_one_batch: wanted all ranks to do the same step, received step {first.step} of rank 0 and step "
                f"{other.step} of rank {rank}"
            )
        if difference := _difference(first.settings or {}, other.settings or {}):
            name, one, two = difference
            raise ParallelError(
                f"train_one_batch: wanted the same settings on all ranks, received {name} {one} on rank 0 and {two} on "
                f"rank {rank}"
            )
        if other.sums != first.sums:
            raise ParallelError(
                f"train_one_batch: wanted the same net, compiled alike, on all ranks, received other gradients of rank "
                f"{rank} than of rank 0"
            )


def _difference(one: Mapping[str, str], other: Mapping[str, str]) -> tuple[str, str | None, str | None] | None:
    """The first setting that is not the same, and what it is in both."""
    names = dict.fromkeys([*one, *other])
    return next(((name, one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)), None)


class Comparison:
    """A comparison of parameters over the ranks. values: gives what is to be equal, by name."""

    def __init__(self, values: Callable[[], Mapping[str, Tensor]]) -> None:
        self._values = values

    def digest(self) -> bytes:
        """Equal where all values have equal bits, names and forms, and lie in memory alike: sums go by its order."""
        return repr(list(self._digests().items())).encode()

    def refuse(self, ranks: DataParallel, where: str) -> NoReturn:
        """Say which rank and which parameter differ. All ranks call it."""
        raise ParallelError(f"{where}: wanted equal parameters on all ranks, received {self._difference(ranks)}")

    def _difference(self, ranks: DataParallel) -> str:
        first, *others = ranks.gathered(self._digests())
        if not isinstance(first, dict):
            return "ranks that do something else"
        for rank, other in enumerate(others, 1):
            if not isinstance(other, dict) or list(other) != list(first):
                return f"another net on rank {rank} than on rank 0"
            lies = [name for name in first if first[name][0] != other[name][0]]
            if lies:
                return f"{lies[0]!r} in another order in memory on rank {rank} than on rank 0, as by other kernels"
            wrong = [name for name in first if first[name] != other[name]]
            if wrong:
                more = f" and {len(wrong) - 1} others" if len(wrong) > 1 else ""
                return f"another value of {wrong[0]!r}{more} on rank {rank} than on rank 0"
        return "parameters that changed meanwhile"

    def _digests(self) -> dict[str, tuple[object, ...]]:
        return {name: (value.memory_order(), *_digest(_on_host(value))) for name, value in self._values().items()}


def _on_host(value: Tensor) -> Array:
    device = device_of(value)
    array = device.array(value)
    return array if isinstance(array, np.ndarray) else device.runtime.read(array)


def _digest(array: Array) -> tuple[object, ...]:
    """Returns dtype, shape and sums of an array's bits, to compare ranks.

    It goes over the memory twice, in less time than a hash takes. Two roundings of one value differ in it.
    """
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    words = flat[: flat.size // 8 * 8].view(np.uint64)
    rest = flat[words.size * 8 :].tobytes()
    odd = words[::2].sum(dtype=np.uint64)
    return str(array.dtype), array.shape, int(words.sum(dtype=np.uint64)), int(odd), rest
