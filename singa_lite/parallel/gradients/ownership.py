"""Ownership: which rank updates which elements of each parameter, and so has the optimizer's state of them.

    walk back    d/bias  d/weight                 c/bias  b/weight  b/bias ...
    buckets      [d/bias c/bias b/bias ...]       [c/weight] alone, as it is large
    ranks         0000000111111122222222           000111222

It goes by names and shapes alone, in the order of the walk back, so it is known before the first batch, and a file of
another number of ranks can be read. Of a large parameter with many rows each rank has whole rows, so that gradients can
be made for all ranks' rows a few at a time. What trains when the net is compiled comes first: with what does not it
would share buckets, whose sums would send zeros for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from singa_lite.common.array_types import DType
from singa_lite.common.errors import GraphError
from singa_lite.kernels.collective import parts_of
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.tensor import Tensor

#: Of so many times its share of a parameter a rank may have the state, for the rows to be whole.
MOST_OF_SHARE = 1.03


class Member(NamedTuple):
    """A parameter in a bucket, and where it begins there, in elements."""

    name: str
    start: int
    elements: int


class Bucket(NamedTuple):
    """Parameters whose gradients are summed together; one alone where it is large. unit: elements of one rank."""

    members: tuple[Member, ...]
    dtype: DType
    unit: int = 1

    @property
    def elements(self) -> int:
        """Of all members."""
        last = self.members[-1]
        return last.start + last.elements


def ownership_of(
    ranks: DataParallel | None,
    parameters: Mapping[str, Tensor],
    trained: Collection[str],
    before: Ownership | None,
    has_state: bool,
) -> Ownership | None:
    """Of a net that is compiled; None where each rank has all of the state. before: of its last compile.

    GraphError where the optimizer has state, which lies otherwise.
    """
    if ranks is None or ranks.shard is None or ranks.size == 1:
        if before is not None and has_state:
            raise _refused("a new one beside another parallel=", "one with parts of its state, by shard='state'")
        return None
    if before is not None and before.matches(parameters, ranks.size, ranks.rank, ranks.bucket_bytes):
        return before
    if has_state:
        lies = "in other parts" if before is not None else "whole"
        raise _refused("a new one with shard='state'", f"one that has state, which lies {lies}")
    return Ownership(ranks.size, ranks.rank, parameters, trained, ranks.bucket_bytes)


def _refused(wanted: str, received: str) -> GraphError:
    return GraphError(f"compile optimizer: wanted {wanted}, received {received}; net.save and net.load take it over")


class Ownership:
    """The owners of the elements of parameters and their state, by rank. parameters: by name, in the order of the
    forward; trained: names of those that train now; bucket_bytes: smaller ones are summed together.
    """

    def __init__(
        self, ranks: int, rank: int, parameters: Mapping[str, Tensor], trained: Collection[str], bucket_bytes: int
    ) -> None:
        self._ranks = ranks
        self._rank = rank
        self._bucket_bytes = bucket_bytes
        order = list(reversed(list(parameters.items())))
        groups = ([pair for pair in order if (pair[0] in trained) == trains] for trains in (True, False))
        self.buckets = tuple(bucket for group in groups for bucket in _packed(group, bucket_bytes, ranks))
        self._found = {
            member.name: (number, member) for number, bucket in enumerate(self.buckets) for member in bucket.members
        }

    def matches(self, parameters: Mapping[str, Tensor], ranks: int, rank: int, bucket_bytes: int) -> bool:
        """Whether it is that of these ranks and parameters, whichever of them train."""
        sizes = {member.name: member.elements for _, member in self._found.values()}
        same = sizes == {name: value.size() for name, value in parameters.items()}
        return same and (ranks, rank, bucket_bytes) == (self._ranks, self._rank, self._bucket_bytes)

    def place(self, name: str) -> tuple[int, Member]:
        """The number of a parameter's bucket, and its place there. GraphError for one that came later."""
        if name not in self._found:
            raise GraphError(
                f"parallel: wanted the parameters that the net had when it was compiled, received {name!r}; compile it "
                "again, with a new optimizer"
            )
        return self._found[name]

    def parts(self, name: str) -> list[slice]:
        """By rank, which elements of a parameter it updates, as they lie in memory."""
        number, member = self.place(name)
        bucket = self.buckets[number]
        cuts = parts_of(bucket.elements, self._ranks, bucket.unit)
        return [slice(_member_index(cut.start, member), _member_index(cut.stop, member)) for cut in cuts]

    def own_part(self, name: str) -> slice:
        """The same of this rank; empty where it has none."""
        return self.parts(name)[self._rank]


def _member_index(place: int, member: Member) -> int:
    """A place in a bucket, as one of this parameter's elements."""
    return min(max(place - member.start, 0), member.elements)


def _row(value: Tensor, ranks: int) -> int:
    """Elements of a row, along the outermost axis; 1 where whole rows would give a rank far more than others."""
    rows = value.shape[value.memory_order()[0]] if value.shape else 0
    return value.size() // rows if rows and -(-rows // ranks) * ranks <= MOST_OF_SHARE * rows else 1


def _packed(parameters: list[tuple[str, Tensor]], bucket_bytes: int, ranks: int) -> Iterator[Bucket]:
    """Large ones alone; small ones by as many bytes as a bucket has, in their order."""
    open_ones: dict[DType, list[Member]] = {}
    for name, value in parameters:
        if value.nbytes >= bucket_bytes:
            yield Bucket((Member(name, 0, value.size()),), value.dtype, _row(value, ranks))
            continue
        members = open_ones.setdefault(value.dtype, [])
        start = members[-1].start + members[-1].elements if members else 0
        if members and start * value.dtype.itemsize + value.nbytes > bucket_bytes:
            yield Bucket(tuple(members), value.dtype)
            members.clear()
            start = 0
        members.append(Member(name, start, value.size()))
    for dtype, members in open_ones.items():
        yield Bucket(tuple(members), dtype)
