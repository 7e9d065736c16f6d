"""Routine of this set: primitives and small host functions in a row, some of them over many pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

from singa_lite.kernels import routine as base
from singa_lite.kernels.built import AddressKernel, of_specs
from singa_lite.kernels.call import Call
from singa_lite.kernels.kernel_set import DeviceArray, Launch, Settings, TensorSpecs
from singa_lite.kernels.onednn_kernels import bfloat16
from singa_lite.kernels.onednn_kernels.library import layouts
from singa_lite.kernels.onednn_kernels.library.library import OneDNNError
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.loop import Loop, Run
from singa_lite.kernels.onednn_kernels.views import Arrays as Arrays
from singa_lite.kernels.onednn_kernels.views import BufferView as BufferView
from singa_lite.kernels.onednn_kernels.views import FlatSlice as FlatSlice
from singa_lite.kernels.onednn_kernels.views import RowSlice as RowSlice
from singa_lite.kernels.routine import Step, Temporary
from singa_lite.kernels.variants import Variants

Piece = TypeVar("Piece")

#: The library holds extents and some products of them in 32 bits: beyond, it is silently wrong, or divides by zero.
MOST_ELEMENTS = 2**31 - 1


@dataclass
class _HostCall(Step[Arrays]):
    """A function on the host, over the arrays of its buffers."""

    function: Callable[..., object]
    views: tuple[BufferView | None, ...]

    def bind(self, binding: Arrays) -> Launch:
        return partial(self.function, *(binding[view] for view in self.views))


@dataclass
class Routine(base.Routine[Step[Arrays]]):
    """Steps done one after the other. Builders of kernels make one for the tensor specs that they are given."""

    ALIGNMENT = 64

    def run(self, primitive: Primitive, views: Mapping[int, BufferView | None]) -> None:
        """A step: the primitive over these buffers, {argument: buffer}; None for one that is left out."""
        given = {argument: view for argument, view in views.items() if view is not None}
        self.steps.append(Run(primitive, given))

    def call(self, function: Callable[..., object], *views: BufferView | None) -> None:
        """A step on the host: the function over the buffers' arrays, for small ones (a vector of channels)."""
        self.steps.append(_HostCall(function, views))

    def repeat(self, pieces: Iterable[Piece], add: Callable[[Piece], None]) -> None:
        """Steps that are done with one piece after the other: `add` adds those of a piece, primitives only.

        Where these are the same ones for several pieces in a row, they are bound once.
        """
        loop: Loop | None = None
        for piece in pieces:
            with self._apart() as steps:
                add(piece)
            each = cast(list[Run], steps)
            if loop is None or not loop.takes(each):
                loop = Loop(each)
                self.steps.append(loop)

    @contextmanager
    def _apart(self) -> Iterator[list[Step[Arrays]]]:
        """Steps added inside go to a list of their own, which is given."""
        before, self.steps = self.steps, []
        try:
            yield self.steps
        finally:
            self.steps = before

    def _binding(self, arrays: Mapping[int, DeviceArray], scratch: DeviceArray | None, rest: Temporary) -> Arrays:
        return Arrays(arrays, scratch, rest)


class RoutineKernel(AddressKernel[Routine]):
    """A kernel of this set. name: in the interface; build: makes the routine of a call; variants: its further ways."""

    def __init__(
        self, name: str, build: Callable[[Call], Routine | None], variants: Variants[Routine] | None = None
    ) -> None:
        super().__init__(of_specs(name, build), variants)

    def variant(self, specs: TensorSpecs, settings: Settings) -> str:
        """As `BuiltKernel.variant`, and whether operands are taken in bfloat16."""
        way = super().variant(specs, settings)
        is_narrow = any(spec is not None and layouts.is_narrow(spec) for spec in specs)
        return f"{way} bfloat16".strip() if is_narrow else way

    def forget(self) -> None:
        """Let go of the routines: launches have those that they need, others are built again if they are wanted."""
        self._built.clear()
        self.pack()

    def attempt(self, specs: TensorSpecs, settings: Settings) -> Routine | None:
        """The routine; None for what the library has no code for here, or cannot count."""
        given = [spec for spec in specs if spec is not None]
        if any(spec.size > MOST_ELEMENTS or layouts.are_interleaved(spec) for spec in given):
            return None
        if any(map(layouts.is_narrow, given)) and not bfloat16.converts():
            return None
        try:
            return super().attempt(specs, settings)
        except OneDNNError as error:
            if error.status != OneDNNError.UNIMPLEMENTED:
                raise
            return None
