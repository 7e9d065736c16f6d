"""MemoryPlanner: plans of steps that a net has not done yet, and the largest batch and the least budget by these."""

from __future__ import annotations

from singa_lite.common.checks import at_least_zero, flag, integer
from singa_lite.common.errors import GraphError
from singa_lite.common.sizes import budget_size, memory_size
from singa_lite.compiler.byte_limit import ByteLimit
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.compiler.report.plan_rows import check_limits
from singa_lite.graph.budget_error import BudgetError
from singa_lite.layer.freezing import trained_values
from singa_lite.net.batch_memory import BatchMemory, plan_of
from singa_lite.net.generation import generation_plan
from singa_lite.net.largest_batch import LargestBatch
from singa_lite.net.remedies import remedies
from singa_lite.training import checked
from singa_lite.training.step_cache import ALONE, OWN
from singa_lite.training.trainer import Trainer


class MemoryPlanner:
    """Plans the steps of a net before any batch is there. The methods of `FeedForwardNet` by the same names say how."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def plan_batch(
        self,
        batch_size: int,
        training: bool,
        samples: int | None,
        memory_budget: int | str | None,
        certificate: bool = False,
    ) -> MemoryPlan:
        """Returns the memory plan of a step with batches of this size."""
        size = checked.batch_size("plan_batch", batch_size)
        budget = OWN if memory_budget is None else budget_size("plan_batch memory_budget", memory_budget)
        with_bound = flag("plan_batch certificate", certificate)
        if not flag("plan_batch training", training):
            memory = BatchMemory(self._trainer.layers, self._trainer.runner)
            return memory.record("predict", size, lambda graph: plan_of(graph, with_bound), budget)
        planner = self._planner("plan_batch", samples)
        try:
            plan = planner.plan(size, budget, with_bound)
        except BudgetError as error:
            plan = self._plan_alone(planner, size, budget, error, with_bound)
        check_limits(plan.by_class, self._trainer.steps.how.limits or {})
        return plan

    def _plan_alone(
        self, planner: BatchMemory, size: int, budget: int, error: BudgetError, certificate: bool
    ) -> MemoryPlan:
        """The plan where recorded steps make room, as they do when the step comes."""
        if budget != OWN or not self._trainer.steps.recorded_forms:
            raise self.with_remedies(error, size) from None
        try:
            return planner.plan(size, ALONE, certificate)
        except BudgetError as least:
            raise self.with_remedies(least, size) from None

    def plan_generation(self, batch_size: int, length: int) -> MemoryPlan:
        """Returns the memory plan of `generate`."""
        size = checked.batch_size("plan_generation", batch_size)
        trainer, texts = self._trainer, integer("plan_generation length", length, 2)
        return generation_plan(trainer.layers, trainer.steps, size, texts)

    def budget_curve(self, batch_size: int) -> list[tuple[int, float]]:
        """Returns (bytes of a budget, estimated slowdown), from the free plan down to the least found."""
        size = checked.batch_size("budget_curve", batch_size)
        return self._planner("budget_curve", None).curve(size)

    def largest_batch(self, nbytes: int | str, extra_time: float, samples: int | None) -> int:
        """Returns the most samples for which what `fit` takes fits into `nbytes`; 0 if not even one fits."""
        wanted = memory_size("largest_batch", nbytes)
        extra = at_least_zero("largest_batch extra_time", extra_time)
        budget = self._trainer.steps.how.memory_budget
        wanted = wanted if budget is None else min(wanted, budget)
        largest = LargestBatch(self._planner("largest_batch", samples))
        return largest.with_repeats(wanted, extra) if extra else largest.without_repeats(wanted)

    def _planner(self, where: str, samples: int | None) -> BatchMemory:
        trainer = self._trainer
        trainer.runner.check_whole(where)
        optimizer, own_step = trainer.optimizer, trainer.own_step
        if optimizer is None or not trainer.has_objective:
            raise GraphError(f"{where}: wanted a compiled net with a loss")
        known = None if samples is None else integer(f"{where} samples", samples, 1)
        first, objective = optimizer.gathering.first_part, trainer.objective()
        begins = None if first.updates or own_step is not None else trainer.train_step(objective, optimizer, first)
        return BatchMemory(trainer.layers, trainer.runner, trainer.train_step(objective, optimizer), begins, known)

    def check_group(self, size: int) -> None:
        """BudgetError where the last batch of a group, which updates, does not fit into the net's budget."""
        trainer = self._trainer
        step = trainer.train_step(trainer.objective(), trainer.required_optimizer("train_one_batch"))
        memory = BatchMemory(trainer.layers, trainer.runner, step)
        memory.record("train", size, lambda graph: graph.memory_plan, ALONE)  # recorded steps make room for it

    def with_remedies(self, error: BudgetError, size: int) -> BudgetError:
        """Returns the error of a training step with what would help. size: of its batch."""
        trainer, optimizer = self._trainer, self._trainer.optimizer
        if optimizer is None or trainer.steps.how.order != "recorded":  # what helps is planned in one order
            return error
        memory = BatchMemory(trainer.layers, trainer.runner, trainer.train_step(trainer.objective(), optimizer))

        def plan_of(smaller: int) -> MemoryPlan:
            return memory.record("train", smaller, lambda graph: graph.memory_plan, error.bound.left)

        def fits(smaller: int) -> bool:
            bound, start = ByteLimit(error.bound.left), error.plan.placed.chosen
            return memory.record("train", smaller, lambda graph: graph.sketched_within(bound, start, False)) is not None

        trained = trained_values((node.layer for node in trainer.layers.ordered()), trainer.layers.freeze)
        return error.with_remedies(remedies(error, size, plan_of, fits, optimizer, trained))
