"""RecordedStep and RecordedSteps: what a net keeps of the steps that it recorded, and how many of them."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from singa_lite.common.array_types import Array, Shaped
from singa_lite.common.checks import integer
from singa_lite.device import device_of
from singa_lite.graph.graph import Graph
from singa_lite.layer.layer import Node
from singa_lite.tensor import Block, Shape, Tensor
from singa_lite.training.steps.feed_buffer import Feed
from singa_lite.training.steps.observer import ObservedTensors

#: {"input": {layer: batch}, "target": {layer: targets}}.
Feeds = Mapping[str, Mapping[str, Shaped]]
#: ("input" or "target", layer, shape, dtype) of all that a step is fed.
StepForm = tuple[tuple[str, str, Shape, str], ...]
#: What tells recorded steps apart: the kind first, the batch's form last.
StepKey = tuple[Hashable, ...]

#: In the place of what copies a batch, where nothing can be bound for that.
_NOT_BOUND = object()

#: How many recorded steps a net keeps, unless SINGA_LITE_STEPS says another number.
MOST_STEPS = 16


@dataclass(eq=False)
class RecordedStep:
    """A step for batches of one form.

    tensors: each batch is copied into them; feed: where they lie; results: what the step gave while it was recorded, of
    a type that goes with the kind of step; read after a run. nodes: the layers that it was recorded by. kept: what the
    step's key names by identity, and must therefore live as long. moved: parameters that it writes, sums: state that it
    adds gradients to, once asked for. seen: what is observed of it. bound: what a batch of its form is trained by,
    see `bound_step.py`.
    """

    graph: Graph
    tensors: dict[str, dict[str, Tensor]]
    feed: Feed
    results: Any
    nodes: list[Node]
    kept: tuple[object, ...]
    moved: frozenset[Block] = frozenset()
    sums: frozenset[Block] = frozenset()
    seen: ObservedTensors | None = None
    bound: Any = None

    def load_batch(self, feeds: Feeds) -> None:
        """Copies a batch to where the step reads it."""
        self.feed.buffer.open(self.feed)
        arrays = [array for named in feeds.values() for array in named.values()]
        if not (self.results is not None and self._load_bound(arrays)):
            for kind, named in feeds.items():
                for name, array in named.items():
                    tensor = self.tensors[kind][name]
                    device_of(tensor).feed(tensor, array)
        self.feed.buffer.holder = self.feed.mark

    def _load_bound(self, given: list[Shaped]) -> bool:
        """Copy arrays of the host by what was bound to where the feed lies now; False, and nothing done, of others."""
        arrays = [array for array in given if type(array) is np.ndarray]
        if len(arrays) < len(given):
            return False
        tensors = [tensor for named in self.tensors.values() for tensor in named.values()]
        device = device_of(tensors[0])
        if not device.is_unwatched("overwriting a tensor"):
            return False
        if self.feed.bound is None:
            self.feed.bound = device.bound_feeds(tensors, arrays) or _NOT_BOUND
        if self.feed.bound is _NOT_BOUND:
            return False
        with device.runtime.here():
            self.feed.bound(arrays)
        return True

    def load_bound_batch(self, batch: Sequence[Array]) -> bool:
        """As `load_batch`, where that is bound already; else nothing is done, and it returns False.

        batch: host arrays in the order of its tensors and of their forms; where its processor and its stream are the
        current ones, and nobody looks at operations.
        """
        bound = self.feed.bound
        if bound is None or bound is _NOT_BOUND:
            return False
        buffer = self.feed.buffer
        buffer.holder = None
        bound(batch)
        buffer.holder = self.feed.mark
        return True

    def retire(self) -> None:
        """Hold no bytes any more, as the step is not to run again."""
        self.bound = None
        self.graph.device.synchronize()  # a GPU may still run it
        self.feed.buffer.drop(self.feed)
        self.graph.retire()
        self.results = self.seen = None  # whoever still has the step, as the last one, holds its graph
        self.tensors = {}

    def holds(self, nodes: list[Node]) -> bool:
        """Whether the net, whose layers these are, would do the same step again."""
        return self.nodes is nodes and self.graph.options.hold()


class RecordedSteps:
    """Recorded steps by key, the least recently used first. most: how many are kept."""

    def __init__(self, most: int | None = None) -> None:
        self.most = _most() if most is None else most
        self._steps: dict[StepKey, RecordedStep] = {}
        #: The option that was set since the step that `find` did not give was recorded; "" where there was none.
        self.changed = ""

    def find(self, key: StepKey, nodes: list[Node]) -> RecordedStep | None:
        """The step of that key, now the most recently used, if it still does what the net does."""
        step, self.changed = self._steps.pop(key, None), ""
        if step is None:
            return None
        if not step.holds(nodes):
            self.changed = step.graph.options.changed() or "the layers of the net"
            return None
        self._steps[key] = step
        return step

    def use(self, key: StepKey, step: RecordedStep) -> bool:
        """Whether this is still the step of that key; it is the most recently used then."""
        if next(reversed(self._steps.values()), None) is not step:
            if self._steps.get(key) is not step:
                return False
            self._steps[key] = self._steps.pop(key)
        return step.graph.options.hold()

    def keep(self, key: StepKey, step: RecordedStep, spared: RecordedStep | None) -> None:
        """Add a step, and let those go that are too many, but for `spared`."""
        self._steps[key] = step
        while len(self._steps) > self.most:
            oldest = next((k for k, s in self._steps.items() if s not in (spared, step)), None)
            if oldest is None:
                return
            step.graph.device.synchronize()  # a GPU may still run it
            del self._steps[oldest]

    def clear(self, kind: str | None = None) -> None:
        """Let all of them go, or those of a kind, with the bytes that they hold."""
        gone = {key: step for key, step in self._steps.items() if kind in (None, key[0])}
        self._steps = {key: step for key, step in self._steps.items() if key not in gone}
        for step in gone.values():
            step.retire()

    def graphs(self, but: StepKey | None = None) -> list[Graph]:
        """Of all of them, but for that of this key."""
        return [step.graph for key, step in self._steps.items() if key != but]

    def hold(self, seen: ObservedTensors | None) -> bool:
        """Whether it was observed of one of them."""
        return any(step.seen is seen for step in self._steps.values())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)


def _most() -> int:
    """The number that SINGA_LITE_STEPS says. TypeError or ValueError where it says anything else."""
    given = os.environ.get("SINGA_LITE_STEPS", "") or str(MOST_STEPS)
    if not given.isdigit():
        raise TypeError(f"SINGA_LITE_STEPS: wanted a whole number of at least 1, received {given!r}")
    return integer("SINGA_LITE_STEPS", int(given), 1)


def form_of(feeds: Feeds) -> StepForm:
    """The shapes and dtypes of a batch, to find its recorded step by."""
    return tuple(
        (kind, name, tuple(array.shape), _named(array.dtype))
        for kind, arrays in feeds.items()
        for name, array in arrays.items()
    )


@lru_cache(maxsize=64)  # asked for at each step, and NumPy takes longer than for the copy of a batch to answer
def _named(dtype: Hashable) -> str:
    """Its name, the same for an array of whatever library."""
    return str(dtype).removeprefix("torch.")
