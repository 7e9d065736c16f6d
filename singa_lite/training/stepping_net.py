"""SteppingNet: what a net's training step is made of, and what it says of it: scales, norms, what was kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from numpy.typing import DTypeLike

from singa_lite.common.checks import integer
from singa_lite.common.errors import GraphError
from singa_lite.common.table import Table
from singa_lite.device import Device
from singa_lite.layer.freezing import names_in
from singa_lite.optimizer import GlobalNorm, Optimizer
from singa_lite.optimizer.gradient_accumulation import AccumulationSlot
from singa_lite.optimizer.loss_scale import LossScale
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.parallel.gradients.data_parallel_step import DataParallelStep
from singa_lite.tensor import DeviceSpec, Tensor
from singa_lite.training import checked
from singa_lite.training.objective import GivenLosses, GivenMetrics, Objective, losses_of, metrics_of
from singa_lite.training.settings import Settings
from singa_lite.training.steps.micro_batches import checked_count
from singa_lite.training.steps.observer import KeptTensors, Norms, Observer
from singa_lite.training.steps.own_step import STEP_RANDOM, OwnFunction, OwnStep
from singa_lite.training.steps.recorded_steps import StepForm
from singa_lite.training.steps.step_call import Member
from singa_lite.training.steps.train_step import TrainStep
from singa_lite.training.walked_net import WalkedNet


class SteppingNet(WalkedNet):
    """A net that can make its training step, and tells what became of it. Base of `FeedForwardNet`, which says what
    loss, metric, device, dtype and seed are.

    micro_batches: in how many pieces a batch is trained on. clip_global_norm: the most that the norm of all gradients
    may be, None: any. accumulate: how many batches make an update. on_nan: see `compile`.
    """

    _settings: Settings | None = None
    on_nan: str | None

    def __init__(
        self,
        loss: GivenLosses | None,
        metric: GivenMetrics | None,
        device: DeviceSpec,
        dtype: DTypeLike,
        seed: int | None,
    ) -> None:
        super().__init__(device, dtype, seed)
        self.loss = losses_of(loss)
        self.metric = metrics_of(metric)
        self.loss_weights: Mapping[str, float] | None = None
        self.micro_batches = 1
        self._clip: GlobalNorm | None = None
        self._scale: LossScale | None = None
        self._own: OwnFunction | None = None
        self._beside: Mapping[str, SteppingNet] = {}
        self._keep: tuple[str, ...] = ()
        self._verbose = 0
        self._together: DataParallelStep | None = None

    @classmethod
    def from_config(
        cls, config: object, device: DeviceSpec = None, *, custom: Mapping[str, Any] | None = None
    ) -> SteppingNet:
        """A new net of a configuration; a whole net makes it."""
        raise NotImplementedError

    def compile(self, optimizer: Optimizer, *arguments: Any, **options: Any) -> None:
        """Say how to train; a whole net does it."""
        raise NotImplementedError

    @property
    def settings(self) -> Settings:
        """The options of the last `compile`, and what was set of them since. GraphError before."""
        if self._settings is None:
            raise GraphError("settings: wanted a compiled net, call compile(optimizer) first")
        return self._settings

    @property
    def compiled_as(self) -> dict[str, object]:
        """The options of `compile` by name, as `compile` takes them again; empty before it."""
        return {} if self._settings is None else self._settings.as_keywords()

    @property
    def parallel(self) -> DataParallel | None:
        """The processes that train it together, `compile(parallel=)`; None: it is trained by this one."""
        return None if self._settings is None else self._settings.parallel

    @property
    def together(self) -> DataParallelStep | None:
        """What its steps do because other processes do them too; None: it is trained by this one alone."""
        return self._together

    @property
    def knows_measures(self) -> bool:
        """Whether it is known what numbers a step gives; a step of the user's own says it when it is first done."""
        return self._own is None or self._own.objective.is_known

    @property
    def recorded_forms(self) -> list[tuple[str, StepForm]]:
        """("train", "evaluate" or "predict", form of the batch) of each step that was recorded."""
        return self._steps.recorded_forms

    def move_step(self, to: Device) -> None:
        """The random state of a step of one's own goes to another device."""
        if self._own is not None:
            self._own.to_device(to)

    @property
    def clip_global_norm(self) -> float | None:
        """The most that the norm of all gradients may be; None: whatever it is."""
        return None if self._clip is None else self._clip.limit

    @property
    def accumulate(self) -> int:
        """The mean of how many batches makes an update."""
        return 1 if self.optimizer is None else self.optimizer.gathering.count

    @property
    def gradient_norm(self) -> Tensor:
        """The Euclidean norm of all gradients together, before they were clipped, of the last update: float64 ().

        NaN before the first one. GraphError unless compile was given clip_global_norm (math.inf clips nothing).
        """
        if self._clip is None:
            raise GraphError("gradient_norm: wanted a net of compile(clip_global_norm=...), received one without")
        return self._copied(self._clip.norm(self.device))

    @property
    def loss_scaling(self) -> str | float | None:
        """What `compile(loss_scale=)` asked for: "dynamic", a number, or None where nothing is scaled."""
        if self._scale is None:
            return None
        return "dynamic" if self._scale.interval else self._scale.first

    @property
    def loss_scale(self) -> Tensor:
        """What the next step's loss is multiplied by before it is derived: float64 (). GraphError where none is."""
        return self._copied(self._scaling("loss_scale")["loss_scale"])

    @property
    def skipped_steps(self) -> Tensor:
        """How many updates were left out, as gradients were not finite: int64 (). GraphError where none is scaled."""
        return self._copied(self._scaling("skipped_steps")["skipped_steps"])

    def step_state(self) -> dict[str, Tensor]:
        """What lasts of a step of the user's own, by name: its random state; none of the built-in step."""
        return {} if self._own is None else {STEP_RANDOM: self._own.random}

    @property
    def own_step(self) -> Callable[..., object] | None:
        """The function that `compile(step=)` was given; None: the built-in step."""
        return None if self._own is None else self._own.function

    def note_measures(self, names: Iterable[str]) -> None:
        """What a step of the user's own gives beside its loss, as a checkpoint of its run says."""
        found = list(names)
        if self._own is not None and found:
            self._own.objective.note(found, True)

    @property
    def nets_of_step(self) -> Mapping[str, SteppingNet]:
        """The other nets that `compile(step=, nets=)` trains, by name."""
        return dict(self._beside)

    def scaling_state(self) -> dict[str, Tensor]:
        """What lasts of the loss's scale, by name; none where no loss is scaled."""
        return {} if self._scale is None else self._scale.tensors(self.device)

    def restart_scaling(self) -> None:
        """The loss's scale is what it was before the first step."""
        if self._scale is not None:
            self._scale.begin_anew()

    def _scaling(self, where: str) -> dict[str, Tensor]:
        if self._scale is None:
            raise GraphError(f"{where}: wanted a net of compile(loss_scale=...), received one without")
        return self.scaling_state()

    def _copied(self, value: Tensor) -> Tensor:
        copied: Tensor = self.device.empty(value.shape, value.dtype)
        self.device.run("copy", value, copied)
        return copied

    @property
    def verbose(self) -> int:
        """1 to print norms of outputs, parameters and gradients by layer, else 0. They are taken within each training
        step, and printed after each one by hand, and of the last one of each epoch of `fit`. It may change at any time;
        the next step is recorded anew then. Norms cost one pass over what they are of, and gradients live whole.
        """
        return self._verbose

    @verbose.setter
    def verbose(self, wanted: int) -> None:
        found = int(wanted) if isinstance(wanted, bool) else integer("net.verbose", wanted, 0)
        if found > 1:
            raise ValueError(f"net.verbose: wanted 0 or 1, received {wanted!r}")
        self._verbose = found

    @property
    def norms(self) -> Norms:
        """Euclidean norms of the last training step, which `verbose` prints; reading them waits for the step.

        GraphError unless it was done with verbose = 1.
        """
        seen = self._steps.seen
        if seen is None or not seen.parameters:
            raise GraphError("net.norms: wanted a training step with net.verbose = 1 before, received none")
        return seen.norms()

    @property
    def kept(self) -> Mapping[str, KeptTensors]:
        """{layer that `compile(keep=)` names: its output and the derivative by it} of the last training step, or
        evaluation, whichever was later.

        The tensors are overwritten by the next step: `tensor.to_numpy` copies. Derivatives are of the loss's mean over
        the batch, or of what it adds to a group's with accumulate; None behind an evaluation. With precision="bfloat16"
        they are copies in float32 of what the step computed. GraphError before the first step, or without keep.
        """
        if not self._keep:
            raise GraphError("net.kept: wanted a net of compile(keep=[...]), received one without")
        if self._steps.seen is None:
            raise GraphError("net.kept: wanted a step before, received a net that has done none since it was compiled")
        return Table(self._steps.seen.kept, "net.kept", "compile(keep=[...])")

    def _observer(self, norms: bool) -> Observer | None:
        """What looks at a step. norms: whether it may take norms. GraphError for a step of the user's own."""
        norms = norms and bool(self._verbose)
        return Observer(self._keep, norms, self._steps.how.is_narrow) if self._keep or norms else None

    def _objective(self) -> Objective:
        """Losses and metrics by output."""
        if self._own is not None:
            return self._own.objective
        if self.loss is None:
            raise GraphError("wanted a loss, give one to the net or to compile()")
        checked.single_outputs(self)
        return Objective(self.loss, self.metric, self.output_names(), self.loss_weights)

    def _members(self, optimizer: Optimizer) -> list[Member]:
        """The nets that a step of the user's own trains, itself first. GraphError for one that cannot be."""
        members = [Member("", self, optimizer, self._clip, self._trainer)]
        for name, net in self._beside.items():
            if net.optimizer is None:
                raise GraphError(f"net {name!r} of compile(nets=): wanted a compiled net")
            net.optimizer.check_serves(net)
            members.append(Member(name, net, net.optimizer, net._clip, net._trainer))
        return members

    def _train_step(
        self, objective: Objective, optimizer: Optimizer, part: AccumulationSlot | None = None
    ) -> TrainStep:
        """part: of a group of batches; None: the last, which takes most memory."""
        if self._own is not None:
            if self._verbose:
                raise GraphError(
                    "net.verbose: wanted 0 for a net of compile(step=), whose norms are not taken, received 1"
                )
            return OwnStep(self._own, self._members(optimizer))
        self._check_names("training with freeze", names_in(self.freeze))  # which may have changed since compile
        checked_count(self.ordered(), self.micro_batches, self.freeze, objective.criteria)
        part = optimizer.gathering.last_part if part is None else part
        step = TrainStep(self, objective, optimizer, self.freeze, self.micro_batches, self._clip, part, self._scale)
        step.together = self._together
        step.observer = self._observer(norms=True)
        return step
