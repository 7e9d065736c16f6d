"""One layer in a configuration: its class and arguments, what was changed since, where it stands in the net."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature

from singa_lite.common.described import options_of
from singa_lite.common.errors import ConfigError
from singa_lite.layer.layer import Layer, Node
from singa_lite.snapshots.config.values import Plain, Reader, Writer
from singa_lite.tensor import Shape

#: What the net and the layers around it say of a layer, and what its own constructor gives under another form.
_NOT_OPTIONS = frozenset({"name", "input_sample_shape", "layers", "layer", "net", "embedding"})

#: Options of these types can be compared, and set.
_PLAIN = (bool, int, float, str, tuple, list, type(None))


def form_of(node: Node, fed: Sequence[Shape] | None, writer: Writer, reader: Reader) -> dict[str, Plain]:
    """A layer of a net as a form. fed: sample shapes that an input layer is fed.

    reader: of the same net, to see what an equal constructor call would give.

    ConfigError for a layer whose arguments cannot be written.
    """
    layer = node.layer
    form: dict[str, Plain] = {"name": layer.name, "sources": [[name, number] for name, number in node.sources]}
    form |= writer.described(layer, {**layer.given_arguments, "name": layer.name})
    if not node.sources and fed is not None:
        shapes = [tuple(shape) for shape in fed]
        form["input_sample_shape"] = writer.write(shapes[0] if len(shapes) == 1 else shapes)
    alike = _read_layer(form, reader)
    if layer.shared_with is not None and alike.shared_with is None:
        form["shares"] = layer.shared_with.path
    changes: dict[str, Plain] = {path: changed for path, changed in _changes(layer, alike, writer) if changed}
    if changes:
        form["changes"] = changes
    fixed: list[Plain] = [name for name, p in layer.own_parameters.items() if not p.stores_grad]
    return form | ({"fixed": fixed} if fixed else {})


def _read_layer(form: Mapping[str, Plain], reader: Reader) -> Layer:
    made = reader.made(form)
    if not isinstance(made, Layer):
        raise ConfigError(f"config: layer {form.get('name')!r:.100}: wanted a layer, received {made!r:.100}")
    return made


def _changes(layer: Layer, alike: Layer, writer: Writer) -> Iterator[tuple[str, dict[str, Plain]]]:
    """Options that were set after construction, of a layer and those in it, by path below it."""
    for (path, found), (_, other) in zip(_with_inner(layer, ""), _with_inner(alike, ""), strict=False):
        options = [name for name in signature(type(found).__init__).parameters if name not in _NOT_OPTIONS]
        pairs = {name: (vars(found).get(name), vars(other).get(name)) for name in [*options, "trainable"]}
        yield path, {name: writer.at(name).write(now) for name, (now, then) in pairs.items() if _differ(now, then)}


def _with_inner(layer: Layer, path: str) -> Iterator[tuple[str, Layer]]:
    yield path, layer
    for inner in layer.layers.values():
        yield from _with_inner(inner, f"{path}/{inner.name}" if path else inner.name)


def _differ(now: object, then: object) -> bool:
    return isinstance(now, _PLAIN) and isinstance(then, _PLAIN) and now != then


def layer_of(form: Mapping[str, Plain], reader: Reader, owner: Callable[[str], Layer]) -> Layer:
    """A new layer of its form, in no net yet. owner: the layer of that path, whose parameters it may share."""
    layer = _read_layer(form, reader)
    if "input_sample_shape" in form and layer.input_sample_shapes is None:
        given = reader.read(form["input_sample_shape"])
        layer.input_sample_shapes = _shapes(given)
    shares = form.get("shares")
    if isinstance(shares, str):
        layer.share_parameters(owner(shares))
    inner = dict(_with_inner(layer, ""))
    changes = form.get("changes")
    for path, changed in (changes if isinstance(changes, dict) else {}).items():
        values = {name: reader.read(value) for name, value in (changed if isinstance(changed, dict) else {}).items()}
        options = {name: values.pop(name) for name in list(values) if name in options_of(type(inner[path]))}
        if options:
            inner[path].change_options(options)
        for name, value in values.items():
            setattr(inner[path], name, value)
    return layer


def _shapes(given: object) -> list[tuple[int, ...]]:
    """Shapes as a layer keeps them, of one or of a list."""
    if isinstance(given, tuple):
        return [given]
    return [shape for shape in given if isinstance(shape, tuple)] if isinstance(given, Sequence) else []
