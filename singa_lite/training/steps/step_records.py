"""StepRecords: the recorded steps of a net, and how each is recorded, bounded and planned beside the others."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import replace
from functools import cached_property
from weakref import finalize

from singa_lite.autograd.rewriting.variants import RuleOn
from singa_lite.common.machine import clear_free_lists
from singa_lite.common.unique import Unique
from singa_lite.compiler.byte_limit import ByteLimit
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.compiler.report.plan_rows import check_limits
from singa_lite.graph.arena import Arena
from singa_lite.graph.budget_error import BudgetError
from singa_lite.graph.graph import Graph
from singa_lite.layer.freezing import trained_values
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.optimizer import Optimizer
from singa_lite.runtime.pool_numbers import OutOfMemoryError
from singa_lite.tensor import Block, Tensor
from singa_lite.training.settings import Settings
from singa_lite.training.step_limits import (
    beside_bytes,
    held_bytes,
    longer_by,
    state_to_come,
    tightest,
    within_budget,
    within_limit,
)
from singa_lite.training.steps import fed_tensors
from singa_lite.training.steps.feed_buffer import FeedBuffer
from singa_lite.training.steps.observer import ObservedTensors
from singa_lite.training.steps.recorded_steps import Feeds, RecordedStep, RecordedSteps, form_of
from singa_lite.training.steps.recordings import Recordings
from singa_lite.training.steps.step_functions import StepFunction
from singa_lite.training.steps.train_step import TrainStep


class StepRecords(Unique):
    """A net's recorded steps. They share one arena and one buffer for what they are fed, as they never run at the same
    time; those that were used least recently are forgotten.

    layers: the net's; how: see there; optimizer: the net's, whose state lies beside evaluations and predictions.
    """

    def __init__(self, layers: LayerGraph, how: Settings, optimizer: Optimizer | None = None) -> None:
        self.layers = layers
        self.how = how
        self.optimizer = optimizer
        self._recorded = RecordedSteps()
        self.recordings = Recordings()
        self._trained: RecordedStep | None = None
        #: What was observed of the last training step, or evaluation.
        self.seen: ObservedTensors | None = None

    @cached_property
    def feeds(self) -> FeedBuffer:
        """Where batches lie."""
        return FeedBuffer(self.arena)

    @cached_property
    def _rules_here(self) -> tuple[RuleOn, ...]:
        """The rules for the device on which the layers are."""
        return tuple(rule.on(self.layers.device) for rule in self.how.rules or ())

    @cached_property
    def arena(self) -> Arena:
        """The arena that nets on the device share; one of its own where a budget says how many bytes there may be.

        It is asked for by the first step, so that steps that were compiled away give theirs back before.
        """
        if self.how.memory_budget is not None or self.how.offload is not None:
            return Arena(self.layers.device, self.how.offload is not None)
        arena = Arena.of_device(self.layers.device)
        finalize(self, arena.leave).atexit = False
        return arena

    def _found(self, step: StepFunction[object], feeds: Feeds) -> RecordedStep | None:
        """The record for a batch of this form, the batch copied in, if the record still does what the step does."""
        key = key_of(step, feeds)
        recorded = self._recorded.find(key, self.layers.ordered())
        if recorded is None:
            self.recordings.note(key, self._recorded.changed)
        else:
            recorded.load_batch(feeds)
        return recorded

    def _record(self, step: StepFunction[object], feeds: Feeds) -> RecordedStep:
        layers, device = self.layers, self.layers.device
        if step.observer is not None and not self._recorded.hold(self.seen):
            self.seen = None  # of a step that went, in the place of which this one is observed
        if self.how.memory_budget is not None:
            self.arena.drop_pages()  # or what planning takes would come on top
        clear_free_lists()  # of plans that were looked at: the record and the state made with it lie close together
        tensors = fed_tensors.make_feeds(layers, device.unbound, fed_tensors.forms_of(feeds))
        fed = [tensor.block for named in tensors.values() for tensor in named.values()]
        feed = self.feeds.feed(fed)
        self._make_room(feed.nbytes - self.feeds.nbytes, step)  # of a batch that is longer than any before
        graph = Graph(device, self.arena, self.how.fuse)
        recorded = RecordedStep(graph, tensors, feed, None, layers.ordered(), step.kept)
        try:
            self._record_into(recorded, step, feeds, fed)
        except (PlanError, OutOfMemoryError):  # a smaller batch may have the bytes of this one
            recorded.graph.let_go()
            self.feeds.drop(feed)
            raise
        self._recorded.keep(key_of(step, feeds), recorded, self._trained)
        return recorded

    def _record_into(self, recorded: RecordedStep, step: StepFunction[object], feeds: Feeds, fed: list[Block]) -> None:
        """Record the step, plan it, and get its memory."""
        recorded.load_batch(feeds)  # before recording, which looks at the targets' values
        with self.layers.device.recording(self.arena, self.how.fuse) as recorded.graph:
            recorded.results = step.operations(recorded.tensors)
            recorded.seen = step.seen()
            step.note_in(recorded.graph)
        recorded.graph.check_inputs = recorded.feed.check
        self._tell(recorded.graph)
        self._plan(step, recorded, fed, feeds)
        if self.how.limits and isinstance(step, TrainStep):
            check_limits(recorded.graph.memory_plan.by_class, self.how.limits)
        recorded.graph.prepare()

    def _tell(self, graph: Graph) -> None:
        """How the graph is to be planned and run."""
        graph.narrow, graph.tf32, graph.order, graph.workers = (
            self.how.narrow(self.layers),
            self.how.precision == "tf32",
            self.how.order,
            self.how.workers,
        )
        graph.rules = self._rules_here

    def _make_room(self, more: int, step: StepFunction[object] | None = None) -> None:
        """For further bytes beside the arena: the other steps go where it leaves too little. step: the next one."""
        limit = self.layers.device.pool.limit
        over = (
            self.how.memory_budget is not None
            and held_bytes(self._recorded.graphs(), self.feeds) + more > self.how.memory_budget
        )
        over = over or (limit is not None and self.layers.device.pool.used + more > limit)
        if more > 0 and over:
            self._let_go_of_others(step)

    def _plan(self, step: StepFunction[object], recorded: RecordedStep, fed: list[Block], feeds: Feeds) -> None:
        """Plan a step beside the others, or, where there is no room for that, in their place.

        They are recorded anew when they come back.
        """
        graph = recorded.graph
        graph.bound = self._bound(step, graph, fed)
        if graph.bound is None or not len(self._recorded):
            return
        try:
            if graph.has_room_beside(max(self.arena.nbytes, graph.memory_plan.arena_bytes)):
                return
        except BudgetError:
            pass
        self._let_go_of_others(step)
        recorded.load_batch(feeds)
        graph.bound = self._bound(step, graph, fed)

    def _let_go_of_others(self, step: StepFunction[object] | None) -> None:
        """step: the next one, which is observed in the place of the last one, if it is at all."""
        if step is not None and step.observer is not None:
            self.seen = None
        self._recorded.clear()
        self.arena.shrink()

    def _bound(
        self, step: StepFunction[object], graph: Graph, fed: list[Block], others: Collection[Graph] | None = None
    ) -> ByteLimit | None:
        """Returns the byte limit within which this step is planned, the tighter one of the net's budget and its
        device's. others: the net's steps that stay beside it; None: all.
        """
        there = self._recorded.graphs()
        others = there if others is None else others
        going = [each for each in there if each not in others]
        coming, limit, bounds = self._to_come(step), self.layers.device.pool.limit, []
        if self.how.memory_budget is not None:
            lasting = [*self._lasting(step), *self._seen_beside(step)]
            bounds.append(within_budget(self.how.memory_budget, graph, fed, self.feeds, others, lasting, coming))
        if limit is not None:
            bounds.append(within_limit(limit, [graph, *going], fed, self.feeds, self.layers.device, coming))
        if going and not others:  # and so does the place of a longer batch
            longer = longer_by(fed, self.feeds)
            bounds = [replace(bound, taken=bound.taken - longer) for bound in bounds]
        return tightest(bounds)

    def _to_come(self, step: StepFunction[object]) -> int:
        """Bytes of the optimizer's state that is not there yet and will lie beside the step, which does not use it."""
        if isinstance(step, TrainStep) and step.part.updates:
            return 0
        trained = trained_values((node.layer for node in self.layers.ordered()), self.layers.freeze)
        return state_to_come(self._optimizer_of(step), trained, self.feeds.rounded)

    def _lasting(self, step: StepFunction[object]) -> list[Tensor]:
        """What the net and its optimizer hold from step to step, whether a step uses it or not."""
        optimizer, layers = self._optimizer_of(step), self.layers
        held = [] if optimizer is None else optimizer.tensors()
        tables = layers.parameters(), layers.states(), layers.frozen()
        return [*held, *(tensor for table in tables for tensor in table.values()), *layers.constants()]

    def _seen_beside(self, step: StepFunction[object]) -> list[Tensor]:
        """What was observed of the last step, which lies beside one that is not observed in its place."""
        return [] if self.seen is None or step.observer is not None else self.seen.tensors()

    def _optimizer_of(self, step: StepFunction[object]) -> Optimizer | None:
        return step.optimizer if isinstance(step, TrainStep) else self.optimizer

    def _state_beside(self, step: StepFunction[object], graph: Graph, fed: list[Block]) -> int:
        """Bytes of what the net holds or will hold from step to step, and this one does not use."""
        lasting, coming = self._lasting(step), self._to_come(step)
        return beside_bytes(graph, fed, self.feeds, (), lasting) + coming


def key_of(step: StepFunction[object], feeds: Feeds) -> tuple[Hashable, ...]:
    """What tells recorded steps apart: what is done, by which losses, metrics and optimizer, and the batch's form."""
    return *step.key, form_of(feeds)
