"""The proof that sharing bytes changes no value: every read still gets the last write it got without sharing.

    rewritten, each block with bytes of its own      planned, in one arena
      1 writes a, bytes 0 to 63                        1 writes a, at 0 to 63
      2 writes b                                       2 writes b, at 32 to 95
      3 reads a: all written by 1                      3 reads a: 0 to 31 by 1, 32 to 63 by 2     PlanError

If each read gets, byte for byte, what the same write wrote, then by induction along the program each write writes the
same values, and so does the step. That needs no thought of why a plan shares bytes: reordering, in-place writing, moved
pieces of a concatenation and placement are all judged by what they lead to. The proof shares no code with them.

Why not simpler: `memory/check.py` finds blocks that overlap while both are alive, but it believes the lifespans and the
merged blocks that the passes give it. To run both programs and compare bits shows one step with one batch; the tests do
it. Caffe2's memonger, whose verifier the idea is from, compares the last writer of each blob by name; here a block
holds bytes of several writers, and several blocks hold the same bytes. A table of the writer of each byte would be as
large as the arena. So bytes are followed in boxes (`boxes.Box`): the time goes with the number of pieces that differ in
their writer or in their spacing, and not with their size. The pieces of a concatenation are one box each, for any
batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.memory.problem import PlanError
from singa_lite.operation import Instruction, Operand, Transfer, again
from singa_lite.passes.boxes import Box, cut
from singa_lite.passes.contents import Contents, Piece, are_same, renamed
from singa_lite.passes.in_flight import InFlight
from singa_lite.passes.program import Program
from singa_lite.tensor import Shape

#: Where host memory begins, in the addresses of the arena: behind any arena.
HOST = 1 << 62
NO_OFFSETS: Mapping[int, int] = MappingProxyType({})


def check_reads(
    rewritten: Program,
    planned: Program,
    offsets: Mapping[int, int],
    host_offsets: Mapping[int, int] = NO_OFFSETS,
) -> None:
    """PlanError unless the planned program leaves in each held block, byte for byte, what the rewritten one does.

    offsets: {block: offset in the arena} for the planned program; blocks that are not in it have bytes of their own
    there too, as every block has for the rewritten one. Each planned instruction must stand in that one, once, read
    what it reads there, and write over what it reads only as its kernel allows. A repeat must be `again` of one that
    stands there: where it reads what that one read, and of what that one wrote what that one wrote, it writes the same,
    so its bytes are named as those of the original.

    A byte is named by the instruction that wrote it, and by its index among the bytes written, counted in the
    order of memory: the axes sorted by falling stride, see `axis_order`. That index is a function of the element's
    indices, the shape and the order of the axes alone. A planned operand must have the shape and the axis order of
    the rewritten one, whatever its strides and offset: then equal indices are equal elements, of what is written and
    of what is read, so that moved and restrided operands compare equal. Elements that are read repeatedly, along an
    axis of stride 0, count once; the same axes are such axes in both programs. Copies that the plan left out are seen
    through: what a copy wrote is named by what it read, if both have one axis order, so one index for each element.

    Where the planned program first writes to a block in the arena, the block's bytes are taken to hold nothing that
    anybody wrote: so others at that offset cannot be read through it, nor later through the blocks that lay there.
    Bytes of an intermediate that nobody wrote in the rewritten program either have no value to keep.

    host_offsets: {block: offset in host memory}. A copy there or back stands in the planned program alone. What it
    writes is named by what it read, from its end on; between its beginning and its end nobody may read what it writes,
    nor overwrite either side.
    """
    planned = replace(planned, sizes=planned.sizes | planned.host_sizes)
    offsets = {**offsets, **{block: HOST + offset for block, offset in host_offsets.items()}}
    left_out = _check_calls(rewritten, planned, offsets)
    originals = {i.number: i for i in rewritten.instructions}
    wanted, wanted_memory = _sources(rewritten, {}, left_out, originals)
    found, memory = _sources(planned, offsets, (), originals)
    for instruction in planned.instructions:
        if instruction.transfer is not None:
            continue
        expected_reads = _expected(instruction, originals, wanted)
        pairs = zip(found[instruction.number], expected_reads, strict=True)
        for index, (received, expected) in enumerate(pairs):
            if not are_same(received, expected):
                raise PlanError(
                    f"{_called(instruction)}, read {index}: wanted the bytes written as {expected[:3]}, "
                    f"received {received[:3]}"
                )
    used = {operand.block for i in rewritten.instructions for operand in i.operands if operand is not None}
    for block in (wanted_memory.keys() | memory.keys()) - rewritten.sizes.keys() - (planned.sizes.keys() - used) - {-1}:
        left, left_wanted = (m[block].pieces() if block in m else [] for m in (memory, wanted_memory))
        if not are_same(left, left_wanted):
            raise PlanError(f"held block {block}: wanted it left written as {left_wanted[:3]}, received {left[:3]}")


def _check_calls(rewritten: Program, planned: Program, offsets: Mapping[int, int]) -> Collection[int]:
    """Which were left out.

    PlanError unless each call is one of the rewritten program, once, or a repeat of one, or a copy to host memory or
    back.
    """
    originals = {i.number: i for i in rewritten.instructions}
    left, numbers = set(originals), set[int]()
    for instruction in planned.instructions:
        number = instruction.number if instruction.repeats is None else instruction.repeats
        if planned.host_sizes or instruction.transfer is not None:
            _check_sides(instruction, planned)
        if instruction.transfer is not None and instruction.number not in originals.keys() | numbers:
            numbers.add(instruction.number)
            continue
        original = originals.get(number)
        if original is None or instruction.number in numbers or instruction.transfer is not None:
            raise PlanError(f"{_called(instruction)}: wanted one of the rewritten program, and only once")
        numbers.add(instruction.number)
        if instruction.repeats is None:
            left.discard(number)
        elif instruction.number in originals:
            raise PlanError(f"{_called(instruction)}: wanted a number of its own for a repeat")
        _check_call(original if instruction.repeats is None else again(original), instruction, offsets)
        if original is not instruction:
            _check_within(instruction, planned.sizes)
    return left


def _check_sides(instruction: Instruction, planned: Program) -> None:
    """PlanError where anything but a copy to host memory or back has an operand there, or such a copy is no plain one.

    planned: the program, whose `sizes` have the blocks of host memory too.
    """
    on_host = [o.block in planned.host_sizes for o in instruction.operands if o is not None]
    if instruction.transfer is None:
        if any(on_host):
            raise PlanError(f"{_called(instruction)}: wanted no operand in host memory, received {instruction}")
        return
    moves = instruction.kernel == "copy" and instruction.repeats is None and _moves_bytes(instruction)
    if not moves or sorted(on_host) != [False, True] or any(o.block not in planned.sizes for o in instruction.writes):
        raise PlanError(f"{_called(instruction)}: wanted a copy between arena and host memory, received {instruction}")
    _check_within(instruction, planned.sizes)


def _expected(
    instruction: Instruction, originals: Mapping[int, Instruction], wanted: Mapping[int, list[list[Piece]]]
) -> list[list[Piece]]:
    """For each read of a planned instruction, who wrote its bytes in the rewritten program."""
    if instruction.repeats is None:
        return wanted[instruction.number]
    original = originals[instruction.repeats]
    written = {id(operand): [(name, box.seen(1, 1)) for box in boxes(operand)] for name, operand in _named(original)}
    read = dict(zip(map(id, original.reads), wanted[original.number], strict=True))
    return [(written | read)[id(operand)] for operand in again(original).reads]


def _named(instruction: Instruction) -> list[tuple[int, Operand]]:
    """Each operand that it writes, with the number by which the bytes are known."""
    return [(instruction.number * 8 + index, operand) for index, operand in enumerate(instruction.writes)]


@lru_cache(maxsize=1024)
def axis_order(shape: Shape, strides: Shape) -> tuple[int, ...]:
    """The axes of more than one element and a stride, by falling stride; of equal strides in the order of the shape.

    The stride of an axis of extent 1 says nothing, and an axis of stride 0 has one element in memory.
    """
    telling = [axis for axis, extent in enumerate(shape) if extent != 1 and strides[axis]]
    return tuple(sorted(telling, key=lambda axis: -strides[axis]))


def _called(instruction: Instruction) -> str:
    return f"instruction {instruction.number} ({instruction.kernel}, layer {instruction.layer!r})"


def _check_within(instruction: Instruction, sizes: Mapping[int, int]) -> None:
    """PlanError unless its operands stay within their blocks: where nobody reads an output, no read would show it."""
    for operand in instruction.operands:
        if operand is None or operand.block not in sizes:
            continue
        stop = max((box.end for box in boxes(operand)), default=0)
        if stop > sizes[operand.block]:
            raise PlanError(
                f"{_called(instruction)}: wanted {operand} within its block of {sizes[operand.block]} bytes, "
                f"received bytes up to {stop}"
            )


def _check_call(original: Instruction, planned: Instruction, offsets: Mapping[int, int]) -> None:
    """PlanError unless it is the same call, and its outputs share bytes with its other operands only as allowed."""
    if original is planned:
        return
    forms = [
        [o and (o.shape, o.dtype, axis_order(o.shape, o.strides)) for o in i.operands] for i in (original, planned)
    ]
    if (original.kernel, original.settings) != (planned.kernel, planned.settings) or forms[0] != forms[1]:
        raise PlanError(f"{_called(planned)}: wanted the call {original}, received {planned}")
    signature = SIGNATURES[planned.kernel]
    for name, role, target, before in zip(
        signature.tensors, signature.roles, planned.operands, original.operands, strict=True
    ):
        if target is None or before is None or role == "Read":
            continue
        if target.strides != before.strides and len(boxes(target)) > 1:
            raise PlanError(f"{_called(planned)}: wanted the elements of {name!r} apart, received {target}")
        for other, operand, source in zip(signature.tensors, planned.operands, original.operands, strict=True):
            if operand is None or source is None or other == name or source.block == before.block:
                continue
            allowed = other in signature.overwrites.get(name, ()) and _coincide(target, operand, offsets)
            if not allowed and _overlap(target, operand, offsets):
                raise PlanError(f"{_called(planned)}: wanted {name!r} apart from {other!r}, received shared bytes")


def _coincide(a: Operand, b: Operand, offsets: Mapping[int, int]) -> bool:
    """Whether each element of one has the bytes of the same element of the other."""
    (span, base), (other, other_base) = _span(a, offsets), _span(b, offsets)
    return (span, base + a.offset, a[1:4]) == (other, other_base + b.offset, b[1:4])


def _overlap(a: Operand, b: Operand, offsets: Mapping[int, int]) -> bool:
    """Whether they share a byte."""
    (span, base), (other, other_base) = _span(a, offsets), _span(b, offsets)
    if span != other:
        return False
    return any(cut(one, two)[0] for one in boxes(a, base) for two in boxes(b, other_base))


def _sources(
    program: Program, offsets: Mapping[int, int], left_out: Collection[int], originals: Mapping[int, Instruction]
) -> tuple[dict[int, list[list[Piece]]], dict[int, Contents]]:
    """For each instruction, for each of its reads, who wrote each of its bytes; and who did at the end, by span."""
    memory: dict[int, Contents] = defaultdict(Contents)
    sources: dict[int, list[list[Piece]]] = {}
    new = set(offsets)
    flight = InFlight()
    for instruction in program.instructions:
        if program.host_sizes:
            _note(flight, instruction, offsets)
        if instruction.transfer is Transfer.BEGIN:
            _forget(memory, instruction.writes[0], offsets, program.sizes)
            new.discard(instruction.writes[0].block)
            continue
        reads = [_read(memory, operand, offsets, operand.block in program.sizes) for operand in instruction.reads]
        sources[instruction.number] = reads
        through = instruction.transfer is not None or (instruction.number in left_out and _moves_bytes(instruction))
        for name, operand in zip(_names(instruction, originals), instruction.writes, strict=True):
            span, base = _span(operand, offsets)
            if operand.block in new:
                new.discard(operand.block)
                _forget(memory, operand, offsets, program.sizes)
            for box in boxes(operand, base):
                written = renamed(reads[0], box) if through else [(name, box)]
                memory[span].put(box, written)
    flight.check_ended()
    return sources, memory


def _forget(
    memory: Mapping[int, Contents], operand: Operand, offsets: Mapping[int, int], sizes: Mapping[int, int]
) -> None:
    """The bytes of the operand's block hold nothing that anybody wrote."""
    span, base = _span(operand, offsets)
    memory[span].put(_run(base, sizes[operand.block]), ())


