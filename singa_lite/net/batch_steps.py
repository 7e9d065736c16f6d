"""BatchSteps: trains on one batch, evaluates it or predicts, as the trainer of a net says."""

from __future__ import annotations

import sys
from collections.abc import Collection

from singa_lite.common.checks import names
from singa_lite.common.errors import GraphError
from singa_lite.common.terminal import write_line
from singa_lite.common.unique import Unique
from singa_lite.graph.budget_error import BudgetError
from singa_lite.layer import freezing
from singa_lite.layer.layer import OneOrMore
from singa_lite.net.memory_planner import MemoryPlanner
from singa_lite.optimizer import Optimizer
from singa_lite.optimizer.gradient_accumulation import WHOLE
from singa_lite.tensor import Tensor
from singa_lite.training import by_hand, checked, fit, non_finite
from singa_lite.training.compile_checks import check_ranks
from singa_lite.training.loop import idle
from singa_lite.training.loop.measures import Observed, observe, public
from singa_lite.training.non_finite import LossLook
from singa_lite.training.objective import Objective
from singa_lite.training.steps.bound_step import Batch, BoundStep, batch_of
from singa_lite.training.steps.recorded_steps import RecordedStep
from singa_lite.training.steps.step_functions import PredictStep, Values
from singa_lite.training.steps.train_step import TrainStep
from singa_lite.training.trainer import Trainer


