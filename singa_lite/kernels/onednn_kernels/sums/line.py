"""Element-wise work along memory: tensors that lie alike are taken as lines of elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

from singa_lite.common.array_types import DType
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.library import algorithms as a
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.layouts import FLOAT
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.loop import Run
from singa_lite.kernels.onednn_kernels.pieces import piece_size
from singa_lite.kernels.onednn_kernels.routine import BufferView, FlatSlice, Routine
from singa_lite.kernels.onednn_kernels.work import Work
from singa_lite.kernels.routine import Temporary

#: Elements of a piece: four tensors' pieces stay in a cache of 32 MiB from one primitive to the next.
PIECE = 1 << 20
#: Elements of the widest vector register: pieces begin at multiples of it.
_WIDTH = 16


class Binary(NamedTuple):
    """An element and its counterpart in another buffer, or the one number of it, become one by an algorithm."""

    algorithm: int
    other: BufferView


class Eltwise(NamedTuple):
    """An element becomes the algorithm's function of it."""

    algorithm: int
    alpha: float = 0.0
    beta: float = 0.0


class AddOld(NamedTuple):
    """The target's old value times the scale is added. Only at the end of a chain."""

    scale: float


#: What is done with each element on its way from the source to the target.
Link = Binary | Eltwise | AddOld


class Steps(Routine):
    """Steps over `size` elements of tensors of one type that lie alike. A `Temporary` is one number for all of them."""

    def __init__(self, size: int, temporary_bytes: int = 0, dtype: DType = FLOAT) -> None:
        super().__init__(temporary_bytes=temporary_bytes)
        self.size, self.dtype = size, dtype

    @property
    def runs(self) -> list[Run]:
        """The steps, primitives all of them."""
        return cast(list[Run], self.steps)

    @property
    def line(self) -> p.MemoryDesc:
        """The descriptor of the tensors."""
        return memory_descs.dense((self.size,), str(self.dtype))

    def chain(self, target: BufferView, source: BufferView, *links: Link) -> None:
        """target = source, taken through the links one by one. The first is a `Binary`; target may be source."""
        first, *others = links
        if not isinstance(first, Binary):
            raise TypeError(f"wanted a binary link to begin with, received {first}")
        operands = {f.SRC: source, f.SRC_1: first.other, f.DST: target}
        post_ops: list[p.PostOp] = []
        for index, link in enumerate(others):
            if isinstance(link, Binary):
                operands[f.post_op(index)] = link.other
                post_ops.append(("binary", link.algorithm, self._desc(link.other)))
            elif isinstance(link, Eltwise):
                post_ops.append(("eltwise", *link))
            else:
                post_ops.append(("sum", link.scale, 0, 0))
        made = Primitive("binary", first.algorithm, self.line, self._desc(first.other), self.line, post_ops=post_ops)
        self.run(made, operands)

    def eltwise(
        self, target: BufferView, source: BufferView, algorithm: int, alpha: float = 0.0, beta: float = 0.0
    ) -> None:
        """target = the algorithm's function of source; target may be source."""
        self.run(self._eltwise(algorithm, alpha, beta), {f.SRC: source, f.DST: target})

    def derivative(
        self, dx: BufferView, dy: BufferView, known: BufferView, algorithm: int, alpha: float = 0.0, beta: float = 0.0
    ) -> None:
        """dx = dy * the derivative. known: the function's result for algorithms `_FROM_RESULT`, else its input."""
        forward, lines = self._eltwise(algorithm, alpha, beta), (self.line,) * 3
        made = Primitive("eltwise_backward", algorithm, *lines, alpha, beta, forward=forward)
        argument = f.DST if algorithm >= a.RELU_FROM_RESULT else f.SRC
        self.run(made, {argument: known, f.DIFF_DST: dy, f.DIFF_SRC: dx})

    def _eltwise(self, algorithm: int, alpha: float, beta: float) -> Primitive:
        return Primitive("eltwise_forward", f.FORWARD_TRAINING, algorithm, self.line, self.line, alpha, beta)

    def clip(self, target: BufferView, source: BufferView, least: float, largest: float) -> None:
        """target = min(max(source, least), largest), NaN where source is NaN; target may be source."""
        self.bound(target, source, largest, a.MINIMUM)
        self.bound(target, target, least, a.MAXIMUM)

    def bound(self, target: BufferView, source: BufferView, bound: float, algorithm: int) -> None:
        """As `add_bound`, over these tensors."""
        add_bound(self, self.line, target, source, bound, algorithm)

    def _desc(self, operand: BufferView) -> p.MemoryDesc:
        return self.line if isinstance(operand, TensorSpec) else memory_descs.dense((1,))


