"""StepRunner: runs training steps. Each is done wholly, or changes nothing, or is noted as left before its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from operator import attrgetter
from typing import TypeVar

from singa_lite.common.contexts import in_own_context
from singa_lite.common.errors import GraphError
from singa_lite.common.unique import Unique
from singa_lite.graph.graph import Graph
from singa_lite.training.readers import Readers
from singa_lite.training.step_cache import StepCache
from singa_lite.training.steps.bound_step import Batch, BoundStep
from singa_lite.training.steps.fed_tensors import Forms
from singa_lite.training.steps.open_forward import OpenForward
from singa_lite.training.steps.recorded_steps import Feeds, RecordedStep
from singa_lite.training.steps.step_functions import Values
from singa_lite.training.steps.train_step import Look, TrainStep

Seen = TypeVar("Seen")

LEFT_WITHIN = "(somewhere within it: running statistics may have moved, and some layers may be updated)"
LEFT_PLANNING = "(while a step was being planned: the count of steps may be off by one)"

#: The runner whose step the present call is a part of.
_under_way: ContextVar[StepRunner | None] = ContextVar("under_way", default=None)


class StepRunner(Unique):
    """Runs the training steps of one net, and notes where the last one was left.

    steps: how a batch is done, exchanged when the net is compiled or moved; readers: what reads parameters beside a
    step; open_forward: the forward by hand that waits for its backward; relatives: returns the runners of all nets that
    have layers of this one, this one among them, if there are others.
    """

    def __init__(self, steps: StepCache) -> None:
        self.steps = steps
        self.readers = Readers()
        self.open_forward = OpenForward()
        self.relatives: Callable[[], Iterable[StepRunner]] = tuple
        self._interrupted_at = ""
        self._step: TrainStep | None = None

    @property
    def interrupted_at(self) -> str:
        """Where the last step was left, so that some layers are updated and others are not; "" after whole steps.

        A layer's name, or text in parentheses. It is noted when a step begins, as an interrupt leaves no time to note
        it afterwards; asked within that step it is "".
        """
        layer = self._step.stopped_at if self._step is not None else ""
        return layer or ("" if self.is_running else self._interrupted_at)

    @interrupted_at.setter
    def interrupted_at(self, where: str) -> None:
        self._interrupted_at = where

    @property
    def is_running(self) -> bool:
        """Whether the present call is a part of a training step."""
        return _under_way.get() is self

    @property
    def unfinished_at(self) -> str:
        """Where the last walk back by hand, or the last step, was left, perhaps one of a net that shares layers; ""
        after whole ones.
        """
        return self._own_unfinished_at or self._unfinished_relative

    @property
    def _own_unfinished_at(self) -> str:
        return self.open_forward.stopped_at or self.interrupted_at

    @property
    def _unfinished_relative(self) -> str:
        """The same of the first relative that was left."""
        return next((left for left in (other._own_unfinished_at for other in self.relatives()) if left), "")

    def check_whole(self, where: str) -> None:
        """GraphError if the last step was left before its end, or that of a net that has layers of this one. Outside of
        a step, what still reads parameters is ended.

        where: the call that wants to begin something new, for the message.
        """
        if not self.is_running and not any(other.is_running for other in self.relatives()):
            self.readers.end()
        own, other = self._own_unfinished_at, self._unfinished_relative
        if own:
            raise GraphError(
                f"{where}: wanted a whole step, but {_unfinished_text(own)}. Load a snapshot, or call discard_step() "
                "to go on from here"
            )
        if other:
            raise GraphError(
                f"{where}: wanted a whole step of each net that has layers of this one, but of one of them "
                f"{_unfinished_text(other)}. Let that net load a snapshot, or call its discard_step()"
            )

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way here, was left, waits or reads parameters, and no net that shares layers was
        left within a step.
        """
        if (
            self._step is not None
            or self._interrupted_at
            or self.readers.waiting
            or self.readers.reading
            or not self.open_forward.is_forgotten
        ):
            return False
        return not any(map(_own_unfinished_at, self.relatives()))

    def discard(self) -> None:
        """Nothing reads parameters, no forward waits, and whatever was left counts as whole from now on."""
        self.readers.end()
        self.forget()

    def forget(self) -> None:
        """No forward waits any more, and whatever was left counts as whole from now on."""
        self.open_forward.forget()
        self._forget_step()

    def _forget_step(self) -> None:
        self._step = None
        self._interrupted_at = ""

    @in_own_context
    def train(self, step: TrainStep, feeds: Feeds) -> Values:
        """One batch: forward, loss, and each layer's update as soon as its gradients are there; (loss, metric)."""
        _under_way.set(self)
        block = step.one_step()
        self._step, self._interrupted_at = step, LEFT_WITHIN
        try:
            with block:
                pause = self.readers.begin()  # which looks whether the nets are whole
                _mark(step, LEFT_WITHIN)
                results = self.steps.train(step, feeds, pause, block.keep)
                block.complete()
        finally:
            self.readers.end(give_up=False)  # also of a step that ended before its pause
            if block.is_whole:
                self._forget_step()
                _mark(step, "")
        return self.steps.own(results)

    def train_bound(self, recorded: RecordedStep, batch: Batch, look: Look | None = None) -> Values:
        """As `train`, of a batch in a form that was bound; at rest, and where nobody looks at operations.

        Such a step makes no state, is alone in its group, and no other net waits for its end: so what can be left of it
        is the count of steps, and all else once parameters had begun to change. look: as of the step.
        """
        bound: BoundStep = recorded.bound
        optimizer = bound.step.optimizer
        before, is_kept, is_whole = optimizer.step, False, False
        token = _under_way.set(self)  # ends with the turn, too, see `StepCache.exclusively`
        self._step, self._interrupted_at = bound.step, LEFT_WITHIN
        try:
            with bound.here():
                optimizer.count_step()  # first, as a schedule may do anything
                if not recorded.load_bound_batch(batch):
                    recorded.load_batch(bound.by_layer(batch))
                is_kept = True
                self.steps.train_bound(recorded, look)
                is_whole = True
                return bound.results()
        finally:
            if not is_kept:
                optimizer.restore_step(before)
            if is_whole or not is_kept:
                self._step, self._interrupted_at = None, ""
            _under_way.reset(token)

    @in_own_context
    def dry_run(self, step: TrainStep, forms: Forms, ask: Callable[[Graph], Seen], budget: int | None = None) -> Seen:
        """As `StepCache.dry_run`; the count of steps stays as it is."""
        _under_way.set(self)
        block = step.one_step()
        self._step, self._interrupted_at = step, LEFT_PLANNING
        try:
            with block:  # never kept
                return self.steps.dry_run(step, forms, ask, budget)
        finally:
            self.steps.layers.device.pool.release_free()  # the optimizer's state, which was there for the record alone
            if block.is_whole:
                self._forget_step()


_own_unfinished_at = attrgetter("_own_unfinished_at")


def _mark(step: TrainStep, where: str) -> None:
    """Note of other nets that the step trains where it was left."""
    for other in step.beside:
        other.interrupted_at = where


def _unfinished_text(layer: str) -> str:
    if layer.startswith("("):
        return f"the last step was left {layer}"
    return f"the last backward() was left at layer {layer!r}: layers after it are updated, those before it are not"
