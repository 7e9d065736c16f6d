"""StepMethods: what `FeedForwardNet` does with one batch, by a recorded step or by hand, and what steps report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from math import nan

from singa_lite.common.errors import GraphError
from singa_lite.common.table import Table
from singa_lite.graph.executable import Pause
from singa_lite.layer.layer import OneOrMore
from singa_lite.layer.run import LayerGradients
from singa_lite.net.batch_steps import BatchSteps
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.tensor import Tensor
from singa_lite.training import by_hand
from singa_lite.training.loop.measures import Measures, Observed
from singa_lite.training.steps.bound_step import copy_of
from singa_lite.training.steps.observer import KeptTensors, Norms
from singa_lite.training.steps.recorded_steps import StepForm
from singa_lite.training.trained_net import TrainedNet


class StepMethods(TrainedNet):
    """Methods of `FeedForwardNet` about single steps; its trainer and its batch steps do the work."""

    @cached_property
    def _batches(self) -> BatchSteps:
        kept: dict[str, BatchSteps] = vars(self)
        return kept.setdefault("_batches", BatchSteps(self._trainer))  # of two threads the first one's is that of both

    # ---- one batch

    def train_one_batch(
        self, x: object, y: object = None, sample_weight: object = None, class_weight: object = None
    ) -> tuple[Tensor, OneOrMore]:
        """Does one training step: forward, loss, and an update of each layer as soon as its gradients are there.

        x: a batch, or {input layer: batch}; y: targets, or {output layer: targets}; NumPy, CuPy, DLPack or Tensor, in
        any byte order and layout, or an open HDF5 set.
        sample_weight: (n,), what each sample's loss is multiplied by, or (n, length), (n, h, w), each position's;
        class_weight: {class id: the same for its samples or positions}; either also {output layer: ...}. The loss is
        then sum(weight * loss) / n, as of Keras, n counting samples or positions; metrics are not weighted.
        Returns (loss, metric), 0-d tensors from before the update; the metric is None if the net has none, a dict by
        name or by output where several were given.
        Input that does not fit is refused before anything changes.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,), weight_init=0.0)])
        >>> net.compile(optimizer.SGD(lr=0.1), "mse", "mae")
        >>> mean, metrics = net.train_one_batch(np.ones((4, 5), "float32"), np.full((4, 3), 2.0, "float32"))
        >>> mean.item(), metrics.item(), net.optimizer.step
        (4.0, 2.0, 1)
        """
        return self._batches.train(x, y, sample_weight, class_weight)

    def evaluate_one_batch(
        self, x: object, y: object = None, sample_weight: object = None, class_weight: object = None
    ) -> tuple[Tensor, OneOrMore]:
        """Returns (loss, metric) of one batch, as 0-d tensors, without training. Weights: as for `train_one_batch`.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,), weight_init=0.0)])
        >>> net.compile("sgd", "mse")
        >>> net.evaluate_one_batch(np.ones((4, 5), "float32"), np.full((4, 3), 2.0, "float32"))[0].item()
        4.0
        """
        return self._batches.evaluate(x, y, sample_weight, class_weight)

    def predict_one_batch(self, x: object, output: Collection[str] = ()) -> OneOrMore:
        """Returns the net's output for one batch, in evaluation mode; its tensors are overwritten by the next call.

        output: as for `predict`.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> net.predict_one_batch(np.ones((4, 5), "float32")).shape
        (4, 3)
        """
        return self._batches.predict(x, output)

    def gradients(self, x: object, y: object) -> dict[str, Tensor]:
        """Returns all parameters' gradients of the loss's mean over a batch, by name.

        Parameters stay as they are; running statistics and random state move, as in any training forward.
        All of them are in memory at once: for training, `train_one_batch` needs one layer's at a time.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> net.compile("sgd", "mse")
        >>> net.gradients(np.ones((4, 5), "float32"), np.ones((4, 3), "float32"))["dense/weight"].shape
        (5, 3)
        """
        return self._batches.gradients(x, y)

    def record_again(self) -> None:
        """Records each step anew when its next batch comes, with all that layers, losses and updates read elsewhere.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> net.record_again()  # after a change to what a function of yours reads elsewhere
        """
        self._trainer.steps.exclusively(self._trainer.steps.record_again)

    # ---- by hand

    def forward(
        self, training: bool, x: object, output: Collection[str] = (), *, freeze: str | None = None
    ) -> OneOrMore:
        """Runs all layers on a batch and returns the output.

        training: keep what backward needs, drop out, use the batch's statistics. x: the batch, or {input layer:
        batch}. output: layers whose outputs are wanted too, by path (those of each run, where one runs more than
        once); the result is a dict {name: output} then, and for a net with several outputs; otherwise the output
        itself. freeze: layers before this one, in topological order, run as in evaluation and keep nothing.

        x may come from a tape, such as another net's output: `autograd.backward` of what is computed from the result
        walks back through both, this net's `backward` through its own layers alone. GraphError where a frozen layer
        would cut that tape.

        >>> net = Sequential([layers.Dense("hidden", 4, input_shape=(5,)), layers.Dense("scores", 3)])
        >>> net.forward(False, np.ones((2, 5), "float32")).shape
        (2, 3)
        """
        return by_hand.forward(self, self._trainer.runner, training, x, output, freeze)

    def backward(
        self, dy: object, output: Collection[str] = (), *, freeze: str | None = None
    ) -> Iterator[LayerGradients]:
        """Yields each layer's gradients, last layer first: (names, values, gradients, layer_gradients).

        dy: the derivative by the net's output, or {layer: derivative}. Layers without parameters are yielded too.
        A layer's derivative is computed before its gradients are handed out, so its parameters may be updated at
        once. The gradients are given back when the next layer is asked for: copy what must stay. A shared
        parameter comes once, with the layer that contributes last. layer_gradients is one dict for the whole
        walk; a layer named in `output` is entered with the derivative by its input (a list for several inputs).
        The walk ends at the net's inputs: if another net's output went in, name the input layer in `output`, and give
        what comes back to the other net's backward.
        freeze: stop after this layer. Draining the generator ends the step; one closed earlier leaves the net
        half updated, and it says so until `discard_step` or `load`.
        GraphError without a forward(True) before, for a second backward, or if there were two forwards and the outputs
        of both are still held.

        >>> net = Sequential([layers.Dense("hidden", 4, input_shape=(5,)), layers.Dense("scores", 3)])
        >>> scores = net.forward(True, np.ones((2, 5), "float32"))
        >>> for names, values, gradients, _ in net.backward(tensor.ones((2, 3))):
        ...     print(names, [gradient.shape for gradient in gradients])
        ['scores/weight', 'scores/bias'] [(4, 3), (3,)]
        ['hidden/weight', 'hidden/bias'] [(5, 4), (4,)]
        """
        return by_hand.backward(self, self._trainer.runner, dy, output, freeze)

    def beside_next_step(self, begin: Callable[[], Pause]) -> None:
        """Let something read the parameters while the next training step runs forward, as a checkpoint does.

        begin: called once, when that step begins. What it returns says which blocks are read meanwhile, and how to wait
        for that; the step waits before its first operation that writes one of them.
        """
        self._trainer.runner.readers.at_next_step(begin)

    @property
    def unfinished_at(self) -> str:
        """The layer at which the last backward() was left before its end; "" after whole steps."""
        return self._trainer.runner.unfinished_at

    def discard_step(self) -> None:
        """Forget a forward, or a step or load that was left before its end. What it has changed stays."""
        self._trainer.discard_step()

    # ---- reports

    @property
    def gradient_norm(self) -> Tensor:
        """The Euclidean norm of all gradients together, before they were clipped, of the last update: float64 ().

        NaN before the first one. GraphError unless compile was given clip_global_norm (math.inf clips nothing).
        """
        clip = self._trainer.clip
        if clip is None:
            raise GraphError("gradient_norm: wanted a net of compile(clip_global_norm=...), received one without")
        return copy_of(clip.norm(self.device))

    @property
    def loss_scale(self) -> Tensor:
        """What the next step's loss is multiplied by before it is derived: float64 (). GraphError where none is."""
        return self._scaling_value("loss_scale")

    @property
    def skipped_steps(self) -> Tensor:
        """How many updates were left out, as gradients were not finite: int64 (). GraphError where none is scaled."""
        return self._scaling_value("skipped_steps")

    def _scaling_value(self, name: str) -> Tensor:
        if self._trainer.scale is None:
            raise GraphError(f"{name}: wanted a net of compile(loss_scale=...), received one without")
        return copy_of(self._trainer.scale.tensors(self.device)[name])

    @property
    def norms(self) -> Norms:
        """Euclidean norms of the last training step, which `verbose` prints; reading them waits for the step.

        GraphError unless it was done with verbose = 1.
        """
        return self._trainer.norms

    @property
    def kept(self) -> Mapping[str, KeptTensors]:
        """{layer that `compile(keep=)` names: its output and the derivative by it} of the last training step, or
        evaluation, whichever was later.

        The tensors are overwritten by the next step: `tensor.to_numpy` copies. Derivatives are of the loss's mean over
        the batch, or of what it adds to a group's with accumulate; None behind an evaluation. With precision="bfloat16"
        they are copies in float32 of what the step computed. GraphError before the first step, or without keep.
        """
        if not self._trainer.keep:
            raise GraphError("net.kept: wanted a net of compile(keep=[...]), received one without")
        observed = self._trainer.steps.seen
        if observed is None:
            raise GraphError("net.kept: wanted a step before, received a net that has done none since it was compiled")
        return Table(observed.kept, "net.kept", "compile(keep=[...])")

    @property
    def loss_weight(self) -> float:
        """The number of values of which the last loss of `train_one_batch` is the mean on this rank. These are its
        samples, or those of its targets that are not ignored; 0 where it had none, and its loss means nothing. NaN
        without `compile(parallel=)`.
        """
        ranks = self._trainer.ranks
        return nan if ranks is None else ranks.loss_weight

    @property
    def measures(self) -> Measures:
        """The metrics, each with its output and its name in the history."""
        return self._trainer.objective().measures

    @property
    def observed(self) -> Observed | None:
        """What metrics over an epoch take of the last batch."""
        return self._batches.observed

    @property
    def knows_measures(self) -> bool:
        """Whether the numbers that a step gives are known; a step of the user's own says them when it is first done."""
        own_step = self._trainer.own_step
        return own_step is None or own_step.objective.is_known

    @property
    def compiled_as(self) -> dict[str, object]:
        """The options of `compile` by name, as `compile` takes them again; empty before it."""
        return self._trainer.compiled_as

    @property
    def accumulate(self) -> int:
        """The number of batches by whose mean the net is updated."""
        return self._trainer.accumulate

    @property
    def clip_global_norm(self) -> float | None:
        """The most that the norm of all gradients may be; None: whatever it is."""
        return self._trainer.clip_global_norm

    @property
    def loss_scaling(self) -> str | float | None:
        """The `loss_scale` of `compile`: "dynamic", a number, or None where nothing is scaled."""
        return self._trainer.loss_scaling

    @property
    def parallel(self) -> DataParallel | None:
        """The processes that train the net too, `compile(parallel=)`; None: this one trains it alone."""
        return self._trainer.parallel

    @property
    def recorded_forms(self) -> list[tuple[str, StepForm]]:
        """("train", "evaluate" or "predict", form of the batch) of each step that was recorded."""
        return self._trainer.steps.recorded_forms

    def print_norms(self) -> None:
        """Print `norms` where `verbose` asks for it, on the first of several processes."""
        self._batches.print_norms()
