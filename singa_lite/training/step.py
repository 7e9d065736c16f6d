"""Steps: one batch trained, evaluated or predicted; recorded once for each shape of batch and then replayed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from typing import TypeVar
from weakref import ReferenceType, finalize, ref

from singa_lite.arena import Arena, taken
from singa_lite.budget_error import BudgetError
from singa_lite.contexts import Turn, in_own_context, one_step
from singa_lite.errors import GraphError
from singa_lite.feed_buffer import FeedBuffer
from singa_lite.graph import Graph, Pause
from singa_lite.layer_graph import LayerGraph
from singa_lite.machine import clear_free_lists
from singa_lite.memory.bound import Bound
from singa_lite.memory.problem import PlanError
from singa_lite.memory_classes import check_limits
from singa_lite.observer import Seen as Observed
from singa_lite.optimizer import Optimizer
from singa_lite.passes.remembered import forget_planning
from singa_lite.passes.target import Narrow
from singa_lite.past import Kept, Past
from singa_lite.profiled_costs import CallTimes, ProfiledCosts
from singa_lite.recorded_steps import Feeds, RecordedStep, RecordedSteps, StepForm, form_of
from singa_lite.tensor import Block, Tensor
from singa_lite.training import fed_tensors
from singa_lite.training.bound import (
    held_by,
    state_bytes,
    state_to_come,
    state_unused,
    tightest,
    within_budget,
    within_limit,
)
from singa_lite.training.fed_tensors import Forms
from singa_lite.training.step_functions import StepFunction, TrainStep, Values
from singa_lite.unique import Unique

#: In the place of a budget: what the net has, and its device.
OWN = -1

R = TypeVar("R")
Seen = TypeVar("Seen")


class Steps(Unique):
    """How a batch is done. Its recorded steps share one arena and one buffer for what they are fed, as they never run
    at the same time; those that were used least recently are forgotten.

    layers: the net's; graph: record and replay, or do each operation at once; fuse, budget: see `Graph`; optimizer:
    the net's, whose state lies beside evaluations and predictions; offload: see `Arena`; profiled: whether repeats
    are chosen by measured seconds; narrow: how activations are stored, None: in the net's dtype; order, workers: see
    `Graph`; limits: {class of `MemoryPlan.by_class`: most bytes}, of training steps.
    """

    def __init__(
        self,
        layers: LayerGraph,
        graph: bool,
        fuse: bool = True,
        budget: int | None = None,
        optimizer: Optimizer | None = None,
        offload: str = "",
        profiled: bool = False,
        narrow: Narrow | None = None,
        order: str = "recorded",
        workers: int = 1,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self.layers = layers
        self.graph = graph
        self.fuse = fuse
        self.budget = budget
        self.optimizer = optimizer
        self._turn = Turn(taken)
        self.offload = offload
        self.profiled = profiled
        self.narrow = narrow
        self.order = order
        self.workers = workers
        self.limits = dict(limits or {})
        self._recorded = RecordedSteps()
        self._trained: RecordedStep | None = None
        #: What was observed of the last training step, or evaluation.
        self.seen: Observed | None = None
        self._past: ReferenceType[Past] | None = None

    def anew(self) -> Steps:
        """As these, on the device where the layers are now, with nothing recorded."""
        return self.of(self.layers, self.optimizer)

    def of(self, layers: LayerGraph, optimizer: Optimizer | None) -> Steps:
        """As these, of another net and its optimizer."""
        how = self.profiled, self.narrow, self.order, self.workers, self.limits
        return Steps(layers, self.graph, self.fuse, self.budget, optimizer, self.offload, *how)

    @cached_property
    def feeds(self) -> FeedBuffer:
        """Where batches lie."""
        return FeedBuffer(self.arena)

    @cached_property
    def _times(self) -> CallTimes:
        return CallTimes(self.arena)

    def exclusively(self, work: Callable[..., R], *arguments: object) -> R:
        """work(*arguments), while no other thread does a step of this net."""
        return self._turn.run(self.arena.turn.run, self._exclusively, work, *arguments)

    def _exclusively(self, work: Callable[..., R], *arguments: object) -> R:
        self.arena.trim()
        return work(*arguments)

    @cached_property
    def arena(self) -> Arena:
        """The arena that nets on the device share; one of its own where a budget says how many bytes there may be.

        It is asked for by the first step, so that steps that were compiled away give theirs back before.
        """
        if self.budget is not None or self.offload:
            return Arena(self.layers.device, self.offload)
        arena = Arena.of_device(self.layers.device)
        finalize(self, arena.leave).atexit = False
        return arena

    def train(self, step: TrainStep, feeds: Feeds, pause: Pause | None, changing: Callable[[], object]) -> Values:
        """A training step; its results are valid until the next call, see `own`.

        pause: where to wait for those who read what it will overwrite. changing: called before the first change.
        """
        if not self.graph:
            if pause is not None:
                pause.wait()
            self.seen = None  # which holds values of the last step
            values = one_step(step.operations, fed_tensors.filled(self.layers, feeds), changing)
            self.seen = step.seen()
            return values
        recorded = self._found(step, feeds)
        if recorded is None:
            recorded = self._record(step, feeds)  # which begins the optimizer's step
        else:
            step.begin()
        recorded.graph.prepare()
        self._trained = recorded
        changing()
        results: tuple[Tensor, dict[str, Tensor]] = recorded.results
        self._run(step, recorded, results[0], pause)
        self.seen = recorded.seen
        return results

    def _run(self, step: TrainStep, recorded: RecordedStep, loss: Tensor, pause: Pause | None) -> None:
        """Replay; the loss is looked at before parameters move, where it is there by then and nobody else waits."""
        graph, look, updated = recorded.graph, step.look, True
        if look is None:
            graph.run(pause=pause)
            return

        def before() -> None:
            nonlocal updated
            look(loss, False)
            updated = False

        if pause is None and not self.layers.device.runtime.link.beside:
            recorded.moved = recorded.moved or frozenset(value.block for value in step.moved_values())
            pause = Pause(recorded.moved, before, made=loss.block)
        graph.run(pause=pause)
        if updated:
            look(loss, True)

    def do(self, step: StepFunction[R], feeds: Feeds) -> R:
        """A step that trains nothing; its results are valid until the next call, see `own`."""
        if not self.graph:
            done = one_step(step.operations, fed_tensors.filled(self.layers, feeds))
            self.seen = step.seen() or self.seen
            return done
        recorded = self._found(step, feeds) or self._record(step, feeds)
        recorded.graph.run()
        self.seen = recorded.seen or self.seen
        results: R = recorded.results
        return results

    def again(self, step: StepFunction[R], feeds: Feeds) -> Callable[[Feeds], R]:
        """`do` for batches of the form of this one, while nothing else is done: what the step is done by, and whether
        that has changed, is asked once.
        """
        if not self.graph:
            return lambda given: self.do(step, given)
        recorded = self._found(step, feeds) or self._record(step, feeds)

        def replayed(given: Feeds) -> R:
            recorded.put_in(given)
            recorded.graph.run()
            results: R = recorded.results
            return results

        return replayed

    def own(self, values: Values) -> Values:
        """The last step's loss and metric as tensors of their own, which the next replay does not overwrite."""
        if not self.graph:
            return values
        loss, metric = values
        return _copy(loss), {name: _copy(value) for name, value in metric.items()}

    def past(self, kept: Kept, batch: int, length: int) -> Past:
        """What layers keep of new texts, for the steps that write them: that of the last ones, if it is long enough.

        It lives as long as these steps do; there is one at a time. kept, batch, length: see `Past`.
        """
        found = None if self._past is None else self._past()
        if found is None or not found.serves(batch, length):
            del found
            self._recorded.clear("generate")
            found = Past(self.layers.device, self.layers.dtype, kept, batch, length)
            self._make_room(found.nbytes)
            self._past = ref(found)
        found.begin()
        return found

    @property
    def training_graph(self) -> Graph:
        """The last recorded training step. GraphError if there is none."""
        if self._trained is None:
            raise GraphError(
                "wanted a recorded training step, train a batch first with compile(graph=True); "
                "plan_batch(batch_size) plans one beforehand"
            )
        return self._trained.graph

    def check_forms(self, where: str, count: int) -> None:
        """ValueError where so many forms of batch have more steps than are kept: each is recorded time and again."""
        if self.graph and count > self._recorded.most:
            raise ValueError(
                f"{where}: wanted at most {self._recorded.most} forms of batch, as many recorded steps as are kept, "
                f"received {count}; fewer boundaries are fewer forms, and the setting SINGA_LITE_STEPS={count} keeps "
                "them all"
            )

    @property
    def recorded_forms(self) -> list[tuple[str, StepForm]]:
        """("train", "evaluate" or "predict", form of the batch) of each recorded step."""
        return [(key[0], key[-1]) for key in self._recorded]

    @in_own_context
    def look(
        self, step: StepFunction[object], forms: Forms, ask: Callable[[Graph], Seen], budget: int | None = None
    ) -> Seen:
        """Ask something of the record of a step for batches of these forms. No batch is needed, nothing runs, but for
        single calls over scratch bytes where costs are profiled.

        budget: see `Graph`; OWN: what the net has, and its device, as for the steps that run.
        """
        seen = self._seen(step, forms, ask, budget)
        forget_planning(self.layers.device.kernels)
        return seen

    def _seen(self, step: StepFunction[object], forms: Forms, ask: Callable[[Graph], Seen], budget: int | None) -> Seen:
        device = self.layers.device
        arena = Arena(device, self.offload)
        with device.first_values(), device.recording(arena, self.fuse) as graph:
            tensors = fed_tensors.made(self.layers, device.empty, forms)
            results = step.operations(tensors), step.seen()
        fed = [tensor.block for named in tensors.values() for tensor in named.values()]
        self._tell(graph)
        if budget == OWN:
            graph.bound = self._bound(step, graph, fed)
        elif budget is not None:
            graph.bound = Bound(budget, self._state_beside(step))
        self._profile(step, graph, fed)
        try:
            seen = ask(graph)
        finally:
            graph.let_go()
        del tensors, fed, results  # alive until here: inputs and outputs of the plan
        return seen

    def _found(self, step: StepFunction[object], feeds: Feeds) -> RecordedStep | None:
        """The record for a batch of this form, the batch copied in, if the record still does what the step does."""
        recorded = self._recorded.find(_key(step, feeds), self.layers.ordered())
        if recorded is not None:
            recorded.put_in(feeds)
        return recorded

    def _record(self, step: StepFunction[object], feeds: Feeds) -> RecordedStep:
        layers, device = self.layers, self.layers.device
        clear_free_lists()  # of plans that were looked at: the record and the state made with it lie close together
        tensors = fed_tensors.made(layers, device.unbound, fed_tensors.forms_of(feeds))
        fed = [tensor.block for named in tensors.values() for tensor in named.values()]
        feed = self.feeds.feed(fed)
        self._make_room(feed.nbytes - self.feeds.nbytes)  # of a batch that is longer than any before
        watch = step.watch()
        graph = Graph(device, self.arena, self.fuse)
        recorded = RecordedStep(graph, tensors, feed, None, layers.ordered(), watch, step.kept)
        recorded.put_in(feeds)  # before recording, which looks at the targets' values
        with device.recording(self.arena, self.fuse) as recorded.graph:
            recorded.results = step.operations(tensors)
            recorded.seen = step.seen()
        step.check_record(recorded.graph, tensors)
        recorded.graph.check_inputs = feed.check
        step.settle(watch)
        self._tell(recorded.graph)
        try:
            self._plan(step, recorded, fed, feeds)
            if self.limits and isinstance(step, TrainStep):
                check_limits(recorded.graph.memory_plan.by_class, self.limits)
            recorded.graph.prepare()
        except PlanError:
            recorded.graph.let_go()
            self.feeds.drop(feed)
            raise
        self._recorded.keep(_key(step, feeds), recorded, self._trained)
        return recorded

    def _tell(self, graph: Graph) -> None:
        """How the graph is to be planned and run."""
        graph.narrow, graph.order, graph.workers = self.narrow, self.order, self.workers

    def _make_room(self, more: int) -> None:
        """For further bytes beside the arena: the other steps go where it leaves too little for them."""
        limit = self.layers.device.pool.limit
        over = self.budget is not None and held_by(self._recorded.graphs(), self.feeds) + more > self.budget
        over = over or (limit is not None and self.layers.device.pool.used + more > limit)
        if more > 0 and over:
            self._let_go_of_others()

    def _plan(self, step: StepFunction[object], recorded: RecordedStep, fed: list[Block], feeds: Feeds) -> None:
        """Plan a step beside the others, or, where there is no room for that, in their place.

        They are recorded anew when they come back.
        """
        graph = recorded.graph
        graph.bound = self._bound(step, graph, fed)
        self._profile(step, graph, fed)
        if graph.bound is None or not len(self._recorded):
            return
        try:
            if graph.has_room_beside(max(self.arena.nbytes, graph.memory_plan.arena_bytes)):
                return
        except BudgetError:
            pass
        self._let_go_of_others()
        recorded.put_in(feeds)
        graph.bound = self._bound(step, graph, fed)

    def _let_go_of_others(self) -> None:
        self._recorded.clear()
        self.arena.shrink()

    def _bound(self, step: StepFunction[object], graph: Graph, fed: list[Block]) -> Bound | None:
        """Within which this step of the net is planned, by its budget and by its device's limit."""
        coming, limit, bounds = self._to_come(step, graph), self.layers.device.pool.limit, []
        if self.budget is not None:
            bounds.append(within_budget(self.budget, graph, fed, self.feeds, self._recorded.graphs(), coming))
        if limit is not None:
            bounds.append(within_limit(limit, graph, fed, self.feeds, self.layers.device, coming))
        return tightest(bounds)

    def _profile(self, step: StepFunction[object], graph: Graph, fed: list[Block]) -> None:
        """Let the graph's repeats be chosen by measured seconds, if that is wanted. fed: the step's batch.

        Measuring takes as much as the net's own budget leaves beside what is there, whatever budget is asked about.
        """
        if not self.profiled:
            return
        own, alignment = self._bound(step, graph, fed), self.layers.device.runtime.alignment

        def room() -> int | None:
            there = {id(block): block.nbytes for block in (*graph.blocks_with_bytes(), *fed)}
            return None if own is None else own.arena(list(there.values()), alignment)

        graph.cost = ProfiledCosts(self._times, graph.calls, room)

    def _to_come(self, step: StepFunction[object], graph: Graph) -> int:
        """Bytes of the optimizer's state that will lie beside the step, which does not use it."""
        if not isinstance(step, TrainStep):
            return state_to_come(self.optimizer, self.layers.parameters())
        if step.part.updates:
            return 0
        graphs = [graph, *self._recorded.graphs()]
        return state_to_come(step.optimizer, self.layers.parameters()) + state_unused(step.optimizer, graphs)

    def _state_beside(self, step: StepFunction[object]) -> int:
        """Bytes of the optimizer's state beside a step that does not use it, whether it is there yet or not."""
        if isinstance(step, TrainStep) or self.optimizer is None:
            return 0
        return state_bytes(self.optimizer, (p for p in self.layers.parameters().values() if p.stores_grad))


def _key(step: StepFunction[object], feeds: Feeds) -> tuple[Hashable, ...]:
    """What tells recorded steps apart: what is done, by which losses, metrics and optimizer, and the batch's form."""
    return *step.key, form_of(feeds)


def _copy(value: Tensor) -> Tensor:
    made: Tensor = value.device.empty(value.shape, value.dtype)
    value.device.run("copy", value, made)
    return made
