"""A model of a network: how long sums over processes take.

The postal model with a term for adding up, as in Thakur, Rabenseifner and Gropp, "Optimization of Collective
Communication Operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005), section 3: a message of n bytes takes
alpha + n beta, and adding up n bytes takes n gamma. A sum here is their pairwise exchange, which reduces and scatters
(section 3.2, long messages), and the gathering of the parts by as many messages; with p processes it takes

    2 (p - 1) alpha + 2 (p - 1) / p n beta + (p - 1) / p n gamma.

All processes are taken to be equally fast, and the network to carry all their messages at once.
"""

from __future__ import annotations

from typing import NamedTuple

from singa_lite.compiler.ir.time_model import BYTES

#: Bytes that adding up goes over for each byte of a part: two are read, and one is written.
_ADDED = 3


class Network(NamedTuple):
    """bandwidth: bytes a second that a process sends, and receives beside that; latency: seconds of a message.

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

    def of_messages(self, nbytes: int, ranks: int) -> float:
        """Seconds that the messages of a sum are under way, one behind the other."""
        return 2 * (ranks - 1) * self.latency + self.sent(nbytes, ranks) / self.bandwidth

    def of_adding(self, nbytes: int, ranks: int) -> float:
        """Seconds that a core adds up, which it can't compute in."""
        return _ADDED * (ranks - 1) / ranks * nbytes / self.rate

    def of_meeting(self, ranks: int) -> float:
        """Seconds until each process has told all others a few words, before a step."""
        return (ranks - 1) * self.latency
