"""Trainer: trains the layers of one net by the options of `compile`, and reports what its steps observed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

from singa_lite.common.errors import GraphError
from singa_lite.common.unique import Unique
from singa_lite.device import Device
from singa_lite.layer import freezing
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.stored_parameters import store
from singa_lite.loss import Loss
from singa_lite.optimizer import GlobalNorm, Optimizer, state_dtype
from singa_lite.optimizer.gradient_accumulation import AccumulationSlot
from singa_lite.optimizer.loss_scale import LossScale
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.parallel.gradients.data_parallel_step import DataParallelStep
from singa_lite.tensor import Tensor
from singa_lite.training import checked, compile_checks
from singa_lite.training.objective import GivenLosses, GivenMetrics, Objective, losses_of, metrics_of
from singa_lite.training.settings import (
    ALIKE,
    ATTRIBUTES,
    BEFORE_COMPILE,
    OF_OWN_STEPS,
    OF_RANKS,
    Settings,
    check_default,
    described,
)
from singa_lite.training.step_cache import StepCache
from singa_lite.training.step_runner import StepRunner
from singa_lite.training.steps.micro_batches import checked_count
from singa_lite.training.steps.observer import Norms, Observer
from singa_lite.training.steps.own_step import STEP_RANDOM, OwnEvaluation, OwnFunction, OwnStep
from singa_lite.training.steps.step_call import Member
from singa_lite.training.steps.step_functions import EvaluateStep
from singa_lite.training.steps.step_objective import StepObjective
from singa_lite.training.steps.train_step import TrainStep


class Trainer(Unique):
    """Trains the layers of one net.

    layers: the net's. loss, metric, optimizer, loss_weights, micro_batches, on_nan: as for `compile`; verbose: 1 prints
    norms. settings: the options of `compile`, None before it. clip: the limit of the gradients' norm; scale: of losses;
    own_step: the user's step function; nets: other nets that it trains, by name; ranks: what a step does because other
    processes train the net too. runner: runs the steps.
    """

    def __init__(self, layers: LayerGraph, loss: GivenLosses | None, metric: GivenMetrics | None) -> None:
        self.layers = layers
        self.loss = losses_of(loss)
        self.metric = metrics_of(metric)
        self.optimizer: Optimizer | None = None
        self.loss_weights: Mapping[str, float] | None = None
        self.micro_batches = 1
        self.on_nan: str | None = None
        self.verbose = 0
        self.settings: Settings | None = None
        self.clip: GlobalNorm | None = None
        self.scale: LossScale | None = None
        self.own_step: OwnFunction | None = None
        self.nets: Mapping[str, Any] = {}
        self.ranks: DataParallelStep | None = None
        self.runner = StepRunner(StepCache(layers, BEFORE_COMPILE))

    def check_copied(self, caller: str) -> None:
        """AbstractDeviceError for a net without values, GraphError for one whose step trains others: its copy would."""
        self.layers.device.check_bytes(caller)
        if self.nets:
            raise GraphError(
                f"{caller}: wanted a net whose step trains it alone, received one of compile(nets={[*self.nets]}), "
                "which the step would still train; save each net, and compile the copies with a step of theirs"
            )

    def copy_for(self, layers: LayerGraph, memo: dict[int, object]) -> Trainer:
        """Returns a trainer of copied layers, with copies of all that this one has; it records its steps anew."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        kept = {name: value for name, value in vars(self).items() if name not in ("layers", "runner")}
        vars(made).update({name: deepcopy(value, memo) for name, value in kept.items()})
        made.layers, made.runner = layers, StepRunner(self.steps.of(layers, made.optimizer))
        if made.optimizer is not None:
            made.optimizer.serve(layers)
        return made

    # ---- options

    def compile(
        self,
        optimizer: Optimizer | str,
        loss: GivenLosses | None,
        metric: GivenMetrics | None,
        options: Mapping[str, Any],
    ) -> None:
        """Sets how the layers are trained, see `FeedForwardNet.compile`; an option that is refused changes nothing."""
        settings = Settings.checked(options, self.layers.parameter_dtype)
        self._check_nets(settings)
        losses = self.loss if loss is None else losses_of(loss)
        metrics = self.metric if metric is None else metrics_of(metric)
        found = compile_checks.compiled(self.layers, optimizer, losses, metrics, settings)
        optimizer, settings = found.optimizer, found.settings
        steps = StepCache(self.layers, settings, optimizer)
        own = (
            None
            if settings.step is None
            else self.own_step or OwnFunction(settings.step, self.layers.seed, self.layers.device)
        )
        before = None if self.ranks is None or optimizer is not self.optimizer else self.ranks.ownership
        ranks = compile_checks.data_parallel_step(self.layers, settings, optimizer, before, self.rank_settings)
        clip = None if settings.clip_global_norm is None else GlobalNorm(settings.clip_global_norm)
        self._bind(optimizer, settings, losses, clip is not None or found.scale is not None)
        self.layers.note_setting()
        self.optimizer = None  # an interrupt before the last line leaves a net that is not compiled
        self.loss, self.metric, self.layers.freeze = losses, metrics, settings.freeze
        self.micro_batches, self.on_nan = settings.micro_batches, settings.on_nan
        self.loss_weights = None if settings.loss_weights is None else dict(settings.loss_weights)
        self.clip, self.scale, self.ranks = clip, found.scale, ranks
        if own is not None and settings.step is not None:
            own.function, own.objective = settings.step, StepObjective()
        self.own_step, self.nets = own, settings.nets or {}
        self.settings = settings
        store(self.layers.param_values(), settings.parameter_dtype, self.layers.dtype)
        self.runner.steps, self.optimizer = steps, optimizer

    def set_option(self, name: str, value: Any) -> None:
        """Set an attribute that steps follow; an optimizer takes the place of that of `compile`."""
        if name == "optimizer" and value is not None:
            value = self._exchanged_optimizer(value)
        setattr(self, name, value)
        self.note_option(name, value)

    def note_option(self, name: str, value: Any) -> None:
        """An attribute that steps follow was set: the next step of each form is found, or recorded, by its value."""
        self.layers.note_setting()
        if name in ATTRIBUTES and self.settings is not None:
            self.settings = self.settings.changed(name, value)

    def _exchanged_optimizer(self, given: object) -> Optimizer:
        optimizer, layers = compile_checks.checked_optimizer(given), self.layers
        if self.settings is None:
            return optimizer
        compile_checks.check(layers.ordered(), None, optimizer, None, layers.dtype)
        state_dtype.check(optimizer, self.settings.state_dtype, layers.dtype)
        self._bind(optimizer, self.settings, self.loss, self.clip is not None or self.scale is not None)
        self.steps.optimizer = optimizer
        return optimizer

    def _bind(self, optimizer: Optimizer, settings: Settings, losses: object, is_clipped: bool) -> None:
        """The optimizer serves this net, and does what `compile` says of it. GraphError if it serves another one."""
        optimizer.serve(self.layers)
        optimizer.gather(settings.accumulate, is_clipped or _counts_positions(losses))
        optimizer.keep_state_as(settings.state_dtype)
        optimizer.rounding = settings.rounding_of(self.layers.seed)

    def _check_nets(self, settings: Settings) -> None:
        """TypeError, GraphError or ValueError for other nets that a step of the user's own cannot train."""
        for name, net in (settings.nets or {}).items():
            where, other = f"compile nets: net {name!r}", getattr(net, "trainer", None)
            if not isinstance(other, Trainer) or other is self:
                shown = "the net itself" if other is self else type(net)
                raise TypeError(f"{where}: wanted another net, received {shown}")
            if other.settings is None or other.optimizer is None or other.optimizer is self.optimizer:
                raise GraphError(f"{where}: wanted it compiled with an optimizer of its own first")
            own_device, device = self.layers.device, other.layers.device
            if device is not own_device:
                raise GraphError(f"{where}: wanted it on {own_device.name}, as the net, received it on {device.name}")
            check_default(where, other.settings, OF_OWN_STEPS)

    @property
    def compiled_as(self) -> dict[str, object]:
        """The options of `compile` by name, as `compile` takes them again; empty before it."""
        return {} if self.settings is None else self.settings.as_keywords()

    @property
    def parallel(self) -> DataParallel | None:
        """The processes that train the net too, `compile(parallel=)`; None: this one trains it alone."""
        return None if self.settings is None else self.settings.parallel

    @property
    def accumulate(self) -> int:
        """The number of batches by whose mean the net is updated."""
        return 1 if self.optimizer is None else self.optimizer.gathering.count

    @property
    def clip_global_norm(self) -> float | None:
        """The most that the norm of all gradients may be; None: whatever it is."""
        return None if self.clip is None else self.clip.limit

    @property
    def loss_scaling(self) -> str | float | None:
        """The `loss_scale` of `compile`: "dynamic", a number, or None where nothing is scaled."""
        if self.scale is None:
            return None
        return "dynamic" if self.scale.interval else self.scale.first

    def described_settings(self) -> dict[str, str]:
        """Returns what the net is trained by, as text: settings of the optimizer, its rules, losses and metrics."""
        optimizer, found = self.optimizer, dict[str, object]()
        if optimizer is not None:
            found |= optimizer.described_settings()
        found |= {"loss": self.loss, "metric": self.metric, "freeze": self.layers.freeze}
        given = {
            "loss_weights": self.loss_weights,
            "micro_batches": self.micro_batches if self.micro_batches > 1 else None,
            "accumulate": self.accumulate if self.accumulate > 1 else None,
            "clip_global_norm": self.clip_global_norm,
            "loss_scaling": self.loss_scaling,
            "step": None if self.own_step is None else self.own_step.function,
            "processes": self.parallel.size if self.parallel is not None and self.parallel.size > 1 else None,
        }
        found |= {name: value for name, value in given.items() if value is not None}
        return {name: described(value) for name, value in found.items()}

    def rank_settings(self) -> dict[str, str]:
        """Returns, as text, all that ranks which train a net together are to have alike."""
        compiled = {name: described(self.compiled_as.get(name)) for name in ALIKE}
        ranks = {f"{name} of parallel.mpi": described(getattr(self.parallel, name, None)) for name in OF_RANKS}
        compiled["rounding"] = described(getattr(self.optimizer, "rounding", None))
        return {"optimizer": type(self.optimizer).__name__} | self.described_settings() | compiled | ranks

    def required_optimizer(self, caller: str) -> Optimizer:
        """Returns the optimizer. GraphError where the net is not compiled."""
        if self.optimizer is None:
            raise GraphError(f"{caller}: wanted an optimizer, call compile(optimizer) first")
        return self.optimizer

    # ---- steps

    @property
    def steps(self) -> StepCache:
        """The steps that were recorded."""
        return self.runner.steps

    @property
    def has_objective(self) -> bool:
        """Whether the net has a loss, or a step of the user's own."""
        return self.loss is not None or self.own_step is not None

    def objective(self) -> Objective:
        """Returns losses and metrics by output. GraphError where the net has no loss."""
        if self.own_step is not None:
            return self.own_step.objective
        if self.loss is None:
            raise GraphError("wanted a loss, give one to the net or to compile()")
        checked.single_outputs(self.layers)
        return Objective(self.loss, self.metric, self.layers.output_names(), self.loss_weights)

    def train_step(self, objective: Objective, optimizer: Optimizer, part: AccumulationSlot | None = None) -> TrainStep:
        """Returns the training step. part: of a group of batches; None: the last, which takes most memory."""
        if self.own_step is not None:
            if self.verbose:
                raise GraphError(
                    "net.verbose: wanted 0 for a net of compile(step=), whose norms are not taken, received 1"
                )
            return OwnStep(self.own_step, self._members(optimizer))
        layers, freeze = self.layers, self.layers.freeze
        layers._check_names("training with freeze", freezing.names_in(freeze))  # which may have changed since compile
        checked_count(layers.ordered(), self.micro_batches, freeze, objective.criteria)
        part = optimizer.gathering.last_part if part is None else part
        step = TrainStep(layers, objective, optimizer, freeze, self.micro_batches, self.clip, part, self.scale)
        step.together = self.ranks
        step.observer = self._observer(bool(self.verbose))
        return step

    def evaluate_step(self, objective: Objective) -> EvaluateStep:
        """Returns the step that evaluates."""
        if self.own_step is not None:
            return OwnEvaluation(self.own_step, self._members(self.required_optimizer("evaluate")))
        step = EvaluateStep(self.layers, objective)
        step.observer = self._observer(norms=False)
        return step

    def _observer(self, norms: bool) -> Observer | None:
        """Observes outputs that are kept, and norms, in a step; None: there is nothing to observe."""
        keep = self.keep
        return Observer(keep, norms, self.steps.how.is_narrow) if keep or norms else None

    @property
    def keep(self) -> tuple[str, ...]:
        """Paths of the layers whose outputs are kept, `compile(keep=)`."""
        return () if self.settings is None else tuple(self.settings.keep or ())

    def _members(self, optimizer: Optimizer) -> list[Member]:
        """The nets that a step of the user's own trains, itself first. GraphError for one that cannot be."""
        members = [Member("", self.layers, optimizer, self.clip, self.runner)]
        for name, net in self.nets.items():
            other: Trainer = net.trainer
            if other.optimizer is None:
                raise GraphError(f"net {name!r} of compile(nets=): wanted a compiled net")
            other.optimizer.check_serves(other.layers)
            members.append(Member(name, other.layers, other.optimizer, other.clip, other.runner))
        return members

    def discard_step(self) -> None:
        """Forget a forward, or a step or load that was left before its end. What it has changed stays."""
        if self.optimizer is not None:
            self.optimizer.end_step()
        self.runner.discard()

    # ---- reports

    @property
    def norms(self) -> Norms:
        """Norms of the last training step. GraphError unless it was done with verbose = 1."""
        seen = self.steps.seen
        if seen is None or not seen.parameters:
            raise GraphError("net.norms: wanted a training step with net.verbose = 1 before, received none")
        return seen.norms()

    # ---- snapshots, and moves to another device

    def step_state(self) -> dict[str, Tensor]:
        """Returns what lasts of steps, by name: the state of a loss's scale, and the random state of a user's step."""
        scaling = {} if self.scale is None else self.scale.tensors(self.layers.device)
        return scaling if self.own_step is None else scaling | {STEP_RANDOM: self.own_step.random}

    def restart_scaling(self) -> None:
        """Set the loss's scale to what it was before the first step."""
        if self.scale is not None:
            self.scale.begin_anew()

    def note_measures(self, names: Iterable[str]) -> None:
        """Note what a step of the user's own returns beside its loss, as a checkpoint of its run says."""
        found = list(names)
        if self.own_step is not None and found:
            self.own_step.objective.note(found, True)

    def begin_restore(self) -> None:
        """Note that a snapshot is being put into the net: until `discard_step` it counts as unfinished."""
        self.runner.readers.end()
        self.runner.interrupted_at = "(while a snapshot was being loaded: parts of it are in the net)"

    def follow_device(self, device: Device) -> None:
        """Move what lasts of steps to a device, where the layers are by now."""
        if self.optimizer is not None:
            self.optimizer.to_device(device)
        if self.ranks is not None:
            self.ranks.follow_device()
        if self.own_step is not None:
            self.own_step.to_device(device)


def _counts_positions(losses: object) -> bool:
    """Whether an only loss is a mean of the positions that count, by which the batches of a group are weighed then."""
    return isinstance(losses, Loss) and losses.is_counted and losses.of_whole_batch
