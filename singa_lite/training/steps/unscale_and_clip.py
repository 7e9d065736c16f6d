"""The end of a step, when all of its gradients are there: their norm, a factor for each, and the loss's scale."""

from __future__ import annotations

from collections.abc import Mapping

from singa_lite.device import Device, device_of
from singa_lite.graph.graph import Phase
from singa_lite.optimizer import GlobalNorm
from singa_lite.optimizer.global_norm import Squares
from singa_lite.optimizer.loss_scale import LossScale, Unscaled
from singa_lite.tensor import Tensor


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
            self._begun().add(gradient)

    def unscaled(self, rate: Tensor, updates: bool = True) -> Unscaled:
        """All are there. rate: the optimizer's; updates: whether they are applied, so that their norm is wanted."""
        with self.device.scope(Phase.UPDATE):
            if self.scale is not None:
                return self.scale.unscaled(self._begun(), self.clip if updates else None, rate)
            if self.clip is None:
                raise TypeError("wanted a step that clips or scales")
            return Unscaled(self.clip.factor(self._begun()), rate)

    def _begun(self) -> Squares:
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
