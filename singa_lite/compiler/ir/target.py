"""Target: what passes may ask of the kernels and the memory that a program is made for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from singa_lite.common.array_types import DType
from singa_lite.compiler.ir.matching import RecordRule
from singa_lite.compiler.ir.operation import Instruction, Operand
from singa_lite.compiler.ir.time_model import Cost, seconds
from singa_lite.kernels.kernel_set import KernelSet, Settings

Answer = TypeVar("Answer")
#: A rule of a kernel set, which is asked about a call: its kernel, its operands and its settings.
CallRule = Callable[[str, Sequence[Operand | None], Settings], Answer]


def _zero(*call: object) -> int:
    """A rule of kernels that work without scratch, and one by one."""
    return 0


def _false(*call: object) -> bool:
    """A rule of kernels that spare no pass over memory."""
    return False


def _unnamed(*call: object) -> str:
    """A rule of kernels that do each call in the one way that they have."""
    return ""


def no_levels(*call: object) -> tuple[()]:
    """A rule of kernels that work with one number of bytes of scratch, or whose strides matter in all operands."""
    return ()


class Narrow(NamedTuple):
    """How activations are stored. dtype: in the place of `wide`; wide_layers: names of those that keep theirs."""

    dtype: DType
    wide: DType
    wide_layers: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Target:
    """Facts on a kernel set and on the memory of its device; by default kernels that fuse nothing, on a CPU.

    Rules are methods of `KernelSet`. fusions: (kernel, option) as of `KernelSet`, and `fusions.PAIR`.
    scratch_bytes: the rule; in_one_pass: whether a fused call takes less time than the calls apart. strides_matter:
    kernels whose results may depend on any strides of their operands; inner_strides_matter: those, and those on any but
    that of axis 0. free_of_strides: of which operands they do not depend on them. tile_bytes: of a large
    gradient that is made and applied at a time. row_bytes: as of `KernelSet`. alignment: bytes, which divides all
    offsets in the arena; by default a cache line, and the widest vector register. limit: bytes that the arena may have
    at most; None: as many as it takes. link: the rate of copies to host memory as a share of that of the device's
    own, where values may be offloaded so that the limit holds; None: they may not. cost: of what is done again, the
    seconds. narrow: how activations are stored; None: as they were recorded. variant: the rule that names the way
    in which a call is done. class_tiles: whether a product is made twice so that scores and gradient of a head need
    not exist whole. lanes: how many instructions may run at the same time, in plans whose instructions may
    (`parallel.py`); share: of how many threads each of these is then made, 0: of all, as they run one after the
    other after all. rules: of the user, by which the record is rewritten before anything else. levels: the rule
    that says with which further numbers of bytes of scratch a call may be done. thrifty: calls are planned with the
    least of them, and not with those of `scratch_bytes`. most_joined: the rule that says how many calls are faster
    as one.
    """

    fusions: Collection[tuple[str, str]] = frozenset()
    scratch_bytes: CallRule[int] = _zero
    strides_matter: Collection[str] = frozenset()
    inner_strides_matter: Collection[str] = frozenset()
    free_of_strides: CallRule[Collection[str]] = no_levels
    tile_bytes: int = 1 << 20
    alignment: int = 64
    limit: int | None = None
    link: float | None = None
    cost: Cost = seconds
    in_one_pass: CallRule[bool] = _false
    narrow: Narrow | None = None
    variant: CallRule[str] = _unnamed
    class_tiles: bool = False
    lanes: int = 2
    share: int = 0
    rules: tuple[RecordRule, ...] = ()
    levels: CallRule[tuple[int, ...]] = no_levels
    thrifty: bool = False
    most_joined: CallRule[int] = _zero
    row_bytes: int = 1

    @classmethod
    def of(
        cls,
        kernels: KernelSet,
        alignment: int,
        limit: int | None = None,
        link: float | None = None,
        cost: Cost = seconds,
        narrow: Narrow | None = None,
    ) -> Target:
        """That of a device with these kernels, whose arena has this alignment, and at most so many bytes."""
        return cls(
            kernels.fusions,
            kernels.scratch_bytes,
            kernels.strides_matter,
            kernels.inner_strides_matter,
            kernels.free_of_strides,
            kernels.tile_bytes,
            alignment,
            limit,
            link,
            cost,
            kernels.in_one_pass,
            narrow,
            kernels.variant,
            levels=kernels.scratch_levels if kernels.has_levels else no_levels,
            most_joined=kernels.most_joined,
            row_bytes=kernels.row_bytes,
        )

    def scratch_of(self, kernel: str, operands: Sequence[Operand | None], settings: Settings) -> int:
        """Bytes of scratch that a call is planned with."""
        nbytes = self.scratch_bytes(kernel, operands, settings)
        return min([nbytes, *self.levels(kernel, operands, settings)]) if self.thrifty else nbytes

    def call(
        self,
        model: Instruction,
        kernel: str,
        operands: tuple[Operand | None, ...],
        settings: Settings,
        number: int | None = None,
    ) -> Instruction:
        """The instruction by which a pass replaces another, with the scratch that it needs here.

        number: of the new instruction, by default that of the model, which is the one replaced.
        """
        nbytes = self.scratch_of(kernel, operands, settings)
        number = model.number if number is None else number
        return Instruction(number, kernel, operands, settings, model.phase, model.layer, nbytes)


#: Kernels that fuse nothing and work without scratch, on a CPU.
PLAIN = Target()
