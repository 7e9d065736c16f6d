"""Losses with their derivatives, and metrics."""

from __future__ import annotations

from math import prod

import numpy as np

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.elementwise import mapped, mapped_along
from singa_lite.kernels.cuda_kernels.positions import is_rows, launch, means, positions_of, supports
from singa_lite.kernels.cuda_kernels.reduction import MOST, BufferAs, add_sum, row_shares
from singa_lite.kernels.cuda_kernels.routine import Routine, Types, integer
from singa_lite.kernels.cuda_kernels.source import are_floats, computed
from singa_lite.kernels.cuda_kernels.walk import axis_spec, dense, steps, walk
from singa_lite.kernels.kernel_set import TensorSpec

SAMPLES = "sample_losses.cu"

#: `Samples` of sample_losses.cu.
_SAMPLES = np.dtype([(name, "i8") for name in ("count", "x_step", "target_step", "result_step", "chunk")])


def _softmax_cross_entropy(call: Call) -> Routine | None:
    """Each position's loss by a team of threads; then the means, if a sample has several positions."""
    x, target, losses, p = call.all("x", "target", "losses", "p")
    return means("cross_entropy.cu", f"cross_entropy_of_{_form(x, target)}", x, target, losses, p)


def _softmax_cross_entropy_derivative(call: Call) -> Routine | None:
    """Each position by a team of threads, as in `_softmax_cross_entropy`."""
    dlosses, p, target, dx = call.all("dlosses", "p", "target", "dx")
    if not supports(p, target, dlosses) or not are_floats(dx):
        return None
    routine, types = Routine(), {"T": p.dtype, "S": target.dtype, "L": dx.dtype}
    kernel, seen = f"cross_entropy_of_{_form(p, target)}_derivative", (dx, p, target, dlosses)
    arguments = dlosses, p, target, dx, np.float64(positions_of(p))
    return routine if launch(routine, "cross_entropy.cu", kernel, p, seen, *arguments, types=types) else None


def _in_top_k(call: Call) -> Routine | None:
    """By the rank of the target's class."""
    x, target, values = call.all("x", "target", "values")
    kernel = f"in_top_k_of_{_form(x, target)}"
    return means("metric.cu", kernel, x, target, values, numbers=[integer(call, "k")], largest_team=32)


def _hits(call: Call) -> Routine | None:
    """Hits divided by k, or by the number of labels."""
    x, target, values = call.all("x", "target", "values")
    numbers = integer(call, "k"), np.bool_(call.kernel == "recall_at_k")
    if not is_rows(x, target):
        return None
    return means("metric.cu", "hits_at_k", x, target, values, numbers=numbers, largest_team=32)


def _form(x: TensorSpec, target: TensorSpec) -> str:
    return "rows" if is_rows(x, target) else "ids"


def _by_elements(call: Call) -> Routine | None:
    """Element by element."""
    *reads, result = call.operands.values()
    if not _supports(call):
        return None
    return mapped(SAMPLES, call.kernel, result, *reads, types=_types(call))


def _slopes(call: Call) -> Routine | None:
    """A derivative of a mean over samples, element by element with the sample's own factor."""
    dlosses, x, target, dx = call.all("dlosses", "x", "target", "dx")
    if not _supports(call):
        return None
    numbers = np.float64(prod(x.shape[1:])), *_delta(call)
    return mapped_along(0, SAMPLES, call.kernel, dx, x, target, dlosses, values=numbers, types=_types(call))


def _means(call: Call) -> Routine | None:
    """losses = means over each sample; in two stages where the samples are few."""
    x, target, losses = call.all("x", "target", "losses")
    if not _supports(call):
        return None
    samples, elements = x.shape[0], prod(x.shape[1:])
    found = walk(x.shape[1:], [axis_spec(range(1, spec.ndim), spec) for spec in (x, target)])
    if found is None or max(samples, elements) >= MOST:
        return None
    shares = row_shares(samples, elements, x.dtype)
    routine, is_whole = Routine(), shares.chunks == 1
    result = BufferAs(losses, losses)
    if not is_whole:
        spec = dense((samples, shares.chunks), computed(x.dtype))
        result = BufferAs(routine.temporary(spec.shape, spec.dtype), spec)
    struct = np.zeros((), _SAMPLES)
    for name, spec in (("x_step", x), ("target_step", target), ("result_step", result.spec)):
        struct[name] = steps(spec)[0]
    struct["count"], struct["chunk"] = samples, shares.chunk
    arguments = found, struct, x, target, result.buffer, np.float64(1 / elements if is_whole else 1), *_delta(call)
    types, grid = {**_types(call), "L": result.spec.dtype}, (shares.blocks, shares.chunks)
    routine.launch(SAMPLES, call.kernel, *arguments, types=types, grid=grid, block=shares.block)
    return routine if is_whole or add_sum(routine, result, BufferAs(losses, losses), (1,), 1 / elements) else None


def _supports(call: Call) -> bool:
    """Whether the kernels do dtypes like these: all but the target as x."""
    x, target = call["x"], call["target"]
    others = [spec for name, spec in call.operands.items() if name != "target"]
    return supports(x, target, *others) and is_rows(x, target)


def _types(call: Call) -> Types:
    return {"T": call["x"].dtype, "S": call["target"].dtype, "L": call["x"].dtype}


def _delta(call: Call) -> list[np.float64]:
    return [np.float64(call.number("delta"))] if "delta" in call.settings else []


KERNELS: dict[str, CallBuilder[Routine]] = {
    "softmax_cross_entropy": _softmax_cross_entropy,
    "softmax_cross_entropy_derivative": _softmax_cross_entropy_derivative,
    "sigmoid_cross_entropy": _means,
    "sigmoid_cross_entropy_derivative": _slopes,
    "squared_error": _by_elements,
    "squared_error_derivative": _by_elements,
    "huber": _means,
    "huber_derivative": _slopes,
    "in_top_k": _in_top_k,
    "precision_at_k": _hits,
    "recall_at_k": _hits,
}
