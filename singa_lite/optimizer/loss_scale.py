"""Loss scaling: gradients of the loss times a number, divided by it before the update; steps that overflow are skipped.

Derivatives in float16 are 0 below 6e-8 and infinite beyond 65,504. The scale moves them to where float16 has numbers,
and follows them: halved behind a step whose gradients are not finite, which changes nothing, and doubled behind so many
steps in a row that were (Micikevicius and others, "Mixed precision training", arXiv 1710.03740; torch.amp.GradScaler).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.checks import real
from singa_lite.device import Device, device_of
from singa_lite.optimizer.global_norm import GlobalNorm, Squares
from singa_lite.tensor import Tensor, from_numpy

#: Of the first step, by default, and steps in a row without an overflow until it is doubled, as GradScaler's.
FIRST, INTERVAL = 65536.0, 2000
_FLOAT64, _INT64 = np.dtype(np.float64), np.dtype(np.int64)


@dataclass(frozen=True)
class Unscaled:
    """What a step whose gradients are all there goes on by. factor: multiplies each, float64 (); rate: the optimizer's,
    float64 (), or NaN, by which updates change nothing.
    """

    factor: Tensor
    rate: Tensor


class LossScale:
    """The scale of one net's loss, which is in memory: a recorded step reads and changes it, the host does neither.

    first: the scale of the first step; interval: good steps until it is doubled, 0: it stays. Steps are skipped either
    way where a gradient is not finite.
    """

    #: Names of what it keeps, with their dtypes: float64 () and int64 ().
    SLOTS: tuple[tuple[str, DType], ...] = (
        ("loss_scale", _FLOAT64),
        ("good_steps", _INT64),
        ("skipped_steps", _INT64),
    )

    def __init__(self, first: float = FIRST, interval: int = INTERVAL) -> None:
        self.first = first
        self.interval = interval
        self.state: dict[str, Tensor] = {}

    def tensors(self, device: Device) -> dict[str, Tensor]:
        """What is kept, by name, there; made as before a first step if there is none yet."""
        if not self.state or (self.state["loss_scale"].device.is_abstract and not device.is_abstract):
            values = (np.float64(self.first), np.int64(0), np.int64(0))
            names = (name for name, _ in self.SLOTS)
            self.state = {name: from_numpy(value, device) for name, value in zip(names, values, strict=True)}
        if self.state["loss_scale"].device is not device:
            self.state = {name: value.to_device(device) for name, value in self.state.items()}
        return self.state

    def begin_anew(self) -> None:
        """As before a first step. Tensors stay, as recorded steps read them."""
        for name, tensor in self.state.items():
            tensor.copy_from_numpy(np.array(self.first if name == "loss_scale" else 0, tensor.dtype))

    def scale(self, device: Device) -> Tensor:
        """Of this step: float64 ()."""
        return self.tensors(device)["loss_scale"]

    def unscaled(self, squares: Squares, clip: GlobalNorm | None, rate: Tensor) -> Unscaled:
        """Of a step whose gradients' squares are all there. rate: the optimizer's; clip: sets its norm too."""
        device = device_of(squares.total)
        factor, applied = device.empty((), _FLOAT64), device.empty((), _FLOAT64)
        norm = device.empty((), _FLOAT64) if clip is None else clip.norm(device)
        limit = inf if clip is None else clip.limit
        operands = squares.total, rate, self.scale(device), norm, factor, applied
        device.run("unscale_factor", *operands, limit=limit)
        return Unscaled(factor, applied)

    def follow(self, rate: Tensor) -> None:
        """The next step's scale. rate: as in `Unscaled`."""
        device = device_of(rate)
        device.run("next_loss_scale", rate, *self.tensors(device).values(), interval=self.interval)


def checked(given: object, precision: object, dtype: DType) -> LossScale | None:
    """What `compile(loss_scale=)` asks for; None: nothing is scaled.

    given: "dynamic", a number, or None: dynamic beside precision="float16", else nothing. TypeError or ValueError for
    others, ValueError for a net in float16, whose gradients have no more range than its derivatives.
    """
    where = "compile loss_scale"
    if given is None and not (isinstance(precision, str) and precision == "float16"):
        return None
    number = real(given)
    if isinstance(given, str) and given != "dynamic":
        raise ValueError(f"{where}: wanted 'dynamic', a number or None, received {given!r:.100}")
    if number is None and given is not None and not isinstance(given, str):
        raise TypeError(f"{where}: wanted 'dynamic', a number or None, received {given!r:.100}")
    if dtype == np.float16:
        raise ValueError(f"{where}: wanted a net in float32 or float64, received one in {dtype}")
    if number is None:
        return LossScale()
    if not 2.0**-126 <= number <= 2.0**126:
        raise ValueError(f"{where}: wanted a number from 2**-126 to 2**126, which float32 holds, received {given!r}")
    return LossScale(float(number), 0)
