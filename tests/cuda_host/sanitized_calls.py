"""Calls of all CUDA kernels over memory without a byte to spare: as a script, those that are named.

A line is written before each and another one after it: the address sanitizer ends the process in a wrong one.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import kernel_cases_pointwise as pointwise
from host_kernels import OverNumPy, cuda_on_host
from host_loader import Build
from joined_cases import JOINED
from kernel_case import Case, Tensors
from kernel_cases import CASES
from kernel_cases_gpu import embedding_gradient, fixed
from kernel_sizes import build, for_both
from launches import KERNELS, ORDERS, routine, spec
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.interface.window import Window

DTYPE = np.dtype("float32")
#: Sizes that the sanitizer sees all cases in.
SIZES = ["small", "ones", "over a warp", "over a block"]

#: Losses and metrics take their sizes beforehand.
SCORES = {"three": (1, 3), "over a warp": (2, 33), "over a block": (257, 5), "wide": (2, 1031)}
FURTHER: dict[str, Case] = {
    f"{name}:{label}": make(for_both(shape), np.int64)
    for label, shape in SCORES.items()
    for name, make in {
        "softmax_cross_entropy": pointwise.class_loss,
        "softmax_cross_entropy_derivative": pointwise.class_loss_derivative,
        "in_top_k": pointwise.hits,
    }.items()
} | {
    f"{name}:rows {label}": pointwise.hits(for_both(shape), np.float32)
    for label, shape in SCORES.items()
    for name in ("precision_at_k", "recall_at_k")
}
#: Lines and windows that are large enough to be shared among warps, or to be taken in several pieces.
FURTHER |= {
    "softmax:shared columns": fixed((2, 131, 5), (2, 131, 5), axis=1),
    "softmax_derivative:shared columns": fixed((2, 131, 5), (2, 131, 5), (2, 131, 5), axis=1),
    "softmax_cross_entropy:long rows": pointwise.class_loss(for_both((2, 2100)), np.float32),
    "softmax_cross_entropy:long ids": pointwise.class_loss(for_both((2, 2101)), np.int64),
    "softmax_cross_entropy_derivative:long rows": pointwise.class_loss_derivative(for_both((2, 2100)), np.float32),
    "softmax_cross_entropy_derivative:long ids": pointwise.class_loss_derivative(for_both((2, 2101)), np.int64),
    "embedding_gradient:long runs": embedding_gradient("embedding_gradient", 131, 5, 9),
    "avg_pool2d:pairs of lanes": fixed((1, 600, 3, 4), (1, 600, 1, 1), window=Window((3, 4)), count_pad=False),
}
FURTHER |= JOINED


#: Bytes before the first element of an array that shall not lie at a multiple of 16; what can be poisoned at least.
SHIFT = 8


class ExactMemory:
    """Memory for arrays, each from malloc of its own, to the byte. Wants the sanitizer's malloc in the process."""

    def __init__(self) -> None:
        process = ctypes.CDLL(None)
        self._malloc, self._free = process["malloc"], process["free"]
        self._malloc.restype, self._malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        self._free.argtypes = [ctypes.c_void_p]
        self._poison, self._heal = process["__asan_poison_memory_region"], process["__asan_unpoison_memory_region"]
        self._poison.argtypes = self._heal.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._given: list[int] = []

    def array(
        self, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...], shifted: bool = False
    ) -> np.ndarray:
        """An array whose last element ends where its memory ends; shifted: no multiple of 16 bytes is its address."""
        span = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) + dtype.itemsize
        before = SHIFT if shifted else 0
        address = self._malloc(before + span)
        self._given.append(address)
        self._poison(address, before)
        held = (ctypes.c_char * span).from_address(address + before)
        return np.ndarray(shape, dtype, held, 0, strides)

    def nothing(self, nbytes: int) -> np.ndarray:
        made = self.array((nbytes,), np.dtype(np.uint8), (1,)) if nbytes else np.empty(0, np.uint8)
        made.fill(0xFF)
        return made

    def free(self) -> None:
        """Give all of it back: arrays made here must not be used any more."""
        for address in self._given:
            self._heal(address, SHIFT)
            self._free(address)
        self._given.clear()


@contextmanager
def exact_memory() -> Iterator[ExactMemory]:
    """Memory that is given back in the end."""
    memory = ExactMemory()
    try:
        yield memory
    finally:
        memory.free()


class Call(NamedTuple):
    """A case, its size, the order of its images' axes in memory, and whether its tensors lie at odd addresses."""

    case: str
    size: str = "small"
    order: int = 0
    shifted: bool = False

    def __str__(self) -> str:
        return "/".join([self.case, self.size, ("c order", "channels last")[self.order], *["shifted"] * self.shifted])

    @staticmethod
    def named(text: str) -> Call:
        case, size, order, *shifted = text.split("/")
        return Call(case, size, int(order == "channels last"), bool(shifted))

    def build(self) -> tuple[Tensors, dict[str, Any]]:
        case = CASES.get(self.case) or FURTHER[self.case]
        return build(case, self.size, DTYPE)

    @property
    def routine(self) -> Routine | None:
        return routine(self.case, *self.build(), ORDERS[self.order])

    def run(self, kernels: OverNumPy) -> None:
        tensors, settings = self.build()
        name = self.case.split(":")[0]
        with exact_memory() as memory:
            arrays: Tensors = []
            for tensor in tensors:
                wanted = spec(tensor, ORDERS[self.order])
                arrays.append(
                    None if wanted is None else memory.array(wanted.shape, wanted.dtype, wanted.strides, self.shifted)
                )
                if tensor is not None:
                    arrays[-1][...] = tensor
            scratch = memory.nothing(kernels.scratch_bytes(name, arrays, settings))
            kernels.prepare(name, tuple(arrays), scratch, settings)()


@cache
def calls_of(case: str) -> tuple[Call, ...]:
    """The different calls of a case that launch kernels of ours."""
    found: dict[Any, Call] = {}
    for size in SIZES if case in CASES else ("small",):
        for order in range(len(ORDERS)):
            call = Call(case, size, order)
            specs = [spec(tensor, ORDERS[order]) for tensor in call.build()[0]]
            made = call.routine
            if made is not None and made.launches:
                found.setdefault(tuple(None if one is None else one.key for one in specs), call)
    return tuple(call._replace(shifted=shifted) for call in found.values() for shifted in (False, True))


def cases() -> list[str]:
    """The cases whose kernels the set has."""
    return [case for case in (*CASES, *FURTHER) if case.split(":")[0] in KERNELS]


def main(calls: Iterable[Call]) -> None:
    kernels = cuda_on_host(Build(sanitized=True))
    for call in calls:
        print(f"begins {call}", flush=True)
        call.run(kernels)
        print(f"done {call}", flush=True)


if __name__ == "__main__":
    main(map(Call.named, sys.argv[1:]))
