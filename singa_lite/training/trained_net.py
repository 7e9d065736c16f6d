"""TrainedNet: a layer graph with the trainer that trains it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from singa_lite.autograd.rewriting import Rule
from singa_lite.common.keywords import explains_keywords
from singa_lite.layer.layer import Layer
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.optimizer import Optimizer
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.tensor import DeviceSpec
from singa_lite.training.attribute_checks import checked_attribute
from singa_lite.training.objective import GivenLosses, GivenMetrics, Losses, Metrics
from singa_lite.training.trainer import Trainer

Value = TypeVar("Value")


class TrainerOption(Generic[Value]):
    """An attribute of a net that its trainer has; steps follow when it is set."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, net: TrainedNet | None, kind: type) -> Value:
        found: Any = self if net is None else getattr(net.trainer, self._name)
        return found  # type: ignore[no-any-return]  # of the type that the class says

    def __set__(self, net: TrainedNet, value: Value) -> None:
        net.trainer.set_option(self._name, value)


class TrainedNet(LayerGraph):
    """Layers with their trainer. Base of `FeedForwardNet`, which says what the arguments are.

    loss, metric, optimizer, loss_weights, micro_batches, on_nan: as `compile` was given them; each may be set anew.
    verbose: 1 to print norms of outputs, parameters and gradients by layer, else 0. They are taken within each training
    step, and printed after each one by hand, and of the last one of each epoch of `fit`. It may change at any time; the
    next step is recorded anew then. Norms cost one pass over what they are of, and gradients live whole.
    """

    loss = TrainerOption[Losses | None]()
    metric = TrainerOption[Metrics | None]()
    optimizer = TrainerOption[Optimizer | None]()
    loss_weights = TrainerOption[Mapping[str, float] | None]()
    micro_batches = TrainerOption[int]()
    on_nan = TrainerOption[str | None]()
    verbose = TrainerOption[int]()

    @explains_keywords()
    def __init__(
        self,
        loss: GivenLosses | None = None,
        metric: GivenMetrics | None = None,
        device: DeviceSpec = None,
        *,
        dtype: DTypeLike = np.float32,
        seed: int | None = None,
        parameter_dtype: str | None = None,
    ) -> None:
        super().__init__(device, dtype, seed, parameter_dtype)
        self._trainer = Trainer(self, loss, metric)

    def __setattr__(self, name: str, value: object) -> None:
        """Sets an attribute; steps follow it, or an error says what to do, see `checked_attribute`."""
        has_trainer = "_trainer" in vars(self)
        if has_trainer and not name.startswith("_"):
            value = checked_attribute(self, self._trainer, name, value)
        object.__setattr__(self, name, value)
        if has_trainer and name == "freeze":
            self._trainer.note_option(name, value)

    @property
    def trainer(self) -> Trainer:
        """The trainer of the layers."""
        return self._trainer

    @explains_keywords()
    def compile(
        self,
        optimizer: Optimizer | str,
        loss: GivenLosses | None = None,
        metric: GivenMetrics | None = None,
        *,
        loss_weights: Mapping[str, float] | None = None,
        graph: bool = True,
        fuse: bool = True,
        freeze: str | Collection[str | Layer] | None = None,
        memory_budget: int | str | None = None,
        micro_batches: int = 1,
        state_dtype: str | None = None,
        parameter_dtype: str | None = None,
        rounding: str | None = None,
        offload: str | None = None,
        order: str = "recorded",
        workers: int = 1,
        precision: str = "float32",
        float32_layers: Collection[str] = (),
        clip_global_norm: float | None = None,
        accumulate: int = 1,
        loss_scale: str | float | None = None,
        step: Callable[..., object] | None = None,
        nets: Mapping[str, TrainedNet] | None = None,
        keep: Collection[str] | None = None,
        limits: Mapping[str, int | str] | None = None,
        rules: Collection[Rule] | None = None,
        on_nan: str | None = "fit",
        parallel: DataParallel | None = None,
    ) -> None:
        """Set how the net is trained.

        * optimizer: an object, or a name such as "adam", with Keras's defaults. loss, metric: in the place of those of
          the constructor. loss_weights: {output layer: factor of its loss in the sum over the outputs}, 1 by default.
        * graph: record a step for each form of batch, plan its memory into one arena, and replay it. False does each
          operation at once, with equal bits. fuse: join activations and updates with the operations before them, so
          that large gradients never exist whole; results agree to rounding.
        * freeze: a layer's name: all layers before it are not trained. A list of layers or names: these are not
          trained, nor what is in them. Frozen layers run as in evaluation; those of `layer.trainable = False` do not.
        * memory_budget: bytes of all that training takes, a number or text such as "1 GiB": parameters, state, batch,
          outputs, arena and the pool's overhead. Values are computed again where needed; bits are equal. None: the
          device's limit, if there is one. PlanError, at the first batch or by `plan_batch`, names the least total.
          ValueError for a budget above the device's limit. offload="host": also copy values to pinned memory of the
          host, on a GPU, where that is faster; `plan.host_bytes` counts these bytes. MemoryError if it is not pinned.
        * order: "recorded", or "dependencies": operations that do not depend on each other may run at the same time.
          workers: how many do, on a CPU; results of several agree to rounding. See docs/workers.md.
        * micro_batches: the number of pieces in which a batch goes forward and back; their gradients are added and
          applied once. Equal to one piece to rounding, but for dropout. GraphError for layers that work on a batch's
          statistics. accumulate: the number of batches by whose mean the net is updated, at the last of them; steps
          and schedules count updates. See docs/clipping_and_accumulation.md.
        * state_dtype: "bfloat16" or "int8" for the optimizer's state, which changes results; see
          `Optimizer.keep_state_as`. None: the parameters' dtype.
        * parameter_dtype: "bfloat16" stores matrices and filters in 16 bits, vectors in float32; updates are done in
          float32. None: as the net was built. rounding: "stochastic", the default, or "compensated", with 8 bits of
          state for what rounding leaves over. See docs/bfloat16_parameters.md.
        * precision: "bfloat16" or "float16" stores activations and their derivatives in 16 bits in recorded steps, but
          for layers named in float32_layers; all else stays in float32. "tf32": products round float32 factors to 10
          bits of mantissa, on a GPU, else DeviceError. ValueError for a net that is not float32. See docs/precision.md.
        * loss_scale: multiply the loss's derivative by it, and divide gradients again; a step whose gradients are not
          finite changes nothing but the scale. "dynamic": as torch.amp.GradScaler, 65,536 at first, halved after such
          a step, doubled after 2,000 others. A number stays. None: "dynamic" in float16, else no scale.
        * clip_global_norm: multiply all gradients by min(1, clip_global_norm / (norm + 1e-6)), norm being that of all
          of them, as torch.nn.utils.clip_grad_norm_; before constraints, regularizers and weight decay. All gradients
          then live until the last one is made. `gradient_norm` has the norm.
        * step: your own training step, step(net, call), in the place of losses and metrics. nets: {name: other compiled
          nets that it trains}. See docs/custom_step.md.
        * keep: paths of layers whose outputs, and derivatives by these, `kept` has after each step. limits: {class of
          `plan.by_class`: most bytes}, such as {"optimizer state": "1 GiB"}: PlanError, before the first step or by
          `plan_batch`, names class, bytes and limit. See docs/observation.md.
        * rules: `rewriting.Rule` objects that rewrite each recorded step; `plan.rewrites` counts them. RuleError for
          one that does not hold on the net's device. See docs/rewriting.md.
        * on_nan: "raise": NonFiniteError for a loss that is not finite; it names the first layer, input, target or
          parameter that is not. On a CPU parameters stay as before that step, on a GPU it has updated them; the net
          counts as unfinished until `discard_step` or `load`. "warn": a warning with the same words, once for several
          in a row. "fit": as "raise", in `fit` alone. None: nothing. Where loss_scale skips such steps, the fourth in
          a row counts. See docs/everyday.md.
        * parallel: `parallel.mpi()`: train with the processes of mpiexec, each on its part of every batch; all make
          the same update. See docs/parallel.md.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> net.compile(optimizer.Adam(lr=0.01), "mse", "mae", memory_budget="1 MiB", clip_global_norm=1.0)
        >>> net.optimizer.lr
        0.01
        """
        self._trainer.compile(optimizer, loss, metric, locals())