class BatchSteps(Unique):
    """Steps over single batches of a net. The methods of `FeedForwardNet` by the same names say what is given.

    observed: what metrics over an epoch take of the last batch.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.observed: Observed | None = None
        self._planner = MemoryPlanner(trainer)
        self._seen_batch = False
        self._bad_losses = 0

    def train(self, x: object, y: object, sample_weight: object, class_weight: object) -> tuple[Tensor, OneOrMore]:
        """Do one training step; no other thread does a step of the net meanwhile."""
        ranks = self.trainer.ranks
        if ranks is None:
            return self.trainer.runner.steps.exclusively(self._train, x, y, sample_weight, class_weight)
        ranks.begin()
        try:
            ranks.ranks.bind_net(self.trainer.layers)
            return self.trainer.steps.exclusively(self._train, x, y, sample_weight, class_weight)
        except Exception as error:
            ranks.fail(error)
            raise

    def _train(self, x: object, y: object, sample_weight: object, class_weight: object) -> tuple[Tensor, OneOrMore]:
        trainer, layers, runner = self.trainer, self.trainer.layers, self.trainer.runner
        plain = sample_weight is None and class_weight is None
        recorded = runner.steps.bound_record(x, y, layers.settings_version) if plain else None
        if recorded is not None and runner.is_idle and layers.device.is_unwatched("train_one_batch"):
            batch = batch_of(x, y)
            if recorded.bound.passes(batch):
                return self._train_bound(recorded, batch)
        layers.device.check_bytes("train_one_batch")
        runner.check_whole("train_one_batch")
        optimizer, ranks = trainer.required_optimizer("train_one_batch"), trainer.ranks
        optimizer.check_serves(layers)
        for name, net in trainer.nets.items():
            net.trainer.runner.check_whole(f"train_one_batch: net {name!r}")
        if ranks is not None:
            x, y, sample_weight, ranks.is_idle = idle.batch_or_idle(x, y, sample_weight, self._check_fits)
        settings = layers.settings_version
        objective, feeds = self._batch(x, y, "train_one_batch", sample_weight, class_weight)
        if ranks is not None:
            check_ranks(ranks.ranks, objective, optimizer, optimizer.state_dtype)
        step = trainer.train_step(objective, optimizer, optimizer.gathering.part)
        runner.open_forward.forget()  # a forward by hand before it has nothing to do with this step
        is_idle = ranks is not None and ranks.is_idle  # the loss of its one sample counts nowhere
        step.look = look = None if is_idle else self._loss_look(step, feeds)
        try:
            self._check_group(step, checked.count(feeds))
            loss, values = runner.train(step, feeds)
        except BudgetError as error:
            raise self._planner.with_remedies(error, checked.count(feeds)) from None
        finally:
            step.look = None  # which holds the step and its batch, as this does it: a cycle would keep the batch
        if look is not None:
            self._bad_losses = look.bad
        if trainer.verbose and not fit.is_training(layers):
            self.print_norms()
        if plain and self._may_be_bound(optimizer):
            fresh, checks_loss = trainer.train_step(objective, optimizer, WHOLE), look is not None
            runner.steps.bind(x, y, settings, fresh, feeds, checks_loss)
        return loss, self._observed(objective, (loss, values), feeds)

    def _check_group(self, step: TrainStep, size: int) -> None:
        """BudgetError at the first batch of a group where its last one will not fit."""
        steps, group = self.trainer.steps, (size, self.trainer.layers.settings_version)
        if not step.part.updates and steps.how.memory_budget is not None and group not in steps.groups_that_fit:
            self._planner.check_group(size)
            steps.groups_that_fit.add(group)

    def _train_bound(self, recorded: RecordedStep, batch: Batch) -> tuple[Tensor, OneOrMore]:
        """A batch in a form that was trained before, see `BoundStep`."""
        bound: BoundStep = recorded.bound
        look = self._loss_look(bound.step, bound.by_layer(batch)) if bound.checks_loss else None
        try:
            loss, values = self.trainer.runner.train_bound(recorded, batch, look)
        except BudgetError as error:
            raise self._planner.with_remedies(error, len(batch[0])) from None
        if look is not None:
            self._bad_losses = look.bad
        if bound.observes_scores:
            return loss, self._observed(bound.step.objective, (loss, values), bound.by_layer(batch))
        if self.observed is not None:
            self.observed = None
        return loss, public(values)

    def _loss_look(self, step: TrainStep, feeds: checked.CheckedFeeds) -> LossLook | None:
        """What looks at the step's loss, if that is wanted: `on_nan`."""
        on_nan = self.trainer.on_nan
        if not non_finite.checks_loss(on_nan):
            return None
        return LossLook(step, feeds, on_nan, step.optimizer.step, self._bad_losses)

    def _may_be_bound(self, optimizer: Optimizer) -> bool:
        """Whether the next batch of this form may be trained by a bound step; else each is done as a first one."""
        trainer, options = self.trainer, self.trainer.steps.how
        if trainer.own_step is not None or trainer.ranks is not None or trainer.keep or trainer.verbose:
            return False
        return trainer.micro_batches == 1 and optimizer.gathering.count == 1 and options.graph

    def _observed(self, objective: Objective, step: Values, feeds: checked.CheckedFeeds) -> OneOrMore:
        """The metrics' values of a batch; what an epoch's take of it is kept."""
        losses, samples = objective.losses, checked.count(feeds)
        values, observed = observe(objective.measures, losses, step, feeds["target"], samples)
        if observed is not self.observed:
            self.observed = observed
        return public(values)

    def print_norms(self) -> None:
        """Print the norms of the last step where `verbose` asks for it, on the first of several processes."""
        trainer = self.trainer
        is_first = trainer.ranks is None or trainer.ranks.ranks.rank == 0
        if trainer.verbose and trainer.optimizer is not None and is_first:
            write_line(f"step {trainer.optimizer.step}\n{trainer.norms}", sys.stdout)

    def _batch(
        self, x: object, y: object, where: str = "", sample_weight: object = None, class_weight: object = None
    ) -> tuple[Objective, checked.CheckedFeeds]:
        """The net's objective, and a batch, its targets and weights by layer, checked."""
        objective = self.trainer.objective()
        self.refuse_weights(where, sample_weight=sample_weight, class_weight=class_weight)
        feeds = checked.inputs_and_targets(self.trainer.layers, objective, x, y, where, sample_weight, class_weight)
        if not self._seen_batch:
            checked.warn_of_nan(feeds)
            self._seen_batch = True
        return objective, feeds

    def _check_fits(self, x: object, y: object) -> None:
        """The errors of a batch that the net or its objective does not take."""
        checked.inputs_and_targets(self.trainer.layers, self.trainer.objective(), x, y)

    def refuse_weights(self, where: str, **weights: object) -> None:
        """ValueError for weights that a step of the user's own would not see."""
        for name, given in weights.items():
            if given is not None and self.trainer.own_step is not None:
                raise ValueError(
                    f"{where} {name}: wanted none beside compile(step=), as the step weighs its losses; give them as "
                    "one of its targets, y={...}"
                )

    def gradients(self, x: object, y: object) -> dict[str, Tensor]:
        """Returns all parameters' gradients of the loss's mean over a batch, by name."""
        trainer, layers = self.trainer, self.trainer.layers
        layers.device.check_bytes("gradients")
        if trainer.own_step is not None:
            raise GraphError("gradients: wanted a net with a loss, received one whose step is its own, compile(step=)")
        objective, feeds = self._batch(x, y)
        trainer.runner.check_whole("gradients")
        layers._check_names("gradients with freeze", freezing.names_in(layers.freeze))
        return by_hand.gradients_of(layers, objective, feeds, layers.freeze, trainer.runner.open_forward)

    def evaluate(self, x: object, y: object, sample_weight: object, class_weight: object) -> tuple[Tensor, OneOrMore]:
        """Returns (loss, metric) of one batch, as 0-d tensors, without training."""
        return self.trainer.steps.exclusively(self._evaluate, x, y, sample_weight, class_weight)

    def _evaluate(self, x: object, y: object, sample_weight: object, class_weight: object) -> tuple[Tensor, OneOrMore]:
        trainer, steps = self.trainer, self.trainer.steps
        trainer.layers.device.check_bytes("evaluate_one_batch")
        objective, feeds = self._batch(x, y, "evaluate_one_batch", sample_weight, class_weight)
        values = steps.own(steps.do(trainer.evaluate_step(objective), feeds))
        return values[0], self._observed(objective, values, feeds)

    def predict(self, x: object, output: Collection[str]) -> OneOrMore:
        """Returns the net's output for one batch, in evaluation mode; the next call overwrites it."""
        layers, steps = self.trainer.layers, self.trainer.steps
        layers.device.check_bytes("predict_one_batch")
        step = PredictStep(layers, self.output_paths("predict_one_batch", output))
        return steps.exclusively(lambda: steps.do(step, checked.inputs(layers, x)))

    def output_paths(self, where: str, output: Collection[str]) -> tuple[str, ...]:
        """Returns paths of layers whose outputs are wanted. GraphError for no layer, or one of several outputs."""
        wanted, layers = tuple(names(f"{where} output", output)), self.trainer.layers
        layers._check_names(f"{where} output", wanted)
        for path in wanted:
            shapes = layers.all_layers()[path].output_sample_shapes
            if len(shapes) > 1:
                raise GraphError(f"{where} output: wanted layers of one output, received {path!r} with {len(shapes)}")
        return wanted
