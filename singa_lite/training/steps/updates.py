"""Uses of the gradients that the walk back yields: apply, unscale, clip or add them up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from singa_lite.device import Device, device_of
from singa_lite.graph.graph import Phase
from singa_lite.optimizer import GlobalNorm, Optimizer
from singa_lite.optimizer.global_norm import Squares, scale_by
from singa_lite.optimizer.gradient_accumulation import AccumulationSlot
from singa_lite.optimizer.loss_scale import LossScale, Unscaled
from singa_lite.tensor import Tensor
from singa_lite.training.steps.micro_batches import GradientSums


class UnscaleAndClip:
    """Of one step. clip, scale: by which gradients are clipped and the loss is scaled, at least one of them.

    averages: state of layers that a step which is skipped must not have moved. Made before the step's forward part.
    """

    def __init__(
        self, clip: GlobalNorm | None, scale: LossScale | None, device: Device, averages: Mapping[str, Tensor]
    ) -> None:
        self.clip = clip
        self.scale = scale
        self.device = device
        self._squares: Squares | None = None
        self._before = [(value, _copy(value)) for value in averages.values() if scale and value.dtype.kind == "f"]

    def begin(self) -> None:
        """The walk back begins."""
        with self.device.scope(Phase.GRADIENT):
            self._squares = (self.clip or GlobalNorm(1.0)).squares(self.device)

    @property
    def squares(self) -> Tensor | None:
        """The sum of the squares of those that were entered, float64 (); None before the walk back."""
        return None if self._squares is None else self._squares.total

    def add(self, gradient: Tensor) -> None:
        """Enter a gradient, each once."""
        with self.device.scope(Phase.GRADIENT):
            self._entered_squares().add(gradient)

    def unscaled(self, rate: Tensor, updates: bool = True) -> Unscaled:
        """All are there. rate: the optimizer's; updates: whether they are applied, so that their norm is wanted."""
        with self.device.scope(Phase.UPDATE):
            if self.scale is not None:
                return self.scale.unscaled(self._entered_squares(), self.clip if updates else None, rate)
            if self.clip is None:
                raise TypeError("wanted a step that clips or scales")
            return Unscaled(self.clip.factor(self._entered_squares()), rate)

    def _entered_squares(self) -> Squares:
        if self._squares is None:
            raise TypeError("wanted begin() before gradients are entered")
        return self._squares

    def end(self, rate: Tensor, updates: bool = True) -> None:
        """Behind all updates. rate: as in `Unscaled`."""
        if self.scale is None:
            return
        with self.device.scope(Phase.UPDATE):
            for value, before in self._before:
                self.device.run("take_back", rate, before, value)
            if updates:
                self.scale.follow(rate)


def _copy(value: Tensor) -> Tensor:
    device = device_of(value)
    made: Tensor = device.empty(value.shape, value.dtype, value.memory_order())
    device.run("copy", value, made)
    return made


class Updates(ABC):
    """What is done with each gradient in its turn, and at the end of the walk.

    changing: called before the first change of a parameter or of what lasts. within_walk: whether parameters are
    updated while the walk goes on. counts: whether these updates begin a step, which has begun otherwise.
    """

    within_walk = False
    counts = True

    def __init__(self, optimizer: Optimizer, changing: Callable[[], object]) -> None:
        self.optimizer = optimizer
        self._changing = changing
        self._begun = False

    @abstractmethod
    def take(self, name: str, value: Tensor, gradient: Tensor) -> None:
        """A parameter's gradient, whose memory is gone when the next one is asked for."""

    def end(self) -> None:  # noqa: B027 - nothing to do for most
        """There are no more."""

    def _begin(self, updates: bool = True) -> None:
        """Before the first change, and not sooner: an error until then must not count a step."""
        if not self._begun:
            if updates and self.counts:
                self.optimizer.begin_step()
            self._changing()
            self._begun = True


class ImmediateUpdate(Updates):
    """Each gradient is applied at once, so that no two layers' are there together."""

    within_walk = True

    def take(self, name: str, value: Tensor, gradient: Tensor) -> None:
        self._begin()
        self.optimizer.update(name, value, gradient)


class ClippedUpdate(Updates):
    """All gradients are kept until their norm is known, and whether they are finite."""

    def __init__(self, optimizer: Optimizer, changing: Callable[[], object], closing: UnscaleAndClip) -> None:
        super().__init__(optimizer, changing)
        self._closing = closing
        self._kept = GradientSums()
        self._values: dict[str, Tensor] = {}
        closing.begin()

    def take(self, name: str, value: Tensor, gradient: Tensor) -> None:
        self._values[name] = value
        self._closing.add(self._kept.add(name, gradient))

    def end(self) -> None:
        self._begin()
        unscaled = self._closing.unscaled(self.optimizer.rate(self._closing.device))
        for name, value in self._values.items():
            _update(self.optimizer, name, value, self._kept.pop(name), unscaled)
        self._closing.end(unscaled.rate)


class AccumulatedUpdate(Updates):
    """Gradients are added to those of the batches before; the last batch of a group updates."""

    def __init__(self, optimizer: Optimizer, changing: Callable[[], object], part: AccumulationSlot) -> None:
        super().__init__(optimizer, changing)
        self._part = part

    def take(self, name: str, value: Tensor, gradient: Tensor) -> None:
        total = self._added(name, value, gradient)
        if self._part.updates:
            self.optimizer.gathering.apply(self.optimizer, name, value, total)

    def _added(self, name: str, value: Tensor, gradient: Tensor) -> Tensor:
        self._begin(self._part.updates)
        return self.optimizer.gathering.add(self.optimizer, name, value, gradient, self._part)


class ClippedAccumulatedUpdate(AccumulatedUpdate):
    """The mean of a group is clipped, or of scaled losses: its norm is that of the sums, which are there anyway.

    Sums of scaled losses are looked at by each batch, so that one that overflows moves no running average.
    """

    def __init__(
        self, optimizer: Optimizer, changing: Callable[[], object], part: AccumulationSlot, closing: UnscaleAndClip
    ) -> None:
        super().__init__(optimizer, changing, part)
        self._closing = closing
        self._sums: dict[str, tuple[Tensor, Tensor]] = {}
        closing.begin()

    def take(self, name: str, value: Tensor, gradient: Tensor) -> None:
        total = self._added(name, value, gradient)
        self._closing.add(total)
        self._sums[name] = value, total

    def end(self) -> None:
        updates = self._part.updates
        unscaled = self._closing.unscaled(self.optimizer.rate(self._closing.device), updates)
        for name, (value, total) in self._sums.items() if updates else ():
            _update(self.optimizer, name, value, total, unscaled)
        self._closing.end(unscaled.rate, updates)


def _update(optimizer: Optimizer, name: str, value: Tensor, gradient: Tensor, unscaled: Unscaled) -> None:
    with device_of(value).scope(Phase.UPDATE, name.rpartition("/")[0]):
        scale_by(unscaled.factor, gradient)
        optimizer.update(name, value, gradient, unscaled.rate)


def updates_of(
    optimizer: Optimizer, changing: Callable[[], object], part: AccumulationSlot, closing: UnscaleAndClip | None
) -> Updates:
    """What a batch of this part of a group wants. closing: None where nothing is clipped or scaled."""
    if part.is_whole:
        return ImmediateUpdate(optimizer, changing) if closing is None else ClippedUpdate(optimizer, changing, closing)
    if closing is None or (closing.scale is None and not part.updates):
        return AccumulatedUpdate(optimizer, changing, part)
    return ClippedAccumulatedUpdate(optimizer, changing, part, closing)
