"""The part of the optimizer's state that a rank alone holds in training (`shard="state"`).

A file is written by rank 0, whole, as of one process. It asks for an array when the file wants it, and the others give
their parts, so that rank 0 has one array at a time beside its own. All ranks call `written`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import ParallelError, SnapshotError
from singa_lite.optimizer import Optimizer
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.parallel.gradients.buckets import in_line
from singa_lite.snapshots.step_state import SUM
from singa_lite.snapshots.tree import LazyArray
from singa_lite.tensor import Shape, Tensor, to_numpy
from singa_lite.training.trained_net import TrainedNet


class Entry(NamedTuple):
    """An array that rank 0 asks for. slot: of the optimizer's state, or `SUM`."""

    name: str
    slot: str


class _End(NamedTuple):
    """Rank 0 asks for nothing more. error: what went wrong with the file, if anything did."""

    error: str


class _RankContents(NamedTuple):
    """The parameters of which a rank has state, and sums of gradients."""

    state: Sequence[str]
    sums: Sequence[str]


class ShardedState:
    """The arrays that a file wants of other ranks, as rank 0 has them while it writes. told: by rank."""

    def __init__(self, net: TrainedNet, where: str, told: Sequence[_RankContents]) -> None:
        self._net = net
        self._where = where
        self._told = told

    def state(self) -> dict[str, LazyArray]:
        """Of the optimizer, by path. SnapshotError where ranks do not have it of the same parameters."""
        optimizer, found = self._net.optimizer, dict[str, LazyArray]()
        if optimizer is None or not self._told:
            return found
        for name, value in self._net.parameters().items():
            if self._is_there(name, [one.state for one in self._told]):
                for slot in optimizer.slots:
                    form = optimizer.slot_form(slot, value)
                    found[f"optimizer/{name}/{slot}"] = self._lazy(Entry(name, slot), *form)
            if optimizer.gathering.done and self._is_there(name, [one.sums for one in self._told]):
                found[f"optimizer/{name}{SUM}"] = self._lazy(Entry(name, SUM), value.shape, value.dtype)
        return found

    def _is_there(self, name: str, told: Sequence[Sequence[str]]) -> bool:
        having = {rank for rank, names in enumerate(told) if name in names}
        wanted = {rank for rank, part in enumerate(_parts(self._net, name)) if part.start < part.stop}
        if having and having != wanted:
            raise SnapshotError(
                f"{self._where}: wanted state of {name!r} on ranks {sorted(wanted)}, received it of {sorted(having)}"
            )
        return bool(having)

    def _lazy(self, entry: Entry, shape: Shape, dtype: DType) -> LazyArray:
        return LazyArray(shape, dtype, partial(self._collected, entry, shape, dtype))

    def _collected(self, entry: Entry, shape: Shape, dtype: DType) -> Array:
        """The others are told which it is, and give theirs."""
        ranks, value = _ranks(self._net), self._net.parameters()[entry.name]
        ranks.gathered(entry, self._where)
        if shape != value.shape:  # a count, which is the same everywhere
            counts = [np.empty(int(entry.name in one.state), dtype) for one in self._told]
            ranks.collect(_rank_part(self._net, entry), counts)
            return np.full(shape, np.concatenate(counts)[0])
        whole = np.empty(value.size(), dtype)
        ranks.collect(_rank_part(self._net, entry), [whole[part] for part in _parts(self._net, entry.name)])
        order = value.memory_order()
        laid = whole.reshape([shape[axis] for axis in order])
        return np.ascontiguousarray(laid.transpose(np.argsort(order))).reshape(shape)


