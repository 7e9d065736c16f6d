"""StepCache: trains on, evaluates or predicts one batch, by a step recorded once for each shape of batch."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import TypeVar
from weakref import ReferenceType, WeakValueDictionary, ref

from singa_lite.common.contexts import StepLock, in_own_context, one_step, raise_ignored
from singa_lite.common.errors import GraphError
from singa_lite.compiler.byte_limit import ByteLimit
from singa_lite.compiler.ir.remembered import forget_planning
from singa_lite.graph.arena import Arena, arena_busy_error
from singa_lite.graph.graph import Graph, Pause
from singa_lite.kernels.kernel_set import tf32_of
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.past import Kept, Past
from singa_lite.optimizer import Optimizer
from singa_lite.tensor import Tensor
from singa_lite.training.settings import Settings
from singa_lite.training.steps import fed_tensors
from singa_lite.training.steps.bound_step import (
    BoundStep,
    Given,
    checks_of,
    copy_of,
    form_of_given,
    is_given_as_fed,
)
from singa_lite.training.steps.eager_check import compared
from singa_lite.training.steps.fed_tensors import Forms
from singa_lite.training.steps.recorded_steps import Feeds, RecordedStep, StepForm
from singa_lite.training.steps.recordings import check_recordable, is_recorded
from singa_lite.training.steps.step_functions import StepFunction, Values
from singa_lite.training.steps.step_records import StepRecords, key_of
from singa_lite.training.steps.train_step import Look, TrainStep

#: In the place of a budget: what the net has, and its device, beside its other steps; or where these are let go.
OWN, ALONE = -1, -2

#: Those whose steps the present call may not do.
_lent: ContextVar[tuple[StepCache, ...]] = ContextVar("lent", default=())

R = TypeVar("R")
Seen = TypeVar("Seen")


class StepCache(StepRecords):
    """Does batches by recorded steps, one for each form of batch."""

    def __init__(self, layers: LayerGraph, how: Settings, optimizer: Optimizer | None = None) -> None:
        super().__init__(layers, how, optimizer)
        self._turn = StepLock(arena_busy_error)
        #: {form of a batch: the record whose bound step trains it}.
        self._bound_steps: WeakValueDictionary[Hashable, RecordedStep] = WeakValueDictionary()
        #: (size of batches, version of settings) whose group, see `compile(accumulate=)`, fits into the budget.
        self.groups_that_fit: set[tuple[int, int]] = set()
        self._past: ReferenceType[Past] | None = None

    def anew(self) -> StepCache:
        """As these, on the device where the layers are now, with nothing recorded."""
        return self.of(self.layers, self.optimizer)

    def of(self, layers: LayerGraph, optimizer: Optimizer | None) -> StepCache:
        """As these, of another net and its optimizer."""
        return StepCache(layers, self.how, optimizer)

    def exclusively(self, work: Callable[..., R], *arguments: object) -> R:
        """work(*arguments), while no other thread does a step of this net. GraphError within `lent`."""
        if self in _lent.get():
            raise GraphError("wanted no step of a net while it hands on the ids that it generates, received one")
        done = self._turn.run(self._exclusively, work, *arguments)
        raise_ignored()  # what came inside the step
        return done

    def _exclusively(self, work: Callable[..., R], *arguments: object) -> R:
        self.arena.trim()
        return work(*arguments)

    @in_own_context
    def lent(self, call: Callable[..., R], *arguments: object) -> R:
        """call(*arguments), a user's, between steps that must follow each other: it may do no step of this net."""
        _lent.set((*_lent.get(), self))
        return call(*arguments)

    def train(self, step: TrainStep, feeds: Feeds, pause: Pause | None, changing: Callable[[], object]) -> Values:
        """A training step; its results are valid until the next call, see `own`.

        pause: where to wait for those who read what it will overwrite. changing: called before the first change.
        """
        self.recordings.steps += 1
        if not is_recorded(step, self.how):
            if pause is not None:
                pause.wait()
            self.seen = None  # which holds values of the last step
            step.synchronize_ranks(0, feeds)
            values = one_step(step.operations, fed_tensors.filled(self.layers, feeds), changing)
            self.seen = step.seen()
            return values
        recorded = self._found(step, feeds)
        if recorded is None:
            recorded = self._record(step, feeds)  # which begins the optimizer's step
        elif step.together is None and self.recordings.is_check_due():
            return self._trained_both_ways(step, recorded, pause, changing)
        else:
            step.begin()
        recorded.graph.prepare()
        step.synchronize_ranks(recorded.graph.sums, feeds)
        self._trained = recorded
        changing()
        results: tuple[Tensor, dict[str, Tensor]] = recorded.results
        self._run(step, recorded, step.look, pause)
        self.seen = recorded.seen
        return results

    def _trained_both_ways(
        self, step: TrainStep, recorded: RecordedStep, pause: Pause | None, changing: Callable[[], object]
    ) -> Values:
        """In checked mode: the step is done eagerly, which begins it, put back, and replayed."""
        if pause is not None:
            pause.wait()
        self._trained = recorded
        look, step.look = step.look, None
        executable = recorded.graph.executable()
        device = self.layers.device
        compare = compared(recorded.graph, device, executable, lambda: one_step(step.operations, recorded.tensors))
        step.seen()
        changing()
        self._run(step, recorded, look, None)
        results: Values = recorded.results
        compare(results)
        self.seen = recorded.seen
        return results

    def bound_record(self, x: object, y: object, settings: int) -> RecordedStep | None:
        """The record that trains a batch of this form, by its `bound` step; None where it is to be done as a first one.

        settings: the version of the net's.
        """
        recorded = self._bound_steps.get(form_of_given(x, y))
        if recorded is None or recorded.bound is None or recorded.bound.settings != settings:
            return None
        return recorded if self._recorded.use(recorded.bound.key, recorded) else None

    def train_bound(self, recorded: RecordedStep, look: Look | None) -> None:
        """Trains on the batch that was copied in, by a bound step.

        Nobody reads what it will overwrite, or looks at operations; its processor and stream are the current ones.
        look: as of a `TrainStep`.
        """
        bound: BoundStep = recorded.bound
        self._trained = recorded
        self.recordings.steps += 1
        if look is None:
            bound.executable.run_here()
        else:
            self._run(bound.step, recorded, look, None)
        self.seen = recorded.seen

    def _run(self, step: TrainStep, recorded: RecordedStep, look: Look | None, pause: Pause | None) -> None:
        """Replay; the loss is looked at before parameters move, where it is there by then and nobody else waits."""
        graph, loss, updated = recorded.graph, recorded.results[0], True
        if look is None:
            graph.run(pause=pause)
            return

        def before() -> None:
            nonlocal updated
            look(loss, False)
            updated = False

        if pause is None and not self.layers.device.runtime.is_asynchronous:
            if not recorded.moved:
                sums = step.optimizer.gathering.sums_in_state(step.optimizer)
                recorded.sums = frozenset(total.block for total in sums)
                recorded.moved = frozenset(value.block for value in step.moved_values())
            pause = Pause(recorded.moved, before, made=loss.block, sums=recorded.sums)
        graph.run(pause=pause)
        if updated:
            look(loss, True)

    def bind(self, x: object, y: object, settings: int, step: TrainStep, feeds: Given, checks_loss: bool) -> None:
        """Bind the step that was just done for the next batch of this form, where that can be. step: a fresh one;
        settings: the version of the net's; checks_loss: whether losses are looked at.
        """
        recorded, form = self._trained, form_of_given(x, y)
        own_begin = type(step.optimizer).begin_step is not Optimizer.begin_step
        if recorded is None or form is None or not is_given_as_fed(x, y, feeds) or own_begin:
            return
        if not is_recorded(step, self.how):
            return
        checks = checks_of(self.layers, step.objective, feeds)  # type: ignore[arg-type]  # arrays, as that says
        recorded.bound = BoundStep(key_of(step, feeds), settings, step, checks, feeds, recorded, checks_loss)
        self._bound_steps[form] = recorded

    def do(self, step: StepFunction[R], feeds: Feeds) -> R:
        """A step that trains nothing; its results are valid until the next call, see `own`."""
        self.recordings.steps += 1
        if not is_recorded(step, self.how):
            done = one_step(step.operations, fed_tensors.filled(self.layers, feeds))
            self.seen = step.seen() or self.seen
            return done
        recorded = self._found(step, feeds) or self._record(step, feeds)
        recorded.graph.run()
        self.seen = recorded.seen or self.seen
        results: R = recorded.results
        return results

    def again(self, step: StepFunction[R], feeds: Feeds) -> Callable[[Feeds], R]:
        """Returns `do` for batches of the same form as this one, without its checks of what has changed. These are made
        once, here, and nothing else may be done meanwhile.
        """
        if not is_recorded(step, self.how):
            return lambda given: self.do(step, given)
        recorded = self._found(step, feeds) or self._record(step, feeds)

        def replayed(given: Feeds) -> R:
            recorded.load_batch(given)
            recorded.graph.run()
            results: R = recorded.results
            return results

        return replayed

    def record_again(self) -> None:
        """Let go of all recorded steps: the next batch of each form is recorded."""
        self._recorded.clear()
        self._trained = self.seen = None

    def own(self, values: Values) -> Values:
        """The last step's loss and metric as tensors of their own, which the next replay does not overwrite."""
        if not self.how.graph:
            return values
        loss, metric = values
        return copy_of(loss), {name: copy_of(value) for name, value in metric.items()}

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
    def has_trained(self) -> bool:
        """Whether there is a recorded training step."""
        return self._trained is not None

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
        if self.how.graph and count > self._recorded.most:
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
    def dry_run(
        self, step: StepFunction[object], forms: Forms, ask: Callable[[Graph], Seen], budget: int | None = None
    ) -> Seen:
        """Ask something of the record of a step for batches of these forms. No batch is needed, nothing runs.

        budget: see `Graph`; OWN: what the net has, and its device, as for the steps that run; ALONE: the same where the
        net's other steps make room for it, as they do.
        """
        seen = self._dry_run(step, forms, ask, budget)
        kernels = self.layers.device.kernels
        forget_planning(tf32_of(kernels) if self.how.precision == "tf32" else kernels)
        return seen

    def _dry_run(
        self, step: StepFunction[object], forms: Forms, ask: Callable[[Graph], Seen], budget: int | None
    ) -> Seen:
        check_recordable("a plan", step)
        device = self.layers.device
        arena = Arena(device, self.how.offload is not None)
        with device.first_values(), device.recording(arena, self.how.fuse) as graph:
            tensors = fed_tensors.make_feeds(self.layers, device.empty, forms)
            results = step.operations(tensors), step.seen()
        fed = [tensor.block for named in tensors.values() for tensor in named.values()]
        self._tell(graph)
        graph.unused_bytes = self._state_beside(step, graph, fed)
        if budget in (OWN, ALONE):
            others = [] if budget == ALONE else self._recorded.graphs(but=(*step.key, fed_tensors.form(forms)))
            graph.bound = self._bound(step, graph, fed, others)
        elif budget is not None:
            graph.bound = ByteLimit(budget, graph.unused_bytes)
        try:
            seen = ask(graph)
        finally:
            graph.let_go()
        del tensors, fed, results  # alive until here: inputs and outputs of the plan
        return seen
