"""Replacing: the calls of a law's right side in the place of those of its left side.

    law:        conv2d x weight bias z; $f z y  ->  conv2d_activation x weight bias y~z
    recorded:   z = conv2d(x, w, b);  y = relu(z)
    here:       y = conv2d_activation(x, w, b), relu

Passes say which places are worth it: by shapes, costs and what the kernels do in one go.
"""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.compiler.ir.laws import settings_of
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.ir.rewriter import Rewriter
from singa_lite.compiler.ir.uses import Uses
from singa_lite.compiler.rewrite.law_moves import CallPosition, may_stand
from singa_lite.compiler.rewrite.law_places import Place, is_all, lie_alike


class Replacing:
    """A program of which some calls are replaced by what laws say."""

    def __init__(self, program: Program) -> None:
        self.program, self.uses = program, Uses(program.instructions)
        self._make = Rewriter(program)
        self._placed: dict[int, list[Instruction]] = {}

    def may_put(self, place: Place, at: Sequence[CallPosition]) -> bool:
        """Whether the right side may stand there and lies as the law says, and nothing of the left side is gone."""
        lies = all(self._lies(place, word) for part in place.law.right for word in part.words)
        return lies and self._placed.keys().isdisjoint(place.steps) and may_stand(self.program, self.uses, place, at)

    def put(self, place: Place, at: Sequence[CallPosition]) -> None:
        """Put the right side there. at: of each of its calls."""
        for part, step in zip(place.law.left, place.steps, strict=True):
            if not part.stays:
                self._placed[step] = []
        for one, made in zip(at, self.made(place, at), strict=True):
            self._placed[place.steps[one.place]].append(made)

    def made(self, place: Place, at: Sequence[CallPosition]) -> list[Instruction]:
        """The calls of the right side."""
        found = [self.program.instructions[step] for step in place.steps]
        named, made = dict(place.named), list[Instruction]()
        for part, one in zip(place.law.right, at, strict=True):
            kernel = next(k for k, meant in part.kernels().items() if meant == place.variables.get(part.variable, ""))
            operands = tuple(self._operand(place, named, word) for word in part.words)
            settings = settings_of(kernel, found, place.variables)
            made.append(self.program.target.call(found[one.model], kernel, operands, settings))
        return made

    def result(self) -> Program:
        """The program with all that was put into it."""
        if not self._placed:
            return self.program
        kept = (self._placed.get(step, [given]) for step, given in enumerate(self.program.instructions))
        return self._make.program(instruction for some in kept for instruction in some)

    def _lies(self, place: Place, word: str) -> bool:
        """Whether a word that stands for a tensor of the left side may be made to lie as another one."""
        name, _, like = word.partition("~")
        if not like or name not in place.named:
            return True
        named, wanted = place.named[name], place.named[like]
        return named[1:4] == wanted[1:4] or (is_all(self.program, named) and lie_alike(named, wanted))

    def _operand(self, place: Place, named: dict[str, Operand], word: str) -> Operand | None:
        """What a word of the right side stands for; a new one in the block that it takes over, or in one of its own."""
        name, _, like = word.partition("~")
        name = name.partition(">")[0]
        model = named.get(like or name)
        if like and model is not None:
            known = named.get(name)
            if known is not None:
                named[name] = model._replace(block=known.block, offset=known.offset)
            elif place.law.heirs.get(like) == name:
                named[name] = model
            else:
                named[name] = model._replace(block=self._make.new_block(model.nbytes), offset=0)
        return named.get(name)