def add_bound(
    steps: Routine, line: p.MemoryDesc, target: BufferView, source: BufferView, bound: float, algorithm: int
) -> None:
    """target = the bound or source, by algorithm MINIMUM or MAXIMUM; NaN where source is NaN, 0.0 where it is -0.0.

    line: the descriptor of both.
    """
    run_bound(steps, bound_primitive(line, bound, algorithm), target, source)


def bound_primitive(line: p.MemoryDesc, bound: float, algorithm: int) -> Primitive:
    """The primitive of `add_bound`.

    Where one of two numbers is NaN, or both are zeros, the library takes the second, so the bound is made first.
    """
    number, no_sign = ("eltwise", a.LINEAR, 1.0, bound), ("eltwise", a.LINEAR, 1.0, 0.0)
    post_ops = number, ("binary", algorithm, line), no_sign
    return Primitive("binary", a.LESS, line, line, line, post_ops=post_ops)


def run_bound(steps: Routine, primitive: Primitive, target: BufferView, source: BufferView) -> None:
    """Add a step: such a primitive from the source to the target, which may be one."""
    steps.run(primitive, {f.SRC: source, f.SRC_1: source, f.post_op(1): source, f.DST: target})


class Line(Work):
    """Steps of its own, then steps over tensors that lie alike; where these are several, piece after piece.

    size: of each of the tensors, which lie alike (`layouts.same_layout`). piece: elements that one primitive leaves
    in the cache for the next, about PIECE where None; dtype: of the tensors. Up to `one_thread.SMALL` elements are done
    by one thread.
    """

    def __init__(self, size: int, piece: int | None = None, dtype: DType = FLOAT) -> None:
        super().__init__(size)
        self.piece, self.dtype = min(size, _piece(size) if piece is None else piece), dtype
        self._over: dict[int, Steps] = {}

    def numbers(self, count: int) -> tuple[Temporary, ...]:
        """Temporaries of one number, which a step on the host writes at each run."""
        return tuple(self.temporary((1,), "float32") for _ in range(count))

    def each(self, add: Callable[[Steps], None]) -> Line:
        """State what is done with a piece: `add` adds the steps. To be called when all temporaries are taken."""
        with self.making():
            self._make(self.size, add)
            if len(self._over[self.size].steps) == 1:
                self.piece = self.size
            for size in {self.piece, self.size % self.piece} - {0, self.size}:
                self._make(size, add)
        self.repeat(range(0, self.size, self.piece), self._add_piece)
        return self

    def _make(self, size: int, add: Callable[[Steps], None]) -> None:
        self._over[size] = Steps(size, self.temporary_bytes, self.dtype)
        add(self._over[size])

    def _add_piece(self, start: int) -> None:
        """The steps over the elements from this one on."""
        for step in self._over[min(self.piece, self.size - start)].runs:
            self.run(step.primitive, {argument: self._piece(view, start) for argument, view in step.views.items()})

    def _piece(self, view: BufferView, start: int) -> BufferView:
        """What stands for a buffer of the steps: a piece of a tensor that is a line, else the buffer."""
        if not isinstance(view, TensorSpec) or view.size != self.size or self.piece == self.size:
            return view
        return FlatSlice(view, start, min(self.piece, self.size - start))


def _piece(size: int) -> int:
    """Of so many elements: about PIECE, in whole registers."""
    return PIECE if size % _WIDTH else piece_size(size // _WIDTH, PIECE // _WIDTH) * _WIDTH
