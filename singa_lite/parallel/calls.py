"""Kernel calls of several processes, as plans know them: a sum's beginning, its end, polls between the two, and keys.

Keys of random numbers: ranks have one random state, which a checkpoint holds once, and draw others from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.device import device_of
from singa_lite.kernels.collective import CollectiveKind, landing_elements
from singa_lite.kernels.interface import SIGNATURES, Facts, Signature
from singa_lite.kernels.kernel_set import DeviceArray, Launch
from singa_lite.parallel.sums import Channel
from singa_lite.runtime.cuda import Cuda
from singa_lite.tensor import Tensor


def _entered(name: str, tensors: tuple[str, ...], roles: tuple[str, ...], facts: Facts) -> Signature:
    signature = Signature(SIGNATURES.own_name(name), tensors, roles, frozenset(), ("call",), {}, facts, "own")
    SIGNATURES.enter_own(signature)
    return signature


# values: this rank's numbers, behind the end the sums of all ranks, or their parts; landing: `landing_elements` of
# their dtype, where the others' come in; turn: float64 (), by which these calls keep their order.
_TENSORS = ("values", "landing", "turn")


def _pair(name: str, by_elements: bool) -> tuple[Signature, Signature]:
    begin = Facts(strides_matter=True, by_elements=by_elements, once=True, activations=(), collective="begin")
    return (
        _entered(f"parallel.begin_{name}", _TENSORS, ("Update", "Write", "Update"), begin),
        _entered(f"parallel.end_{name}", _TENSORS, ("Update",) * 3, replace(begin, collective="wait")),
    )


_SIGNATURES = {
    CollectiveKind.SUM: _pair("sum", by_elements=True),
    CollectiveKind.OWN_PART: _pair("own_part", by_elements=False),
    CollectiveKind.ALL_PARTS: _pair("all_parts", by_elements=False),
}


@dataclass(frozen=True)
class SumCall:
    """The setting `call` of a sum's beginning and end, see `kernels/collective.py`.

    begins: whether it is of the beginning; clears: whether a rank without samples adds zeros; unit: of the ranks'
    parts, see `parts_of`.
    """

    channel: Channel
    begins: bool
    kind: CollectiveKind
    clears: bool
    on_gpu: bool
    in_flight_bytes: int
    is_urgent: bool
    in_line: bool
    unit: int
    scratch_bytes: ClassVar[int] = 0

    @property
    def ranks(self) -> int:
        """How many processes take part."""
        return self.channel.communicator.size

    @property
    def rank(self) -> int:
        """Which of them this one is."""
        return self.channel.communicator.rank

    @property
    def of_own_part(self) -> bool:
        """Whether only this rank's part is a sum behind the end."""
        return self.kind is CollectiveKind.OWN_PART

    def prepare(self, arrays: tuple[DeviceArray, ...], scratch: DeviceArray | None) -> Launch:
        """Bind it to its arrays."""
        values, landing, _ = arrays
        if self.begins:
            return partial(self.channel.begin, values, landing, self.kind, self.clears, self.unit)
        return partial(self.channel.wait, values)

    def prepare_on_gpu(self, runtime: Cuda, arrays: tuple[DeviceArray, ...]) -> Launch:
        """Bind it to its arrays. turn: holds this rank's share of the samples."""
        values, _, turn = arrays
        sums = self.channel.on_gpu(runtime)
        return sums.begin(values, turn, self.kind, self.clears, self.unit) if self.begins else sums.wait(values)

    def polling(self) -> PollCall | None:
        """The setting of a poll of its channel; a GPU's goes on by itself."""
        return None if self.on_gpu else PollCall(self.channel)

    def landing_elements(self, elements: int) -> int:
        """What the other ranks send; on a GPU nothing comes in beside the values."""
        comes = not self.on_gpu and self.kind is not CollectiveKind.ALL_PARTS
        return landing_elements(elements, self.ranks, self.unit) if comes else 1


@dataclass(frozen=True)
class PollCall:
    """The setting `call` of what lets all sums that are begun go on."""

    channel: Channel
    scratch_bytes: ClassVar[int] = 0

    def prepare(self, arrays: tuple[DeviceArray, ...], scratch: DeviceArray | None) -> Launch:
        """It has no arrays."""
        return self.channel.poll


def record_sum(begin: SumCall, values: Tensor, turn: Tensor) -> None:
    """Have a sum over the ranks recorded, or done, on whatever device the tensors lie: its beginning and its end."""
    device = device_of(values)
    landing: Tensor = device.empty((begin.landing_elements(values.size()),), values.dtype)
    for signature, call in zip(_SIGNATURES[begin.kind], (begin, replace(begin, begins=False)), strict=True):
        device.run(signature.name, values, landing, turn, call=call)


#: Between the counters of two ranks: no layer draws so often.
APART = 1 << 40

DRAW = _entered("parallel.draw_key", ("state", "key"), ("Update", "Write"), Facts(once=True, activations=()))


@dataclass(frozen=True)
class KeyCall:
    """The setting `call` of the kernel `draw_key`, with the counter of this rank in the key."""

    channel: Channel
    scratch_bytes: ClassVar[int] = 0

    @property
    def first(self) -> int:
        """The counter of this rank's first key."""
        return self.channel.communicator.rank * APART

    def prepare(self, arrays: tuple[DeviceArray, ...], scratch: DeviceArray | None) -> Launch:
        """Bind it to its arrays."""
        return partial(self._draw, *arrays)

    def prepare_on_gpu(self, runtime: Cuda, arrays: tuple[DeviceArray, ...]) -> Launch:
        """Bind it to its arrays."""
        state, key = arrays
        return self.channel.on_gpu(runtime).draw_key(state, key, self.first)

    def _draw(self, state: Array, key: Array) -> None:
        np.copyto(key, state)
        np.add(key[2:], np.uint64(self.first), out=key[2:])
        np.add(state[2:], 1, out=state[2:])
