"""A net as Keras has it: its layers, by the attributes of the tree, and their order."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers.raw import Unchecked
from singa_lite.tensor import Shape

#: Axes that a sample may have, and how many others a layer may lie within.
_AXES, _DEPTH = 64, 1024


class LayerInfo(NamedTuple):
    """A layer, by the tree's attributes `layers` and `wiring`.

    inputs, outputs: sample shapes; sources: (layer, number of its output); shares: the layer whose parameters it uses,
    or ""; options: numbers, and flags as 0 and 1; held: the layers within it, by their paths, without inputs and
    sources.
    """

    name: str
    kind: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    sources: tuple[tuple[str, int], ...]
    shares: str
    options: tuple[tuple[str, int], ...] = ()
    held: tuple[LayerInfo, ...] = ()

    @property
    def last_name(self) -> str:
        """Its own name, without those of the layers that hold it."""
        return self.name.rpartition("/")[2]

    def option(self, name: str) -> int:
        """An option. ValueError for one that is not noted."""
        found = dict(self.options).get(name)
        if found is None:
            raise ValueError(f"its option {name!r} is not noted")
        return found


def layers_of(where: str, attributes: Mapping[str, Unchecked]) -> dict[str, LayerInfo]:
    """The layers by name, each after its sources. SnapshotError where an attribute is missing or wrong.

    What parsing the texts takes was checked when the attributes were read: see `raw.json_cost`.
    """
    found: dict[str, LayerInfo] = {}
    try:
        layers, wiring = json.loads(attributes["layers"]), json.loads(attributes["wiring"])
        given = [(name, kind, more) for (name, kind), more in zip(layers, wiring, strict=True)]
        held = _nested_layers([one for one in given if type(one[0]) is str and "/" in one[0]])
        for name, kind, more in given:
            if type(name) is str and "/" in name:
                continue
            info = _layer_info(name, kind, more)._replace(held=held.get(name, ()))
            if not info.inputs or any(not 0 <= number < len(found[x].outputs) for x, number in info.sources):
                raise ValueError(f"inputs of {name!r}: {more}")
            if name in found:
                raise ValueError(f"two layers {name!r}")
            found[name] = info
        if any(info.shares not in found for info in found.values() if info.shares):
            raise ValueError("parameters shared with a layer that is not in the net")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise SnapshotError(
            f"{where}: Keras's layout wants the attributes 'layers' and 'wiring' of a net saved here: {error!r}"
        ) from error
    return found


def _nested_layers(given: Sequence[tuple[str, object, Unchecked]]) -> dict[str, tuple[LayerInfo, ...]]:
    """{path: the layers that it holds}, of the layers within others, each behind the one that holds it."""
    found: dict[str, tuple[LayerInfo, ...]] = {}
    for name, kind, more in reversed(given):
        holder = name.rpartition("/")[0]
        if name.count("/") > _DEPTH:
            raise ValueError(f"a layer {name!r:.100} within more than {_DEPTH} others")
        info = _layer_info(name, kind, more)._replace(held=found.get(name, ()))
        found[holder] = (info, *found.get(holder, ()))
    return found


def chained(info: LayerInfo, inputs: tuple[Shape, ...]) -> dict[str, LayerInfo]:
    """The layers that one holds, each fed by the one before. inputs: sample shapes of the first one's."""
    found: dict[str, LayerInfo] = {}
    sources: tuple[tuple[str, int], ...] = ()
    for layer in info.held:
        found[layer.name] = layer._replace(inputs=inputs, sources=sources)
        inputs, sources = layer.outputs, tuple((layer.name, number) for number in range(len(layer.outputs)))
    return found


def _layer_info(name: object, kind: object, more: Mapping[str, Unchecked]) -> LayerInfo:
    if type(name) is not str or type(kind) is not str:
        raise ValueError(f"a layer {name!r} of class {kind!r}")
    inputs, outputs = (tuple(map(_shape, more[key])) for key in ("inputs", "outputs"))
    sources = tuple((str(source), int(number)) for source, number in more["sources"])
    options = tuple((str(option), int(value)) for option, value in more.get("options", {}).items())
    return LayerInfo(name, kind, inputs, outputs, sources, str(more.get("shares", "")), options)


def _shape(given: object) -> Shape:
    if not isinstance(given, list) or len(given) > _AXES:
        raise ValueError(f"a shape {given!r}")
    if not all(type(extent) is int and 0 < extent < 2**63 for extent in given):
        raise ValueError(f"a shape {given!r}")
    return tuple(given)


def is_chain(net: Mapping[str, LayerInfo]) -> bool:
    """Whether it is a Sequential in Keras: each layer takes the one before, none is used twice, no input is a layer."""
    before: tuple[tuple[str, int], ...] = ()
    first = next(iter(net.values()), None)
    if first is None or first.kind == "Dummy":
        return False
    for info in net.values():
        if info.sources != before or info.shares:
            return False
        before = ((info.name, 0),)
    return True


def keras_order(net: Mapping[str, LayerInfo]) -> list[str]:
    """The layers in the order of `Functional.layers`: by depth, then as first met from the outputs.

    A layer that shares the parameters of another is, in Keras, that other layer called again, and is listed once, under
    its name. Keras has no Split: there it is the tensor before it.
    """
    behind = _behind_splits(net)
    sources = {name: [behind[source] for source, _ in info.sources] for name, info in net.items()}
    used = {source for info in net.values() for source, _ in info.sources}
    met, finished = _walked(net, sources, [behind[name] for name in net if name not in used])
    depth: dict[str, int] = defaultdict(int)
    owners: dict[str, int] = {}
    for name in reversed(finished):
        owner = net[name].shares or name
        depth[name] = owners[owner] = max(depth[name], owners.get(owner, 0))
        for source in sources[name]:
            depth[source] = max(depth[source], depth[name] + 1)
    return sorted(owners, key=lambda owner: (-owners[owner], met[owner]))


def _behind_splits(net: Mapping[str, LayerInfo]) -> dict[str, str]:
    """{layer: itself, or for a Split the layer whose output it passes on}."""
    found: dict[str, str] = {}
    for name, info in net.items():
        found[name] = found[info.sources[0][0]] if info.kind == "Split" and info.sources else name
    return found


def _walked(
    net: Mapping[str, LayerInfo], sources: Mapping[str, Sequence[str]], outputs: Sequence[str]
) -> tuple[dict[str, int], list[str]]:
    """Walks depth first from the outputs: ({layer: number when it was met}, layers in the order they were left).

    Layers that share parameters are met as one.
    """
    met: dict[str, int] = {}
    finished: dict[str, None] = {}
    for output in outputs:
        met.setdefault(net[output].shares or output, len(met))
        stack = [] if output in finished else [(output, iter(sources[output]))]
        while stack:  # no recursion, as nets may be thousands of layers deep
            following = next((source for source in stack[-1][1] if source not in finished), None)
            if following is None:
                finished[stack.pop()[0]] = None
            else:
                met.setdefault(net[following].shares or following, len(met))
                stack.append((following, iter(sources[following])))
    return met, list(finished)
