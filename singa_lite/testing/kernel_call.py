"""A kernel called on arrays of its own, again and again, and the promises of every kernel, those of users too."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
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


#: Bytes that a call may hold for NumPy's casting buffers and Python's objects.
SMALL_CHANGE = 256 * 1024


def scratch_rule_needs_forms_alone(make: Calls) -> None:
    """How much scratch a call needs is told by shapes, dtypes and strides."""
    call = make()
    shapes = tuple(
        None if t is None else SimpleNamespace(shape=t.shape, dtype=t.dtype, strides=t.strides) for t in call.in_order
    )
    name = call.signature.name
    nbytes = call.kernels.scratch_bytes(name, shapes, call.settings)
    require(type(nbytes) is int, f"{name}: wanted scratch as an int, received {nbytes!r}")
    again = call.kernels.scratch_bytes(name, tuple(call.in_order), call.settings)
    require(nbytes == again, f"{name}: wanted {nbytes} bytes of scratch for arrays too, received {again}")


def allocates_nothing(make: Calls) -> None:
    """A prepared call takes no memory of its own."""
    nbytes = allocated_bytes(make())
    name = make.alone.signature.name
    require(nbytes < SMALL_CHANGE, f"{name}: wanted it to allocate nothing, received {nbytes} bytes")


def allocated_bytes(call: Call) -> int:
    """The most bytes that one more run of a call holds, beside its tensors and its scratch."""
    nbytes = call.kernels.scratch_bytes(call.signature.name, tuple(call.in_order), call.settings)
    scratch = np.empty(nbytes, np.uint8)
    launch = call.kernels.prepare(call.signature.name, tuple(call.in_order), scratch, call.settings)
    launch()  # what is made once is made here
    launch = getattr(launch, "alone", launch)  # on a GPU, without the copies there and back
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        launch()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before


def overwriting_gives_equal_bits(make: Calls) -> None:
    """Where an output may lie over an input, it gets the same bits there."""
    for output, read in make().overwritable:
        shared = make()
        shared.tensors[output] = shared.tensors[read]
        is_equal = bits(shared.run().results) == bits(make.alone.results)
        require(is_equal, f"{shared.signature.name}: wanted equal bits with {output} in the memory of {read}")


def tensors_may_be_strided(make: Calls) -> None:
    """Tensors with gaps between their elements give the same to rounding, and what lies in the gaps stays."""
    plain, gapped = make.alone, make()
    kernel, memories = gapped.signature.name, {}
    for name, tensor in gapped.present.items():
        if name not in make.contiguous:
            gapped.tensors[name], memories[name] = strided(tensor)
    gapped.run()
    for name, wanted in plain.results.items():
        assert_equal_to_rounding(gapped.present[name], wanted, f"{kernel}, {name}", make.roundings)
    for name, memory in memories.items():
        _, untouched = strided(gapped.present[name])
        require(memory.tobytes() == untouched.tobytes(), f"{kernel}, {name}: written between its elements")


def outputs_are_written_fully_and_inputs_stay(make: Calls) -> None:
    """What an output held before does not matter; no result is NaN; what is only read stays as it was."""
    call = make()
    kernel, inputs = call.signature.name, bits(call.role("Read"))
    for output in call.role("Write").values():
        output.fill(1)
    found, wanted = bits(call.run().results), bits(make.alone.results)
    for name in found:
        require(found[name] == wanted[name], f"{kernel}: wanted all of {name!r} written, from what it reads alone")
    require(bits(call.role("Read")) == inputs, f"{kernel}: wanted what it reads as it was")
    for name, result in call.results.items():
        require(not np.isnan(result).any(), f"{kernel}, {name}: wanted numbers, received NaN")


def what_scratch_held_does_not_matter(make: Calls) -> None:
    """`alone` had NaN there."""
    is_equal = bits(make().run(0x00).results) == bits(make.alone.results)
    require(is_equal, f"{make.alone.signature.name}: wanted results that do not depend on what the scratch held")


def assert_equal_to_rounding(got: Array, wanted: Array, where: str, roundings: int = 64) -> None:
    """Equal but for the order of sums: some roundings of the largest element."""
    if wanted.dtype.kind != "f":
        require(np.array_equal(got, wanted), f"{where}: wanted equal values")
        return
    rounding = roundings * np.finfo(wanted.dtype).eps * np.max(np.abs(wanted))
    try:
        np.testing.assert_allclose(got, wanted, rtol=0, atol=rounding)
    except AssertionError as error:
        raise CheckError(f"{where}: {error}") from None
