"""BatchMemory: what `fit` takes of memory by batch size, from records of steps that never run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from singa_lite.common.errors import ShapeError
from singa_lite.compiler.byte_limit import ByteLimit
from singa_lite.compiler.ir.operation import Role
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.graph.budget_error import BudgetError
from singa_lite.graph.graph import Graph
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.runtime.pool_numbers import overhead
from singa_lite.training.step_runner import StepRunner
from singa_lite.training.steps.step_functions import PredictStep
from singa_lite.training.steps.train_step import TrainStep

Answer = TypeVar("Answer")

#: (bytes of a budget, estimated slowdown)
Point = tuple[int, float]
#: Budgets of the curve between the free total and none, as shares of the free one.
SHARES = (0.94, 0.88, 0.82, 0.76, 0.7, 0.64, 0.58, 0.52, 0.47, 0.42, 0.37, 0.33, 0.29, 0.25, 0.2, 0.15, 0.1)


class StepNeed(NamedTuple):
    """Bytes of a training step by itself, from a plan without exact placement. least, most: bounds of its arena.

    held: of each block outside the arena. without_scratch: of the arena if no kernel needed any; scratch: of each
    operation. repeats: whether the plan repeats any. apart: what counts beside these and the pool's own,
    `process_bytes` and `unused_bytes` of a `MemoryPlan`.
    """

    least: int
    most: int
    held: list[int]
    without_scratch: int
    scratch: list[int]
    repeats: bool
    apart: int


class BatchMemory:
    """Memory plans of one net as it is now, and the largest batch that fits.

    step: the net's training step, by whose objective it is evaluated too; None where only predictions are asked for.
    begins: that of the first batch of a group; None where each batch is one. samples: how many there are to train with,
    which says how many are left for the last batch; None: any number may be.
    """

    def __init__(
        self,
        layers: LayerGraph,
        runner: StepRunner,
        step: TrainStep | None = None,
        begins: TrainStep | None = None,
        samples: int | None = None,
    ) -> None:
        self._layers, self._runner, self._step, self._begins, self._samples = layers, runner, step, begins, samples
        #: {what `fit` does besides with batches of the same size: kind of step}
        self._kinds = {"evaluation": "evaluate"} | ({} if begins is None else {"first batch of a group": "begins"})
        self._alignment = layers.device.runtime.alignment
        self._answers: dict[tuple[str, int, Callable[[Graph], Any]], Any] = {}

    # ---- records

    def record(self, kind: str, size: int, ask: Callable[[Graph], Answer], budget: int | None = None) -> Answer:
        """The answer of the record of a step for batches of a size. Nothing runs.

        kind: "train", "begins", "evaluate" or "predict"; budget: of the plan in bytes, see `StepCache.dry_run`.
        """
        layers, steps = self._layers, self._runner.steps
        dtypes = dict.fromkeys(layers.input_ids(), np.dtype(np.int64))
        inputs = {
            name: ((size, *shape), dtypes.get(name, layers.dtype)) for name, shape in layers.input_shapes().items()
        }
        if kind == "predict" or self._step is None:
            return steps.dry_run(PredictStep(layers), {"input": inputs}, ask, budget)
        forms = {"input": inputs, "target": self._step.objective.batch_forms(layers, size)}
        if kind == "evaluate":
            return steps.dry_run(self._step.evaluation(), forms, ask, budget)
        self._runner.open_forward.forget()
        step = self._begins if kind == "begins" and self._begins is not None else self._step
        return self._runner.dry_run(step, forms, ask, budget)

    def _answer(self, kind: str, size: int, ask: Callable[[Graph], Answer]) -> Answer:
        """The answer of a record without a budget, which is made once."""
        key = kind, size, ask
        if key not in self._answers:
            self._answers[key] = self.record(kind, size, ask)
        return cast(Answer, self._answers[key])

    def need(self, size: int) -> StepNeed | None:
        """The need of a training step; None where it has more bytes than can be counted."""
        try:
            return self._answer("train", size, _need_of)
        except ShapeError:
            return None

    def _eager(self, size: int) -> int:
        """Bytes of a training step whose operations are done at once, above which no arena is.

        0 of a batch that a layer refuses, as one does that keeps a state of each sample: `fit` takes none of that size.
        """
        try:
            return self._answer("train", size, _eager_bytes)
        except ShapeError:
            return 0

    def arena_of(self, size: int, need: StepNeed) -> int:
        """Bytes of the training step's arena."""
        return need.least if need.least == need.most else self._answer("train", size, _arena_bytes)

    def known_needs(self) -> dict[int, StepNeed]:
        """{size: need} of the sizes that were recorded."""
        return {size: need for (_, size, ask), need in self._answers.items() if ask is _need_of}

    def total(self, held: list[int], arena: int) -> int:
        """Bytes of blocks, an arena and what the pool adds."""
        return sum(held) + arena + overhead(held, arena, self._alignment)

    # ---- plans

    def plan(self, size: int, budget: int | None = None, certificate: bool = False) -> MemoryPlan:
        """The plan of the training step, whose total counts all that `fit` does. budget: see `record`; certificate:
        with a bound on the time of any plan.

        Evaluation and the last, shorter batch share the arena, so only what the largest of them needs counts. A shorter
        batch needs more only where the kernels ask for more scratch; where the number of samples is not known, sizes
        near this one and its halves are planned.
        """
        try:
            plan, scratch, bound, unused = self.step_plan(size, budget, certificate)
        except BudgetError as error:
            raise self._of_fit(error, size) from None
        return self.fit_plan(plan, scratch, bound, size, budget).within_net(unused)

    def step_plan(
        self, size: int, budget: int | None, certificate: bool = False
    ) -> tuple[MemoryPlan, list[int], ByteLimit | None, int]:
        """Of a training step: the plan, the scratch of its operations, what it is bounded by, and `unused_bytes`."""

        def ask(graph: Graph) -> tuple[MemoryPlan, list[int], ByteLimit | None, int]:
            return plan_of(graph, certificate), graph.scratch_bytes(), graph.bound, graph.unused_bytes

        return self.record("train", size, ask, budget)

    def _of_fit(self, error: BudgetError, size: int) -> BudgetError:
        """The error of a training step, or of what else `fit` does where that needs more than the least of the step."""
        least = error.total_bytes
        if not error.bound.device:
            try:
                self.fit_plan(error.plan, [], ByteLimit(least, error.bound.taken), size, least)
            except BudgetError as other:
                return BudgetError(ByteLimit(error.budget, other.bound.taken), other.total_bytes, other.plan)
        return error

    def fit_plan(
        self, plan: MemoryPlan, scratch: list[int], bound: ByteLimit | None, size: int, budget: int | None
    ) -> MemoryPlan:
        """The plan with all that `fit` does besides. scratch: of its operations; bound: of its budget."""
        most = None if bound is None else bound.beside(plan.process_bytes).arena(plan.held_blocks, self._alignment)
        others = self.other_steps(size, plan.arena_bytes, scratch, most, plan.recomputed > 0)
        if bound is None or most is None:
            return self._add_steps(plan, others)
        least, taken = plan, bound.taken
        for name, kind in self._kinds.items():
            if others[name] > most:
                least, taken = self._other_within(kind, size, budget)
                others[name] = least.arena_bytes
        whole = self._add_steps(plan, others)
        if whole.total_bytes > bound.left:
            raise BudgetError(ByteLimit(bound.nbytes, taken), whole.total_bytes + bound.taken, least)
        for shorter in [] if self._samples is None else self._shorter(size):
            if self._eager(shorter) > most:
                self._check_shorter(shorter, size, budget)
        return whole

    def _check_shorter(self, shorter: int, size: int, budget: int | None) -> None:
        """BudgetError where the last batch, which lies in the place of a whole one, does not fit."""
        place = self._answer("train", size, _fed_bytes)

        def check(graph: Graph) -> None:
            if graph.bound is not None:
                longer = max(0, place - _fed_bytes(graph))
                graph.plan_within(replace(graph.bound, taken=graph.bound.taken + longer))

        self.record("train", shorter, check, budget)

    def _add_steps(self, plan: MemoryPlan, others: Mapping[str, int]) -> MemoryPlan:
        """The plan with what the pool adds where the arena is as large as the largest of all needs it."""
        arena = max(plan.arena_bytes, *others.values())
        return plan.within_fit(others, overhead(plan.held_blocks, arena, self._alignment))

    def _other_within(self, kind: str, size: int, budget: int | None) -> tuple[MemoryPlan, int]:
        """The plan of a step of another kind within a budget, or the least one; and what is held beside it."""
        try:
            return self.record(
                kind, size, lambda graph: (graph.memory_plan, graph.bound.taken if graph.bound else 0), budget
            )
        except BudgetError as error:
            if error.bound.device:
                raise
            return error.plan, error.bound.taken

    def other_steps(
        self, size: int, arena: int, scratch: list[int], bound: int | None, repeats: bool
    ) -> dict[str, int]:
        """Bytes of the arena that other steps of `fit` need. arena, scratch: what the training step of this size needs.

        bound: of the arena, by a budget. Within one a shorter batch may take more than this one, as it repeats less, up
        to what the budget leaves. repeats: whether this one repeats something: without a bound a shorter one may
        repeat others, and so is planned.
        """
        needs = {name: self._answer(kind, size, _arena_bytes) for name, kind in self._kinds.items()}
        for shorter in self._shorter(size):
            most = self._eager(shorter)
            if most <= arena:
                continue
            if bound is not None:
                needs[f"last batch of {shorter}"] = min(most, bound)
            elif repeats or self._samples is not None or self._wants_more_scratch(shorter, scratch):
                need = self.need(shorter)
                if need is not None and need.most > arena:
                    needs[f"last batch of {shorter}"] = self.arena_of(shorter, need)
        return needs

    def _shorter(self, size: int) -> list[int]:
        """Sizes that the last batch of an epoch may have: where samples are not known, near this one and its halves."""
        if self._samples is not None:
            left = self._samples % size
            return [left] if left else []
        powers = [1 << power for power in range(size.bit_length())]
        nearby, halves = {size - one for one in powers if one < size}, {size // one for one in powers[1:]}
        return sorted(nearby | halves, reverse=True)

    def _wants_more_scratch(self, size: int, known: list[int]) -> bool:
        """Whether an operation needs more scratch than the same one of the larger batch."""
        scratch = self._answer("train", size, Graph.scratch_bytes)
        return len(scratch) != len(known) or any(one > other for one, other in zip(scratch, known, strict=True))

    # ---- the curve of budgets

    def curve(self, size: int) -> list[Point]:
        """(bytes, estimated slowdown) of budgets, all made of one record: ever less bytes, never for less time.

        A point is left out where a plan of fewer bytes takes no more time, but for the first, that of the free plan.
        """
        return self.record("train", size, partial(self._curve, size))

    def _curve(self, size: int, graph: Graph) -> list[Point]:
        scratch = graph.scratch_bytes()
        plan = self.fit_plan(graph.plan_within(None), scratch, None, size, None).within_net(graph.unused_bytes)
        free, points = (plan.total_bytes, plan.estimated_slowdown), list[Point]()
        for share in SHARES:
            bound = graph.on_rung(ByteLimit(int(free[0] * share), graph.unused_bytes))
            try:
                points.append(self._point(size, graph, scratch, bound))
            except BudgetError as error:
                points.append(self._least_point(size, graph, scratch, error))
                break
        kept: list[Point] = []
        for nbytes, time in sorted(points):
            if nbytes < free[0] and (not kept or time < kept[-1][1]):
                kept.append((nbytes, time))
        return [free, *reversed(kept)]

    def _point(self, size: int, graph: Graph, scratch: list[int], bound: ByteLimit) -> Point:
        try:
            plan = graph.plan_within(bound)
        except BudgetError as error:
            raise BudgetError(error.bound, self._of_fit(error, size).total_bytes, error.plan) from None
        try:
            whole = self.fit_plan(plan, scratch, bound, size, bound.nbytes)
        except BudgetError as error:  # of an evaluation, whose time is not the step's
            raise BudgetError(error.bound, error.total_bytes, plan) from None
        return bound.nbytes, whole.estimated_slowdown

    def _least_point(self, size: int, graph: Graph, scratch: list[int], error: BudgetError) -> Point:
        """The least budget, and what its own plan takes."""
        try:
            return self._point(size, graph, scratch, ByteLimit(error.total_bytes, graph.unused_bytes))
        except BudgetError:  # of what else `fit` does, which is counted as it is
            return error.total_bytes, error.plan.estimated_slowdown


def _need_of(graph: Graph) -> StepNeed:
    plan = graph.rough_plan()
    apart = plan.process_bytes + graph.unused_bytes
    return StepNeed(
        plan.floor_bytes,
        plan.arena_bytes,
        plan.held_blocks,
        plan.floor_without_scratch_bytes,
        graph.scratch_bytes(),
        plan.recomputed > 0,
        apart,
    )


def _arena_bytes(graph: Graph) -> int:
    return graph.memory_plan.arena_bytes


def _eager_bytes(graph: Graph) -> int:
    return graph.eager_bytes


def _fed_bytes(graph: Graph) -> int:
    """Returns the bytes of regions of what a step is fed."""
    alignment = graph.device.runtime.alignment
    fed = (block.nbytes for number, block in enumerate(graph.blocks) if graph.role(number) is Role.INPUT)
    return sum(nbytes + -nbytes % alignment for nbytes in fed)


def plan_of(graph: Graph, certificate: bool) -> MemoryPlan:
    """Returns the plan of a record, with a bound on the time of any plan where a certificate is wanted."""
    return graph.certified(graph.memory_plan) if certificate else graph.memory_plan
