"""Routine of this set: primitives and small host functions in a row, some of them on condition or over many pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from types import ModuleType
from typing import TypeVar, cast

import numpy as np

from singa_lite.array_types import Array
from singa_lite.kernels import routine as base
from singa_lite.kernels.built import BuiltKernel, builders
from singa_lite.kernels.kernel_set import DeviceArray, Launch, Settings, TensorSpec, TensorSpecs
from singa_lite.kernels.onednn_kernels import bfloat16, layouts
from singa_lite.kernels.onednn_kernels.library import OneDNNError
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from singa_lite.kernels.routine import Binding, Row, Step, Temporary
from singa_lite.kernels.variants import Variants

Piece = TypeVar("Piece")

#: The library holds extents and some products of them in 32 bits: beyond, it is silently wrong, or divides by zero.
MOST_ELEMENTS = 2**31 - 1


@dataclass(frozen=True)
class FlatSlice:
    """`count` elements of a tensor without gaps, from element `start` on in the order of memory."""

    tensor: BufferView
    start: int
    count: int


@dataclass(frozen=True)
class RowSlice:
    """`count` rows of `length` elements from row `start` on, of a tensor that is rows with a pitch, in elements."""

    tensor: TensorSpec
    start: int
    count: int
    length: int
    pitch: int


#: What a step works on: a tensor of the call, a part of one, or a temporary.
BufferView = base.BufferView | FlatSlice | RowSlice


class Arrays(Binding[Array | None]):
    """The NumPy arrays of a call."""

    def __getitem__(self, view: BufferView | None) -> Array | None:
        """The buffer's array; None for a tensor that is left out."""
        return None if view is None else self.array(view)

    def array(self, view: BufferView) -> Array:
        """The array of a buffer that is there."""
        if isinstance(view, Temporary):
            own: Array = self.scratch[view.offset : view.offset + view.nbytes]
            return own.view(view.dtype).reshape(view.shape)
        if isinstance(view, FlatSlice):
            return flat(self.array(view.tensor))[view.start : view.start + view.count]
        if isinstance(view, RowSlice):
            array: Array = self.array(view.tensor)
            rows = np.lib.stride_tricks.as_strided(
                array, (view.start + view.count, view.length), (view.pitch * array.itemsize, array.itemsize)
            )
            return rows[view.start :]
        array = self.arrays[id(view)]
        return array


@dataclass
class _HostCall(Step[Arrays]):
    """A function on the host, over the arrays of its buffers."""

    function: Callable[..., object]
    views: tuple[BufferView | None, ...]

    def bind(self, binding: Arrays) -> Launch:
        function, arrays = self.function, tuple(binding[view] for view in self.views)
        return lambda: function(*arrays)


@dataclass
class _Execution(Step[Arrays]):
    """A primitive over its buffers, by argument."""

    primitive: Primitive
    views: Mapping[int, BufferView]

    @property
    def scratch_bytes(self) -> int:
        return self.primitive.scratch_bytes

    def arrays(self, binding: Arrays) -> dict[int, Array]:
        return {argument: binding.array(view) for argument, view in self.views.items()}

    def bind(self, binding: Arrays) -> Launch:
        return self.primitive.bind(self.arrays(binding), binding.workspace)


@dataclass
class _Loop(Step[Arrays]):
    """The same primitives in a row, round after round, over other buffers each time. They are bound once."""

    rounds: list[list[_Execution]]

    @property
    def scratch_bytes(self) -> int:
        return max(execution.scratch_bytes for execution in self.rounds[0])

    def bind(self, binding: Arrays) -> Launch:
        launches = [
            each[0].primitive.bind_each([execution.arrays(binding) for execution in each], binding.workspace)
            for each in zip(*self.rounds, strict=True)
        ]
        count = len(self.rounds)

        def run() -> None:
            for index in range(count):
                for launch in launches:
                    launch(index)

        return run


