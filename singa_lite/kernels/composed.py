"""Kernels that are done by calls of other kernels: over their operands, views of these, and arrays in their scratch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.built import MOST_ANSWERS, call_key, drop_oldest
from singa_lite.kernels.carving import unread
from singa_lite.kernels.kernel_set import DeviceArray, Kernel, KernelSet, Launch, Settings, TensorSpec, TensorSpecs
from singa_lite.kernels.routine import in_order
from singa_lite.kernels.specs import specs_of

#: Temporaries begin at multiples of it in the scratch, bytes: as far as any library wants.
ALIGNMENT = 256


class InnerCall(NamedTuple):
    """A call of another kernel. kernel: its name in the set, or a kernel that the set need not have."""

    kernel: str | Kernel
    operands: tuple[DeviceArray | None, ...]
    settings: Mapping[str, object] = {}


class Temporaries:
    """Arrays in the scratch of a call, one behind the other. nbytes: of all so far.

    scratch: None while bytes are counted; then nobody may read the arrays' elements.
    """

    def __init__(self, scratch: DeviceArray | None) -> None:
        self._scratch = scratch
        self.nbytes = 0

    def array(self, shape: Sequence[int], dtype: DTypeLike) -> DeviceArray:
        """An array in C order. Its elements are those that other calls left there."""
        shape, dtype = tuple(shape), np.dtype(dtype)
        start, nbytes = self.nbytes, prod(shape) * dtype.itemsize
        self.nbytes += -(-nbytes // ALIGNMENT) * ALIGNMENT
        if self._scratch is None:
            return unread(TensorSpec(shape, dtype, ordered_strides(shape, range(len(shape)), dtype.itemsize)))
        return self._scratch[start : start + nbytes].view(dtype).reshape(shape)


#: Gives the inner calls in their order: `calls(temporaries, *operands, **settings)`. Of the operands, which are arrays,
#: it may look at shapes, dtypes and strides alone.
Calls = Callable[..., Iterable[InnerCall]]


class ComposedKernel:
    """A kernel that is done by inner calls. kernels: the set that has them; supports: whether a call can be done so."""

    def __init__(
        self, calls: Calls, kernels: KernelSet, supports: Callable[[TensorSpecs, Settings], bool] | None = None
    ) -> None:
        self._calls, self._kernels, self._supports = calls, kernels, supports
        self._scratch_bytes: dict[object, int] = {}

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """Whether the call can be done so: True where no rule was given."""
        return self._supports is None or self._supports(specs, settings)

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """Returns the bytes of the temporaries and of the inner call that needs most."""
        key, known = call_key(specs, settings), self._scratch_bytes
        found = known.get(key)
        if found is None:
            found = known[key] = self._counted(specs, settings)
            drop_oldest(known, MOST_ANSWERS)
        return found

    def forget(self) -> None:
        """Let go of the sizes of calls that planning asked for, see `KernelSet.forget`."""
        self._scratch_bytes = {}

    def _counted(self, specs: TensorSpecs, settings: Settings) -> int:
        temporaries = Temporaries(None)
        arrays = [None if spec is None else unread(spec) for spec in specs]
        inner = {_form(call): call for call in self._calls(temporaries, *arrays, **settings)}
        most = max((self._inner_bytes(call) for call in inner.values()), default=0)
        return temporaries.nbytes + most

    def _inner_bytes(self, call: InnerCall) -> int:
        if isinstance(call.kernel, str):
            return self._kernels.scratch_bytes(call.kernel, call.operands, call.settings)
        return call.kernel.scratch_bytes(specs_of(call.operands), call.settings)

    def prepare(
        self, arrays: tuple[DeviceArray | None, ...], scratch: DeviceArray | None, settings: Settings
    ) -> Launch:
        """Bind all inner calls."""
        temporaries = Temporaries(scratch)
        calls = [*self._calls(temporaries, *arrays, **settings)]
        rest = None if scratch is None else scratch[temporaries.nbytes :]
        return in_order([*self._bound(calls, rest)])

    def _bound(self, calls: Sequence[InnerCall], scratch: DeviceArray | None) -> Iterator[Launch]:
        for kernel, operands, settings in calls:
            if isinstance(kernel, str):
                yield self._kernels.prepare(kernel, operands, scratch, settings)
            else:
                yield kernel.prepare(operands, scratch, settings)


class FasterWithScratch:
    """A kernel that is done in a faster way where its scratch suffices for that, and so says levels of it.

    fast: does those calls that it supports; thrifty: does them too, which takes more time. A call is planned for the
    fast way where that wants no more scratch than the other, or than the bytes of the call's own tensors.
    """

    def __init__(self, fast: Kernel, thrifty: Kernel) -> None:
        self.fast, self.thrifty = fast, thrifty

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """Whether there is the fast way."""
        return self.fast.supports(specs, settings)

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """Of the way that a call is planned for; it may be given more or fewer bytes by its `levels`."""
        fast, thrifty = self._both(specs, settings)
        own = sum(spec.size * spec.dtype.itemsize for spec in specs if spec is not None)
        return fast if fast <= max(thrifty, own) else thrifty

    def levels(self, specs: TensorSpecs, settings: Settings) -> tuple[int, ...]:
        """Of both ways; () where the fast one wants no more."""
        fast, thrifty = self._both(specs, settings)
        return (thrifty, fast) if thrifty < fast else ()

    def prepare(
        self, arrays: tuple[DeviceArray | None, ...], scratch: DeviceArray | None, settings: Settings
    ) -> Launch:
        """Bind the call in the best way that its scratch allows."""
        there = 0 if scratch is None else scratch.nbytes
        is_enough = there >= self.fast.scratch_bytes(specs_of(arrays), settings)
        return (self.fast if is_enough else self.thrifty).prepare(arrays, scratch, settings)

    def _both(self, specs: TensorSpecs, settings: Settings) -> tuple[int, int]:
        return self.fast.scratch_bytes(specs, settings), self.thrifty.scratch_bytes(specs, settings)


def product(
    a: DeviceArray,
    b: DeviceArray,
    y: DeviceArray,
    kernel: str = "matmul",
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> InnerCall:
    """y = a @ b; with kernel="matmul_add" the product is added to y."""
    return InnerCall(kernel, (a, b, y), {"transpose_a": transpose_a, "transpose_b": transpose_b})


def _form(call: InnerCall) -> tuple[object, ...]:
    """What the scratch of a call goes by."""
    keys = (None if spec is None else spec.key for spec in specs_of(call.operands))
    return call.kernel, *keys, *call.settings.items()
