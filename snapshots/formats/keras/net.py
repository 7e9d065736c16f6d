"""A net as Keras has it: its layers, by the attributes of the tree, and their order."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from singa_lite.errors import SnapshotError
from singa_lite.snapshots.readers.guarded_json import Unchecked
from singa_lite.tensor import Shape

#: Axes that a sample may have.
_AXES = 64


class LayerInfo(NamedTuple):
    """A layer, by the tree's attributes `layers` and `wiring`.

    inputs, outputs: sample shapes; sources: (layer, number of its output); shares: the layer whose parameters it uses,
    or "".
    """

    name: str
    kind: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    sources: tuple[tuple[str, int], ...]
    shares: str


def layers_of(where: str, attributes: Mapping[str, Unchecked]) -> dict[str, LayerInfo]:
    """The layers by name, each after its sources. SnapshotError where an attribute is missing or wrong.

    What parsing the texts takes was checked when the attributes were read: see `guarded_json`.
    """
    found: dict[str, LayerInfo] = {}
    try:
        layers, wiring = json.loads(attributes["layers"]), json.loads(attributes["wiring"])
        for (name, kind), more in zip(layers, wiring, strict=True):
            if type(name) is str and "/" in name:  # within another, which has no form in Keras
                continue
            info = _layer_info(name, kind, more)
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


def _layer_info(name: object, kind: object, more: Mapping[str, Unchecked]) -> LayerInfo:
    if type(name) is not str or type(kind) is not str:
        raise ValueError(f"a layer {name!r} of class {kind!r}")
    inputs, outputs = (tuple(map(_shape, more[key])) for key in ("inputs", "outputs"))
    sources = tuple((str(source), int(number)) for source, number in more["sources"])
    return LayerInfo(name, kind, inputs, outputs, sources, str(more.get("shares", "")))


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
