"""StepTransaction: a step of an optimizer as a `with` block, which counts only if it was kept."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from types import TracebackType
from typing import Any, Protocol

from singa_lite.optimizer.gradient_accumulation import GradientAccumulation


class Counting(Protocol):
    """What the block needs of an optimizer."""

    @property
    def state(self) -> MutableMapping[Any, Any]: ...

    @property
    def step(self) -> int: ...

    @property
    def gathering(self) -> GradientAccumulation: ...

    def restore_step(self, step: int) -> None: ...


class StepTransaction:
    """A `with` block that undoes the optimizer's step unless `keep` was called inside. At its end the count of steps is
    put back, however it ends, and state that was made inside is let go. So is the place in a group of batches; a kept
    step that fails leaves a group that begins anew.

    Either way the step is over then: an update that follows begins another one. is_kept: whether `keep` was called.
    is_whole: whether the end of the block was reached, with all of the step done or nothing of it. An interrupt may
    prevent that.
    """

    def __init__(self, optimizer: Counting) -> None:
        self._optimizer = optimizer
        self._before = optimizer.step
        self._with_state = frozenset(optimizer.state)
        self._with_sums = frozenset(optimizer.gathering.sums)
        self._done = optimizer.gathering.done
        self.is_kept = False
        self.is_whole = False

    def keep(self) -> None:
        """Parameters or state change from now on: the step counts, also if it fails."""
        self.is_kept = True

    def complete(self) -> None:
        """All of the batch is done: it is one more of its group."""
        gathering = self._optimizer.gathering
        gathering.done = (self._done + 1) % gathering.count

    def __enter__(self) -> StepTransaction:
        self._optimizer.gathering.done = 0
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = self._optimizer.state
        self._optimizer.restore_step(self._optimizer.step if self.is_kept else self._before)
        if not self.is_kept:
            gathering = self._optimizer.gathering
            gathering.done = self._done
            for name in state.keys() - self._with_state:
                del state[name]
            for name in gathering.sums.keys() - self._with_sums:
                del gathering.sums[name]
        self.is_whole = kind is None or not self.is_kept


class StepOfAll:
    """As `StepTransaction`, of several optimizers at a time: all of them count the step, or none."""

    def __init__(self, optimizers: Sequence[Counting]) -> None:
        self._steps = [StepTransaction(optimizer) for optimizer in optimizers]

    @property
    def is_whole(self) -> bool:
        """Whether the end of the block was reached, with all of the step done or nothing of it."""
        return all(step.is_whole for step in self._steps)

    def keep(self) -> None:
        """Parameters or state change from now on."""
        for step in self._steps:
            step.keep()

    def complete(self) -> None:
        """All of the batch is done."""
        for step in self._steps:
            step.complete()

    def __enter__(self) -> StepOfAll:
        for step in self._steps:
            step.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for step in self._steps:
            step.__exit__(kind, error, trace)
