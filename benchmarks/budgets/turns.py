"""Measuring: the cases of a group take turns, step by step, each in a process of its own that stays.

A round is a turn of each. A turn that other work or the hypervisor disturbed is done again within its round, a few
times; it counts only if a quiet one came, and a round only if one came of our free plan's (`figures.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import quiet
from peers.worker import Worker

from .cases import NO_TIME, Case, groups

#: How often a disturbed turn is done again in its round, and how many rounds are tried for each that is wanted.
AGAIN, TRIED = 2, 2
#: Estimated slowdown of a plan that takes so few quiet turns only, as each takes as long as several others.
SLOW, FEW = 1.0, 2
#: A case and its process.
Pair = tuple[Case, Worker]


@dataclass
class Measuring:
    """Rounds of nets, until there are `rounds` quiet ones of each group or the time is over.

    steps: of a turn at least. end: on the monotonic clock. cache: folder of the peer's compiler. save: called whenever
    there is more to keep.
    """

    watch: quiet.Watch
    rounds: int
    steps: int
    end: float
    cache: str
    save: Callable[[], None]
    session: int = field(default_factory=time.time_ns)

    def net(self, found: Sequence[Case], share: float) -> None:
        """All groups of a net in turn, within a share of the time that is left. RuntimeError if our free plan fails."""
        parts = groups(found)
        end = time.monotonic() + self._left(self.end) * share
        for number, group in enumerate(parts):
            weight = len(group) / sum(map(len, parts[number:]))
            self._group(f"{self.session}.{number}", group, time.monotonic() + self._left(end) * weight)

    def nets(self, nets: Sequence[Sequence[Case]]) -> Iterator[Sequence[Case]]:
        """All nets, an equal part of the time that is left for each, which is given when it is measured."""
        for index, found in enumerate(nets):
            try:
                self.net(found, 1 / (len(nets) - index))
            except RuntimeError as error:
                found[0].why = f"failed: {error}"
            self.save()
            yield found

    def _group(self, name: str, group: Sequence[Case], end: float) -> None:
        """Rounds of a group. end: no round is begun that should end later, but for the first."""
        if self._quiet_rounds(group) >= self.rounds:
            return
        with self._started(group, end) as pairs:
            longest = 0.0
            for tried in range(TRIED * self.rounds):
                begun = time.monotonic()
                if self._quiet_rounds(group) >= self.rounds or (tried and begun + longest > end):
                    break
                self._round(f"{name}.{tried}", pairs)
                longest = time.monotonic() - begun
                self.save()

    @contextmanager
    def _started(self, group: Sequence[Case], end: float) -> Iterator[list[Pair]]:
        """The processes of a group, warmed up; ended behind it."""
        pairs: list[Pair] = []
        try:
            for case in group:
                if pairs and time.monotonic() > end:
                    case.why = "" if case.turns else NO_TIME
                    continue
                case.why = ""
                pairs.append((case, Worker(case.task, self.cache)))
                self._tried(pairs, case, lambda worker: worker.answer())
            self.save()
            yield pairs
        finally:
            for _, worker in pairs:
                worker.close()

    def _round(self, name: str, pairs: list[Pair]) -> None:
        """A turn of each, and more of those that were disturbed."""
        waiting = [pair for pair in pairs if not self._enough(pair[0])]
        for _ in range(1 if self.watch.anyway else 1 + AGAIN):
            for case, _ in waiting:
                self._tried(pairs, case, lambda worker, case=case: self._turn(name, case, worker))
            disturbed = [pair for pair in waiting if pair in pairs and pair[0].turns[-1]["why"]]
            if not disturbed:
                break
            waiting = disturbed

    def _turn(self, name: str, case: Case, worker: Worker) -> None:
        self.watch.trouble()  # what was before does not count
        told = worker.turn(self.steps)
        case.turns.append({"round": name, **told, "why": self.watch.trouble()})

    def _tried(self, pairs: list[Pair], case: Case, what: Callable[[Worker], object]) -> None:
        """Ask a case's process; one that fails says so and is out. RuntimeError if it is our free plan's."""
        pair = next(pair for pair in pairs if pair[0] is case)
        try:
            what(pair[1])
        except RuntimeError as error:
            if pair is pairs[0]:
                raise
            case.why = f"failed: {error}"
            pair[1].close()
            pairs.remove(pair)

    def _quiet_rounds(self, group: Sequence[Case]) -> int:
        """How many rounds count of the case of the group, without our free plan, that has fewest."""
        able = [case for case in group[1:] if case.able and not self._enough(case)] or list(group[:1])
        free = self._rounds(group[0])
        return min(len(self._rounds(case) & free) for case in able)

    def _rounds(self, case: Case) -> set[str]:
        return {turn["round"] for turn in case.turns if self.watch.anyway or not turn["why"]}

    def _enough(self, case: Case) -> bool:
        return case.point.get("estimated", 0.0) > SLOW and len(self._rounds(case)) >= FEW

    @staticmethod
    def _left(end: float) -> float:
        return max(0.0, end - time.monotonic())
