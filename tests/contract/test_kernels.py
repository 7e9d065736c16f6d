"""What every kernel of every kernel set promises, from one table of calls."""

from __future__ import annotations

import inspect
import tracemalloc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernel_case import Tensors, garbage, run
from kernel_cases import CASES, POINTWISE, SPATIAL
from singa_lite.kernels.interface import SIGNATURES, Signature
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY

KERNEL_SETS = [NUMPY]

#: Small ones in both dtypes; big ones, which kernels cut up, in one.
SIZES = [("float32", False), ("float64", False), ("float32", True)]

#: Tensors that the interface wants contiguous.
CONTIGUOUS = {("matmul", "y")}

#: Bytes that a call may hold for NumPy's casting buffers and Python's objects.
SMALL_CHANGE = 256 * 1024

every_set = pytest.mark.parametrize("kernels", KERNEL_SETS, ids=lambda kernels: kernels.name)
every_kernel = pytest.mark.parametrize(
    "kernels, name",
    [pytest.param(s, name, id=f"{s.name}-{name}") for s in KERNEL_SETS for name in sorted(s.kernels)],
)
every_case = pytest.mark.parametrize(
    "kernels, key",
    [
        pytest.param(s, key, id=f"{s.name}-{key}")
        for s in KERNEL_SETS
        for key in CASES
        if key.split(":")[0] in s.kernels
    ],
)
every_size = pytest.mark.parametrize(
    "dtype, big", SIZES, ids=[f"{'big' if big else 'small'}-{dtype}" for dtype, big in SIZES]
)


class Call:
    """A case, built: tensors by name, and the kernel run on them."""

    def __init__(self, kernels: KernelSet, key: str, dtype: str, big: bool) -> None:
        self.kernels = kernels
        self.signature: Signature = SIGNATURES[key.split(":")[0]]
        tensors, self.settings = CASES[key].build(np.random.default_rng(7), np.dtype(dtype), big)
        self.tensors = dict(zip(self.signature.tensors, tensors, strict=True))

    def run(self, scratch_byte: int = 0xFF) -> Call:
        """Run the kernel on the tensors."""
        run(self.kernels, self.signature.name, self.in_order, self.settings, scratch_byte)
        return self

    @property
    def in_order(self) -> Tensors:
        """The tensors in the interface's order."""
        return list(self.tensors.values())

    def role(self, *roles: str) -> dict[str, np.ndarray]:
        """The tensors of these roles, by name, those left out left out."""
        pairs = zip(self.tensors.items(), self.signature.roles, strict=True)
        return {name: tensor for (name, tensor), role in pairs if role in roles and tensor is not None}

    @property
    def results(self) -> dict[str, np.ndarray]:
        """What the kernel writes or updates."""
        return self.role("Write", "Update")


def bits(tensors: dict[str, np.ndarray]) -> dict[str, bytes]:
    """The bytes of each tensor."""
    return {name: tensor.tobytes() for name, tensor in tensors.items()}


def overwritable() -> Iterator[Any]:
    """Each (set, kernel, output, input) where the output may share the input's bytes."""
    for kernels in KERNEL_SETS:
        for name in sorted(kernels.kernels):
            for output, inputs in SIGNATURES[name].overwrites.items():
                for read in inputs:
                    yield pytest.param(kernels, name, output, read, id=f"{kernels.name}-{name}-{output}-{read}")


