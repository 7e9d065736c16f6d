"""Hand-made programs: instructions over numbered blocks, random ones, and a plain machine that runs them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from singa_lite.compiler.ir.operation import Instruction, Operand, Phase
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.target import Target
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.tensor import contiguous_strides

#: The reference kernels, on a CPU.
TARGET = Target.of(NUMPY, 64)

#: (kernel, operands, settings), before it gets its number.
Call = tuple[str, tuple[Operand | None, ...], dict[str, Any]]


# --- operands -----------------------------------------------------------------------------------------------


def whole(block: int, *shape: int, dtype: str = "f4") -> Operand:
    """All of a block, contiguous."""
    kind = np.dtype(dtype)
    return Operand(block, shape, kind, contiguous_strides(shape, kind), 0)


def permuted(block: int, shape: Sequence[int], axes: Sequence[int], dtype: str = "f4") -> Operand:
    """All of a block, without gaps. axes: from the outermost to the innermost."""
    strides = dict(zip(axes, whole(0, *(shape[axis] for axis in axes), dtype=dtype).strides, strict=True))
    return whole(block, *shape, dtype=dtype)._replace(strides=tuple(strides[axis] for axis in range(len(shape))))


def part(of: Operand, axis: int, start: int, stop: int) -> Operand:
    """The view from start to stop along an axis."""
    shape = (*of.shape[:axis], stop - start, *of.shape[axis + 1 :])
    return of._replace(shape=shape, offset=of.offset + start * of.strides[axis])


def turned(of: Operand) -> Operand:
    """The view with the axes reversed."""
    return of._replace(shape=of.shape[::-1], strides=of.strides[::-1])


def reshaped(of: Operand, *shape: int) -> Operand:
    """The view of a contiguous operand under another shape."""
    assert of.strides == contiguous_strides(of.shape, of.dtype)
    assert prod(shape) == prod(of.shape)
    return of._replace(shape=shape, strides=contiguous_strides(shape, of.dtype))


# --- calls --------------------------------------------------------------------------------------------------


def call(kernel: str, *operands: Operand | None, **settings: Any) -> Call:
    return kernel, operands, settings


def relu(x: Operand, y: Operand) -> Call:
    return call("relu", x, y)


def tanh(x: Operand, y: Operand) -> Call:
    return call("tanh", x, y)


def copy(x: Operand, y: Operand) -> Call:
    return call("copy", x, y)


def add(a: Operand, b: Operand, y: Operand) -> Call:
    return call("add", a, b, y)


def subtract(a: Operand, b: Operand, y: Operand) -> Call:
    return call("subtract", a, b, y)


def double(x: Operand, y: Operand) -> Call:
    return call("scale", x, y, alpha=2.0, beta=1.0)


def fill(y: Operand, value: float = 3.0) -> Call:
    return call("fill", y, value=value)


def matmul(a: Operand, b: Operand, y: Operand) -> Call:
    return call("matmul", a, b, y, transpose_a=False, transpose_b=False)


def update(x: Operand, y: Operand) -> Call:
    """y += x / 2, in place."""
    return call("add_scaled", x, y, alpha=0.5)


def clip(y: Operand) -> Call:
    """In place."""
    return call("clip_elements", y, threshold=1.5)


def normed(x: Operand, y: Operand, norm: Operand) -> Call:
    """Two outputs, of which the first may overwrite x."""
    return call("l2_norm", x, y, norm, epsilon=1.0)


def draw(state: Operand, key: Operand) -> Call:
    return call("draw_key", state, key)


def dropout(x: Operand, key: Operand, y: Operand) -> Call:
    return call("dropout", x, key, y, p=0.5)


def instructions(*calls: Call) -> tuple[Instruction, ...]:
    """The calls, numbered, with the scratch that the NumPy kernels want."""
    return tuple(
        Instruction(
            number, kernel, operands, settings, Phase.FORWARD, "", NUMPY.scratch_bytes(kernel, operands, settings)
        )
        for number, (kernel, operands, settings) in enumerate(calls)
    )


def program(*calls: Call, held: Sequence[int]) -> Program:
    """The calls as a program; blocks not in `held` are intermediates, as large as their largest operand."""
    made = instructions(*calls)
    return Program(made, {block: size for block, size in extents(made).items() if block not in held}, TARGET)


def extents(made: Sequence[Instruction]) -> dict[int, int]:
    """{block: bytes up to the end of the last operand over it}."""
    found: dict[int, int] = {}
    for instruction in made:
        for operand in instruction.operands:
            if operand is not None:
                found[operand.block] = max(found.get(operand.block, 0), end(operand))
    return found


def end(operand: Operand) -> int:
    """The byte behind the operand's last one."""
    if not prod(operand.shape):
        return operand.offset
    last = sum((extent - 1) * stride for extent, stride in zip(operand.shape, operand.strides, strict=True))
    return operand.offset + last + operand.dtype.itemsize


