"""What all recurrent kernels share: the order of steps, masked samples, products and activations.

A pass binds, once for each step, views of the step's tensors and its products, and goes over them. What is between two
steps alone lies in buffers of one step's size, which are the scratch of the call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.kernels.numpy_kernels.recurrence.activations import APPLY

Shape = tuple[int, ...]
BufferSpecs = dict[str, tuple[Shape, DType]]


#: What is done at the step of an index.
StepCall = Callable[[int], object]


def apply(kind: str, x: Sequence[Array], y: Sequence[Array]) -> StepCall:
    """y[i] = kind(x[i]), perhaps in place. kind: an activation, a key of `APPLY`."""
    function = APPLY[kind]

    def run(index: int) -> None:
        if x is not y:
            np.copyto(y[index], x[index], casting="same_kind")
        function(y[index])

    return run


def apply_to_gates(steps: Sequence[Array], kinds: Sequence[str]) -> StepCall:
    """The activation of each gate in place. steps: (n, G * h), kinds: G of them."""
    size = steps[0].shape[1] // len(kinds)
    functions = [(APPLY[kind], slice(at * size, (at + 1) * size)) for at, kind in enumerate(kinds)]

    def run(index: int) -> None:
        for function, columns in functions:
            function(steps[index][:, columns])

    return run


@dataclass(frozen=True)
class Call:
    """One call. tensors: by their names in the interface, None for one that is left out."""

    tensors: Mapping[str, Array | None]
    settings: Mapping[str, object]
    buffers: Mapping[str, Array]

    def __getitem__(self, name: str) -> Array:
        """A tensor that is there, or a buffer."""
        found = self.tensors.get(name)
        return self.buffers[name] if found is None else found


class Pass(ABC):
    """All steps in one direction of time."""

    #: How many matrices (n, h) it needs between steps, by name.
    matrices: ClassVar[tuple[str, ...]]
    #: Matrices of all gates, (n, G * h).
    wide: ClassVar[tuple[str, ...]] = ()
    #: Those of them that a masked step leaves as they are: they are kept apart meanwhile, as "<name>_before".
    held: ClassVar[tuple[str, ...]] = ()
    #: Whether steps are done in the opposite order.
    backward: ClassVar[bool] = False

    def __init__(self, call: Call) -> None:
        self.call = call
        self.size = call["weight"].shape[0]
        steps = self.steps
        reverse = bool(call.settings["reverse"])
        #: Indices of the states before and behind each step.
        self.before = [step + reverse for step in range(steps)]
        self.behind = [step + 1 - reverse for step in range(steps)]
        self.order = list(range(steps)) if reverse == self.backward else list(reversed(range(steps)))
        mask = call.tensors["mask"]
        self.seen = None if mask is None else [mask[:, step : step + 1] for step in range(steps)]
        self.products = self.bind()

    @property
    @abstractmethod
    def steps(self) -> int:
        """How many."""

    @abstractmethod
    def bind(self) -> Sequence[StepCall]:
        """Make views and products of all steps; the products."""

    @abstractmethod
    def begin(self) -> None:
        """Before the first step."""

    @abstractmethod
    def step(self, index: int) -> None:
        """One step, of the index that it has in the tensors."""

    @classmethod
    def buffers(cls, weight: Shape, n: int, dtype: DType, masked: bool) -> BufferSpecs:
        """What lies between two steps, at least in float32."""
        wide, (h, width) = np.result_type(dtype, np.float32), weight
        names = [*cls.matrices, *(f"{name}_before" for name in cls.held if masked)]
        specs: BufferSpecs = dict.fromkeys(names, ((n, h), wide))
        specs |= dict.fromkeys(cls.wide, ((n, width), wide))
        return {**specs, "dead": ((n, 1), np.dtype(np.bool_))} if masked else specs

    def __call__(self) -> None:
        """The whole call."""
        with np.errstate(all="ignore"):
            self.begin()
            for index in self.order:
                self.step(index)

    def product(self, a: Sequence[Array], weight: Array, y: Sequence[Array], add: bool = False) -> StepCall:
        """y[i] = a[i] @ weight, and y[i] before it if add."""
        made = self.call["spare"][: y[0].size].reshape(y[0].shape)

        def write_product(index: int) -> None:
            np.matmul(a[index], weight, out=y[index])

        def add_product(index: int) -> None:
            np.matmul(a[index], weight, out=made)
            np.add(y[index], made, out=y[index])

        return add_product if add else write_product

    def dead(self, index: int) -> Array | None:
        """(n, 1): the samples whose step is masked; None without a mask."""
        if self.seen is None:
            return None
        dead = self.call["dead"]
        np.equal(self.seen[index], 0, out=dead)
        return dead

    def columns(self, name: str, start: int, stop: int) -> list[Array]:
        """Of each step of a tensor, the columns of the gates from `start` to `stop`."""
        first, last = start * self.size, stop * self.size
        return [step[:, first:last] for step in self.call[name]]


class ForwardPass(Pass):
    """From gates_in to the states."""

    @property
    def steps(self) -> int:
        return len(self.call["gates_in"])

    def first(self, name: str, given: str) -> None:
        """The first state of `name`: what was given, or 0."""
        state, start = self.call[name], self.call.tensors[given]
        at = self.before[self.order[0]]
        np.copyto(state[at], 0 if start is None else start, casting="same_kind")

    def copies_of(self, source: str, target: str) -> list[tuple[Array, Array]]:
        """(step of the source, step of the target), none where the target lies over the source."""
        a, b = self.call[source], self.call[target]
        same = a.__array_interface__["data"][0] == b.__array_interface__["data"][0] and a.shape == b.shape
        return [] if same else list(zip(a, b, strict=True))


class BackwardPass(Pass):
    """From dy to dgates. dh: the derivative by a step's output and all behind it."""

    backward = True

    @property
    def steps(self) -> int:
        return len(self.call["dgates"])

    def begin(self) -> None:
        """Nothing comes from behind the last step."""
        last = self.call.settings["last"]
        dh = self.call["dh"]
        if last:
            np.copyto(dh, self.call["dy"])
        else:
            dh.fill(0)
        self.dys = None if last else list(self.call["dy"])

    def receive(self, index: int) -> None:
        """dh = what comes from behind, and what the step's output is used for."""
        if self.dys is not None:
            np.add(self.call["dh"], self.dys[index], out=self.call["dh"])
