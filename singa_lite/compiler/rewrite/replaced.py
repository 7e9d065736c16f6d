"""Joined instructions in the place of two, as many as do not raise the floor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.program import Program, floor
from singa_lite.compiler.share.in_place import in_place


class Join(NamedTuple):
    """One instruction in the place of that at step `at`, which does what that at step `gone` did as well."""

    at: int
    gone: int
    made: Instruction


def replaced(program: Program, joins: Sequence[Join]) -> Program:
    """The program with all joins that leave its floor where it was: halves of those that together would raise it.

    The scratch of a joined call may be wanted where more lives than at either of the two.
    """
    if not joins:
        return program
    level, kept, groups = floor(in_place(program)), list[Join](), [list(joins)]
    while groups:
        group = groups.pop()
        if floor(in_place(_with_joins(program, [*kept, *group]))) <= level:
            kept += group
        elif len(group) > 1:
            middle = len(group) // 2
            groups += [group[middle:], group[:middle]]
    return _with_joins(program, kept) if kept else program


def _with_joins(program: Program, joins: Sequence[Join]) -> Program:
    made = {join.at: join.made for join in joins}
    gone = {join.gone for join in joins}
    return program.with_instructions([made.get(s, i) for s, i in enumerate(program.instructions) if s not in gone])
