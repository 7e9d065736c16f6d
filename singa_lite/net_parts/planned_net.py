"""PlannedNet: what a net answers about memory, of the steps that it recorded and of those that are to come."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from numpy.typing import DTypeLike

from singa_lite.common.checks import at_least_zero, flag, whole
from singa_lite.common.sizes import budget_size, memory_size
from singa_lite.common.table import Table
from singa_lite.device import Device
from singa_lite.errors import GraphError
from singa_lite.generation import generation_plan
from singa_lite.graph import Graph
from singa_lite.graph_parts.budget_error import BudgetError
from singa_lite.memory.bound import Bound
from singa_lite.memory_plan import MemoryPlan
from singa_lite.net_parts.batch_plan import BatchPlanner
from singa_lite.net_parts.walked_net import WalkedNet
from singa_lite.optimizer import GlobalNorm, Optimizer
from singa_lite.optimizer.gathering import Part
from singa_lite.optimizer.loss_scale import LossScale
from singa_lite.plan_rows.memory_classes import check_limits
from singa_lite.steps.observer import Kept, Norms, Observer
from singa_lite.steps.recorded_steps import StepForm
from singa_lite.tensor import DeviceSpec, Tensor
from singa_lite.training import checked
from singa_lite.training.criteria import GivenLosses, GivenMetrics, losses_of, metrics_of
from singa_lite.training.dry_runs import DryRuns
from singa_lite.training.micro_batches import checked_count
from singa_lite.training.objective import Objective
from singa_lite.training.own_step import STEP_RANDOM, OwnFunction, OwnStep
from singa_lite.training.ranks import Ranks
from singa_lite.training.remedies import remedies
from singa_lite.training.step import ALONE, OWN
from singa_lite.training.step_call import Member
from singa_lite.training.step_functions import TrainStep
from singa_lite.training.together import Together
from singa_lite.traversal.freezing import Freeze, freezing, names_in


class PlannedNet(WalkedNet):
    """A net whose steps can be planned: what they would be is known. Base of `FeedForwardNet`, which says what loss,
    metric, device, dtype and seed are.

    freeze: which layers do not train, see `Freeze`. micro_batches: in how many pieces a batch is trained on.
    clip_global_norm: the most that the norm of all gradients may be, None: any. accumulate: how many batches make an
    update. compiled_as: the options that `compile` was given last, of which on_nan is one.
    """

    compiled_as: dict[str, object]

    def __init__(
        self,
        loss: GivenLosses | None,
        metric: GivenMetrics | None,
        device: DeviceSpec,
        dtype: DTypeLike,
        seed: int | None,
    ) -> None:
        super().__init__(device, dtype, seed)
        self.loss = losses_of(loss)
        self.metric = metrics_of(metric)
        self.loss_weights: Mapping[str, float] | None = None
        self.freeze: Freeze = None
        self.micro_batches = 1
        self._clip: GlobalNorm | None = None
        self._scale: LossScale | None = None
        self._own: OwnFunction | None = None
        self._beside: Mapping[str, PlannedNet] = {}
        self._keep: tuple[str, ...] = ()
        self._verbose = 0
        self._parallel: Ranks | None = None
        self._together: Together | None = None

    @property
    def parallel(self) -> Ranks | None:
        """The processes that train it together, `compile(parallel=)`; None: it is trained by this one."""
        return self._parallel

    @property
    def together(self) -> Together | None:
        """What its steps do because other processes do them too; None: it is trained by this one alone."""
        return self._together

    @property
    def knows_measures(self) -> bool:
        """Whether it is known what numbers a step gives; a step of the user's own says it when it is first done."""
        return self._own is None or self._own.objective.is_known

    def move_step(self, to: Device) -> None:
        """The random state of a step of one's own goes to another device."""
        if self._own is not None:
            self._own.to_device(to)

    @property
    def clip_global_norm(self) -> float | None:
        """The most that the norm of all gradients may be; None: whatever it is."""
        return None if self._clip is None else self._clip.limit

    @property
    def accumulate(self) -> int:
        """The mean of how many batches makes an update."""
        return 1 if self.optimizer is None else self.optimizer.gathering.count

    @property
    def gradient_norm(self) -> Tensor:
        """The Euclidean norm of all gradients together, before they were clipped, of the last update: float64 ().

        NaN before the first one. GraphError unless compile was given clip_global_norm (math.inf clips nothing).
        """
        if self._clip is None:
            raise GraphError("gradient_norm: wanted a net of compile(clip_global_norm=...), received one without")
        return self._copied(self._clip.norm(self.device))

    @property
    def loss_scaling(self) -> str | float | None:
        """What `compile(loss_scale=)` asked for: "dynamic", a number, or None where nothing is scaled."""
        if self._scale is None:
            return None
        return "dynamic" if self._scale.interval else self._scale.first

    @property
    def loss_scale(self) -> Tensor:
        """What the next step's loss is multiplied by before it is derived: float64 (). GraphError where none is."""
        return self._copied(self._scaling("loss_scale")["loss_scale"])

    @property
    def skipped_steps(self) -> Tensor:
        """How many updates were left out, as gradients were not finite: int64 (). GraphError where none is scaled."""
        return self._copied(self._scaling("skipped_steps")["skipped_steps"])

    def step_state(self) -> dict[str, Tensor]:
        """What lasts of a step of the user's own, by name: its random state; none of the built-in step."""
        return {} if self._own is None else {STEP_RANDOM: self._own.random}

    @property
    def own_step(self) -> Callable[..., object] | None:
        """The function that `compile(step=)` was given; None: the built-in step."""
        return None if self._own is None else self._own.function

    def note_measures(self, names: Iterable[str]) -> None:
        """What a step of the user's own gives beside its loss, as a checkpoint of its run says."""
        found = list(names)
        if self._own is not None and found:
            self._own.objective.note(found, True)

    @property
    def nets_of_step(self) -> Mapping[str, PlannedNet]:
        """The other nets that `compile(step=, nets=)` trains, by name."""
        return dict(self._beside)

    def scaling_state(self) -> dict[str, Tensor]:
        """What lasts of the loss's scale, by name; none where no loss is scaled."""
        return {} if self._scale is None else self._scale.tensors(self.device)

    def restart_scaling(self) -> None:
        """The loss's scale is what it was before the first step."""
        if self._scale is not None:
            self._scale.begin_anew()

    def _scaling(self, where: str) -> dict[str, Tensor]:
        if self._scale is None:
            raise GraphError(f"{where}: wanted a net of compile(loss_scale=...), received one without")
        return self.scaling_state()

    def _copied(self, value: Tensor) -> Tensor:
        copied: Tensor = self.device.empty(value.shape, value.dtype)
        self.device.run("copy", value, copied)
        return copied

    @property
    def verbose(self) -> int:
        """1: norms of outputs, parameters and gradients by layer are taken within each training step, and printed after
        each one by hand, and of the last one of each epoch of `fit`. 0: nothing is. It may change at any time; the next
        step is recorded anew then. Norms cost one pass over what they are of, and gradients live whole.
        """
        return self._verbose

    @verbose.setter
    def verbose(self, wanted: int) -> None:
        found = int(wanted) if isinstance(wanted, bool) else whole("net.verbose", wanted, 0)
        if found > 1:
            raise ValueError(f"net.verbose: wanted 0 or 1, received {wanted!r}")
        self._verbose = found

    @property
    def norms(self) -> Norms:
        """Euclidean norms of the last training step, which `verbose` prints; reading them waits for the step.

        GraphError unless it was done with verbose = 1.
        """
        seen = self._steps.seen
        if seen is None or not seen.parameters:
            raise GraphError("net.norms: wanted a training step with net.verbose = 1 before, received none")
        return seen.norms()

    @property
    def kept(self) -> Mapping[str, Kept]:
        """{layer that `compile(keep=)` names: its output and the derivative by it} of the last training step, or
        evaluation, whichever was later.

        The tensors are overwritten by the next step: `tensor.to_numpy` copies. Derivatives are of the loss's mean over
        the batch, or of what it adds to a group's with accumulate; None behind an evaluation. With precision="bfloat16"
        they are copies in float32 of what the step computed. GraphError before the first step, or without keep.
        """
        if not self._keep:
            raise GraphError("net.kept: wanted a net of compile(keep=[...]), received one without")
        if self._steps.seen is None:
            raise GraphError("net.kept: wanted a step before, received a net that has done none since it was compiled")
        return Table(self._steps.seen.kept, "net.kept", "compile(keep=[...])")

    def _observer(self, norms: bool) -> Observer | None:
        """What looks at a step. norms: whether it may take norms. GraphError for a step of the user's own."""
        norms = norms and bool(self._verbose)
        return Observer(self._keep, norms, self._steps.how.narrow is not None) if self._keep or norms else None

    @property
    def training_graph(self) -> Graph:
        """The last training step that was recorded. GraphError if there is none. Running it trains."""
        return self._steps.training_graph

    @property
    def memory_plan(self) -> MemoryPlan:
        """The memory plan of the last training step that was recorded. GraphError if there is none."""
        return self.training_graph.memory_plan

    @property
    def recorded_forms(self) -> list[tuple[str, StepForm]]:
        """("train", "evaluate" or "predict", form of the batch) of each step that was recorded."""
        return self._steps.recorded_forms

    def plan_batch(
        self,
        batch_size: int,
        training: bool = True,
        *,
        samples: int | None = None,
        memory_budget: int | str | None = None,
    ) -> MemoryPlan:
        """The memory plan of a step with batches of this size. Nothing runs and no batch is needed.

        training: a training step of the compiled net, else a prediction. The plan of a training step answers for `fit`:
        its `total_bytes` counts evaluation with batches of this size and a last, shorter batch, which share the arena
        and the buffer of the batch (`plan.beside`), and what the pool adds (`plan.overhead_bytes`). samples: how many
        there will be, if it is known: the last batch then has `samples % batch_size`, and within a budget it is planned
        too where kernels ask for more scratch with that size. Not counted: what `predict` returns, and the batch that
        is taken from the data on the host. memory_budget: as for `compile`, whose it is by default, or the device's
        limit; `plan.recomputed`, `plan.extra_flops` and `plan.estimated_slowdown` say what it
        costs. Where a plan needs repeats and compile was given budget_profile=True, single calls do run for it, over
        scratch bytes. PlanError names the least total that was found, where the budget is below it, and what would
        help. ValueError for no batch size; ShapeError for one whose tensors have more bytes than can be counted.
        """
        size = checked.batch_size("plan_batch", batch_size)
        budget = OWN if memory_budget is None else budget_size("plan_batch memory_budget", memory_budget)
        if not flag("plan_batch training", training):
            return self._dry_runs(None).look("predict", size, lambda graph: graph.memory_plan, budget)
        planner = self._planner("plan_batch", samples)
        try:
            plan = planner.plan(size, budget)
        except BudgetError as error:
            plan = self._plan_alone(planner, size, budget, error)
        check_limits(plan.by_class, self._steps.how.limits)
        return plan

    def _plan_alone(self, planner: BatchPlanner, size: int, budget: int, error: BudgetError) -> MemoryPlan:
        """The plan where recorded steps make room, as they do when the step comes."""
        if budget != OWN or not self._steps.recorded_forms:
            raise self._with_remedies(error, size) from None
        try:
            return planner.plan(size, ALONE)
        except BudgetError as least:
            raise self._with_remedies(least, size) from None

    def plan_generation(self, batch_size: int, length: int) -> MemoryPlan:
        """The memory plan of `generate` for so many texts of up to `length` ids, prompt included. Nothing runs.

        It is that of the step that gives the scores of the next id; what layers keep of a text stands in
        `by_role["state"]`, `total_bytes` counts the steps that read the prompt, too, which share the arena. Within the
        net's memory_budget or the device's limit; errors as for `generate`, and PlanError as of `plan_batch`.
        """
        size = checked.batch_size("plan_generation", batch_size)
        return generation_plan(self, self._steps, size, whole("plan_generation length", length, 2))

    def budget_curve(self, batch_size: int) -> list[tuple[int, float]]:
        """What less memory costs: (bytes of a budget, estimated slowdown), from the free plan down to the least found.

        At most twenty points; bytes fall, the slowdown never does. It is the time of what is computed again as a share
        of the step's, by a rule (`plan_batch`). Nothing runs, but for single calls over scratch bytes where compile was
        given budget_profile=True; each point takes as long as a search. The budget that the net was compiled with and
        its device's limit do not matter.
        """
        size = checked.batch_size("budget_curve", batch_size)
        return self._planner("budget_curve", None).curve(size)

    def largest_batch(self, nbytes: int | str, extra_time: float = 0.0, *, samples: int | None = None) -> int:
        """The most samples for which what `fit` takes fits into `nbytes`, all counted; predicted, nothing is tried.

        nbytes: a number, or text such as "4 GiB" (1024**3 bytes) or "1.5GB" (1000**3); no more of them count than the
        net's own memory_budget. samples: as for `plan_batch`, by whose `total_bytes` it goes. extra_time: by which
        share repeats may slow the step, as estimated (`plan.estimated_slowdown`): 0, nothing is repeated; 0.2 is a
        good choice where memory bounds the batch, and the net is then compiled with memory_budget=nbytes. Totals may
        fall where the batch grows, as kernels' scratch may: without repeats none of the 64 sizes beyond the answer
        fits; with repeats it is sought by bisection, where compile(budget_profile=True) lets single calls of each size
        run over scratch bytes. 0 if not even one sample fits. TypeError or ValueError for what is no size, or no share
        of at least 0.
        """
        wanted = memory_size("largest_batch", nbytes)
        extra = at_least_zero("largest_batch extra_time", extra_time)
        wanted = wanted if self._steps.how.budget is None else min(wanted, self._steps.how.budget)
        planner = self._planner("largest_batch", samples)
        return planner.largest_within(wanted, extra) if extra else planner.largest(wanted)

    def _planner(self, where: str, samples: int | None) -> BatchPlanner:
        self._trainer.check_whole(where)
        if self.optimizer is None or (self.loss is None and self._own is None):
            raise GraphError(f"{where}: wanted a compiled net with a loss")
        known = None if samples is None else whole(f"{where} samples", samples, 1)
        first, objective = self.optimizer.gathering.first_part, self._objective()
        begins = None if first.updates or self._own is not None else self._train_step(objective, self.optimizer, first)
        runs = DryRuns(self, self._trainer, self._train_step(objective, self.optimizer), begins)
        return BatchPlanner(runs.look, self.device.runtime.alignment, known, runs.beside)

    def _dry_runs(self, step: TrainStep | None) -> DryRuns:
        return DryRuns(self, self._trainer, step)

    def _with_remedies(self, error: BudgetError, size: int) -> BudgetError:
        """The error of a training step, which also says what would help. size: of its batch."""
        if self.optimizer is None or self._steps.how.order != "recorded":  # what helps is planned in one order
            return error
        runs = self._dry_runs(self._train_step(self._objective(), self.optimizer))

        def plan_of(smaller: int) -> MemoryPlan:
            return runs.look("train", smaller, lambda graph: graph.memory_plan, error.bound.left)

        def fits(smaller: int) -> bool:
            bound, start = Bound(error.bound.left), error.plan.placed.chosen
            return runs.look("train", smaller, lambda graph: graph.sketched_within(bound, start, False)) is not None

        return error.with_remedies(remedies(error, size, plan_of, fits, self.optimizer, self._trained_values()))

    def _trained_values(self) -> list[Tensor]:
        """The parameters that training moves."""
        layers = freezing((node.layer for node in self.ordered()), self.freeze).trained
        values = (value for layer in layers for value in layer.own_parameters.values() if value.stores_grad)
        return list({id(value): value for value in values}.values())

    def _objective(self) -> Objective:
        """Losses and metrics by output."""
        if self._own is not None:
            return self._own.objective
        if self.loss is None:
            raise GraphError("wanted a loss, give one to the net or to compile()")
        checked.single_outputs(self)
        return Objective(self.loss, self.metric, self.output_names(), self.loss_weights)

    def _members(self, optimizer: Optimizer) -> list[Member]:
        """The nets that a step of the user's own trains, itself first. GraphError for one that cannot be."""
        members = [Member("", self, optimizer, self._clip, self._trainer)]
        for name, net in self._beside.items():
            if net.optimizer is None:
                raise GraphError(f"net {name!r} of compile(nets=): wanted a compiled net")
            net.optimizer.check_serves(net)
            members.append(Member(name, net, net.optimizer, net._clip, net._trainer))
        return members

    def _train_step(self, objective: Objective, optimizer: Optimizer, part: Part | None = None) -> TrainStep:
        """part: of a group of batches; None: the last, which takes most memory."""
        if self._own is not None:
            if self._verbose:
                raise GraphError(
                    "net.verbose: wanted 0 for a net of compile(step=), whose norms are not taken, received 1"
                )
            return OwnStep(self._own, self._members(optimizer))
        self._check_names("training with freeze", names_in(self.freeze))  # which may have changed since compile
        checked_count(self.ordered(), self.micro_batches, self.freeze, objective.criteria)
        part = optimizer.gathering.last_part if part is None else part
        step = TrainStep(self, objective, optimizer, self.freeze, self.micro_batches, self._clip, part, self._scale)
        step.together = self._together
        step.observer = self._observer(norms=True)
        return step