def _note(flight: InFlight, instruction: Instruction, offsets: Mapping[int, int]) -> None:
    """A copy begins or ends, or an instruction runs while copies are under way."""

    def placed(operands: list[Operand]) -> list[tuple[int, list[Box]]]:
        spans = [(operand, *_span(operand, offsets)) for operand in operands]
        return [(span, boxes(operand, base)) for operand, span, base in spans]

    if instruction.transfer is not None:
        flight.turn(instruction, *placed([*instruction.reads, *instruction.writes]))
    elif flight.any_open:
        flight.check(instruction, placed(instruction.reads), placed(instruction.writes))


def _names(instruction: Instruction, originals: Mapping[int, Instruction]) -> list[int]:
    """The number by which the bytes of each of its writes are known: a repeat's are those of the original."""
    if instruction.repeats is None:
        return [name for name, _ in _named(instruction)]
    original = originals[instruction.repeats]
    names = {id(operand): name for name, operand in _named(original)}
    return [names[id(operand)] for operand in again(original).writes]


def _moves_bytes(instruction: Instruction) -> bool:
    """Whether it is a copy that neither repeats elements, nor converts them, nor changes the order of the axes."""
    if instruction.kernel != "copy":
        return False
    (x,), (y,) = instruction.reads, instruction.writes
    return (x.shape, x.dtype) == (y.shape, y.dtype) and axis_order(x.shape, x.strides) == axis_order(y.shape, y.strides)


