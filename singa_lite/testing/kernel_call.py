"""A kernel called on arrays of its own, again and again, so that two calls can be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface import SIGNATURES, Signature
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.testing.gradients import CheckError

Tensors: TypeAlias = list[Array | None]


def require(holds: object, what: str) -> None:
    """CheckError that says what does not hold."""
    if not holds:
        raise CheckError(what)


def garbage(shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """An output before its kernel ran: NaN, or for integers the largest, or True."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return np.full(shape, np.iinfo(dtype).max, dtype)
    return np.full(shape, True if dtype.kind == "b" else np.nan, dtype)


def run(
    kernels: KernelSet,
    name: str,
    tensors: Sequence[Array | None],
    settings: Mapping[str, Any],
    scratch_byte: int = 0xFF,
) -> None:
    """Run a kernel with scratch that holds `scratch_byte` everywhere (0xFF: NaN) and fail if it writes beyond."""
    nbytes = kernels.scratch_bytes(name, tuple(tensors), settings)
    scratch = np.full(nbytes + 64, scratch_byte, np.uint8)
    kernels.prepare(name, tuple(tensors), scratch[:nbytes], settings)()
    require(np.all(scratch[nbytes:] == scratch_byte), f"{name} writes behind its {nbytes} bytes of scratch")


class Calls:
    """Makes equal calls of one kernel: each with tensors of its own. alone: as it is, not to be changed.

    contiguous: tensors that may have no gaps; roundings: of the largest element that results may be off by where
    tensors have gaps.
    """

    def __init__(
        self,
        kernels: KernelSet,
        name: str,
        tensors: Tensors,
        settings: Mapping[str, Any],
        contiguous: Sequence[str] = (),
        roundings: int = 64,
    ) -> None:
        self.given = kernels, name, tensors, settings
        self.contiguous = frozenset(contiguous)
        self.roundings = roundings

    def __call__(self) -> Call:
        return Call(*self.given)

    @cached_property
    def alone(self) -> Call:
        """A call that has run, once for all checks; for comparing."""
        return self().run()


class Call:
    """A kernel with tensors of its own, by name, and the kernel run on them."""

    def __init__(self, kernels: KernelSet, name: str, tensors: Tensors, settings: Mapping[str, Any]) -> None:
        self.kernels = kernels
        self.signature: Signature = SIGNATURES[name]
        self.settings = settings
        copies = [None if tensor is None else tensor.copy() for tensor in tensors]
        self.tensors = dict(zip(self.signature.tensors, copies, strict=True))

    def run(self, scratch_byte: int = 0xFF) -> Call:
        """Run the kernel on the tensors."""
        run(self.kernels, self.signature.name, self.in_order, self.settings, scratch_byte)
        return self

    @property
    def in_order(self) -> Tensors:
        """The tensors in the interface's order."""
        return list(self.tensors.values())

    @property
    def present(self) -> dict[str, Array]:
        """The tensors that are not left out."""
        return {name: tensor for name, tensor in self.tensors.items() if tensor is not None}

    def role(self, *roles: str) -> dict[str, Array]:
        """The tensors of these roles that are not left out."""
        role_of = dict(zip(self.signature.tensors, self.signature.roles, strict=True))
        return {name: tensor for name, tensor in self.present.items() if role_of[name] in roles}

    @property
    def results(self) -> dict[str, Array]:
        """What the kernel writes or updates."""
        return self.role("Write", "Update")

    @property
    def overwritable(self) -> list[tuple[str, str]]:
        """(output, input) where the one may share the other's bytes here, their shapes and dtypes being equal."""
        present = self.present
        return [
            (output, read)
            for output, inputs in self.signature.overwrites.items()
            for read in inputs
            if present.keys() >= {output, read}
            and present[output].shape == present[read].shape
            and present[output].dtype == present[read].dtype
        ]


def bits(tensors: Mapping[str, Array]) -> dict[str, bytes]:
    """The bytes of each tensor."""
    return {name: tensor.tobytes() for name, tensor in tensors.items()}


def strided(array: Array) -> tuple[Array, Array]:
    """(view, memory): a copy of the array with gaps along the first axis and in each row, and all of its memory."""
    if array.ndim == 0:
        return array, array
    rows, last = array.shape[:-1], array.shape[-1] + 3
    first, *middle = (*rows, last)
    memory = garbage((2 * first, *middle), array.dtype)
    view = memory[::2][..., 1:-2]
    np.copyto(view, array)
    return view, memory
