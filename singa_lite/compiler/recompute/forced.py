"""Forced: what a limit leaves no choice about, told before anything is tried.

Whatever is dropped, at each step its own operands are live, and so is what cannot be dropped there. A value that does
not fit beside these somewhere in its gap must be dropped, and one that does not fit between those that read it must be
made for each of them. So no trial needs to find that out.
"""

from __future__ import annotations

import numpy as np

from singa_lite.compiler.recompute.live_bytes_model import LiveBytesModel
from singa_lite.compiler.recompute.repeats import ONCE, PER_READER


class Forced:
    """Bounds by one program, from its sketch before anything is dropped. at_step: the least bytes of each step."""

    def __init__(self, sketch: LiveBytesModel) -> None:
        self._sketch = sketch
        self.at_step = self._whatever_is_dropped()
        of, sizes = sketch.of, sketch.sizes
        self._kept = {b: self._most(g.before, g.behind) + sizes[b] for b, g in of.candidates.items()}
        self._staying = {b: self._most(steps[0], steps[-1], steps) + sizes[b] for b, steps in of.reading.items()}

    @property
    def floor(self) -> int:
        """No choice has fewer live bytes."""
        return int(self.at_step.max()) if len(self.at_step) else 0

    def levels(self, limit: int) -> dict[int, int]:
        """Of the values that no choice within the limit keeps: the cheapest way to hold each that it may have."""
        dropped = [block for block, most in self._kept.items() if most > limit]
        return {block: PER_READER if self._staying[block] > limit else ONCE for block in dropped}

    def _whatever_is_dropped(self) -> np.ndarray:
        sketch, of = self._sketch, self._sketch.of
        program = of.program
        live = np.array([program.rounded(i.scratch_bytes) for i in program.instructions], np.int64)
        for block, nbytes in sketch.sizes.items():
            own, gap = of.steps.get(block), of.candidates.get(block)
            if own:
                live[own[0] : (own[-1] if gap is None else gap.before) + 1] += nbytes
                live[of.reading.get(block, [])] += nbytes
        for step, pairs in sketch.pairs.items():
            live[step] -= sum(sketch.sizes[output] for output, inputs in pairs if self._may_share(step, output, inputs))
        return live

    def _may_share(self, step: int, output: int, inputs: tuple[int, ...]) -> bool:
        """Whether an output may be written over an input at this step, at best."""
        of = self._sketch.of
        return of.steps[output][0] == step and any(
            of.steps[given][-1] == step
            or (given in of.candidates and (of.candidates[given].before == step or step in of.reading[given]))
            for given in inputs
        )

    def _most(self, start: int, stop: int, but: list[int] | None = None) -> int:
        """The most bytes that are live between two steps whatever is dropped. but: not at these steps."""
        between = self.at_step[start + 1 : stop]
        if but is not None:
            between = np.delete(between, [step - start - 1 for step in but[1:-1]])
        return int(between.max()) if len(between) else 0