def boxes(operand: Operand, base: int = 0) -> list[Box]:
    """The operand's bytes by address in its block, from `base` on, and by index, in bytes, as `axis_order` counts them.

    It is one box, unless elements share bytes or an axis reaches into the steps of another.
    """
    found = _boxes(operand.shape, operand.strides, operand.dtype.itemsize)
    return [box.moved(base + operand.offset) for box in found]


@lru_cache(maxsize=1024)
def _boxes(shape: Shape, strides: Shape, itemsize: int) -> list[Box]:
    found, index = [_run(0, itemsize)] if 0 not in shape else [], itemsize
    for axis in reversed(axis_order(shape, strides)):
        extent, stride = shape[axis], strides[axis]
        if all(box.end - box.at[0] <= stride for box in found):
            found = [box.repeated(extent, (stride, index)) for box in found]
        else:
            copies = [(i * stride, i * index) for i in range(extent)]
            found = [Box((box.at[0] + by, box.at[1] + to), box.axes) for by, to in copies for box in found]
        index *= extent
    return found


def _run(start: int, length: int) -> Box:
    """That many bytes one behind the other, by address, and by index among themselves."""
    return Box((start, 0), ()).repeated(length, (1, 1))


def _read(
    memory: Mapping[int, Contents], operand: Operand, offsets: Mapping[int, int], is_intermediate: bool
) -> list[Piece]:
    """Who wrote the bytes that an operand reads. Those that no instruction wrote are named by their held block."""
    span, base = _span(operand, offsets)
    nobody = -1 if is_intermediate else -2 - operand.block
    pieces: list[Piece] = []
    for box in boxes(operand, base):
        found, rest = memory[span].get(box)
        pieces += found
        pieces += [(nobody, part.moved(-base).seen(1, 0)) for part in rest]
    return pieces


def _span(operand: Operand, offsets: Mapping[int, int]) -> tuple[int, int]:
    """The span of bytes that the block lies in (-1: the arena) and where in it."""
    return (-1, offsets[operand.block]) if operand.block in offsets else (operand.block, 0)
