"""FeedForwardNet: layers by name, their order, forward, and backward as a generator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from copy import deepcopy
from os import PathLike

import numpy as np
from numpy.typing import DTypeLike

from singa_lite import compile_checks
from singa_lite import device as devices
from singa_lite.batch_plan import BatchPlanner
from singa_lite.budget_curve import curve
from singa_lite.checks import flag, names, whole
from singa_lite.errors import GraphError
from singa_lite.graph import Graph, Pause
from singa_lite.layer import OneOrMore
from singa_lite.layer_graph import LayerGraph
from singa_lite.layer_rows import layer_rows
from singa_lite.layer_walk import LayerGradients as LayerGradients
from singa_lite.loss import Loss
from singa_lite.memory_plan import MemoryPlan
from singa_lite.metric import Metric
from singa_lite.optimizer import Optimizer
from singa_lite.recorded_steps import StepForm
from singa_lite.reports import summary
from singa_lite.run import Run
from singa_lite.sizes import memory_size
from singa_lite.tensor import DeviceSpec, Tensor
from singa_lite.training import batch, checked, evaluation, fit, gradients
from singa_lite.training.dry_runs import DryRuns
from singa_lite.training.objective import Losses, Metrics, Objective, of_kind
from singa_lite.training.step import Steps
from singa_lite.training.step_functions import EvaluateStep, PredictStep, TrainStep
from singa_lite.training.trainer import Trainer
from singa_lite.unique import Unique


class FeedForwardNet(LayerGraph, Unique):
    """A net of layers, any directed acyclic graph of them.

    loss, metric: may also be given to `compile`; a dict {output layer: loss} for several outputs.
    device: where parameters and batches live, default `device.default()`; dtype: of parameters and inputs.
    seed: of the net's random numbers (initial values, dropout); default the device's next one, so that a script
    gives the same numbers each time it runs.
    """

    instead = "copy.deepcopy(net) is a net of its own, net.save() and net.load() bring one to other processes"

    def __init__(
        self,
        loss: Losses | None = None,
        metric: Metrics | None = None,
        device: DeviceSpec = None,
        *,
        dtype: DTypeLike = np.float32,
        seed: int | None = None,
    ) -> None:
        super().__init__(device, dtype, seed)
        self.loss = of_kind("loss", loss, Loss)
        self.metric = of_kind("metric", metric, Metric)
        self.optimizer: Optimizer | None = None
        self.freeze: str | None = None
        self._seen_batch = False
        self._trainer = Trainer(Steps(self, graph=False))

    def __deepcopy__(self, memo: dict[int, object]) -> FeedForwardNet:
        """A net of its own on the same device: layers, optimizer and their values; it records its steps anew.

        GraphError after an unfinished step. A forward that waits for its backward is not copied.
        """
        self._trainer.check_whole("deepcopy")
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        vars(made).update({name: deepcopy(value, memo) for name, value in vars(self).items() if name != "_trainer"})
        steps = self._steps
        made._trainer = Trainer(Steps(made, steps.graph, steps.fuse, steps.budget, steps.arena.offload))
        if made.optimizer is not None:
            made.optimizer.serve(made)
        return made

    def to_device(self, device: DeviceSpec) -> None:
        """Move parameters, state and the optimizer's state."""
        trainer = self._trainer
        trainer.check_whole("to_device")
        to = devices.get(device)
        compile_checks.offload_place(trainer.steps.arena.offload, to)
        trainer.left_at = "(while the net was being moved to another device)"
        trainer.steps = trainer.steps.anew()  # recorded steps are bound to the old device
        for node in self.ordered():
            node.layer.to_device(to)
        if self.optimizer is not None:
            self.optimizer.to_device(to)
        self.device = to
        trainer.steps = trainer.steps.anew()
        trainer.forget()

    @property
    def _steps(self) -> Steps:
        return self._trainer.steps

    # ---- forward and backward

    def forward(
        self, training: bool, x: object, output: Collection[str] = (), *, freeze: str | None = None
    ) -> OneOrMore:
        """Run all layers.

        training: keep what backward needs, drop out, use the batch's statistics. x: the batch, or {input layer:
        batch}. output: layers whose outputs are wanted too; the result is a dict {name: output} then, and for a
        net with several outputs; otherwise the output itself. freeze: layers before this one, in topological
        order, run as in evaluation and keep nothing.

        x may come from a tape, such as another net's output: `autograd.backward` of what is computed from the result
        walks back through both, this net's `backward` through its own layers alone. GraphError where a frozen layer
        would cut that tape.
        """
        nodes, training = self.ordered(), flag("forward training", training)
        if training:
            self._trainer.check_whole("forward")
            self._trainer.open_forward.pass_over()
        self._check_names("forward", [*names("forward output", output), freeze])
        arrays = batch.checked_inputs(x, self.input_shapes(), self.dtype)
        run = Run(nodes, self.device, self.dtype, training, freeze)
        result = run.forward(batch.as_tensors(arrays, self.device), output)
        if training:
            self._trainer.open_forward.keep(run)
        return result

    def backward(
        self, dy: object, output: Collection[str] = (), *, freeze: str | None = None
    ) -> Iterator[LayerGradients]:
        """Yield each layer's gradients, last layer first: (names, values, gradients, layer_gradients).

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
        """
        open_forward = self._trainer.open_forward
        self._trainer.check_whole("backward")
        open_forward.check()
        self._check_names("backward", [*names("backward output", output), freeze])
        return open_forward.walk(checked.derivatives(self, dy), output, freeze)

    def beside_next_step(self, begin: Callable[[], Pause]) -> None:
        """Let something read the parameters while the next training step runs forward, as a checkpoint does.

        begin: called once, when that step begins. What it returns says which blocks are read meanwhile, and how to wait
        for that; the step waits before its first operation that writes one of them.
        """
        self._trainer.readers.at_next_step(begin)

    def reads(self, pause: Pause) -> None:
        """Announce something that is about to read parameters, so that no step overwrites them meanwhile.

        A training step waits for it; after a step that was interrupted the next call ends it.
        """
        self._trainer.readers.note(pause)

    @property
    def unfinished_at(self) -> str:
        """The layer at which the last backward() was left before its end; "" after whole steps."""
        return self._trainer.unfinished_at

    def discard_step(self) -> None:
        """Forget a forward, or a step or load that was left before its end. What it has changed stays."""
        if self.optimizer is not None:
            self.optimizer.end_step()
        self._trainer.discard()

    def begin_restore(self) -> None:
        """A snapshot is being put into the net: until `discard_step` the net counts as unfinished."""
        self._trainer.readers.end()
        self._trainer.left_at = "(while a snapshot was being loaded: parts of it are in the net)"

    # ---- training

    def compile(
        self,
        optimizer: Optimizer,
        loss: Losses | None = None,
        metric: Metrics | None = None,
        *,
        graph: bool = True,
        fuse: bool = True,
        freeze: str | None = None,
        memory_budget: int | str | None = None,
        offload: str | PathLike[str] | None = None,
    ) -> None:
        """Say how to train. loss, metric: in the place of those given to the constructor.

        graph: record a step for each shape of batch, plan its memory into one arena, and replay it; else do each
        operation at once, with equal results, bit for bit. A change of what is trained (`freeze`, `stores_grad`) or
        of an option of a layer, a loss or the optimizer is followed: the step is recorded anew. fuse: let a recorded
        step apply activations within the operations before them, and make and apply large gradients by tiles, so that
        they never exist whole; results then agree to rounding. freeze: layers before this one are not trained.

        memory_budget: bytes that training may take in all, a number or text such as "1 GiB": parameters, state, batch,
        outputs, the arena and what the pool adds, of each recorded step. Values are dropped and computed again where
        they are needed, for the least time that is found; results are equal, bit for bit. PlanError at the first batch,
        or of `plan_batch`, names the least total that was found, where the budget is below it.

        offload: a second means to keep the budget, only where it is asked for: values of the forward part are also
        copied out of the arena and back before backward reads them, whatever takes less time; results stay equal, bit
        for bit. On a GPU "host": pinned memory of the host, beside computing. On a CPU a folder, for a temporary file
        that has no name: seldom worth it, see docs/budget.md. No budget counts these bytes, `plan.host_bytes` says how
        many. OSError for a folder in which no file can be made, and at the first batch where its disk is full.
        """
        compile_checks.check_optimizer(optimizer)
        graph, fuse = flag("compile graph", graph), flag("compile fuse", fuse)
        self._check_names("compile", [freeze])
        loss = of_kind("loss", loss, Loss) if loss is not None else self.loss
        metric = of_kind("metric", metric, Metric) if metric is not None else self.metric
        objective = None if loss is None else Objective(loss, metric, self.output_names())
        compile_checks.check(self.ordered(), objective, optimizer, freeze, self.dtype)
        optimizer.serve(self)
        budget = None if memory_budget is None else memory_size("compile memory_budget", memory_budget)
        if budget is not None and not graph:
            raise ValueError("compile memory_budget: wanted graph=True, as it is kept by planning recorded steps")
        where = compile_checks.offload_of(offload, budget, self.device)
        steps = Steps(self, graph, fuse, budget, where)
        self.optimizer = None  # an interrupt before the last line leaves a net that is not compiled
        self.loss, self.metric, self.freeze = loss, metric, freeze
        self._trainer.steps, self.optimizer = steps, optimizer

    def train_one_batch(self, x: object, y: object) -> tuple[Tensor, OneOrMore]:
        """One step: forward, loss, and an update of each layer as soon as its gradients are there.

        x: a batch, or {input layer: batch}; y: targets, or {output layer: targets}; NumPy, CuPy, DLPack or Tensor, in
        any byte order and layout, or an open HDF5 set.
        Returns (loss, metric), 0-d tensors from before the update; the metric is None if the net has none.
        Input that does not fit is refused before anything changes.
        """
        return self._steps.exclusively(self._train_one_batch, x, y)

    def _train_one_batch(self, x: object, y: object) -> tuple[Tensor, OneOrMore]:
        self._trainer.check_whole("train_one_batch")
        optimizer = self._optimizer("train_one_batch")
        optimizer.check_serves(self)
        objective, feeds = self._batch(x, y)
        step = self._train_step(objective, optimizer)
        self._trainer.open_forward.forget()  # a forward by hand before it has nothing to do with this step
        return self._trainer.train(step, feeds)

    def _optimizer(self, where: str) -> Optimizer:
        if self.optimizer is None:
            raise GraphError(f"{where}: wanted an optimizer, call compile(optimizer) first")
        return self.optimizer

    def _train_step(self, objective: Objective, optimizer: Optimizer) -> TrainStep:
        self._check_names("training with freeze", [self.freeze])  # which may have changed since compile
        return TrainStep(self, objective, optimizer, self.freeze)

    def _objective(self) -> Objective:
        """Losses and metrics by output."""
        if self.loss is None:
            raise GraphError("wanted a loss, give one to the net or to compile()")
        checked.single_outputs(self)
        return Objective(self.loss, self.metric, self.output_names())

    def _batch(self, x: object, y: object) -> tuple[Objective, checked.CheckedFeeds]:
        """The net's objective, and a batch and its targets by layer, checked."""
        objective = self._objective()
        feeds = checked.inputs_and_targets(self, objective, x, y)
        if not self._seen_batch:
            checked.warn_of_nan(feeds)
            self._seen_batch = True
        return objective, feeds

    def gradients(self, x: object, y: object) -> dict[str, Tensor]:
        """All parameters' gradients of the loss's mean over a batch, by name.

        Parameters stay as they are; running statistics and random state move, as in any training forward.
        All of them are in memory at once: for training, `train_one_batch` needs one layer's at a time.
        """
        objective, feeds = self._batch(x, y)
        self._trainer.check_whole("gradients")
        self._check_names("gradients with freeze", [self.freeze])
        return gradients.of_batch(self, objective, feeds, self.freeze, self._trainer.open_forward)

    def evaluate(self, x: object, y: object, batch_size: int = 32) -> tuple[float, OneOrMore]:
        """(loss, metric) over all samples, as numbers, without training; the metric is None if there is none.

        x, y: as for `fit`, and checked as there.
        """
        return evaluation.evaluate(self, checked.data("evaluate", self, self._objective(), x, y, batch_size))

    def evaluate_one_batch(self, x: object, y: object) -> tuple[Tensor, OneOrMore]:
        """(loss, metric) of one batch, as 0-d tensors, without training."""
        return self._steps.exclusively(self._evaluate_one_batch, x, y)

    def _evaluate_one_batch(self, x: object, y: object) -> tuple[Tensor, OneOrMore]:
        objective, feeds = self._batch(x, y)
        loss, metric = self._steps.own(self._steps.do(EvaluateStep(self, objective), feeds))
        return loss, metric

    def predict_one_batch(self, x: object) -> OneOrMore:
        """The net's output for one batch, in evaluation mode; its tensors are overwritten by the next call."""
        return self._steps.exclusively(lambda: self._steps.do(PredictStep(self), checked.inputs(self, x)))

    def predict(self, x: object, batch_size: int = 32) -> OneOrMore:
        """The net's output for all samples, in evaluation mode: a Tensor, or {output layer: Tensor}.

        What the last layer gives, as it is: raw scores where the loss works on raw scores.
        """
        checked.single_outputs(self)
        return evaluation.predict(self, checked.data_to_predict(self, x, batch_size))

    def fit(
        self,
        x: object,
        y: object,
        batch_size: int = 32,
        epochs: int = 1,
        *,
        validation_data: tuple[object, object] | None = None,
        shuffle: bool = True,
        verbose: bool = True,
        callbacks: Iterable[fit.Callback] | fit.Callback = (),
        resume: str | PathLike[str] | None = None,
        prefetch: int = 0,
    ) -> fit.History:
        """Train for some epochs, with a progress bar. x, y: arrays, or dicts of arrays, of equally many samples.

        What is in memory stays there, and only a batch at a time is copied; HDF5 sets, and all that can be sliced and
        says its shape and dtype, are read by batches. Before the first step all of it is checked, validation_data,
        (x, y), too: names, shapes, dtypes, counts, and the values of targets in memory; those on disk in their turn.

        shuffle: another order each epoch, the same in each run of the script. callbacks: what is called on the way, in
        any iterable, or one alone. resume: a checkpoint to go on from, until there are `epochs` epochs, as if nothing
        had happened; "auto": the newest one that is whole in the folder of the `Checkpoint` among the callbacks, if
        there is any. SnapshotError for one that does not fit. prefetch: how many batches a thread takes from the data
        ahead of the step, each of which takes its bytes on the host; worth it for data on disk (numpy.memmap, HDF5),
        and the same to the bit. Returns a History of each epoch's means.
        """
        self._optimizer("fit")
        objective = self._objective()
        data = checked.data("fit", self, objective, x, y, batch_size)
        validation = None
        if validation_data is not None:
            pair = fit.pair("fit validation_data", validation_data)
            validation = checked.data("fit validation_data", self, objective, *pair, batch_size)
        training = fit.Training(self, data, validation, epochs, shuffle, verbose, callbacks, prefetch)
        if resume is not None:
            from singa_lite.snapshots.checkpoints.resume import resume as going_on

            going_on(training, resume)
        return training.run()

    # ---- looking and keeping

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
        there will be, if it is known: the last batch then has `samples % batch_size`. Not counted: what `predict`
        returns, and the batch that is taken from the data on the host. memory_budget: as for `compile`, whose it is by
        default; `plan.recomputed`, `plan.extra_flops` and `plan.estimated_slowdown` say what it costs. PlanError names
        the least total that was found, where the budget is below it. ValueError for no batch size; ShapeError for one
        whose tensors have more bytes than can be counted.
        """
        size = checked.batch_size("plan_batch", batch_size)
        budget = self._steps.budget
        if memory_budget is not None:
            budget = memory_size("plan_batch memory_budget", memory_budget)
        if not flag("plan_batch training", training):
            return DryRuns(self, self._trainer, budget=budget).look("predict", size, lambda graph: graph.memory_plan)
        return self._planner("plan_batch", samples, budget).plan(size)

    def budget_curve(self, batch_size: int) -> list[tuple[int, float]]:
        """What less memory costs: (total bytes, estimated slowdown), from the free plan down to the least found.

        The slowdown is the time of what is computed again as a share of the step's, by a rule (`plan_batch`). Nothing
        runs; each point takes as long as a plan.
        """
        size = checked.batch_size("budget_curve", batch_size)
        return curve(lambda budget: self._planner("budget_curve", None, budget).plan(size))

    def largest_batch(self, nbytes: int | str, *, samples: int | None = None) -> int:
        """The most samples for which what `fit` takes fits into `nbytes`, all counted; predicted, nothing is tried.

        nbytes: a number, or text such as "4 GiB" (1024**3 bytes) or "1.5GB" (1000**3); samples: as for `plan_batch`, by
        whose `total_bytes` it goes. Totals may fall where the batch grows, as kernels' scratch may: none of the 64
        sizes beyond the answer fits. 0 if not even one sample does.
        """
        wanted = memory_size("largest_batch", nbytes)
        return self._planner("largest_batch", samples).largest(wanted)

    def _planner(self, where: str, samples: int | None, budget: int | None = None) -> BatchPlanner:
        self._trainer.check_whole(where)
        if self.loss is None or self.optimizer is None:
            raise GraphError(f"{where}: wanted a compiled net with a loss")
        known = None if samples is None else whole(f"{where} samples", samples, 1)
        runs = DryRuns(self, self._trainer, self._train_step(self._objective(), self.optimizer), budget)
        return BatchPlanner(runs.look, self.device.runtime.alignment, known, budget)

    def summary(self) -> str:
        """Print a table of the layers with shapes, parameters and bytes; returns its text."""
        state_bytes = sum(tensor.nbytes for tensor in self.states().values())
        text = summary.table(list(layer_rows(self.ordered())), state_bytes)
        print(text)
        return text

    def save(self, path: str | PathLike[str], *, weights_only: bool = False, **options: object) -> None:
        """Write parameters, state, optimizer state and step to a file: the whole new file or the old one.

        The path's suffix chooses the format; .h5 is the native one. weights_only: parameters and running statistics
        alone, for other programs. options: of the format, `snapshots.formats`.
        """
        from singa_lite.snapshots import formats

        formats.save(self, path, weights_only=weights_only, **options)

    def load(self, path: str | PathLike[str], optimizer: bool | None = None, **options: object) -> None:
        """Read what `save` wrote. Missing, extra, wrong-shaped or wrong-typed entries are a SnapshotError.

        optimizer: whether to read the optimizer's state too; default: if the net is compiled, unless the file is of a
        kind that has none, such as one of weights alone.
        Nothing changes unless all of it can be read. options: of the format, as in `save`.
        """
        from singa_lite.snapshots import formats

        formats.load(self, path, optimizer, **options)
