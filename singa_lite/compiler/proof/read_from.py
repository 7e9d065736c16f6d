"""The proof that sharing bytes changes no value: every read still gets the last write it got without sharing.

    rewritten, each block with bytes of its own      planned, in one arena
      1 writes a, bytes 0 to 63                        1 writes a, at 0 to 63
      2 writes b                                       2 writes b, at 32 to 95
      3 reads a: all written by 1                      3 reads a: 0 to 31 by 1, 32 to 63 by 2     PlanError

If each read gets, byte for byte, what the same write wrote, then by induction along the program each write writes the
same values, and so does the step. That needs no thought of why a plan shares bytes: reordering, in-place writing, moved
pieces of a concatenation and placement are all judged by what they lead to. The proof shares no code with them.

Why not simpler: `compiler/placement/check.py` finds blocks that overlap while both are alive, but it believes the
lifespans and the merged blocks that the passes give it. To run both programs and compare bits shows one step with one
batch; the tests do it. Caffe2's memonger, whose verifier the idea is from, compares the last writer of each blob by
name; here a block holds bytes of several writers, and several blocks hold the same bytes. A table of the writer of each
byte would be as large as the arena. So bytes are followed in boxes (`boxes.Box`): the time goes with the number of
pieces that differ in their writer or in their spacing, and not with their size. The pieces of a concatenation are one
box each, for any batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from singa_lite.compiler.ir.collectives import has_any
from singa_lite.compiler.ir.footprint import Contents, Piece, boxes, moves_bytes, name_same_bytes, renamed, run, span_of
from singa_lite.compiler.ir.operation import Instruction, Operand, Transfer, repeat_of
from singa_lite.compiler.ir.program import Program, split_joined
from singa_lite.compiler.proof.check_calls import check_calls
from singa_lite.compiler.proof.errors import NO_NAMES, BlockNames, ByteErrors
from singa_lite.compiler.proof.races import InFlight, check_joined

#: Where host memory begins, in the addresses of the arena: behind any arena.
HOST = 1 << 62
NO_OFFSETS: Mapping[int, int] = MappingProxyType({})


def check_reads(
    rewritten: Program,
    planned: Program,
    offsets: Mapping[int, int],
    host_offsets: Mapping[int, int] = NO_OFFSETS,
    names: BlockNames = NO_NAMES,
) -> None:
    """PlanError unless the planned program leaves in each held block, byte for byte, what the rewritten one does.

    offsets: {block: offset in the arena} for the planned program; blocks that are not in it have bytes of their own
    there too, as every block has for the rewritten one. Each planned instruction must stand in that one, once, read
    what it reads there, and write over what it reads only as its kernel allows. A repeat must be `repeat_of` of one
    that stands there: where it reads what that one read, and of what that one wrote what that one wrote, it writes the
    same, so its bytes are named as those of the original.

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
    nor overwrite either side. names: of blocks, for the message.
    """
    planned = replace(planned, sizes=planned.sizes | planned.host_sizes)
    offsets = {**offsets, **{block: HOST + offset for block, offset in host_offsets.items()}}
    check_joined(planned, offsets)
    planned = split_joined(planned)
    left_out = check_calls(rewritten, planned, offsets)
    originals = {i.number: i for i in rewritten.instructions}
    errors = ByteErrors(originals, names)
    wanted, wanted_memory = _sources(rewritten, {}, left_out, originals)
    found, memory = _sources(planned, offsets, (), originals)
    for instruction in planned.instructions:
        if instruction.transfer is not None or not instruction.reads:
            continue
        expected_reads = _expected(instruction, originals, wanted)
        pairs = zip(found[instruction.number], expected_reads, strict=True)
        for index, (received, expected) in enumerate(pairs):
            if not name_same_bytes(received, expected):
                raise errors.wrong_read(instruction, index, expected, received)
    used = {operand.block for i in rewritten.instructions for operand in i.operands if operand is not None}
    for block in (wanted_memory.keys() | memory.keys()) - rewritten.sizes.keys() - (planned.sizes.keys() - used) - {-1}:
        left, left_wanted = (m[block].pieces() if block in m else [] for m in (memory, wanted_memory))
        if not name_same_bytes(left, left_wanted):
            raise errors.held_block(block, left_wanted, left)


def _expected(
    instruction: Instruction, originals: Mapping[int, Instruction], wanted: Mapping[int, list[list[Piece]]]
) -> list[list[Piece]]:
    """For each read of a planned instruction, who wrote its bytes in the rewritten program."""
    if instruction.repeats is None:
        return wanted[instruction.number]
    original = originals[instruction.repeats]
    written = {id(operand): [(name, box.seen(1, 1)) for box in boxes(operand)] for name, operand in _named(original)}
    read = dict(zip(map(id, original.reads), wanted[original.number], strict=True))
    return [(written | read)[id(operand)] for operand in repeat_of(original).reads]


def _named(instruction: Instruction) -> list[tuple[int, Operand]]:
    """Each operand that it writes, with the number by which the bytes are known."""
    return [(instruction.number * 8 + index, operand) for index, operand in enumerate(instruction.writes)]


def _sources(
    program: Program, offsets: Mapping[int, int], left_out: Collection[int], originals: Mapping[int, Instruction]
) -> tuple[dict[int, list[list[Piece]]], dict[int, Contents]]:
    """For each instruction, for each of its reads, who wrote each of its bytes; and who did at the end, by span."""
    memory: dict[int, Contents] = defaultdict(Contents)
    sources: dict[int, list[list[Piece]]] = {}
    new = set(offsets)
    flight, has_flight = InFlight(offsets), bool(program.host_sizes) or has_any(program)
    for instruction in program.instructions:
        if has_flight:
            flight.follow(instruction)
        if instruction.transfer is Transfer.BEGIN:
            _forget(memory, instruction.writes[0], offsets, program.sizes)
            new.discard(instruction.writes[0].block)
            continue
        reads = [_read(memory, operand, offsets, operand.block in program.sizes) for operand in instruction.reads]
        sources[instruction.number] = reads
        through = instruction.transfer is not None or (instruction.number in left_out and moves_bytes(instruction))
        for name, operand in zip(_names(instruction, originals), instruction.writes, strict=True):
            span, base = span_of(operand, offsets)
            if operand.block in new:
                new.discard(operand.block)
                _forget(memory, operand, offsets, program.sizes)
            for box in boxes(operand, base):
                written = renamed(reads[0], box) if through else [(name, box)]
                memory[span].overwrite(box, written)
    flight.check_ended()
    return sources, memory


def _forget(
    memory: Mapping[int, Contents], operand: Operand, offsets: Mapping[int, int], sizes: Mapping[int, int]
) -> None:
    """The bytes of the operand's block hold nothing that anybody wrote."""
    span, base = span_of(operand, offsets)
    memory[span].overwrite(run(base, sizes[operand.block]), ())


def _names(instruction: Instruction, originals: Mapping[int, Instruction]) -> list[int]:
    """The number by which the bytes of each of its writes are known: a repeat's are those of the original."""
    if instruction.repeats is None:
        return [name for name, _ in _named(instruction)]
    original = originals[instruction.repeats]
    names = {id(operand): name for name, operand in _named(original)}
    return [names[id(operand)] for operand in repeat_of(original).writes]


def _read(
    memory: Mapping[int, Contents], operand: Operand, offsets: Mapping[int, int], is_intermediate: bool
) -> list[Piece]:
    """Who wrote the bytes that an operand reads. Those that no instruction wrote are named by their held block."""
    span, base = span_of(operand, offsets)
    nobody = -1 if is_intermediate else -2 - operand.block
    pieces: list[Piece] = []
    for box in boxes(operand, base):
        found, rest = memory[span].get(box)
        pieces += found
        pieces += [(nobody, part.moved(-base).seen(1, 0)) for part in rest]
    return pieces
