"""Onlooker: in the place of a saver, on the ranks that write no checkpoints, as rank 0 does it for all. It gives what
rank 0 asks for.
"""

from __future__ import annotations

from math import inf

from singa_lite.graph.graph import Pause
from singa_lite.snapshots import sharded_state as apart
from singa_lite.snapshots.checkpoints.trained import net_of
from singa_lite.training.fit import Training

#: What ranks are at, for the message where one is elsewhere.
WHERE = "Checkpoint: its file"


def _rank_zero_only(held: object) -> None:
    """Rank 0 alone writes."""


class Onlooker:
    """Writes nothing, and has the methods of `Saver`."""

    last = inf
    busy = False

    def check(self) -> None:
        """Nothing has failed."""

    def prepare(self, training: Training) -> None:
        """Nothing to prepare."""

    def start(self, training: Training, best: bool = False) -> None:
        """Give this rank's part of it, if there is any."""
        apart.written(net_of(training), WHERE, _rank_zero_only)

    def begin(self) -> Pause:
        """Nothing to wait for."""
        return Pause((), lambda: None)

    def finish(self, training: Training, best: bool = False) -> None:
        """Give this rank's part of one that may be left to write."""
        apart.written(net_of(training), WHERE, _rank_zero_only)

    def give_up(self) -> None:
        """Nothing is due."""

    def close(self) -> None:
        """Nothing is held."""
