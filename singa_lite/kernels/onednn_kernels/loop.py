"""Executions of primitives, and loops of them over pieces, of which nothing is kept but how far each buffer moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from singa_lite.common.array_types import Array
from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.onednn_kernels.library import memories
from singa_lite.kernels.onednn_kernels.library.memories import Execution
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive, address_of
from singa_lite.kernels.onednn_kernels.views import Arrays, BufferView, FlatSlice, Place, place_of
from singa_lite.kernels.routine import Step, Temporary


@dataclass(slots=True)
class Run(Step[Arrays]):
    """A primitive over its buffers, by argument."""

    primitive: Primitive
    views: Mapping[int, BufferView]

    @property
    def scratch_bytes(self) -> int:
        return self.primitive.scratch_bytes

    def arrays(self, binding: Arrays) -> dict[int, Array]:
        """By argument."""
        return {argument: binding.array(view) for argument, view in self.views.items()}

    def bind(self, binding: Arrays) -> Launch:
        return self.primitive.bind(self.arrays(binding), binding.workspace)


class Loop(Step[Arrays]):
    """The same primitives in a row, round after round, over other buffers each time.

    first: the runs of the first round. Of the others it knows by how many bytes each buffer has moved since.
    """

    def __init__(self, first: Sequence[Run]) -> None:
        self.first = first
        self.rounds = 1
        self._places = [[place_of(view) for view in run.views.values()] for run in first]
        #: Of each run, {argument: bytes that it has moved}, by rounds, of those that ever do.
        self._moves: list[dict[int, Sequence[int]]] = [{} for _ in first]

    @property
    def scratch_bytes(self) -> int:
        return max(run.scratch_bytes for run in self.first)

    def takes(self, runs: Sequence[Run]) -> bool:
        """Add a round, if it is of the same primitives over buffers of the same extents."""
        if [run.primitive for run in runs] != [run.primitive for run in self.first]:
            return False
        places = [[place_of(view) for view in run.views.values()] for run in runs]
        if any(list(run.views) != list(first.views) for run, first in zip(runs, self.first, strict=True)):
            return False
        pairs = [pair for one, other in zip(places, self._places, strict=True) for pair in zip(one, other, strict=True)]
        if any(place.of != first.of for place, first in pairs):
            return False
        for index, run in enumerate(runs):
            self._note(index, run, places[index])
        self.rounds += 1
        return True

    def _note(self, index: int, run: Run, places: Sequence[Place]) -> None:
        moves = self._moves[index]
        for argument, place, first in zip(run.views, places, self._places[index], strict=True):
            moved = place.nbytes - first.nbytes
            if moved or argument in moves:
                moves[argument] = _extended(moves.get(argument, (0,) * self.rounds), moved)

    def bind(self, binding: Arrays) -> Launch:
        executions = [self._execution(index, binding) for index in range(len(self.first))]
        return memories.current().launch(executions, self.rounds)

    def _execution(self, index: int, binding: Arrays) -> Execution:
        run, moves = self.first[index], self._moves[index]
        arrays = run.arrays(binding)
        for argument, steps in moves.items():
            _check(binding, run.views[argument], arrays[argument], max(steps))
        moved = {argument: _shifted_steps(address_of(arrays[argument]), steps) for argument, steps in moves.items()}
        return run.primitive.execution(arrays, binding.workspace, moved)


def _extended(steps: Sequence[int], step: int) -> Sequence[int]:
    """A further one; a range as long as all are as far from each other."""
    if len(steps) == 1 and steps[0] != step:
        return range(steps[0], 2 * step - steps[0], step - steps[0])
    if isinstance(steps, range) and steps.stop == step:
        return range(steps.start, step + steps.step, steps.step)
    return (*steps, step)


def _shifted_steps(start: int, steps: Sequence[int]) -> Sequence[int]:
    if isinstance(steps, range):
        return range(start + steps.start, start + steps.stop, steps.step)
    return tuple(start + step for step in steps)


def _check(binding: Arrays, view: BufferView, first: Array, moved: int) -> None:
    """ValueError where the last round would go beyond the buffer."""
    if isinstance(view, Temporary):
        room = binding.scratch.nbytes - place_of(view).nbytes
    elif isinstance(view, FlatSlice):
        room = binding.array(view.tensor).nbytes - place_of(view).nbytes
    else:  # rows, whose gaps nobody has counted, or a whole tensor, which never moves
        return
    if moved + first.nbytes > room:
        raise ValueError(f"a loop over pieces: wanted {moved + first.nbytes} bytes, received {room}")
