"""The part of the optimizer's state that a rank alone holds in training (`shard="state"`).

A file is written by rank 0, whole, as of one process. It asks for an array when the file wants it, and the others give
their parts, so that rank 0 has one array at a time beside its own. All ranks call `written`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.errors import ParallelError, SnapshotError
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.parallel.gradients.buckets import in_line
from singa_lite.parallel.gradients.ownership import Ownership
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
    """The arrays that a file wants of other ranks, as rank 0 has them while it writes. contents: by rank."""

    def __init__(self, net: TrainedNet, where: str, contents: Sequence[_RankContents]) -> None:
        self._net = net
        self._where = where
        self._contents = contents

    def state(self) -> dict[str, LazyArray]:
        """Of the optimizer, by path. SnapshotError where ranks do not have it of the same parameters."""
        optimizer, found = self._net.optimizer, dict[str, LazyArray]()
        if optimizer is None or not self._contents:
            return found
        for name, value in self._net.parameters().items():
            if self._has_state(name, [one.state for one in self._contents]):
                for slot, form in optimizer.slot_forms(value, optimizer.state_dtype).items():
                    found[f"optimizer/{name}/{slot}"] = self._lazy(Entry(name, slot), *form)
            if optimizer.gathering.done and self._has_state(name, [one.sums for one in self._contents]):
                found[f"optimizer/{name}{SUM}"] = self._lazy(Entry(name, SUM), value.shape, value.dtype)
        return found

    def _has_state(self, name: str, contents: Sequence[Sequence[str]]) -> bool:
        having = {rank for rank, names in enumerate(contents) if name in names}
        wanted = {rank for rank, part in enumerate(_parts(self._net, name)) if part.start < part.stop}
        if having and having != wanted:
            raise SnapshotError(
                f"{self._where}: wanted state of {name!r} on ranks {sorted(wanted)}, received it of {sorted(having)}"
            )
        return bool(having)

    def _lazy(self, entry: Entry, shape: Shape, dtype: DType) -> LazyArray:
        return LazyArray(shape, dtype, partial(self._collected, entry, shape, dtype))

    def _collected(self, entry: Entry, shape: Shape, dtype: DType) -> Array:
        """The whole array: the other ranks are asked for it, and give their parts."""
        ranks, value = _ranks(self._net), self._net.parameters()[entry.name]
        ranks.gathered(entry, self._where)
        if shape != value.shape:  # a count, which is the same everywhere
            counts = [np.empty(int(entry.name in one.state), dtype) for one in self._contents]
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
    ranks = net.trainer.parallel
    if ranks is None or not with_state or ownership(net) is None:
        if ranks is None or ranks.rank == 0:
            work(ShardedState(net, where, ()))
        return
    contents = [one for one in ranks.gathered(_rank_contents(net), where) if isinstance(one, _RankContents)]
    if ranks.rank:
        _give(net, ranks, where)
        return
    try:
        work(ShardedState(net, where, contents))
    except ParallelError:
        raise  # the others are gone
    except BaseException as error:
        ranks.gathered(_End(f"{type(error).__name__}: {error}"), where)
        raise
    ranks.gathered(_End(""), where)


def _rank_contents(net: TrainedNet) -> _RankContents:
    optimizer, parameters = net.optimizer, net.parameters()
    if optimizer is None:
        return _RankContents((), ())
    sums = optimizer.gathering.sums
    return _RankContents(
        [name for name in parameters if name in optimizer.state], [name for name in parameters if name in sums]
    )


def _give(net: TrainedNet, ranks: DataParallel, where: str) -> None:
    """What rank 0 asks for, until it says that it has all."""
    while isinstance(asked := ranks.gathered(None, where)[0], Entry):
        ranks.collect(_rank_part(net, asked), ())
    if isinstance(asked, _End) and asked.error:
        raise ParallelError(f"{where}: wanted rank 0 to write the file, received of it {asked.error}")


def _rank_part(net: TrainedNet, entry: Entry) -> Array:
    """What this rank has of it, of one axis, in the order of memory; perhaps nothing."""
    optimizer, value = net.optimizer, net.parameters()[entry.name]
    if optimizer is None:
        raise ParallelError(f"wanted a net that is compiled on all ranks, received one that is not, for {entry}")
    if entry.slot == SUM:
        tensor, dtype = optimizer.gathering.sums.get(entry.name), value.dtype
    else:
        tensor = optimizer.state.get(entry.name, {}).get(entry.slot)
        dtype = optimizer.slot_forms(value, optimizer.state_dtype)[entry.slot][1]
    return np.empty(0, dtype) if tensor is None else to_numpy(tensor).transpose(tensor.memory_order()).reshape(-1)


def _ranks(net: TrainedNet) -> DataParallel:
    if net.trainer.ranks is None:
        raise ParallelError("wanted a net that several processes train, received one that is compiled for one")
    return net.trainer.ranks.ranks


def _parts(net: TrainedNet, name: str) -> list[slice]:
    owners = ownership(net)
    return [] if owners is None else owners.parts(name)


def ownership(net: TrainedNet) -> Ownership | None:
    """Which rank has the optimizer's state of which elements; None where each has all of it."""
    return None if net.trainer.ranks is None else net.trainer.ranks.ownership


# ---- reading


def own_values(net: TrainedNet) -> dict[str, Tensor]:
    """{parameter: what of it this rank updates}: the whole, or its part as `Optimizer.update` is given it, if any."""
    owners, parameters = ownership(net), net.parameters()
    if owners is None:
        return parameters
    owns = {name: owners.own_part(name) for name in parameters}
    return {name: in_line(parameters[name], own.start, own.stop) for name, own in owns.items() if own.start < own.stop}


def own_elements(net: TrainedNet, path: str, array: Array) -> Array:
    """What this rank keeps of an entry of a file: its part of the optimizer's state, all of anything else."""
    owners, (head, _, rest) = ownership(net), path.partition("/")
    name = rest.rpartition("/")[0]
    if owners is None or head != "optimizer" or name not in net.parameters():
        return array
    value = net.parameters()[name]
    if array.shape != value.shape or rest.endswith("/count"):
        return array
    flat: Array = array.transpose(value.memory_order()).reshape(-1)
    return flat[owners.own_part(name)]
