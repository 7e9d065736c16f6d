"""State of updates as floats, piece by piece: read from how it is kept, and written back behind the piece's update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface.state_format import BFLOAT16, BLOCKED, Blocks
from singa_lite.kernels.numpy_kernels import bfloat16, block_codes
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Bytes, Shaped, blocks, bytes_for, carve
from singa_lite.kernels.numpy_kernels.temporaries import Temporaries

_TWO = Temporaries(floats=2)


class StateSlot(NamedTuple):
    """A tensor of state. squares: none of its elements is below 0."""

    tensor: Array
    squares: bool = False


def scratch_bytes(gradient: Shaped, rate: Shaped, value: Shaped, *others: Shaped | None, **settings: object) -> int:
    """The scratch rule of updates: their tensors are these, the state, and the count of updates."""
    states = [state for state in others[:-1] if state is not None]
    buffers = _TWO.buffers(gradient)
    if states and states[0].dtype == BFLOAT16:
        buffers = [*buffers, *_floats(len(states), (min(BLOCK, value.size),), value), *bfloat16.buffers(value)]
    elif states and states[0].dtype == BLOCKED:
        shape = _piece(value.shape)
        buffers = [*_floats(2 + len(states), shape, value), *block_codes.buffers(shape)]
    return bytes_for(*buffers)


def opened(scratch: Bytes, t: int, gradient: Array, value: Array, *states: StateSlot) -> Iterator[tuple[Array, ...]]:
    """Pieces of gradient, value and state, the state as floats to be changed, and two temporaries of their shape.

    t: the number of this update, which numbers that round by chance come from. All state is kept in one way.
    """
    if states and states[0].tensor.dtype == BFLOAT16:
        yield from _rounded(scratch, t, gradient, value, states)
    elif states and states[0].tensor.dtype == BLOCKED:
        yield from _blocked(scratch, gradient, value, states)
    else:
        yield from _TWO.blocks(scratch, gradient, value, *(state.tensor for state in states))


def _rounded(
    scratch: Bytes, t: int, gradient: Array, value: Array, states: Sequence[StateSlot]
) -> Iterator[tuple[Array, ...]]:
    own = _floats(len(states), (min(BLOCK, value.size),), value)
    first, second, *rest = carve(scratch, *_TWO.buffers(gradient), *own, *bfloat16.buffers(value))
    floats, work = rest[: len(own)], rest[len(own) :]
    for piece, target, *kept in blocks(gradient, value, *(state.tensor for state in states)):
        held = [shaped(buffer, target.shape) for buffer in floats]
        for number, state in zip(held, kept, strict=True):
            bfloat16.read(state, number, work)
        yield piece, target, *held, shaped(first, target.shape), shaped(second, target.shape)
        for salt, (number, state) in enumerate(zip(held, kept, strict=True)):
            bfloat16.write(number, state, bfloat16.key(t, salt), work)


def _blocked(scratch: Bytes, gradient: Array, value: Array, states: Sequence[StateSlot]) -> Iterator[tuple[Array, ...]]:
    cut, most = Blocks.of(value.shape), _piece(value.shape)
    buffers = carve(scratch, *_floats(2 + len(states), most, value), *block_codes.buffers(most))
    first, second, *rest = buffers
    floats, work = rest[: len(states)], rest[len(states) :]
    rows = most[0] * cut.rows
    for start in range(0, value.shape[0], rows):
        piece, target = gradient[start : start + rows], value[start : start + rows]
        groups = slice(start // cut.rows, start // cut.rows + cut.groups(len(target)))
        kept = [state.tensor[groups] for state in states]
        padded = [buffer[: len(kept[0])] for buffer in floats]
        for number, state, each in zip(padded, kept, states, strict=True):
            block_codes.read(state, number, each.squares, work)
        held = [_without_padding(number, target.shape) for number in padded]
        yield piece, target, *held, shaped(first.reshape(-1), target.shape), shaped(second.reshape(-1), target.shape)
        for number, state, each in zip(padded, kept, states, strict=True):
            block_codes.write(number, state, each.squares, work)


def _piece(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(groups, blocks, elements) that are worked on at a time: about BLOCK elements, one group at least."""
    cut = Blocks.of(shape)
    groups = max(1, BLOCK // (cut.blocks * cut.elements))
    return min(groups, cut.groups(shape[0])), cut.blocks, cut.elements


def _without_padding(padded: Array, shape: tuple[int, ...]) -> Array:
    """The elements of a piece of the value among those of its blocks, the others set to 0, as they have no value."""
    groups, per_group = len(padded), prod(padded.shape[1:])
    columns = prod(shape[1:])
    if padded.shape[1] == 1:
        line = padded.reshape(-1)
        line[shape[0] * columns :] = 0
        return line[: shape[0] * columns].reshape(shape)
    rows = padded.reshape(groups, per_group)
    rows[:, columns:] = 0
    return rows[:, :columns].reshape(shape)


def _floats(count: int, shape: tuple[int, ...], value: Shaped) -> list[BufferSpec]:
    return [(shape, np.result_type(value.dtype, np.float32))] * count
