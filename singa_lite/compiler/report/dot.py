"""A recorded step in the language of Graphviz."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.uses import predecessors
from singa_lite.compiler.report.plan_figure import COLORS

_HEAD = (
    "digraph step {",
    '  node [shape=box, style="rounded,filled", fontname="sans-serif"];',
    '  edge [fontname="sans-serif", fontsize=10, color="#666666"];',
)


def to_dot(instructions: Sequence[Instruction], names: Sequence[str]) -> str:
    """A node for each instruction, colored by phase; an edge for each direct dependency, with the blocks it is by.

    names: of the blocks, by number. Nodes are called `o<number of the instruction>`.
    """
    lines = [*_HEAD, *(_node(instruction) for instruction in instructions)]
    causes = _Causes(instructions)
    for step, before in enumerate(predecessors(instructions)):
        for earlier in before:
            label = _quoted(", ".join(names[block] for block in causes(earlier, step)))
            lines.append(f"  o{instructions[earlier].number} -> o{instructions[step].number} [label={label}];")
    return "\n".join([*lines, "}", ""])


class _Causes:
    """The blocks because of which one step depends directly on an earlier one."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.used = [{o.block for o in i.operands if o is not None} for i in instructions]
        self.written = [{o.block for o in i.writes} for i in instructions]
        self.writers: dict[int, list[int]] = defaultdict(list)
        for step, blocks in enumerate(self.written):
            for block in blocks:
                self.writers[block].append(step)

    def __call__(self, earlier: int, later: int) -> list[int]:
        """Blocks that both use and at least one writes, with no write by a third between them; rising."""
        shared = self.used[earlier] & self.used[later] & (self.written[earlier] | self.written[later])
        return sorted(block for block in shared if not self._written_between(block, earlier, later))

    def _written_between(self, block: int, earlier: int, later: int) -> bool:
        writers = self.writers[block]
        following = bisect_right(writers, earlier)
        return following < len(writers) and writers[following] < later


def _node(instruction: Instruction) -> str:
    label = _quoted("\n".join(filter(None, [instruction.kernel, instruction.layer])))
    phase = str(instruction.phase)
    return f'  o{instruction.number} [label={label}, fillcolor="{COLORS[phase]}", tooltip="{phase}"];'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
