"""PlanMethods: memory plans of a net's steps, made before they run or of those that were recorded."""

from __future__ import annotations

from functools import cached_property

from singa_lite.common.keywords import explains_keywords
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.graph.graph import Graph
from singa_lite.net.memory_planner import MemoryPlanner
from singa_lite.training.steps.recordings import check_recordable
from singa_lite.training.trained_net import TrainedNet


class PlanMethods(TrainedNet):
    """Methods of `FeedForwardNet` about memory; its planner does the work."""

    @cached_property
    def _planner(self) -> MemoryPlanner:
        return MemoryPlanner(self._trainer)

    @property
    def training_graph(self) -> Graph:
        """The last training step that was recorded. GraphError if there is none. Running it trains."""
        trainer, steps = self._trainer, self._trainer.steps
        if not steps.has_trained and trainer.optimizer is not None and trainer.has_objective:
            check_recordable("training_graph", trainer.train_step(trainer.objective(), trainer.optimizer))
        return steps.training_graph

    @property
    def memory_plan(self) -> MemoryPlan:
        """The memory plan of the last training step that was recorded. GraphError if there is none."""
        return self.training_graph.memory_plan

    @explains_keywords()
    def plan_batch(
        self,
        batch_size: int,
        training: bool = True,
        *,
        samples: int | None = None,
        memory_budget: int | str | None = None,
        certificate: bool = False,
    ) -> MemoryPlan:
        """Returns the memory plan of a step with batches of this size. Nothing runs and no batch is needed.

        training: a training step of the compiled net, else a prediction. The plan of a training step answers for `fit`:
        its `total_bytes` counts evaluation with batches of this size and a last, shorter batch, which share the arena
        and the buffer of the batch (`plan.beside`), and what the pool adds (`plan.overhead_bytes`). samples: how many
        there will be, if it is known: the last batch then has `samples % batch_size`, and is planned too where it may
        need more than a whole one. Not counted: what `predict` returns, and the batch that
        is taken from the data on the host. memory_budget: as for `compile`, whose it is by default, or the device's
        limit; `plan.recomputed`, `plan.extra_flops` and `plan.estimated_slowdown` say what it
        costs. PlanError names the least total that was found, where the budget is below it, and what would
        help. certificate: with `plan.time_bound`, a lower bound on the slowdown of any schedule within the budget, in
        some seconds by SciPy. ValueError for no batch size; ShapeError for one whose tensors have more bytes than can
        be counted.

        >>> net = Sequential([layers.Dense(300, input_shape=(200,)), layers.Dense(3)])
        >>> net.compile("sgd", "mse")
        >>> plan = net.plan_batch(64)
        >>> plan.total_bytes > net.plan_batch(8).total_bytes
        True
        """
        return self._planner.plan_batch(batch_size, training, samples, memory_budget, certificate)

    @explains_keywords()
    def plan_generation(self, batch_size: int, length: int) -> MemoryPlan:
        """Returns the memory plan of `generate` for so many texts of up to `length` ids, prompt included. Nothing runs.

        It is that of the step that gives the scores of the next id; what layers keep of a text stands in
        `by_role["state"]`, `total_bytes` counts the steps that read the prompt, too, which share the arena. Within the
        net's memory_budget or the device's limit; errors as for `generate`, and PlanError as of `plan_batch`.

        >>> net = models.gpt2(vocabulary=20, positions=16, features=8, heads=2, blocks=1)
        >>> net.plan_generation(2, length=16).total_bytes > net.plan_generation(1, length=16).total_bytes
        True
        """
        return self._planner.plan_generation(batch_size, length)

    def budget_curve(self, batch_size: int) -> list[tuple[int, float]]:
        """Returns what less memory costs: (bytes of a budget, estimated slowdown), from the free plan down to the least
        found.

        At most twenty points; bytes fall, the slowdown never does. It is the time of what is computed again as a share
        of the step's, by a rule (`plan_batch`). Nothing runs; each point takes as long as a search. The budget that the
        net was compiled with and its device's limit do not matter.

        >>> net = Sequential([layers.Dense(30, input_shape=(20,), activation="tanh"), layers.Dense(3)])
        >>> net.compile("sgd", "mse")
        >>> nbytes, slowdown = net.budget_curve(64)[0]
        >>> slowdown
        0.0
        """
        return self._planner.budget_curve(batch_size)

    @explains_keywords()
    def largest_batch(self, nbytes: int | str, extra_time: float = 0.0, *, samples: int | None = None) -> int:
        """Returns the most samples for which what `fit` takes fits into `nbytes`, all counted; predicted, nothing is
        tried.

        nbytes: a number, or text such as "4 GiB" (1024**3 bytes) or "1.5GB" (1000**3); no more of them count than the
        net's own memory_budget. samples: as for `plan_batch`, by whose `total_bytes` it goes. extra_time: by which
        share repeats may slow the step, as estimated (`plan.estimated_slowdown`): 0, nothing is repeated; 0.2 is a good
        choice where memory bounds the batch, and the net is then compiled with memory_budget=nbytes. Totals may fall
        where the batch grows, as kernels' scratch may: without repeats none of the 64 sizes beyond the answer fits;
        with repeats it is sought by bisection. 0 if not even one sample fits. TypeError or ValueError for what is no
        size, or no share of at least 0.

        >>> net = Sequential([layers.Dense(300, input_shape=(200,)), layers.Dense(3)])
        >>> net.compile("sgd", "mse")
        >>> net.largest_batch("2 MiB") < net.largest_batch("4 MiB")
        True
        """
        return self._planner.largest_batch(nbytes, extra_time, samples)