def strided(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(view, memory): a copy of the array, with gaps along the first axis and in each row, and all of its memory."""
    if array.ndim == 0:
        return array, array
    rows, last = array.shape[:-1], array.shape[-1] + 3
    first, *middle = (*rows, last)
    memory = garbage((2 * first, *middle), array.dtype)
    view = memory[::2][..., 1:-2]
    np.copyto(view, array)
    return view, memory


def assert_equal_to_rounding(got: np.ndarray, wanted: np.ndarray, where: str) -> None:
    """Equal but for the order of sums: 64 roundings of the largest element."""
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(got, wanted, err_msg=where)
    elif wanted.size:
        rounding = 64 * np.finfo(wanted.dtype).eps * np.max(np.abs(wanted))
        np.testing.assert_allclose(got, wanted, rtol=0, atol=rounding, err_msg=where)


def test_every_kernel_has_a_case_and_every_case_a_kernel():
    assert {key.split(":")[0] for key in CASES} == set(SIGNATURES)
    assert not POINTWISE.keys() & SPATIAL.keys()


def test_the_reference_set_is_complete():
    assert set(NUMPY.kernels) == set(SIGNATURES)


@every_kernel
def test_arguments_are_those_of_the_interface(kernels, name):
    parameters = inspect.signature(kernels[name].function).parameters.values()
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    scratch = [] if kernels[name].scratch is None else ["scratch"]
    assert positional == list(SIGNATURES[name].tensors)
    assert keywords == [*SIGNATURES[name].settings, *scratch]
    assert len(positional) + len(keywords) == len(parameters)
    assert all(p.default is p.empty for p in parameters), "an argument has a default"


@every_case
def test_case_fits_the_interface(kernels, key):
    small, big = Call(kernels, key, "float32", False), Call(kernels, key, "float32", True)
    for call in (small, big):
        assert set(call.settings) == set(call.signature.settings)
        assert {name for name, t in call.tensors.items() if t is None} <= call.signature.optional
        assert all(t.flags.c_contiguous for t in call.tensors.values() if t is not None)
    assert max(t.nbytes for t in big.tensors.values() if t is not None) >= 2_000_000
    assert max(t.size for t in small.tensors.values() if t is not None) <= 1000


@every_case
def test_scratch_rule_needs_shapes_alone(kernels, key):
    call = Call(kernels, key, "float32", True)
    shapes = tuple(
        None if t is None else SimpleNamespace(shape=t.shape, dtype=t.dtype, size=t.size, ndim=t.ndim)
        for t in call.in_order
    )
    name = call.signature.name
    nbytes = kernels.scratch_bytes(name, shapes, call.settings)
    assert type(nbytes) is int
    assert nbytes == kernels.scratch_bytes(name, tuple(call.in_order), call.settings)


@every_case
def test_allocates_nothing(kernels, key):
    call = Call(kernels, key, "float32", True).run()
    nbytes = kernels.scratch_bytes(call.signature.name, tuple(call.in_order), call.settings)
    scratch = np.empty(nbytes, np.uint8)
    launch = kernels.prepare(call.signature.name, tuple(call.in_order), scratch, call.settings)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        launch()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < SMALL_CHANGE


@pytest.mark.parametrize("kernels, name, output, read", list(overwritable()))
@every_size
def test_overwriting_gives_equal_bits(kernels, name, output, read, dtype, big):
    tried = 0
    for key in (key for key in CASES if key.split(":")[0] == name):
        apart, shared = Call(kernels, key, dtype, big), Call(kernels, key, dtype, big)
        target, source = shared.tensors[output], shared.tensors[read]
        if target is None or (target.shape, target.dtype) != (source.shape, source.dtype):
            continue
        tried += 1
        shared.tensors[output] = source
        assert bits(shared.run().results) == bits(apart.run().results), key
    assert tried, f"no case of {name} has {output} and {read} of one shape and dtype"


@every_case
@every_size
def test_tensors_may_be_strided(kernels, key, dtype, big):
    plain, gapped = Call(kernels, key, dtype, big), Call(kernels, key, dtype, big)
    memories = {}
    for name, tensor in gapped.tensors.items():
        if tensor is not None and (gapped.signature.name, name) not in CONTIGUOUS:
            gapped.tensors[name], memories[name] = strided(tensor)
    plain.run()
    gapped.run()
    for name, wanted in plain.results.items():
        assert_equal_to_rounding(gapped.tensors[name], wanted, name)
    for name, memory in memories.items():
        _, untouched = strided(gapped.tensors[name])
        assert memory.tobytes() == untouched.tobytes(), f"{name}: written between its elements"


@every_case
@every_size
def test_outputs_are_written_fully_and_inputs_stay(kernels, key, dtype, big):
    call, other = Call(kernels, key, dtype, big), Call(kernels, key, dtype, big)
    inputs = bits(call.role("Read"))
    for output in other.role("Write").values():
        output.fill(1)
    assert bits(call.run().results) == bits(other.run().results)
    assert bits(call.role("Read")) == inputs
    for name, result in call.results.items():
        assert not np.isnan(result).any(), name


@every_case
@every_size
def test_what_scratch_held_does_not_matter(kernels, key, dtype, big):
    results = [bits(Call(kernels, key, dtype, big).run(byte).results) for byte in (0x00, 0x3F, 0xFF)]
    assert results[0] == results[1] == results[2]