def written(
    net: TrainedNet,
    where: str,
    work: Callable[[ShardedState], object],
    with_state: bool = True,
) -> None:
    """Have rank 0 do `work`, which writes a file, or finds that there is none to write. All ranks call it, and none
    returns before it is done, where something of the file is apart; else the others return at once.

    with_state: whether the file has it. ParallelError on the others where rank 0 could not do it.
    """
    ranks, together = net.trainer.parallel, net.trainer.ranks
    if ranks is None or not with_state or together is None or together.ownership is None:
        if ranks is None or ranks.rank == 0:
            work(ShardedState(net, where, ()))
        return
    told = [one for one in ranks.gathered(_rank_contents(net), where) if isinstance(one, _RankContents)]
    if ranks.rank:
        _give(net, ranks, where)
        return
    try:
        work(ShardedState(net, where, told))
    except ParallelError:
        raise  # the others are gone
    except BaseException as error:
        ranks.gathered(_End(f"{type(error).__name__}: {error}"), where)
        raise
    ranks.gathered(_End(""), where)


def _rank_contents(net: TrainedNet) -> _RankContents:
    optimizer, together = net.optimizer, net.trainer.ranks
    if optimizer is None or together is None:
        return _RankContents((), ())
    sharded = together.ownership is not None
    parameters = net.parameters()
    state = [name for name in parameters if sharded and name in optimizer.state]
    sums = [name for name in parameters if sharded and name in optimizer.gathering.sums]
    return _RankContents(state, sums)


def _give(net: TrainedNet, ranks: DataParallel, where: str) -> None:
    """What rank 0 asks for, until it says that it has all."""
    while isinstance(asked := ranks.gathered(None, where)[0], Entry):
        ranks.collect(_rank_part(net, asked), ())
    if isinstance(asked, _End) and asked.error:
        raise ParallelError(f"{where}: wanted rank 0 to write the file, received of it {asked.error}")


def _rank_part(net: TrainedNet, entry: Entry) -> Array:
    """What this rank has of it, of one axis, in the order of memory; perhaps nothing."""
    optimizer, together = net.optimizer, net.trainer.ranks
    if optimizer is None or together is None:
        raise ParallelError(f"wanted a net that is compiled on all ranks, received one that is not, for {entry}")
    kept: Mapping[str, Tensor]
    if entry.slot == SUM:
        kept = optimizer.gathering.sums
    else:
        kept = {entry.name: state[entry.slot]} if (state := optimizer.state.get(entry.name)) is not None else {}
    if entry.name not in kept:
        return np.empty(0, _dtype(net, optimizer, entry))
    tensor = kept[entry.name]
    return to_numpy(tensor).transpose(tensor.memory_order()).reshape(-1)


def _dtype(net: TrainedNet, optimizer: Optimizer, entry: Entry) -> DType:
    value = net.parameters()[entry.name]
    return optimizer.slot_form(entry.slot, value)[1] if entry.slot in optimizer.slots else value.dtype


def _ranks(net: TrainedNet) -> DataParallel:
    if net.trainer.ranks is None:
        raise ParallelError("wanted a net that several processes train, received one that is compiled for one")
    return net.trainer.ranks.ranks


def _parts(net: TrainedNet, name: str) -> list[slice]:
    together = net.trainer.ranks
    return [] if together is None or together.ownership is None else together.ownership.parts(name)


# ---- reading


def own_values(net: TrainedNet) -> dict[str, Tensor]:
    """{parameter: what of it this rank updates}: the whole, or its part as `Optimizer.update` is given it, if any."""
    together, parameters = net.trainer.ranks, net.parameters()
    if together is None or together.ownership is None:
        return parameters
    owns = {name: together.ownership.own_part(name) for name in parameters}
    return {name: in_line(parameters[name], own.start, own.stop) for name, own in owns.items() if own.start < own.stop}


def own_elements(net: TrainedNet, path: str, array: Array) -> Array:
    """What this rank keeps of an entry of a file: its part of the optimizer's state, all of anything else."""
    together, (head, _, rest) = net.trainer.ranks, path.partition("/")
    name = rest.rpartition("/")[0]
    if together is None or together.ownership is None or head != "optimizer" or name not in net.parameters():
        return array
    value = net.parameters()[name]
    if array.shape != value.shape or rest.endswith("/count"):
        return array
    flat: Array = array.transpose(value.memory_order()).reshape(-1)
    return flat[together.ownership.own_part(name)]
