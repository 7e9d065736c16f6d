"""Lanes: the launches of a program whose waves have lanes that run at the same time, `compiler/order/parallel.py`.

    one launch        all cores               | conv |
    a wave of lanes   lane 0, this thread            | conv a | relu a | waits |
                      lane 1, a worker               | conv b | relu b         |

Which thread does a lane, and when, makes no difference to its results: no lane touches what another one writes, as was
proved, and each call is made for so many threads beforehand, wherever it runs. `kernels/workers.py` has the threads,
and sees to it that none of them is at work any more when a wave ends, by an error or an interrupt too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import accumulate

from singa_lite.common import threads
from singa_lite.compiler.ir.program import Program
from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.workers import Work, share

#: See `KernelSet.turns`.
Turns = Callable[[], AbstractContextManager[object]]


class Lanes:
    """Of a program. together: whether lanes run at the same time; else each launch runs by itself.

    Launches are numbered by the steps of their instructions. Those of a wave that run at the same time are one of the
    launches that `merged` gives.
    """

    def __init__(self, program: Program, together: bool) -> None:
        self._share = program.target.share
        self._waves = program.waves if self._share else ()
        self._lane = [lane for wave in self._waves for lane, count in enumerate(wave) for _ in range(count)]
        self._apart = [len(wave) > 1 for wave in self._waves for _ in range(sum(wave))]
        self._together = together and any(self._apart)
        self._turns: list[Turns] = []
        counts = map(sum, self._waves) if self._together else [1] * len(program.instructions)
        #: The step behind each of the merged launches.
        self._ends = list(accumulate(counts))

    def place(self, step: int) -> int:
        """Which of the merged launches has a step; for one behind the last, how many there are."""
        return bisect_right(self._ends, step)

    @contextmanager
    def bound_in_lane(self, step: int, turns: Callable[[], Turns]) -> Iterator[None]:
        """The launch of a step is made inside. turns: makes those of a further lane, whose launches share nothing with
        those of other lanes.
        """
        if not self._apart or not self._apart[step]:
            yield
            return
        lane = self._lane[step]
        while len(self._turns) < lane:
            self._turns.append(turns())
        with ExitStack() as stack:
            stack.enter_context(threads.sharing(self._share))
            if lane:
                stack.enter_context(self._turns[lane - 1]())
            yield

    def by_themselves(self, launches: Sequence[Launch]) -> list[Launch]:
        """Launches that run one after the other, each by as many threads as it was made for."""
        if not self._apart:
            return list(launches)
        pairs = zip(launches, self._apart, strict=True)
        return [threads.with_share(launch, self._share) if apart else launch for launch, apart in pairs]

    def merged(self, launches: Sequence[Launch], names: Sequence[str]) -> tuple[list[Launch], list[str]]:
        """Launches of which each begins when the one before is done, and what each does."""
        if not self._together:
            return self.by_themselves(launches), list(names)
        made, told, step = list[Launch](), list[str](), 0
        for wave in self._waves:
            stop = step + sum(wave)
            if len(wave) == 1:
                made += launches[step:stop]
                told += names[step:stop]
            else:
                made.append(self._wave_launch(launches[step:stop], wave))
                told.append(" and ".join(names[step:stop]))
            step = stop
        return made, told

    def _wave_launch(self, launches: Sequence[Launch], wave: Sequence[int]) -> Launch:
        """A wave of several lanes."""
        ends = list(accumulate(wave))
        lanes = [tuple(launches[end - count : end]) for count, end in zip(wave, ends, strict=True)]
        longest_first = sorted(lanes, key=len, reverse=True)
        slots: list[Work] = [partial(_work, longest_first, self._share)] * len(lanes)
        return partial(share, len(lanes), slots)


def _work(lanes: Sequence[Sequence[Launch]], number: int, pieces: Iterator[int]) -> None:
    """Lanes one after the other, until none is left."""
    for piece in pieces:
        threads.in_lane(lanes[piece], number)