# --- the machine --------------------------------------------------------------------------------------------


def run(
    given: Program, start: Mapping[int, np.ndarray], offsets: Mapping[int, int] | None = None
) -> dict[int, np.ndarray]:
    """The held blocks' bytes after the program, each block with bytes of its own or at its offset in an arena.

    start: bytes of the held blocks before; all others hold 0xFF, NaN as a float, before they are written. Host memory
    has bytes of its own for each block; a copy there or back is done when it begins and once more when it ends.
    """
    memory = {block: array.copy() for block, array in start.items()}
    memory |= {block: np.full(size, 0xFF, np.uint8) for block, size in given.host_sizes.items()}
    if offsets is None:
        memory |= {block: np.full(size, 0xFF, np.uint8) for block, size in given.sizes.items()}
    else:
        arena = np.full(max((at + given.sizes[block] for block, at in offsets.items()), default=0), 0xFF, np.uint8)
        memory |= {block: arena[at : at + given.sizes[block]] for block, at in offsets.items()}
    with np.errstate(all="ignore"):
        for instruction in given.instructions:
            scratch = np.full(instruction.scratch_bytes, 0xFF, np.uint8)
            arrays = tuple(None if o is None else _array(memory[o.block], o) for o in instruction.operands)
            NUMPY.prepare(instruction.kernel, arrays, scratch, instruction.settings)()
    return {block: memory[block] for block in start}


def _array(memory: np.ndarray, operand: Operand) -> np.ndarray:
    return np.ndarray(operand.shape, operand.dtype, memory.data, operand.offset, operand.strides)


