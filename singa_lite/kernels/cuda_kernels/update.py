"""Optimizer updates, in place: one thread works out what is one number for all elements, then they are updated."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.elementwise import mapped
from singa_lite.kernels.cuda_kernels.routine import THREADS, Argument, Routine, blocks
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.cuda_kernels.walk import VECTOR_BYTES, walk
from singa_lite.kernels.interface.update import AdaGradHyper, AdamHyper, Hyper, RmsPropHyper, SgdHyper
from singa_lite.kernels.kernel_set import TensorSpec

FILE = "update.cu"
#: Shape and dtype of `Step` in the source, whose numbers have at most 8 bytes each.
STEP = (4,), "float64"
#: Tensors of state, in the order of the source's kernels.
STATE = "velocity", "square_average", "square_sum", "first_moment", "second_moment", "max_second_moment"
#: Most sums of squares, for every block adds them up.
MOST_SUMS = 1024
#: Of a loss: the smallest normal number of float32.
LEAST_SCALE = 2.0**-126


class Rates(NamedTuple):
    """Settings that the numbers of a step are made of."""

    lr_mult: float
    decoupled_decay: float = 0.0
    beta_1: float = 0.0
    beta_2: float = 0.0


class Rule(NamedTuple):
    """The kernels of one kind of update. kernel: of the source; settings: of the kernel, in its order."""

    kernel: str
    rates: Rates
    settings: tuple[float, ...]

    @property
    def numbers(self) -> list[np.generic]:
        """The settings as the kernel takes them."""
        return [np.int32(number) if isinstance(number, bool) else np.float64(number) for number in self.settings]


def rule_of(hyper: Hyper, states: int) -> Rule:
    """states: how many tensors of state there are. SGD without momentum has none, and a tensor less to go over."""
    decay, rates = hyper.weight_decay, Rates(hyper.lr_mult)
    match hyper:
        case SgdHyper() if not states:
            return Rule("sgd_plain", rates, (decay,))
        case SgdHyper():
            return Rule("sgd_momentum", rates, (decay, hyper.momentum, hyper.dampening, hyper.nesterov))
        case RmsPropHyper():
            return Rule("rms_prop", rates, (decay, hyper.rho, hyper.epsilon))
        case AdaGradHyper():
            return Rule("ada_grad", rates, (decay, hyper.epsilon))
        case AdamHyper():  # bias corrections are numbers of the step
            coupled = hyper.coupled_decay
            rates = Rates(hyper.lr_mult, decay - coupled, hyper.beta_1, hyper.beta_2)
            kernel = "adam" if states == 2 else "ams_grad"
            return Rule(kernel, rates, (coupled, hyper.beta_1, hyper.beta_2, hyper.epsilon))
    raise TypeError(f"wanted hyperparameters of an update, received {hyper}")


def updated(call: Call) -> Routine | None:
    """The kernel over all elements of the value, the state and the gradient."""
    gradient, value, state = call["gradient"], call["value"], call.all(*STATE)
    operands = value, *state, gradient
    if value.dtype.name not in FLOATS or any(spec.dtype != value.dtype for spec in operands):
        return None  # state in fewer bits is left to the next set
    elements = walk(value.shape, operands)
    if elements is None:
        return None
    routine, types, rule = Routine(), {"T": value.dtype}, rule_of(cast(Hyper, call.settings["hyper"]), len(state))
    step = routine.temporary(*STEP)
    begun = call["rate"], call["count"], step
    routine.launch(FILE, "begin_update", *begun, *map(np.float64, rule.rates), types=types, grid=1, block=1)
    walked: tuple[Argument, ...] = elements, gradient, step, value, *state
    return routine.launch(FILE, rule.kernel, *walked, *rule.numbers, types=types, grid=blocks_of(value))


#: Kernels of optimizers; their state follows from the hyperparameters.
KERNELS: dict[str, CallBuilder[Routine]] = dict.fromkeys(("sgd", "rms_prop", "ada_grad", "adam"), updated)


def add_scaled(x: TensorSpec, y: TensorSpec, *, alpha: float) -> Routine | None:
    """y + alpha * x."""
    return mapped(FILE, "add_scaled", y, x, values=(np.float64(alpha),)) if y.dtype.name in FLOATS else None


def clip_elements(y: TensorSpec, *, threshold: float) -> Routine | None:
    """Between -threshold and threshold."""
    return mapped(FILE, "clip_elements", y, values=(np.float64(threshold),)) if y.dtype.name in FLOATS else None


def clip_norm(y: TensorSpec, *, threshold: float) -> Routine | None:
    """A sum of squares for each block; then each block adds those up and scales its elements."""
    elements = walk(y.shape, (y,))
    if elements is None or y.dtype.name not in FLOATS:
        return None
    routine, file, types = Routine(), "clip_norm.cu", {"T": y.dtype}
    grid = blocks_of(y)
    count = min(grid, MOST_SUMS)
    sums = routine.temporary((count,), "float64")
    routine.launch(file, "sums_of_squares", elements, y, sums, types=types, grid=count)
    values = np.int32(count), np.float64(threshold)
    return routine.launch(file, "clip_by_norm", elements, y, sums, *values, types=types, grid=grid)


def add_squares(x: TensorSpec, total: TensorSpec) -> Routine | None:
    """A sum of squares for each block; then one block adds those up."""
    elements = walk(x.shape, (x,))
    if elements is None or x.dtype.name not in FLOATS:
        return None
    routine, types = Routine(), {"T": x.dtype}
    count = min(blocks_of(x), MOST_SUMS)
    sums = routine.temporary((count,), "float64")
    routine.launch("clip_norm.cu", "sums_of_squares", elements, x, sums, types=types, grid=count)
    return routine.launch("clip_norm.cu", "add_sums", sums, np.int32(count), total, types=types, grid=1)


def clip_factor(total: TensorSpec, norm: TensorSpec, factor: TensorSpec, *, limit: float) -> Routine | None:
    """One thread."""
    values, types = (total, norm, factor, np.float64(limit)), {"T": total.dtype}
    return Routine().launch("clip_norm.cu", "clip_factor", *values, types=types, grid=1, block=1)


def scale_by(factor: TensorSpec, y: TensorSpec) -> Routine | None:
    """Each thread looks at the factor first."""
    elements = walk(y.shape, (y,))
    if elements is None or y.dtype.name not in FLOATS:
        return None
    return Routine().launch("clip_norm.cu", "scale_by", elements, factor, y, types={"T": y.dtype}, grid=blocks_of(y))


def unscale_factor(
    total: TensorSpec,
    rate: TensorSpec,
    scale: TensorSpec,
    norm: TensorSpec,
    factor: TensorSpec,
    applied: TensorSpec,
    *,
    limit: float,
) -> Routine | None:
    """One thread."""
    values, types = (total, rate, scale, norm, factor, applied, np.float64(limit)), {"T": total.dtype}
    return Routine().launch("clip_norm.cu", "unscale_factor", *values, types=types, grid=1, block=1)


def next_loss_scale(
    applied: TensorSpec, scale: TensorSpec, good: TensorSpec, skipped: TensorSpec, *, interval: int
) -> Routine | None:
    """One thread."""
    values = applied, scale, good, skipped, np.int64(interval), np.float64(LEAST_SCALE)
    return Routine().launch("clip_norm.cu", "next_loss_scale", *values, types={"T": scale.dtype}, grid=1, block=1)


def take_back(applied: TensorSpec, before: TensorSpec, y: TensorSpec) -> Routine | None:
    """Each thread looks at the rate first."""
    elements = walk(y.shape, (y, before))
    if elements is None or y.dtype.name not in FLOATS:
        return None
    values = elements, applied, before, y
    return Routine().launch("clip_norm.cu", "take_back", *values, types={"T": y.dtype}, grid=blocks_of(y))


def blocks_of(spec: TensorSpec) -> int:
    """Blocks of a launch that goes over a tensor, a pack for each thread."""
    return blocks(spec.size, THREADS * VECTOR_BYTES // spec.dtype.itemsize)
