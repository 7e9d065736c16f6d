"""Topology: which layer feeds which, by name, and in which order they run. Lengths: which inputs may be shorter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from singa_lite.common.errors import GraphError
from singa_lite.layer.layer import Node
from singa_lite.layer.sample_shape import is_shorter
from singa_lite.tensor import Shape


class Source(NamedTuple):
    """An input of a layer: the layer it comes from and which of its outputs (None: the next one not yet taken)."""

    layer: str
    output: int | None = None


class Topology:
    """Named nodes with ordered sources. Sources may be named before they are added."""

    def __init__(self) -> None:
        self.sources: dict[str, tuple[Source, ...]] = {}

    def add(self, name: str, sources: tuple[Source, ...]) -> None:
        """Add a node. GraphError for a name that is taken or a node that feeds itself."""
        if name in self.sources:
            raise GraphError(
                f"wanted layers of different names, received a second layer {name!r}; where names are left out, as in "
                "Activation(mode='relu'), each gets one of its own"
            )
        if any(source.layer == name for source in sources):
            raise GraphError(f"wanted a net without cycles, received {name!r} as its own source")
        self.sources[name] = sources

    def is_named(self, name: str) -> bool:
        """Whether some node has this one as a source."""
        return any(source.layer == name for sources in self.sources.values() for source in sources)

    def order(self, partial: bool = False) -> list[str]:
        """All names, each after its sources: depth first from the outputs, sources in their given order.

        Depends on names and sources only, not on the order of adding. GraphError names an unknown source or a
        cycle. partial: sources that are still to be added may be missing.
        """
        if not partial:
            self._check_known()
        done: dict[str, None] = {}
        path: dict[str, None] = {}
        # Outputs first; whatever they do not reach lies on a cycle, and is visited to find it.
        for root in [*sorted(self.outputs()), *sorted(self.sources)]:
            self._visit(root, done, path)
        return list(done)

    def _visit(self, root: str, done: dict[str, None], path: dict[str, None]) -> None:
        """Put root and all before it into `done`, sources first; a loop, since nets may be thousands deep."""
        stack = [] if root in done else [(root, iter(self.sources[root]))]
        path.update(dict.fromkeys(name for name, _ in stack))
        while stack:
            name, remaining = stack[-1]
            source = next((s for s in remaining if s.layer in self.sources and s.layer not in done), None)
            if source is None:
                stack.pop()
                del path[name]
                done[name] = None
            elif source.layer in path:
                loop = [*list(path)[list(path).index(source.layer) :], source.layer]
                raise GraphError(f"wanted a net without cycles, received {' <- '.join(loop)}")
            else:
                path[source.layer] = None
                stack.append((source.layer, iter(self.sources[source.layer])))

    def _check_known(self) -> None:
        for name, sources in self.sources.items():
            for source in sources:
                if source.layer not in self.sources:
                    raise GraphError(
                        f"layer {name!r}: wanted sources that are in the net, received {source.layer!r}; "
                        f"there are {sorted(self.sources)}"
                    )

    def inputs(self) -> list[str]:
        """Names without sources, in the order of adding."""
        return [name for name, sources in self.sources.items() if not sources]

    def outputs(self) -> list[str]:
        """Names that feed nobody, in the order of adding."""
        feeding = {source.layer for sources in self.sources.values() for source in sources}
        return [name for name in self.sources if name not in feeding]

    def resolve(self, name: str, count: Callable[[str], int]) -> tuple[tuple[str, int], ...]:
        """The sources of a layer, each with the number of the output it takes. count: a layer's number of outputs.

        A source with one output gives it to all that name it. One with several gives them to its consumers in the
        order of adding, one each, unless they name the output. GraphError where there are not enough.
        """
        resolved: list[tuple[str, int]] = []
        for index, source in enumerate(self.sources[name]):
            outputs, output = count(source.layer), source.output
            if output is None:
                output = 0 if outputs == 1 else self._taken_before(name, index, source)
            if not 0 <= output < outputs:
                raise GraphError(
                    f"layer {name!r}: wanted one of the {outputs} outputs of {source.layer!r}, received number {output}"
                )
            resolved.append((source.layer, output))
        return tuple(resolved)

    def _taken_before(self, name: str, index: int, source: Source) -> int:
        """How often the source is named, without a number, before the source number `index` of this layer."""
        taken = 0
        for other, sources in self.sources.items():
            if other == name:
                return taken + sources[:index].count(source)
            taken += sources.count(source)
        return taken


class Lengths:
    """The axis of time, axis 1 of a batch, on its way through the layers.

    An input has one if it is of ids (time, ...), or has features behind it (time, features), or is a mask (time,) that
    layers take beside one that has it. Layers hand it on, by `keeps_time`: that of all their inputs, which have equally
    many steps, or of the first, by `time_of_first`.

    of: {layer: the input layers that its outputs have the time of}; refusing: {input layer: the first layer behind it
    that takes as many steps as it was set up for and no fewer; it itself where it has no time}. ids: inputs of ids;
    fed: the sample shape of each input.
    """

    def __init__(self, nodes: Sequence[Node], ids: Collection[str], fed: Mapping[str, Shape]) -> None:
        self.of: dict[str, list[str]] = {}
        self.refusing: dict[str, str] = {}
        vectors = set[str]()
        for node in nodes:
            layer = node.layer
            timed = [self.of[name] for name, _ in node.sources if name in self.of] if node.sources else [[layer.name]]
            came = [*dict.fromkeys(chain.from_iterable(timed))]
            if not node.sources:
                axes, is_ids = len(fed.get(layer.name, ())), layer.name in ids
                if axes == 1 and layer.keeps_values and not is_ids:
                    vectors.add(layer.name)
                elif axes < (1 if is_ids else 2):
                    self.refusing[layer.name] = layer.name
            elif vectors.issuperset(came):
                self.refusing.update(zip(came, came, strict=True))
                continue
            if not layer.any_length or layer.name in self.refusing:
                for name in came:
                    self.refusing.setdefault(name, layer.name)
            elif came and layer.keeps_time:
                self.of[layer.name] = timed[0] if layer.time_of_first else came

    def fitting(self, name: str, sample_shape: Shape, shape: Shape) -> Shape:
        """The sample shape that a batch of an input layer is to have: its own where it is of fewer steps.

        sample_shape: that the layer was set up for; shape: of the batch.
        """
        if name in self.refusing or not is_shorter(shape[1:], sample_shape):
            return sample_shape
        return shape[1:]
