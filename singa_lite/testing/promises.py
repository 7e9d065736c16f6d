"""Promises of every kernel, those of users' own operations too. CheckError where one does not hold."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.testing.gradients import CheckError
from singa_lite.testing.kernel_call import Call, Calls, bits, require, strided

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
