"""Optimizer updates of several tensors by two launches: one begins all of them, the other one has a table of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.kernels.built import Builder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels import update
from singa_lite.kernels.cuda_kernels.routine import CudaKernel, Loader, Routine, Table
from singa_lite.kernels.cuda_kernels.source import FLOATS
from singa_lite.kernels.cuda_kernels.walk import FLAT, MOST_ELEMENTS, walk
from singa_lite.kernels.interface.update import Hyper
from singa_lite.kernels.kernel_set import Join, Settings, TensorSpec, TensorSpecs, split_operands

FILE = "updates.cu"
#: Most updates of a launch, as in the source.
MOST = 64
#: Bytes of a value up to which a launch of its own takes longer than the update: some microseconds, in which a GPU
#: moves several times as much.
SMALL = 1 << 18


def joins(loader: Loader) -> dict[str, Join]:
    """Joined updates by kernel. loader: compiles the sources."""
    return {name: Join(CudaKernel(_joined_builder(name), loader), _most) for name in update.RULES}


def _most(specs: TensorSpecs, settings: Settings) -> int:
    """Of small values that lie in a row, as all that goes with them does."""
    gradient = _tensors(specs)[0]
    return MOST if gradient.size * gradient.dtype.itemsize <= SMALL and _in_a_row(specs) else 0


def _joined_builder(name: str) -> Builder[Routine]:
    """The builder of joined calls of a kernel, one after the other where they do not all lie in a row."""

    def build(*specs: TensorSpec | None, hyper: Hyper) -> Routine | None:
        calls = split_operands(name, specs)
        numbers = {(len(_tensors(call)), _tensors(call)[0].dtype) for call in calls}
        if len(calls) <= MOST and len(numbers) == 1 and all(map(_in_a_row, calls)):
            return _joined_routine(calls, hyper)
        routine = Routine()
        for call in calls:
            one = update.updated(Call.from_specs(name, call, {"hyper": hyper}))
            if one is None:
                return None
            routine.then(one)
        return routine

    return build


def _joined_routine(calls: Sequence[TensorSpecs], hyper: Hyper) -> Routine:
    tensors = [_tensors(call) for call in calls]
    rule = update.rule_of(hyper, len(tensors[0]) - 2)
    routine, types = Routine(), {"T": tensors[0][0].dtype}
    steps = routine.temporary((len(calls), *update.STEP[0]), update.STEP[1])
    begun = Table(np.zeros((), _table(2)), tuple(spec for call in calls for spec in (call[1], call[-1])))
    rates = map(np.float64, rule.rates)
    routine.launch(FILE, "begin_updates", begun, steps, *rates, types=types, grid=1, block=len(calls))
    struct = np.zeros((), _table(len(tensors[0]), counts=True))
    blocks = [update.blocks_of(value) for _, value, *_ in tensors]
    struct["counts"][: len(calls)] = [value.size for _, value, *_ in tensors]
    struct["ends"] = np.iinfo(np.uint32).max
    struct["ends"][: len(calls)] = [*accumulate(blocks)]
    table = Table(struct, tuple(spec for some in tensors for spec in some))
    return routine.launch(FILE, f"{rule.kernel}_of_several", table, steps, *rule.numbers, types=types, grid=sum(blocks))


def _table(width: int, counts: bool = False) -> DType:
    """Of a struct that has addresses of so many tensors of each update, and perhaps what each block looks for."""
    more = [("counts", "u4", MOST), ("ends", "u4", MOST)] if counts else []
    return np.dtype([(Table.ADDRESSES, "u8", (MOST, width)), *more])


def _tensors(call: TensorSpecs) -> list[TensorSpec]:
    """Gradient, value and state of an update."""
    gradient, _, *others, _ = call
    return [spec for spec in (gradient, *others) if spec is not None]


def _in_a_row(call: TensorSpecs) -> bool:
    """Whether all elements of an update's tensors lie without gaps, those of one index side by side."""
    gradient, *others = _tensors(call)
    if others[0].dtype.name not in FLOATS or any(spec.dtype != gradient.dtype for spec in others):
        return False
    elements = walk(gradient.shape, (*others, gradient))
    if elements is None or elements["mode"] != FLAT or elements["count"] >= MOST_ELEMENTS:
        return False
    return bool((elements["strides"][:, 0] == 1).all())
