"""CompiledNet: how a net is told to train."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import numpy as np
from numpy.typing import DTypeLike

from singa_lite.autograd.rewriting import Rule
from singa_lite.common.errors import GraphError
from singa_lite.common.keywords import explains_keywords
from singa_lite.layer import freezing
from singa_lite.layer.layer import Layer
from singa_lite.loss import Loss
from singa_lite.net import compile_checks
from singa_lite.net.attribute_checks import OF_STEPS, checked_attribute
from singa_lite.net.compile_checks import Compiled
from singa_lite.net.memory_questions import PlannedNet
from singa_lite.optimizer import GlobalNorm, Optimizer, state_dtype
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.parallel.gradients.data_parallel_step import DataParallelStep
from singa_lite.parallel.gradients.ownership import ownership_of
from singa_lite.tensor import DeviceSpec
from singa_lite.training.loop.settings import of_rank
from singa_lite.training.objective import GivenLosses, GivenMetrics
from singa_lite.training.settings import ATTRIBUTES, Settings
from singa_lite.training.step_cache import StepCache
from singa_lite.training.steps.own_step import OwnFunction
from singa_lite.training.steps.step_objective import StepObjective


class CompiledNet(PlannedNet):
    """A net that is told how to train."""

    @explains_keywords()
    def __init__(
        self,
        loss: GivenLosses | None = None,
        metric: GivenMetrics | None = None,
        device: DeviceSpec = None,
        *,
        dtype: DTypeLike = np.float32,
        seed: int | None = None,
    ) -> None:
        super().__init__(loss, metric, device, dtype, seed)
        self.on_nan: str | None = None
        self._settings: Settings | None = None

    def __setattr__(self, name: str, value: object) -> None:
        """What steps follow, or an error: see `checked_attribute`."""
        if not name.startswith("_"):
            value = checked_attribute(self, name, value)
            if name == "optimizer" and value is not None:
                self._check_optimizer(value)
        object.__setattr__(self, name, value)
        if name in OF_STEPS:
            self.note_setting()
        if name in ATTRIBUTES and vars(self).get("_settings") is not None:
            self._settings = self.settings.changed(name, value)

    def _check_optimizer(self, given: object) -> None:
        """An optimizer that takes the place of that of `compile`, whose errors these are, does what it was told."""
        compile_checks.check_optimizer(given)
        settings = vars(self).get("_settings")
        if settings is None or not isinstance(given, Optimizer):
            return
        compile_checks.check(self.ordered(), None, given, None, self.dtype)
        state_dtype.check(given, settings.state_dtype, self.dtype)
        given.serve(self)
        is_clipped = self._clip is not None or self._scale is not None
        given.gather(settings.accumulate, is_clipped or _counts_positions(self.loss))
        given.keep_state_as(settings.state_dtype)
        self._steps.optimizer = given

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
        offload: str | None = None,
        order: str = "recorded",
        workers: int = 1,
        precision: str = "float32",
        float32_layers: Collection[str] = (),
        clip_global_norm: float | None = None,
        accumulate: int = 1,
        loss_scale: str | float | None = None,
        step: Callable[..., object] | None = None,
        nets: Mapping[str, CompiledNet] | None = None,
        keep: Collection[str] | None = None,
        limits: Mapping[str, int | str] | None = None,
        rules: Collection[Rule] | None = None,
        on_nan: str | None = "fit",
        parallel: DataParallel | None = None,
    ) -> None:
        """Say how to train. optimizer: an object, or a name such as "adam", with Keras's defaults. loss, metric: in the
        place of those given to the constructor. loss_weights: {output layer: what its loss is multiplied by in the sum
        over the outputs}, else 1.

        graph: record a step for each shape of batch, plan its memory into one arena, and replay it; else do each
        operation at once, with equal results, bit for bit. A change of what is trained (`freeze`, `stores_grad`) or
        of an option of a layer, a loss or the optimizer is followed: the step is recorded anew. fuse: let a recorded
        step apply activations within the operations before them, and make and apply large gradients by tiles, so that
        they never exist whole; results then agree to rounding. freeze: the name of a layer: all
        before it are not trained; or a list or set of layers or names: these very ones are not, with all that is in
        them. Frozen layers run as in evaluation. `layer.trainable = False` stops its parameters too, at any time, but
        it runs as in training.

        memory_budget: bytes that training may take in all, a number or text such as "1 GiB": parameters, state, batch,
        outputs, the arena and what the pool adds, of each recorded step. Values are dropped and computed again where
        they are needed, for the least time that is found; results are equal, bit for bit. None: as many as it takes,
        within the device's limit if it has one. PlanError at the first batch, or of `plan_batch`, names the least
        total that was found, where the budget is below it. ValueError for a budget above the device's limit.

        offload: a second means to keep the budget, only where it is asked for: values of the forward part are also
        copied out of the arena and back before backward reads them, whatever takes less time; results stay equal, bit
        for bit. "host", on a GPU: pinned memory of the host, beside computing. No budget counts these bytes,
        `plan.host_bytes` says how many. MemoryError at the first batch where the host does not pin them.

        order: "recorded", or one that is equivalent and needs less memory; or "dependencies": what does not depend on
        each other stands in lanes of a wave, planned so that these may run at the same time, with results that are
        equal, bit for bit. workers: on a CPU, so many lanes do, each with its share of the threads. Which calls these
        are is planned, so results are the same each time; they agree with those of one worker to rounding. ValueError
        with graph=False, with a memory_budget, and for several workers in the recorded order, on a GPU, or where there
        are fewer threads. See docs/workers.md.

        micro_batches: in how many pieces each batch goes forward and back, as equal as can be; their gradients are
        added and applied once, so that activations are those of a piece, while the sums of all gradients live through
        the step. Equal to the whole batch's step to rounding, but for dropout's numbers; GraphError for layers that
        work on a batch's statistics. state_dtype: how the optimizer's state is kept, see `Optimizer.keep_state_as`:
        "bfloat16" or "int8", which change results; None: in the parameters' dtype.

        precision: "bfloat16" or "float16" stores activations and their derivatives in 16 bits, in recorded steps alone:
        sums are in float32, and so are parameters, gradients, the optimizer's state, statistics, losses, metrics,
        outputs, and what the layers named in float32_layers give and take. ValueError where the net has another dtype
        than float32. "tf32": products and convolutions round float32 factors to 10 bits, as PyTorch's convolutions do
        by default, and all is stored in float32; DeviceError but on a GPU. loss_scale: multiply the loss's derivative,
        and divide gradients by as much before they are clipped and applied; a step whose gradients are not finite
        changes nothing but this scale. "dynamic", as torch.amp.GradScaler: 65,536, halved behind such a step and
        doubled behind 2,000 others in a row; a number stays. None: "dynamic" in float16, else nothing is scaled and no
        step skipped. See docs/precision.md.

        clip_global_norm: multiply all gradients by min(1, clip_global_norm / (norm + 1e-6)), where norm is that of all
        of them together, as torch.nn.utils.clip_grad_norm_ does, before constraints, regularizers and weight decay.
        `gradient_norm` has the norm. All gradients then live until the last one is made. accumulate: update by the mean
        of so many batches, at the last of them; until then parameters stay as they are. SGD's momentum takes the sum
        in, other optimizers, and losses with ignore_index, which weigh batches by the positions that count, want a
        tensor as large as each parameter; steps and schedules count updates. See docs/clipping_and_accumulation.md.

        step: a training step of your own, step(net, call), in the place of losses and metrics: `call.x`, `call.y`,
        `net.forward(call.training, x)`, operations of `autograd`, `call.update(loss)`, and the loss, or {"loss": ...,
        other names of the history: ...}, to return. It is recorded and planned as any. nets: {name: other nets that
        this step trains}, each compiled with an optimizer of its own. See docs/custom_step.md.
        keep: paths of layers whose outputs, and derivatives by these, `kept` has after each step, recorded or not, and
        after each evaluation: their bytes are not used again within the step. limits: {class of `plan.by_class`: the
        most bytes of it}, such as {"optimizer state": "1 GiB"}: PlanError before the first step,
        and of `plan_batch`, names class, bytes and limit; nothing is made smaller for it. See docs/observation.md.
        rules: by which each recorded step is rewritten before anything else, of `rewriting.Rule`; `plan.rewrites` tells
        how often. RuleError for one that does not hold on the net's device; ValueError with graph=False. See
        docs/rewriting.md.
        on_nan: what a loss that is NaN or infinite does. "raise": NonFiniteError, which names the first layer whose
        output is not finite, or the input, target or parameter that is not; on a CPU parameters stay as they were
        before that step, on a GPU the update has been applied; until `discard_step` or `load` the net counts as
        unfinished, and is not saved. "warn": a warning with the same words, one for several in a row, and training
        goes on. "fit": as "raise", but in `fit` alone, which reads each loss anyway, so that `train_one_batch` by hand
        never waits for a GPU. None: nothing. Where loss_scale skips such a step, the fourth in a row is told. A
        `Checkpoint` refuses parameters that are not finite, unless it is None. See docs/everyday.md.
        parallel: `parallel.mpi()`: train with the processes that mpiexec has started, of which each is given its part
        of every batch; all make the same update, by the mean over the whole batch. See docs/parallel.md.
        """
        settings = Settings.checked(locals())
        self._take(compile_checks.compiled(self, optimizer, loss, metric, settings))

    def _take(self, found: Compiled) -> None:
        """Train by this from now on. GraphError where optimizer or processes serve another net."""
        optimizer, settings, limit = found.optimizer, found.settings, found.settings.clip_global_norm
        steps = StepCache(self, settings, optimizer)
        own = None if settings.step is None else self._own or OwnFunction(settings.step, self.seed, self.device)
        together = self._data_parallel_step(settings.parallel, optimizer, settings.freeze)
        clip = None if limit is None else GlobalNorm(limit)
        optimizer.serve(self)
        is_clipped = clip is not None or found.scale is not None
        optimizer.gather(settings.accumulate, is_clipped or _counts_positions(found.losses))
        optimizer.keep_state_as(settings.state_dtype)
        self.optimizer = None  # an interrupt before the last line leaves a net that is not compiled
        self.loss, self.metric, self.freeze = found.losses, found.metrics, settings.freeze
        self.micro_batches, self.on_nan = settings.micro_batches, settings.on_nan
        self.loss_weights = None if settings.loss_weights is None else dict(settings.loss_weights)
        self._clip, self._scale, self._keep = clip, found.scale, tuple(settings.keep or ())
        self._together = together
        if own is not None and settings.step is not None:
            own.function, own.objective = settings.step, StepObjective()
        self._own, self._beside = own, settings.nets or {}
        self._settings = settings
        self._trainer.steps, self.optimizer = steps, optimizer

    def _data_parallel_step(
        self, ranks: DataParallel | None, optimizer: Optimizer, frozen: freezing.Freeze
    ) -> DataParallelStep | None:
        """With the processes that train it too; None where this one is alone. GraphError as `ownership_of`."""
        before = None if self._together is None or optimizer is not self.optimizer else self._together.ownership
        if ranks is None and before is None:
            return None
        layers = freezing.freezing((node.layer for node in self.ordered()), frozen).trained
        own = (value for layer in layers if layer.trainable for value in layer.own_parameters.values())
        trained = {value.name for value in own if value.stores_grad}
        parts = ownership_of(ranks, self.parameters(), trained, before, optimizer.has_state)
        if ranks is None:
            return None
        ranks.bind_net(self)
        told = partial(of_rank, self)
        return None if ranks.size == 1 else DataParallelStep(ranks, self.output_names(), self.parameters, told, parts)

    def _optimizer(self, where: str) -> Optimizer:
        if self.optimizer is None:
            raise GraphError(f"{where}: wanted an optimizer, call compile(optimizer) first")
        return self.optimizer


def _counts_positions(losses: object) -> bool:
    """Whether an only loss is a mean of the positions that count, by which the batches of a group are weighed then."""
    return isinstance(losses, Loss) and losses.is_counted and losses.of_whole_batch