def start_of(given: Program, seed: int = 3) -> dict[int, np.ndarray]:
    """Bytes for each held block that the program uses: normal float32 numbers, small enough integers for keys."""
    rng = np.random.default_rng(seed)
    held = {block: size for block, size in extents(given.instructions).items() if block not in given.sizes}
    return {
        block: rng.standard_normal(-(-size // 4)).astype("f4").view(np.uint8)[:size].copy()
        for block, size in held.items()
    }


def bits(found: Mapping[int, np.ndarray]) -> dict[int, bytes]:
    return {block: array.tobytes() for block, array in found.items()}


def assert_same(before: Program, after: Program, offsets: Mapping[int, int] | None = None) -> None:
    """Both programs leave the same bits in every held block."""
    start = start_of(before)
    wanted = bits(run(before, start))
    assert bits(run(after, start, offsets)) == wanted
    assert wanted != bits(start), "a program that changes nothing is no evidence"


def numbers(given: Program) -> list[int]:
    return [instruction.number for instruction in given.instructions]


def kernels(given: Program) -> list[str]:
    return list(map(with_options, given.instructions))


def with_options(instruction: Instruction) -> str:
    """The kernel with the sum and the activation that it takes in: "batch_norm+other+relu"."""
    summed = ["other"] if instruction.by_name.get("other") is not None else []
    activation = instruction.settings.get("activation", "")
    return "+".join([instruction.kernel, *summed, *([str(activation)] if activation else [])])


def changed(given: Program, at: int, change: Callable[[Instruction], Instruction]) -> Program:
    """With the instruction at this place changed."""
    some = list(given.instructions)
    some[at] = change(some[at])
    return given.with_instructions(some)


def moved(given: Program, at: int, to: int) -> Program:
    """With the instruction at this place taken out, and put in at the other one."""
    some = list(given.instructions)
    some.insert(to, some.pop(at))
    return given.with_instructions(some)


# --- random programs ----------------------------------------------------------------------------------------

SHAPES = ((3, 4), (4, 3), (2, 6), (3, 8), (3, 1), (1, 3))


class Maker:
    """Random valid programs: every byte that is read was written before, in the program or before it.

    Blocks 0 to 3 are held from the start, others are results. There are chains, fan-out, writes in place, views
    (pieces, transposes, reshapes), concatenations along both axes and nested ones, operations with two outputs,
    values that nobody uses, and in two programs of three blocks of columns, as images lie channels last.
    """

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.calls: list[Call] = []
        self.owners = [whole(0, 3, 4), whole(1, 3, 4), whole(2, 4, 3), whole(3, 3, 1)]  # may be written
        self.values = list(self.owners)  # may be read: whole blocks and views
        self.held = set(range(4))
        self.count = 4
        self.columns = source.choice((0.0, 0.5, 1.0))  # how often a block is one

    def made(self) -> Program:
        kinds = (self.unary, self.binary, self.view, self.concat, self.in_place, self.two_outputs, self.copied)
        for kind in self.random.choices(kinds, (6, 4, 5, 6, 2, 1, 2), k=self.random.randint(3, 16)):
            kind()
        for _ in range(self.random.randint(1, 3)):
            self.result()
        return program(*self.calls, held=sorted(self.held))

    def new(self, *shape: int) -> Operand:
        in_columns = self.random.random() < self.columns
        operand = permuted(self.count, shape, (1, 0)) if in_columns else whole(self.count, *shape)
        self.count += 1
        return operand

    def keep(self, made: Operand) -> None:
        self.values.append(made)
        self.owners.append(made)

    def recent(self, among: list[Operand]) -> Operand:
        return self.random.choice(among[-4:] if self.random.random() < 0.7 else among)

    def unary(self) -> None:
        self.keep(self.made_of(self.recent(self.values)))

    def made_of(self, x: Operand) -> Operand:
        y = self.new(*x.shape)
        self.calls.append(self.random.choice((tanh, double, copy))(x, y))
        return y

    def copied(self) -> None:
        """Into a held block, or into a block that was written before."""
        y = self.random.choice(self.owners)
        fitting = [x for x in self.values if x.shape == y.shape and x.block != y.block]
        self.calls.append(copy(self.recent(fitting), y) if fitting else fill(part(y, 0, 0, 1), float(self.count)))

    def binary(self) -> None:
        a = self.recent(self.values)
        b = self.recent([other for other in self.values if other.shape == a.shape])
        y = self.new(*a.shape)
        self.calls.append(self.random.choice((add, subtract))(a, b, y))
        self.keep(y)

    def two_outputs(self) -> None:
        x = self.recent(self.owners)
        y, norm = self.new(*x.shape), whole(self.count + 1, x.shape[0], 1)
        self.count += 1
        self.calls.append(normed(x, y, reshaped(norm, x.shape[0])))
        self.keep(y)
        self.keep(norm)

    def in_place(self) -> None:
        y = self.random.choice(self.owners)
        others = [other for other in self.values if other.shape == y.shape and other.block != y.block]
        self.calls.append(update(self.recent(others), y) if others else clip(y))

    def result(self) -> None:
        """Into a held block of its own."""
        x = self.recent(self.values)
        y = self.new(*x.shape)
        self.calls.append(self.random.choice((tanh, copy))(x, y))
        self.held.add(y.block)
        self.keep(y)

    def view(self) -> None:
        x = self.recent(self.values)
        kind = self.random.randrange(3)
        if kind == 0:
            self.values.append(turned(x))
        elif kind == 1 and x.strides == contiguous_strides(x.shape, x.dtype):
            self.values.append(reshaped(x, *self.random.choice(factors(prod(x.shape)))))
        else:
            axis = self.random.randrange(2)
            start = self.random.randrange(x.shape[axis])
            self.values.append(part(x, axis, start, self.random.randint(start + 1, x.shape[axis])))

    def concat(self) -> None:
        axis = self.random.randrange(2)
        source = self.owners if self.random.random() < 0.8 else self.values
        first = self.recent(source)
        alike = [x for x in source if x.shape[1 - axis] == first.shape[1 - axis]]
        parts = [first, *(self.recent(alike) for _ in range(self.random.randint(0, 2)))]
        self.random.shuffle(parts)
        extent = sum(x.shape[axis] for x in parts)
        if extent > 12:
            return
        if self.random.random() < 0.5:  # made for this, so that they can be written in place
            parts = [self.made_of(x) for x in parts]
        y = self.new(*((extent, first.shape[1]) if axis == 0 else (first.shape[0], extent)))
        start = 0
        for x in parts:
            self.calls.append(copy(x, part(y, axis, start, start + x.shape[axis])))
            start += x.shape[axis]
            if self.random.random() < 0.1:
                self.unary()  # between two pieces
        self.keep(y)


def factors(count: int) -> list[tuple[int, int]]:
    return [(rows, count // rows) for rows in range(1, count + 1) if count % rows == 0]


#: Valid programs of a `Maker`.
random_programs = st.integers(0, 2**32 - 1).map(lambda seed: Maker(random.Random(seed)).made())
#: How many of them a property is tried on.
COUNT = 60
thorough = settings(max_examples=COUNT, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
