"""A planned step of many processes, replayed call by call by a model of the kernels' and the network's time.

The postal model with a term for adding up, as in Thakur, Rabenseifner and Gropp, "Optimization of Collective
Communication Operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), section 3: a message of n bytes takes
alpha + n beta, and adding up n bytes takes n gamma. A sum here is their pairwise exchange, which reduces and scatters
(section 3.2, long messages), and the gathering of the parts by as many messages; with p processes it takes

    2 (p - 1) alpha + 2 (p - 1) / p n beta + (p - 1) / p n gamma.

All processes are taken to be equally fast, and the network to carry all their messages at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from singa_lite.compiler.ir.collectives import BEGIN, POLL, WAIT, kind_of
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.time_model import BYTES, CALL, Cost

#: Bytes that adding up goes over for each byte of a part: two are read, and one is written.
_ADDED = 3


class Network(NamedTuple):
    """The connections between processes.

    bandwidth: bytes a second that a process sends, and as many that it receives; latency: seconds of a message.
    by_cores: whether messages are copied by the cores that compute, as between processes of one machine: then nothing
    of them is hidden. rate: bytes a second that a core goes over where it adds up or copies.
    """

    bandwidth: float
    latency: float
    by_cores: bool = False
    rate: float = BYTES

    def with_cores(self, share: float) -> Network:
        """Between processes that have this share of a core each: adding up is slower, and copies that cores make."""
        bandwidth = self.bandwidth * share if self.by_cores else self.bandwidth
        return self._replace(bandwidth=bandwidth, rate=self.rate * share)

    def sent(self, nbytes: int, ranks: int) -> float:
        """Bytes that a process sends for a sum of so many."""
        return 2 * (ranks - 1) / ranks * nbytes

    def message_seconds(self, nbytes: int, ranks: int) -> float:
        """Seconds that the messages of a sum are under way, one behind the other."""
        return 2 * (ranks - 1) * self.latency + self.sent(nbytes, ranks) / self.bandwidth

    def adding_seconds(self, nbytes: int, ranks: int) -> float:
        """Seconds that a core adds up, which it can't compute in."""
        return _ADDED * (ranks - 1) / ranks * nbytes / self.rate

    def meeting_seconds(self, ranks: int) -> float:
        """Seconds until each process has told all others a few words, before a step."""
        return (ranks - 1) * self.latency


class Replayed(NamedTuple):
    """Seconds of a simulated step. computed: by kernels; summed: by messages of sums, whether kernels run meanwhile or
    not; waited: of these, and of what they queue behind, with nothing to compute; overhead: adding up, polls, and
    meeting before the step. sent: bytes that a process sends; sums: how many.
    """

    computed: float
    summed: float
    waited: float
    overhead: float
    sent: float
    sums: int

    @property
    def seconds(self) -> float:
        """Of the whole step."""
        return self.computed + self.waited + self.overhead

    @property
    def hidden_share(self) -> float:
        """The share of the sums' time that kernels run beside; 1 where there are none."""
        return max(0.0, 1 - self.waited / self.summed) if self.summed else 1.0


def replayed(instructions: Iterable[Instruction], cost: Cost, network: Network, ranks: int) -> Replayed:
    """Go through a step in the order of its plan. Sums go over the network one behind the other; each is waited for
    where the plan does. cost: seconds of a call of this process alone.
    """
    now = computed = summed = waited = overhead = sent = 0.0
    free, sums, ends = 0.0, 0, dict[tuple[int, int], float]()
    for instruction in instructions:
        kind = kind_of(instruction)
        if kind == BEGIN:
            nbytes = _nbytes(instruction)
            under_way = network.message_seconds(nbytes, ranks)
            own = network.adding_seconds(nbytes, ranks) + (under_way if network.by_cores else 0.0)
            free = max(now, free) + (0.0 if network.by_cores else under_way)
            ends[_place(instruction)] = free
            now, overhead = now + own, overhead + own
            summed, sums, sent = summed + under_way, sums + 1, sent + network.sent(nbytes, ranks)
        elif kind == WAIT:
            late = max(0.0, ends.pop(_place(instruction)) - now)
            now, waited = now + late, waited + late
        else:
            took = CALL if kind == POLL else cost(instruction)
            now += took
            computed, overhead = (computed, overhead + took) if kind == POLL else (computed + took, overhead)
    meeting = network.meeting_seconds(ranks)
    if network.by_cores:  # what the cores do themselves is not hidden
        return Replayed(computed, summed, waited + summed, overhead - summed + meeting, sent, sums)
    return Replayed(computed, summed, waited, overhead + meeting, sent, sums)


def _nbytes(instruction: Instruction) -> int:
    values = instruction.operands[0]
    return 0 if values is None else values.nbytes


def _place(instruction: Instruction) -> tuple[int, int]:
    """By which a sum's end is known to be of its beginning: what it sums, and both have first."""
    values = instruction.operands[0]
    return (-1, -1) if values is None else (values.block, values.offset)
