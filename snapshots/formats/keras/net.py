"""A net as Keras sees it: its layers as the tree tells them, and their order."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from singa_lite.errors import SnapshotError
from singa_lite.tensor import Shape

#: Axes that a sample may have.
_AXES = 64


class LayerInfo(NamedTuple):
    """What the tree's attributes `layers` and `wiring` tell of a layer.

    inputs, outputs: sample shapes; sources: (layer, number of its output); shares: the layer whose parameters it uses,
    or "".
    """

    name: str
    kind: str
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    sources: tuple[tuple[str, int], ...]
    shares: str


def layers_of(where: str, attributes: Mapping[str, Any]) -> dict[str, LayerInfo]:
    """The layers by name, each after its sources. SnapshotError where an attribute is missing or is something else.

    It takes memory as the texts do, whose cost was checked when they were read: see `guarded_json`.
    """
    found: dict[str, LayerInfo] = {}
    try:
        layers, wiring = json.loads(attributes["layers"]), json.loads(attributes["wiring"])
        for (name, kind), more in zip(layers, wiring, strict=True):
            info = _note(name, kind, more)
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


def _note(name: Any, kind: Any, more: Mapping[str, Any]) -> LayerInfo:
    if type(name) is not str or type(kind) is not str:
        raise ValueError(f"a layer {name!r} of class {kind!r}")
    inputs, outputs = (tuple(map(_shape, more[key])) for key in ("inputs", "outputs"))
    sources = tuple((str(source), int(number)) for source, number in more["sources"])
    return LayerInfo(name, kind, inputs, outputs, sources, str(more.get("shares", "")))


def _shape(given: Any) -> Shape:
    if not isinstance(given, list) or len(given) > _AXES:
        raise ValueError(f"a shape {given!r}")
    if not all(type(extent) is int and 0 < extent < 2**63 for extent in given):
        raise ValueError(f"a shape {given!r}")
    return tuple(given)


def is_chain(net: Mapping[str, LayerInfo]) -> bool:
    """Whether it is a Sequential in Keras: one layer behind the other, none used twice, no input named for itself."""
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

    A layer that shares its parameters is, in Keras, the other one called again, and comes once, under that name. Split
    does not count: Keras has none, it would name the same tensor again.
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
    """{layer: itself, of a Split the layer whose output it names again}."""
    found: dict[str, str] = {}
    for name, info in net.items():
        found[name] = found[info.sources[0][0]] if info.kind == "Split" and info.sources else name
    return found


def _walked(
    net: Mapping[str, LayerInfo], sources: Mapping[str, Sequence[str]], outputs: Sequence[str]
) -> tuple[dict[str, int], list[str]]:
    """({layer: when it was met}, layers as they were left), depth first from the outputs; sharing ones met as one."""
    met: dict[str, int] = {}
    finished: dict[str, None] = {}
    for output in outputs:
        met.setdefault(net[output].shares or output, len(met))
        stack = [] if output in finished else [(output, iter(sources[output]))]
        while stack:  # no recursion: nets may be thousands deep
            following = next((source for source in stack[-1][1] if source not in finished), None)
            if following is None:
                finished[stack.pop()[0]] = None
            else:
                met.setdefault(net[following].shares or following, len(met))
                stack.append((following, iter(sources[following])))
    return met, list(finished)
