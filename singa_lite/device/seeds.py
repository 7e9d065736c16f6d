"""Seeds: a device's sequence of seeds for random numbers, one for each net or expression that is built."""

from __future__ import annotations

import numpy as np

from singa_lite.common.checks import integer


class Seeds:
    """A sequence of 64-bit seeds that follow from one random seed. given: how many were given of them."""

    def __init__(self) -> None:
        self.seed = self.given = 0

    def start(self, seed: int, given: int = 0) -> None:
        """Starts the sequence of `seed` anew, behind the first `given` ones. ValueError for a seed beyond 64 bits."""
        seed, given = integer("random seed", seed, 0, 2**64 - 1), integer("restore_seeds", given, 0)
        self.seed, self.given = seed, given

    def next(self) -> int:
        """The next one."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=(self.given,))
        self.given += 1
        return int(sequence.generate_state(1, np.uint64)[0])
