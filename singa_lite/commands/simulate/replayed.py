"""A planned step of many processes, gone through call by call with a model of time in the place of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from singa_lite.commands.simulate.network import Network
from singa_lite.compiler.ir.collectives import BEGIN, POLL, WAIT, kind_of
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.time_model import CALL, Cost


class Replayed(NamedTuple):
    """Seconds of a simulated step. computed: by kernels; summed: by messages of sums, whether anything goes on beside
    them or not; waited: of these, and of what they queue behind, with nothing to compute; beside: adding up, polls, and
    meeting before the step. sent: bytes that a process sends; sums: how many.
    """

    computed: float
    summed: float
    waited: float
    beside: float
    sent: float
    sums: int

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return self.computed + self.waited + self.beside

    @property
    def hidden(self) -> float:
        """The share of the sums' time that kernels run beside; 1 where there are none."""
        return max(0.0, 1 - self.waited / self.summed) if self.summed else 1.0


def replayed(instructions: Iterable[Instruction], cost: Cost, network: Network, ranks: int) -> Replayed:
    """Go through a step in the order of its plan. Sums go over the network one behind the other; each is waited for
    where the plan does. cost: seconds of a call of this process alone.
    """
    now = computed = summed = waited = beside = sent = 0.0
    free, sums, ends = 0.0, 0, dict[tuple[int, int], float]()
    for instruction in instructions:
        kind = kind_of(instruction)
        if kind == BEGIN:
            nbytes = _nbytes(instruction)
            under_way = network.of_messages(nbytes, ranks)
            own = network.of_adding(nbytes, ranks) + (under_way if network.by_cores else 0.0)
            free = max(now, free) + (0.0 if network.by_cores else under_way)
            ends[_place(instruction)] = free
            now, beside = now + own, beside + own
            summed, sums, sent = summed + under_way, sums + 1, sent + network.sent(nbytes, ranks)
        elif kind == WAIT:
            late = max(0.0, ends.pop(_place(instruction)) - now)
            now, waited = now + late, waited + late
        else:
            took = CALL if kind == POLL else cost(instruction)
            now += took
            computed, beside = (computed, beside + took) if kind == POLL else (computed + took, beside)
    meeting = network.of_meeting(ranks)
    if network.by_cores:  # what the cores do themselves is not hidden
        return Replayed(computed, summed, waited + summed, beside - summed + meeting, sent, sums)
    return Replayed(computed, summed, waited, beside + meeting, sent, sums)


def _nbytes(instruction: Instruction) -> int:
    values = instruction.operands[0]
    return 0 if values is None else values.nbytes


def _place(instruction: Instruction) -> tuple[int, int]:
    """By which a sum's end is known to be of its beginning: what it sums, and both have first."""
    values = instruction.operands[0]
    return (-1, -1) if values is None else (values.block, values.offset)
