"""PlannedNet: what a net answers about memory, of the steps that it recorded and of those that are to come."""

from __future__ import annotations

from singa_lite.common.checks import at_least_zero, flag, integer
from singa_lite.common.errors import GraphError
from singa_lite.common.sizes import budget_size, memory_size
from singa_lite.compiler.byte_limit import ByteLimit
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.compiler.report.plan_rows import check_limits
from singa_lite.graph.budget_error import BudgetError
from singa_lite.graph.graph import Graph
from singa_lite.layer.freezing import trained_values
from singa_lite.net.batch_memory import BatchMemory
from singa_lite.net.generation import generation_plan
from singa_lite.net.largest_batch import LargestBatch
from singa_lite.net.remedies import remedies
from singa_lite.training import checked
from singa_lite.training.step_cache import ALONE, OWN
from singa_lite.training.stepping_net import SteppingNet


class PlannedNet(SteppingNet):
    """A net whose steps can be planned: what they would be is known."""

    @property
    def training_graph(self) -> Graph:
        """The last training step that was recorded. GraphError if there is none. Running it trains."""
        return self._steps.training_graph

    @property
    def memory_plan(self) -> MemoryPlan:
        """The memory plan of the last training step that was recorded. GraphError if there is none."""
        return self.training_graph.memory_plan

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
        costs. PlanError names the least total that was found, where the budget is below it, and what would
        help. ValueError for no batch size; ShapeError for one whose tensors have more bytes than can be counted.
        """
        size = checked.batch_size("plan_batch", batch_size)
        budget = OWN if memory_budget is None else budget_size("plan_batch memory_budget", memory_budget)
        if not flag("plan_batch training", training):
            return BatchMemory(self, self._trainer).record("predict", size, lambda graph: graph.memory_plan, budget)
        planner = self._planner("plan_batch", samples)
        try:
            plan = planner.plan(size, budget)
        except BudgetError as error:
            plan = self._plan_alone(planner, size, budget, error)
        check_limits(plan.by_class, self._steps.how.limits or {})
        return plan

    def _plan_alone(self, planner: BatchMemory, size: int, budget: int, error: BudgetError) -> MemoryPlan:
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
        return generation_plan(self, self._steps, size, integer("plan_generation length", length, 2))

    def budget_curve(self, batch_size: int) -> list[tuple[int, float]]:
        """What less memory costs: (bytes of a budget, estimated slowdown), from the free plan down to the least found.

        At most twenty points; bytes fall, the slowdown never does. It is the time of what is computed again as a share
        of the step's, by a rule (`plan_batch`). Nothing runs; each point takes as long as a search. The budget that the
        net was compiled with and its device's limit do not matter.
        """
        size = checked.batch_size("budget_curve", batch_size)
        return self._planner("budget_curve", None).curve(size)

    def largest_batch(self, nbytes: int | str, extra_time: float = 0.0, *, samples: int | None = None) -> int:
        """The most samples for which what `fit` takes fits into `nbytes`, all counted; predicted, nothing is tried.

        nbytes: a number, or text such as "4 GiB" (1024**3 bytes) or "1.5GB" (1000**3); no more of them count than the
        net's own memory_budget. samples: as for `plan_batch`, by whose `total_bytes` it goes. extra_time: by which
        share repeats may slow the step, as estimated (`plan.estimated_slowdown`): 0, nothing is repeated; 0.2 is a good
        choice where memory bounds the batch, and the net is then compiled with memory_budget=nbytes. Totals may fall
        where the batch grows, as kernels' scratch may: without repeats none of the 64 sizes beyond the answer fits;
        with repeats it is sought by bisection. 0 if not even one sample fits. TypeError or ValueError for what is no
        size, or no share of at least 0.
        """
        wanted = memory_size("largest_batch", nbytes)
        extra = at_least_zero("largest_batch extra_time", extra_time)
        wanted = wanted if self._steps.how.memory_budget is None else min(wanted, self._steps.how.memory_budget)
        largest = LargestBatch(self._planner("largest_batch", samples))
        return largest.with_repeats(wanted, extra) if extra else largest.without_repeats(wanted)

    def _planner(self, where: str, samples: int | None) -> BatchMemory:
        self._trainer.check_whole(where)
        if self.optimizer is None or (self.loss is None and self._own is None):
            raise GraphError(f"{where}: wanted a compiled net with a loss")
        known = None if samples is None else integer(f"{where} samples", samples, 1)
        first, objective = self.optimizer.gathering.first_part, self._objective()
        begins = None if first.updates or self._own is not None else self._train_step(objective, self.optimizer, first)
        return BatchMemory(self, self._trainer, self._train_step(objective, self.optimizer), begins, known)

    def _with_remedies(self, error: BudgetError, size: int) -> BudgetError:
        """The error of a training step, which also says what would help. size: of its batch."""
        if self.optimizer is None or self._steps.how.order != "recorded":  # what helps is planned in one order
            return error
        memory = BatchMemory(self, self._trainer, self._train_step(self._objective(), self.optimizer))

        def plan_of(smaller: int) -> MemoryPlan:
            return memory.record("train", smaller, lambda graph: graph.memory_plan, error.bound.left)

        def fits(smaller: int) -> bool:
            bound, start = ByteLimit(error.bound.left), error.plan.placed.chosen
            return memory.record("train", smaller, lambda graph: graph.sketched_within(bound, start, False)) is not None

        trained = trained_values((node.layer for node in self.ordered()), self.freeze)
        return error.with_remedies(remedies(error, size, plan_of, fits, self.optimizer, trained))
