"""BatchNet: what a compiled net does with one batch."""

from __future__ import annotations

import sys
from collections.abc import Collection
from math import nan

from singa_lite.common.checks import names
from singa_lite.common.errors import GraphError
from singa_lite.common.terminal import write_line
from singa_lite.graph.budget_error import BudgetError
from singa_lite.layer import freezing
from singa_lite.layer.layer import OneOrMore
from singa_lite.net.compile_checks import check_ranks
from singa_lite.net.compiled_net import CompiledNet
from singa_lite.optimizer import Optimizer
from singa_lite.optimizer.gradient_accumulation import WHOLE
from singa_lite.tensor import Tensor
from singa_lite.training import checked, fit, gradients, non_finite
from singa_lite.training.loop import idle
from singa_lite.training.loop.measures import Measures, Observed, observe, public
from singa_lite.training.non_finite import LossLook
from singa_lite.training.objective import Objective
from singa_lite.training.steps.bound_step import Batch, BoundStep, batch_of
from singa_lite.training.steps.own_step import OwnEvaluation
from singa_lite.training.steps.recorded_steps import RecordedStep
from singa_lite.training.steps.step_functions import EvaluateStep, PredictStep, Values
from singa_lite.training.steps.train_step import TrainStep


class BatchNet(CompiledNet):
    """A net that does one batch at a time: trains on it, evaluates it, or predicts. Base of `FeedForwardNet`, which
    says what loss, metric, device, dtype and seed are.

    observed: what metrics over an epoch take of the last batch.
    """

    observed: Observed | None = None
    _seen_batch = False
    _bad_losses = 0

    def train_one_batch(
        self, x: object, y: object = None, sample_weight: object = None, class_weight: object = None
    ) -> tuple[Tensor, OneOrMore]:
        """One step: forward, loss, and an update of each layer as soon as its gradients are there.

        x: a batch, or {input layer: batch}; y: targets, or {output layer: targets}; NumPy, CuPy, DLPack or Tensor, in
        any byte order and layout, or an open HDF5 set.
        sample_weight: (n,), what each sample's loss is multiplied by, or (n, length), (n, h, w), each position's;
        class_weight: {class id: the same for its samples or positions}; either also {output layer: ...}. The loss is
        then sum(weight * loss) / n, as of Keras, n counting samples or positions; metrics are not weighted.
        Returns (loss, metric), 0-d tensors from before the update; the metric is None if the net has none, a dict by
        name or by output where several were given.
        Input that does not fit is refused before anything changes.
        """
        if self._together is None:
            return self._trainer.steps.exclusively(self._train_one_batch, x, y, sample_weight, class_weight)
        self._together.begin()
        try:
            self._together.ranks.bind_net(self)
            return self._steps.exclusively(self._train_one_batch, x, y, sample_weight, class_weight)
        except Exception as error:
            self._together.fail(error)
            raise

    def _train_one_batch(
        self, x: object, y: object, sample_weight: object, class_weight: object
    ) -> tuple[Tensor, OneOrMore]:
        plain = sample_weight is None and class_weight is None
        trainer = self._trainer
        recorded = trainer.steps.bound_record(x, y, self.settings_version) if plain else None
        if recorded is not None and trainer.is_at_rest and self.device.is_unwatched("train_one_batch"):
            batch = batch_of(x, y)
            if recorded.bound.passes(batch):
                return self._train_bound(recorded, batch)
        self.device.check_bytes("train_one_batch")
        trainer.check_whole("train_one_batch")
        optimizer = self._optimizer("train_one_batch")
        optimizer.check_serves(self)
        for name, net in self._beside.items():
            net._trainer.check_whole(f"train_one_batch: net {name!r}")
        if self._together is not None:
            x, y, sample_weight, self._together.is_idle = idle.batch_or_idle(x, y, sample_weight, self._check_fits)
        settings = self.settings_version
        objective, feeds = self._batch(x, y, "train_one_batch", sample_weight, class_weight)
        if self._together is not None:
            check_ranks(self._together.ranks, objective, optimizer, optimizer.state_dtype)
        step = self._train_step(objective, optimizer, optimizer.gathering.part)
        trainer.open_forward.forget()  # a forward by hand before it has nothing to do with this step
        is_idle = self._together is not None and self._together.is_idle  # the loss of its one sample counts nowhere
        step.look = look = None if is_idle else self._loss_look(step, feeds)
        try:
            loss, values = trainer.train(step, feeds)
        except BudgetError as error:
            raise self._with_remedies(error, checked.count(feeds)) from None
        finally:
            step.look = None  # which holds the step and its batch, as this does it: a cycle would keep the batch
        if look is not None:
            self._bad_losses = look.bad
        if self._verbose and not fit.is_training(self):
            self.tell_norms()
        if plain and self._may_be_bound(optimizer):
            fresh, checks_loss = self._train_step(objective, optimizer, WHOLE), look is not None
            trainer.steps.bind(x, y, settings, fresh, feeds, checks_loss)
        return loss, self._observed(objective, (loss, values), feeds)

    def _train_bound(self, recorded: RecordedStep, batch: Batch) -> tuple[Tensor, OneOrMore]:
        """A batch in a form that was trained before, see `BoundStep`."""
        bound: BoundStep = recorded.bound
        look = self._loss_look(bound.step, bound.by_layer(batch)) if bound.checks_loss else None
        try:
            loss, values = self._trainer.train_bound(recorded, batch, look)
        except BudgetError as error:
            raise self._with_remedies(error, len(batch[0])) from None
        if look is not None:
            self._bad_losses = look.bad
        if bound.observes_scores:
            return loss, self._observed(bound.step.objective, (loss, values), bound.by_layer(batch))
        if self.observed is not None:
            self.observed = None
        return loss, public(values)

    def _loss_look(self, step: TrainStep, feeds: checked.CheckedFeeds) -> LossLook | None:
        """What looks at the step's loss, if that is wanted: `on_nan`."""
        if not non_finite.checks_loss(self.on_nan):
            return None
        return LossLook(step, feeds, self.on_nan, step.optimizer.step, self._bad_losses)

    def _may_be_bound(self, optimizer: Optimizer) -> bool:
        """Whether the next batch of this form may be trained by a bound step; else each is done as a first one."""
        if self._own is not None or self._together is not None or self._keep or self._verbose:
            return False
        return self.micro_batches == 1 and optimizer.gathering.count == 1 and self._steps.how.graph

    def _observed(self, objective: Objective, step: Values, feeds: checked.CheckedFeeds) -> OneOrMore:
        """The metrics' values of a batch; what an epoch's take of it is kept."""
        losses, samples = objective.losses, checked.count(feeds)
        values, observed = observe(objective.measures, losses, step, feeds["target"], samples)
        if observed is not self.observed:
            self.observed = observed
        return public(values)

    def tell_norms(self) -> None:
        """Print `norms`, if that is wanted: `verbose`. Of several processes rank 0 does, whose outputs are its own."""
        is_first = self._together is None or self._together.ranks.rank == 0
        if self.verbose and self.optimizer is not None and is_first:
            write_line(f"step {self.optimizer.step}\n{self.norms}", sys.stdout)

    @property
    def loss_weight(self) -> float:
        """The number of values of which the last loss of `train_one_batch` is the mean on this rank. These are its
        samples, or those of its targets that are not ignored; 0 where it had none, and its loss means nothing. NaN
        without `compile(parallel=)`.
        """
        return nan if self._together is None else self._together.loss_weight

    @property
    def measures(self) -> Measures:
        """The metrics, each with its output and its name in the history."""
        return self._objective().measures

    def _batch(
        self, x: object, y: object, where: str = "", sample_weight: object = None, class_weight: object = None
    ) -> tuple[Objective, checked.CheckedFeeds]:
        """The net's objective, and a batch, its targets and weights by layer, checked."""
        objective = self._objective()
        self._refuse_weights(where, sample_weight=sample_weight, class_weight=class_weight)
        feeds = checked.inputs_and_targets(self, objective, x, y, where, sample_weight, class_weight)
        if not self._seen_batch:
            checked.warn_of_nan(feeds)
            self._seen_batch = True
        return objective, feeds

    def _check_fits(self, x: object, y: object) -> None:
        """The errors of a batch that the net or its objective does not take."""
        checked.inputs_and_targets(self, self._objective(), x, y)

    def _refuse_weights(self, where: str, **weights: object) -> None:
        """ValueError for weights that a step of the user's own would not see."""
        for name, given in weights.items():
            if given is not None and self._own is not None:
                raise ValueError(
                    f"{where} {name}: wanted none beside compile(step=), as the step weighs its losses; give them as "
                    "one of its targets, y={...}"
                )

    def record_again(self) -> None:
        """Record each step anew when its next batch comes, with all that layers, losses and updates read elsewhere."""
        self._steps.exclusively(self._steps.record_again)

    def gradients(self, x: object, y: object) -> dict[str, Tensor]:
        """All parameters' gradients of the loss's mean over a batch, by name.

        Parameters stay as they are; running statistics and random state move, as in any training forward.
        All of them are in memory at once: for training, `train_one_batch` needs one layer's at a time.
        """
        self.device.check_bytes("gradients")
        if self._own is not None:
            raise GraphError("gradients: wanted a net with a loss, received one whose step is its own, compile(step=)")
        objective, feeds = self._batch(x, y)
        self._trainer.check_whole("gradients")
        self._check_names("gradients with freeze", freezing.names_in(self.freeze))
        return gradients.of_batch(self, objective, feeds, self.freeze, self._trainer.open_forward)

    def evaluate_one_batch(
        self, x: object, y: object = None, sample_weight: object = None, class_weight: object = None
    ) -> tuple[Tensor, OneOrMore]:
        """(loss, metric) of one batch, as 0-d tensors, without training. Weights: as for `train_one_batch`."""
        return self._steps.exclusively(self._evaluate_one_batch, x, y, sample_weight, class_weight)

    def _evaluate_one_batch(
        self, x: object, y: object, sample_weight: object, class_weight: object
    ) -> tuple[Tensor, OneOrMore]:
        self.device.check_bytes("evaluate_one_batch")
        objective, feeds = self._batch(x, y, "evaluate_one_batch", sample_weight, class_weight)
        step = self._steps.own(self._steps.do(self._evaluate_step(objective), feeds))
        return step[0], self._observed(objective, step, feeds)

    def _evaluate_step(self, objective: Objective) -> EvaluateStep:
        if self._own is None:
            step = EvaluateStep(self, objective)
            step.observer = self._observer(norms=False)
            return step
        return OwnEvaluation(self._own, self._members(self._optimizer("evaluate")))

    def predict_one_batch(self, x: object, output: Collection[str] = ()) -> OneOrMore:
        """The net's output for one batch, in evaluation mode; its tensors are overwritten by the next call.

        output: as for `predict`.
        """
        self.device.check_bytes("predict_one_batch")
        step = PredictStep(self, self._wanted("predict_one_batch", output))
        return self._steps.exclusively(lambda: self._steps.do(step, checked.inputs(self, x)))

    def _wanted(self, where: str, output: Collection[str]) -> tuple[str, ...]:
        """Paths of layers whose outputs are wanted. GraphError for a name that is none, or of several outputs."""
        wanted = tuple(names(f"{where} output", output))
        self._check_names(f"{where} output", wanted)
        for path in wanted:
            shapes = self.all_layers()[path].output_sample_shapes
            if len(shapes) > 1:
                raise GraphError(f"{where} output: wanted layers of one output, received {path!r} with {len(shapes)}")
        return wanted
