"""The kernel calls of a sum over the ranks, as plans know them: its beginning, its end, and polls between the two."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from singa_lite.device import device_of
from singa_lite.kernels.collective import landing_elements
from singa_lite.kernels.interface import SIGNATURES, Facts, Signature
from singa_lite.kernels.kernel_set import DeviceArray, Launch
from singa_lite.parallel.collective_kind import CollectiveKind
from singa_lite.parallel.sums import Channel
from singa_lite.runtime.cuda import Cuda
from singa_lite.tensor import Tensor

_TENSORS = ("values", "landing", "turn")


def _entered(name: str, roles: tuple[str, ...], facts: Facts) -> Signature:
    tensors = _TENSORS[: len(roles)]
    signature = Signature(SIGNATURES.own_name(name), tensors, roles, frozenset(), ("call",), {}, facts, "own")
    SIGNATURES.enter_own(signature)
    return signature


# values: this rank's numbers, behind the end the sums of all ranks, or their parts; landing: `landing_elements` of
# their dtype, where the others' come in; turn: float64 (), by which these calls keep their order.
_ROLES = {"begin": ("Update", "Write", "Update"), "wait": ("Update", "Update", "Update")}


def _pair(name: str, by_elements: bool) -> tuple[Signature, Signature]:
    facts = Facts(strides_matter=True, by_elements=by_elements, once=True, activations=())
    return (
        _entered(f"parallel.begin_{name}", _ROLES["begin"], replace(facts, collective="begin")),
        _entered(f"parallel.end_{name}", _ROLES["wait"], replace(facts, collective="wait")),
    )


_SIGNATURES = {
    CollectiveKind.SUM: _pair("sum", by_elements=True),
    CollectiveKind.OWN_PART: _pair("own_part", by_elements=False),
    CollectiveKind.ALL_PARTS: _pair("all_parts", by_elements=False),
}


class SumCall:
    """The setting `call` of all of them: see `kernels/collective.py`. begins: whether it is of the beginning; clears:
    whether a rank without samples adds zeros; unit: of the ranks' parts, see `parts_of`.
    """

    scratch_bytes = 0

    def __init__(
        self,
        channel: Channel,
        in_flight_bytes: int,
        begins: bool,
        is_urgent: bool,
        way: CollectiveKind,
        clears: bool,
        in_line: bool,
        on_gpu: bool,
        unit: int,
    ) -> None:
        self._channel = channel
        self._begins = begins
        self._way = way
        self._clears = clears
        self._on_gpu = on_gpu
        self.ranks = channel.communicator.size
        self.rank = channel.communicator.rank
        self.unit = unit
        self.of_own_part = way is CollectiveKind.OWN_PART
        self.in_flight_bytes = in_flight_bytes
        self.is_urgent = is_urgent
        self.in_line = in_line

    def prepare(self, arrays: tuple[DeviceArray, ...], scratch: DeviceArray | None) -> Launch:
        """Bind it to its arrays."""
        values, landing, _ = arrays
        if self._begins:
            return partial(self._channel.begin, values, landing, self._way, self._clears, self.unit)
        return partial(self._channel.wait, values)

    def prepare_on_gpu(self, runtime: Cuda, arrays: tuple[DeviceArray, ...]) -> Launch:
        """Bind it to its arrays. turn: holds this rank's share of the samples."""
        values, _, turn = arrays
        sums = self._channel.on_gpu(runtime)
        if self._begins:
            return sums.begin(values, turn, self._way, self._clears, self.unit)
        return sums.wait(values)

    def polling(self) -> PollCall | None:
        """The setting of a poll of its channel; a GPU's goes on by itself."""
        return None if self._on_gpu else PollCall(self._channel)

    def landing_elements(self, elements: int) -> int:
        """What the other ranks send; on a GPU nothing comes in beside the values."""
        return (
            1
            if self._on_gpu or self._way is CollectiveKind.ALL_PARTS
            else landing_elements(elements, self.ranks, self.unit)
        )


class PollCall:
    """The setting `call` of what lets all sums that are begun go on."""

    scratch_bytes = 0

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def prepare(self, arrays: tuple[DeviceArray, ...], scratch: DeviceArray | None) -> Launch:
        """It has no arrays."""
        return self._channel.poll


class _SumArguments(NamedTuple):
    """What two sums have in common that share their calls: arguments of `SumCall`, in its order."""

    is_urgent: bool
    way: CollectiveKind
    clears: bool
    in_line: bool
    on_gpu: bool
    unit: int


class Sums:
    """Has sums recorded, or done, on whatever device the tensors lie."""

    def __init__(self, channel: Channel, in_flight_bytes: int) -> None:
        self._channel = channel
        self._in_flight_bytes = in_flight_bytes
        self._known: dict[_SumArguments, tuple[SumCall, SumCall]] = {}

    def add_up(
        self,
        values: Tensor,
        turn: Tensor,
        is_urgent: bool = False,
        way: CollectiveKind = CollectiveKind.SUM,
        of_samples: bool = True,
        in_line: bool = False,
        unit: int = 1,
    ) -> None:
        """values: without gaps; becomes the sum over all ranks. turn: float64 (), one for all sums of a step.

        is_urgent: whether it is waited for at once; of_samples: whether a rank without any adds zeros; in_line, unit:
        see `Collective`.
        """
        device = device_of(values)
        clears = of_samples and way is not CollectiveKind.ALL_PARTS
        on_gpu = isinstance(device.runtime, Cuda)
        calls = self._calls(_SumArguments(is_urgent, way, clears, in_line, on_gpu, unit))
        landing: Tensor = device.empty((calls[0].landing_elements(values.size()),), values.dtype)
        for signature, call in zip(_SIGNATURES[way], calls, strict=True):
            device.run(signature.name, values, landing, turn, call=call)

    def _calls(self, how: _SumArguments) -> tuple[SumCall, SumCall]:
        """Of the beginning and the end."""
        if how not in self._known:
            begin, end = (SumCall(self._channel, self._in_flight_bytes, begins, *how) for begins in (True, False))
            self._known[how] = begin, end
        return self._known[how]