@dataclass
class _Conditional(Row[Arrays]):
    """Steps that are done if one bool is True when their turn comes. again: repeated as long as it is True.

    They are bound when it first is: most are for cases that most nets never meet.
    """

    condition: Temporary
    again: bool

    def bind(self, binding: Arrays) -> Launch:
        condition, bind, bound = binding.array(self.condition), super().bind, list[Launch]()

        def launch() -> None:
            if not bound:
                bound.append(bind(binding))
            bound[0]()

        def once() -> None:
            if condition[0]:
                launch()

        def repeatedly() -> None:
            while condition[0]:
                launch()

        return repeatedly if self.again else once


class Routine(base.Routine[Step[Arrays]]):
    """Steps done one after the other. Builders of kernels make one for the tensor specs that they are given."""

    ALIGNMENT = 64

    def run(self, primitive: Primitive, views: Mapping[int, BufferView | None]) -> None:
        """A step: the primitive over these buffers, {argument: buffer}; None for one that is left out."""
        given = {argument: view for argument, view in views.items() if view is not None}
        self.steps.append(_Execution(primitive, given))

    def call(self, function: Callable[..., object], *views: BufferView | None) -> None:
        """A step on the host: the function over the buffers' arrays, for small ones (a vector of channels)."""
        self.steps.append(_HostCall(function, views))

    def repeat(self, pieces: Iterable[Piece], add: Callable[[Piece], None]) -> None:
        """Steps that are done with one piece after the other: `add` adds those of a piece, primitives only.

        Where these are the same ones for several pieces in a row, they are bound once.
        """
        rounds = []
        for piece in pieces:
            with self._apart() as steps:
                add(piece)
            rounds.append(cast(list[_Execution], steps))
        for _, alike in groupby(rounds, lambda steps: [step.primitive for step in steps]):
            self.steps.append(_Loop(list(alike)))

    @contextmanager
    def only_if(self, condition: Temporary, again: bool = False) -> Iterator[None]:
        """Steps added inside are done where a step before them has made this one bool True."""
        with self._apart() as steps:
            yield
        self.steps.append(_Conditional(steps, condition, again))

    def repeat_while(self, condition: Temporary) -> AbstractContextManager[None]:
        """Steps added inside are done again and again, as long as this one bool is True before the first of them."""
        return self.only_if(condition, again=True)

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


class RoutineKernel(BuiltKernel[Routine]):
    """A kernel of this set."""

    def prepare(
        self, arrays: tuple[DeviceArray | None, ...], scratch: DeviceArray | None, settings: Settings
    ) -> Launch:
        """Bind the routine. The launch has the call's arrays, as primitives know addresses only."""
        launch = super().prepare(arrays, scratch, settings)
        launch.arrays = arrays, scratch  # type: ignore[attr-defined]
        return launch

    def variant(self, specs: TensorSpecs, settings: Settings) -> str:
        """As `BuiltKernel.variant`, and whether operands are taken in bfloat16."""
        way = super().variant(specs, settings)
        is_narrow = any(spec is not None and layouts.is_narrow(spec) for spec in specs)
        return f"{way} bfloat16".strip() if is_narrow else way

    def forget(self) -> None:
        """Let go of the routines: launches have those that they need, others are built again if they are wanted."""
        self._built = {}

    def attempt(self, specs: TensorSpecs, settings: Settings) -> Routine | None:
        """The routine; None for what the library has no code for here, or cannot count."""
        given = [spec for spec in specs if spec is not None]
        if any(spec.size > MOST_ELEMENTS for spec in given):
            return None
        if any(map(layouts.is_narrow, given)) and not bfloat16.converts():
            return None
        try:
            return super().attempt(specs, settings)
        except OneDNNError as error:
            if error.status != OneDNNError.UNIMPLEMENTED:
                raise
            return None


def collect(*modules: ModuleType, variants: Sequence[Variants[Routine]] = ()) -> dict[str, RoutineKernel]:
    """The kernels that the modules define: builders named in the interface. variants: of those that have several."""
    several = {one.kernel: one for one in variants}
    return {name: RoutineKernel(builder, several.get(name)) for name, builder in builders(*modules).items()}


def flat(array: Array) -> Array:
    """The elements of an array without gaps in the order of memory."""
    return np.lib.stride_tricks.as_strided(array, (array.size,), (array.itemsize,))
