"""Optimizer updates, in place: one thread works out what is one number for all elements, then they are updated."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.routine import THREADS, Argument, Routine, Value, blocks, integer
from singa_lite.kernels.cuda_kernels.source import FLOATS, are_floats
from singa_lite.kernels.cuda_kernels.walk import VECTOR_BYTES, Struct, walk
from singa_lite.kernels.interface.update import AdaGradHyper, AdamHyper, Hyper, LionHyper, RmsPropHyper, SgdHyper
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.routine import Temporary

FILE, SCALES = "update.cu", "clip_norm.cu"
#: Shape and dtype of `Step` in the source, whose numbers have at most 8 bytes each.
STEP = (4,), "float64"
#: Tensors of state, in the order of the source's kernels.
STATE = "velocity", "square_average", "square_sum", "first_moment", "second_moment", "max_second_moment", "momentum"
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
        case LionHyper():
            return Rule("lion", Rates(hyper.lr_mult, decay), (hyper.beta_1, hyper.beta_2))
    raise TypeError(f"wanted hyperparameters of an update, received {hyper}")


def updated(call: Call) -> Routine | None:
    """The kernel over all elements of the value, the state and the gradient."""
    gradient, value, state = call["gradient"], call["value"], call.all(*STATE)
    operands = value, *state, gradient
    elements = walk(value.shape, operands)
    if elements is None or not are_floats(*operands):
        return None  # state in fewer bits is left to the next set
    routine, types, rule = Routine(), {"T": value.dtype}, rule_of(cast(Hyper, call.settings["hyper"]), len(state))
    step = routine.temporary(*STEP)
    begun = call["rate"], call["count"], step
    routine.launch(FILE, "begin_update", *begun, *map(np.float64, rule.rates), types=types, grid=1, block=1)
    walked: tuple[Argument, ...] = elements, gradient, step, value, *state
    return routine.launch(FILE, rule.kernel, *walked, *rule.numbers, types=types, grid=blocks_of(value))


def _clip_norm(call: Call) -> Routine | None:
    """A sum of squares for each block; then each block adds those up and scales its elements."""
    y = call["y"]
    elements, routine = walk(y.shape, (y,)), Routine()
    sums = _squares(routine, y, elements)
    if sums is None:
        return None
    values = np.int32(sums.shape[0]), np.float64(call.number("threshold"))
    arguments, types = (elements, y, sums, *values), {"T": y.dtype}
    return routine.launch(SCALES, "clip_by_norm", *arguments, types=types, grid=blocks_of(y))


def _add_squares(call: Call) -> Routine | None:
    """A sum of squares for each block; then one block adds those up."""
    x, total, routine = call["x"], call["total"], Routine()
    sums = _squares(routine, x, walk(x.shape, (x,)))
    if sums is None:
        return None
    return routine.launch(SCALES, "add_sums", sums, np.int32(sums.shape[0]), total, types={"T": x.dtype}, grid=1)


def _squares(routine: Routine, x: TensorSpec, elements: Struct | None) -> Temporary | None:
    """A step that makes a sum of squares for each block. None, and no step, for what the kernels do not serve."""
    if elements is None or x.dtype.name not in FLOATS:
        return None
    count = min(blocks_of(x), MOST_SUMS)
    sums = routine.temporary((count,), "float64")
    routine.launch(SCALES, "sums_of_squares", elements, x, sums, types={"T": x.dtype}, grid=count)
    return sums


def _limited(call: Call) -> Routine | None:
    """One thread."""
    return _by_one_thread(call, np.float64(call.number("limit")))


def _next_loss_scale(call: Call) -> Routine | None:
    """One thread."""
    return _by_one_thread(call, integer(call, "interval"), np.float64(LEAST_SCALE))


def _by_one_thread(call: Call, *numbers: Value) -> Routine | None:
    operands, types = call.operands.values(), {"T": np.float64}
    return Routine().launch(SCALES, call.kernel, *operands, *numbers, types=types, grid=1, block=1)


def _by_a_number(call: Call) -> Routine | None:
    """Each thread looks at the number, the first operand, before it goes over y and what is read with it."""
    number, *reads, y = call.operands.values()
    elements = walk(y.shape, (y, *reads))
    if elements is None or y.dtype.name not in FLOATS:
        return None
    types, grid = {"T": y.dtype}, blocks_of(y)
    return Routine().launch(SCALES, call.kernel, elements, number, *reads, y, types=types, grid=grid)


def blocks_of(spec: TensorSpec) -> int:
    """Blocks of a launch that goes over a tensor, a pack for each thread."""
    return blocks(spec.size, THREADS * VECTOR_BYTES // spec.dtype.itemsize)


#: Kernels of optimizers; their state follows from the hyperparameters.
RULES = ("sgd", "rms_prop", "ada_grad", "adam", "lion")
KERNELS: dict[str, CallBuilder[Routine]] = {
    **dict.fromkeys(RULES, updated),
    "clip_norm": _clip_norm,
    "add_squares": _add_squares,
    "clip_factor": _limited,
    "unscale_factor": _limited,
    "next_loss_scale": _next_loss_scale,
    "scale_by": _by_a_number,
    "take_back": _by_a_number,
}
