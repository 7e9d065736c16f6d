"""What a training step does with the gradients that the walk back yields: apply, clip or add them up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from singa_lite.device import Device, device_of
from singa_lite.graph import Phase
from singa_lite.optimizer import GlobalNorm, Optimizer
from singa_lite.optimizer.gathering import Part
from singa_lite.optimizer.global_norm import scale_by
from singa_lite.tensor import Tensor
from singa_lite.training.micro_batches import GradientSums


class Updates(ABC):
    """What is done with each gradient in its turn, and at the end of the walk.

    changing: called before the first change of a parameter or of what lasts. within_walk: whether parameters are
    updated while the walk goes on.
    """

    within_walk = False

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
            if updates:
                self.optimizer.begin_step()
            self._changing()
            self._begun = True


class Applied(Updates):
    """Each gradient is applied at once, so that no two layers' are there together."""

    within_walk = True

    def take(self, name: str, value: Tensor, gradient: Tensor) -> None:
        self._begin()
        self.optimizer.update(name, value, gradient)


class Clipped(Updates):
    """All gradients are kept until their norm is known."""

    def __init__(self, optimizer: Optimizer, changing: Callable[[], object], clip: GlobalNorm, device: Device) -> None:
        super().__init__(optimizer, changing)
        self._clip = clip
        self._kept = GradientSums()
        self._values: dict[str, Tensor] = {}
        with device.scope(Phase.GRADIENT):
            self._squares = clip.squares(device)

    def take(self, name: str, value: Tensor, gradient: Tensor) -> None:
        self._values[name] = value
        with device_of(value).scope(Phase.GRADIENT):
            self._squares.add(self._kept.add(name, gradient))

    def end(self) -> None:
        device = device_of(self._squares.total)
        self._begin()
        with device.scope(Phase.UPDATE):
            factor = self._clip.factor(self._squares)
        for name, value in self._values.items():
            gradient = self._kept.pop(name)
            with device.scope(Phase.UPDATE, name.rpartition("/")[0]):
                scale_by(factor, gradient)
                self.optimizer.update(name, value, gradient)


class Gathered(Updates):
    """Gradients are added to those of the batches before; the last batch of a group updates."""

    def __init__(self, optimizer: Optimizer, changing: Callable[[], object], part: Part) -> None:
        super().__init__(optimizer, changing)
        self._part = part

    def take(self, name: str, value: Tensor, gradient: Tensor) -> None:
        total = self._added(name, value, gradient)
        if self._part.updates:
            self.optimizer.gathering.apply(self.optimizer, name, value, total)

    def _added(self, name: str, value: Tensor, gradient: Tensor) -> Tensor:
        self._begin(self._part.updates)
        return self.optimizer.gathering.add(self.optimizer, name, value, gradient, self._part.begins)


class GatheredAndClipped(Gathered):
    """The mean of a group is clipped: its norm is that of the sums, which are there anyway."""

    def __init__(
        self, optimizer: Optimizer, changing: Callable[[], object], part: Part, clip: GlobalNorm, device: Device
    ) -> None:
        super().__init__(optimizer, changing, part)
        self._clip = clip
        self._sums: dict[str, tuple[Tensor, Tensor]] = {}
        with device.scope(Phase.GRADIENT):
            self._squares = clip.squares(device)

    def take(self, name: str, value: Tensor, gradient: Tensor) -> None:
        total = self._added(name, value, gradient)
        with device_of(value).scope(Phase.GRADIENT):
            self._squares.add(total)
        self._sums[name] = value, total

    def end(self) -> None:
        device = device_of(self._squares.total)
        with device.scope(Phase.UPDATE):
            factor = self._clip.factor(self._squares)
        for name, (value, total) in self._sums.items():
            with device.scope(Phase.UPDATE, name.rpartition("/")[0]):
                scale_by(factor, total)
                self.optimizer.update(name, value, total)


def updates_of(
    optimizer: Optimizer, changing: Callable[[], object], part: Part, clip: GlobalNorm | None, device: Device
) -> Updates:
    """What a batch of this part of a group wants. clip: None where nothing is clipped."""
    if part.is_whole:
        return Applied(optimizer, changing) if clip is None else Clipped(optimizer, changing, clip, device)
    if clip is None or not part.updates:
        return Gathered(optimizer, changing, part)
    return GatheredAndClipped(optimizer, changing, part, clip, device)
