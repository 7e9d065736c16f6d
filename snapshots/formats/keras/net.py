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


class Note(NamedTuple):
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


def notes(where: str, attributes: Mapping[str, Any]) -> dict[str, Note]:
    """The layers by name, each after its sources. SnapshotError where an attribute is missing or is something else.

    It takes memory as the texts do, whose cost was checked when they were read: see `guarded_json`.
    """
    found: dict[str, Note] = {}
    try:
        layers, wiring = json.loads(attributes["layers"]), json.loads(attributes["wiring"])
        for (name, kind), more in zip(layers, wiring, strict=True):
            note = _note(name, kind, more)
            if not note.inputs or any(not 0 <= number < len(found[x].outputs) for x, number in note.sources):
                raise ValueError(f"inputs of {name!r}: {more}")
            if name in found:
                raise ValueError(f"two layers {name!r}")
            found[name] = note
        if any(note.shares not in found for note in found.values() if note.shares):
            raise ValueError("parameters shared with a layer that is not in the net")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise SnapshotError(
            f"{where}: Keras's layout wants the attributes 'layers' and 'wiring' of a net saved here: {error!r}"
        ) from error
    return found


def _note(name: Any, kind: Any, more: Mapping[str, Any]) -> Note:
    if type(name) is not str or type(kind) is not str:
        raise ValueError(f"a layer {name!r} of class {kind!r}")
    inputs, outputs = (tuple(map(_shape, more[key])) for key in ("inputs", "outputs"))
    sources = tuple((str(source), int(number)) for source, number in more["sources"])
    return Note(name, kind, inputs, outputs, sources, str(more.get("shares", "")))


def _shape(given: Any) -> Shape:
    if not isinstance(given, list) or len(given) > _AXES:
        raise ValueError(f"a shape {given!r}")
    if not all(type(extent) is int and 0 < extent < 2**63 for extent in given):
        raise ValueError(f"a shape {given!r}")
    return tuple(given)


def is_chain(net: Mapping[str, Note]) -> bool:
    """Whether it is a Sequential in Keras: one layer behind the other, none used twice, no input named for itself."""
    before: tuple[tuple[str, int], ...] = ()
    first = next(iter(net.values()), None)
    if first is None or first.kind == "Dummy":
        return False
    for note in net.values():
        if note.sources != before or note.shares:
            return False
        before = ((note.name, 0),)
    return True


def keras_order(net: Mapping[str, Note]) -> list[str]:
    """The layers in the order of `Functional.layers`: by depth, then as first met from the outputs.

    A layer that shares its parameters is, in Keras, the other one called again, and comes once, under that name. Split
    does not count: Keras has none, it would name the same tensor again.
    """
    behind = _behind_splits(net)
    sources = {name: [behind[source] for source, _ in note.sources] for name, note in net.items()}
    used = {source for note in net.values() for source, _ in note.sources}
    met, finished = _walked(net, sources, [behind[name] for name in net if name not in used])
    depth: dict[str, int] = defaultdict(int)
    owners: dict[str, int] = {}
    for name in reversed(finished):
        owner = net[name].shares or name
        depth[name] = owners[owner] = max(depth[name], owners.get(owner, 0))
        for source in sources[name]:
            depth[source] = max(depth[source], depth[name] + 1)
    return sorted(owners, key=lambda owner: (-owners[owner], met[owner]))


def _behind_splits(net: Mapping[str, Note]) -> dict[str, str]:
    """{layer: itself, of a Split the layer whose output it names again}."""
    found: dict[str, str] = {}
    for name, note in net.items():
        found[name] = found[note.sources[0][0]] if note.kind == "Split" and note.sources else name
    return found


def _walked(
    net: Mapping[str, Note], sources: Mapping[str, Sequence[str]], outputs: Sequence[str]
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
