"""Stages: the forward part of a program, parted where little goes on from what is before to what is behind.

    conv1 -- bn1 -- relu1 -+- conv2 -- bn2 -+- add2 -- relu2 -- ...
             stage 1       |________________|       stage 2

What is behind such a place can be made again from the values that go on there, so a program is a chain of stages,
whatever is inside them. In most nets one value goes on (an articulation point of what repeats read of each other);
where there are more, a place has as few bytes as its neighbours or fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import NamedTuple

import numpy as np

from singa_lite.compiler.recompute.live_bytes_model import LiveBytesModel


class Stage(NamedTuple):
    """One link of a chain of stages; or several in a row as one, see `joined`.

    ends: the values that go on behind it, none behind the last stage. own: those of them that are made in it; inside:
    what else is. cut, size, inner: bytes of these three. cost: of all its repeats; inner_cost: without those that
    only what goes on needs. work: the most bytes that are live beside all these values while backward is here.
    number: of stages that are joined; largest: the most bytes that one of these makes.
    """

    ends: tuple[int, ...]
    own: tuple[int, ...]
    inside: tuple[int, ...]
    cut: int
    size: int
    inner: int
    cost: int
    inner_cost: int
    work: int
    number: int = 1
    largest: int = 0

    @classmethod
    def joined(cls, stages: Sequence[Stage]) -> Stage:
        """Returns stages in a row as one stage, which ends as the last of them does."""
        *others, last = stages
        inside = (*(block for stage in stages for block in stage.inside), *(b for stage in others for b in stage.own))
        inner = last.inner + sum(stage.size + stage.inner for stage in others)
        cost = sum(stage.cost for stage in others)
        work = max(stage.work for stage in stages)
        largest = max(stage.size + stage.inner for stage in stages)
        costs = cost + last.cost, cost + last.inner_cost
        return cls(last.ends, last.own, inside, last.cut, last.size, inner, *costs, work, len(stages), largest)

    def needed_bytes(self, times: int) -> int:
        """About the bytes with which its values need to be made so many times: as for equal stages."""
        values = next(n for n in range(1, self.number + 1) if comb(n + times, times) >= self.number)
        return self.work + self.size + self.largest + self.inner * values // self.number


def stages(model: LiveBytesModel) -> list[Stage]:
    """The chain of a program, from what is told of it before anything is dropped."""
    of, values = model.repeater, _turned_back_to(model)
    needed = sorted(of.chain(values, lambda _: True))
    beside = _other_live_bytes(model, values)
    found, at, step_at, later = list[Stage](), 0, 0, len(beside) - 1
    for place, ends in [*_places(model, values, needed), (len(beside), ())]:
        here, steps = list[int](), list[int]()
        while at < len(values) and of.writers[values[at]][-1] <= place:
            here.append(values[at])
            at += 1
        while step_at < len(needed) and needed[step_at] <= place:
            steps.append(needed[step_at])
            step_at += 1
        if not here:
            continue
        back = min(of.candidates[block].behind for block in here)
        work = int(beside[min(back, later) : max(back, later) + 1].max())
        later = back
        found.append(_stage(model, ends, here, steps, work))
    return found


def _turned_back_to(model: LiveBytesModel) -> list[int]:
    """The candidates that wait while the way back begins, where most bytes do: in the order of their writers."""
    gaps, waiting = model.repeater.candidates, np.zeros(len(model.at_step), np.int64)
    for block, gap in gaps.items():
        waiting[gap.before + 1 : gap.behind] += model.sizes[block]
    turn = int(waiting.argmax()) if gaps else 0
    values = [block for block, gap in gaps.items() if gap.before < turn < gap.behind]
    return sorted(values, key=lambda block: (model.repeater.writers[block][-1], block))


def _other_live_bytes(model: LiveBytesModel, values: Sequence[int]) -> np.ndarray:
    """Bytes live at each step but those of these values."""
    live, of = model.at_step.copy(), model.repeater
    for block in values:
        steps = of.steps[block]
        live[steps[0] : steps[-1] + 1] -= model.sizes[block]
    return live


def _stage(model: LiveBytesModel, ends: tuple[int, ...], here: Sequence[int], steps: Sequence[int], work: int) -> Stage:
    of, own_steps = model.repeater, set(steps)
    own = tuple(block for block in here if block in ends)
    inside = tuple(block for block in here if block not in ends)
    for_inside = own_steps & of.chain(inside, lambda block: own_steps.issuperset(of.writers[block]))
    cost, inner_cost = (sum(model.costs[step] for step in group) for group in (own_steps, for_inside))
    cut, size, inner = (sum(model.sizes[block] for block in group) for group in (ends, own, inside))
    return Stage(ends, own, inside, cut, size, inner, cost, inner_cost, work)


def _places(model: LiveBytesModel, values: Sequence[int], needed: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
    """Steps behind which as little goes on as near by, or less, and only what can be kept; and what does."""
    of, known, last_read = model.repeater, set(values), dict[int, int]()
    for step in needed:
        last_read.update(dict.fromkeys((*of.needs[step], *of.written[step]), step))
    across = np.zeros(len(model.at_step) + 2, np.int64)
    broken = np.zeros(len(across), np.int64)
    for block, last in last_read.items():
        first, whole = of.writers[block][0], of.writers[block][-1] if block in known else last
        across[first] += model.sizes[block]
        across[max(first, last)] -= model.sizes[block]
        broken[first] += 1
        broken[max(first, whole)] -= 1
    live, cannot = np.cumsum(across), np.cumsum(broken)
    steps = [s for s in sorted({of.writers[block][-1] for block in values}) if live[s] and not cannot[s]]
    near = list(zip([None, *steps], steps, [*steps[1:], None], strict=False))
    least = [s for before, s, behind in near if all(o is None or live[s] <= live[o] for o in (before, behind))]
    return _with_values(model, values, last_read, least)


def _with_values(
    model: LiveBytesModel, values: Sequence[int], last_read: dict[int, int], places: Sequence[int]
) -> list[tuple[int, tuple[int, ...]]]:
    """Places with the values that are made before them and read behind."""
    found, going_on, at = list[tuple[int, tuple[int, ...]]](), list[int](), 0
    for place in places:
        while at < len(values) and model.repeater.writers[values[at]][-1] <= place:
            going_on.append(values[at])
            at += 1
        going_on = [block for block in going_on if last_read.get(block, -1) > place]
        found.append((place, tuple(going_on)))
    return found
