"""Forms of layers and of how a net was compiled, in a configuration: classes, arguments, and what was changed since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature

from singa_lite.common.described import options_of
from singa_lite.common.errors import ConfigError
from singa_lite.layer.layer import Layer, Node
from singa_lite.optimizer import Optimizer, schedule
from singa_lite.optimizer.rules import Rule
from singa_lite.snapshots.config.values import Plain, Reader, Writer
from singa_lite.tensor import Shape
from singa_lite.training.settings import OF_MACHINE
from singa_lite.training.trained_net import TrainedNet

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


def compiled_form(net: TrainedNet, writer: Writer) -> Plain:
    """The optimizer and the options of `compile`; None for a net that is not compiled."""
    if net.optimizer is None:
        return None
    options = {name: value for name, value in net.trainer.compiled_as.items() if name not in OF_MACHINE}
    return {
        "optimizer": _optimizer_form(net.optimizer, writer.at("optimizer")),
        "options": writer.write(options),
    }


def _optimizer_form(optimizer: Optimizer, writer: Writer) -> Plain:
    """Its constructor's arguments, with the schedule of now; what was changed of its settings; its rules."""
    rate = optimizer.schedule
    arguments = {**optimizer.given_arguments, "lr": rate.value if isinstance(rate, schedule.Constant) else rate}
    form = writer.described(optimizer, arguments)
    rules, general = list(optimizer.rules)[1:], optimizer.rules[0]
    form["settings"] = writer.at("settings").write(optimizer.settings)
    form["rules"] = [
        writer.at(f"register {rule.pattern!r}").write(_register_arguments(rule, general)) for rule in rules
    ]
    return form


def _register_arguments(rule: Rule, general: Rule) -> dict[str, object]:
    """What `register` takes to make the rule."""
    found: dict[str, object] = {"pattern": rule.pattern, "lr_mult": rule.lr_mult, "decay_mult": rule.decay_mult}
    own = {"regularizer": rule.regularizer, "constraint": rule.constraint}
    theirs = {"regularizer": general.regularizer, "constraint": general.constraint}
    return found | {name: value for name, value in own.items() if value is not theirs[name]}


def compile_by(compile: Callable[..., object], form: Plain, reader: Reader) -> None:
    """Compile a net, by its `compile`, as `compiled_form` says. ConfigError for what is no such form."""
    if form is None:
        return
    if not isinstance(form, dict):
        raise ConfigError(f"config: wanted how the net was compiled, received {form!r:.100}")
    options = reader.read(form.get("options"))
    if not isinstance(options, Mapping):
        raise ConfigError(f"config: wanted options of compile, received {options!r:.100}")
    compile(_optimizer_of(form.get("optimizer"), reader), **options)


def _optimizer_of(form: Plain, reader: Reader) -> Optimizer:
    made = reader.read(form)
    if not isinstance(form, dict) or not isinstance(made, Optimizer):
        raise ConfigError(f"config: wanted an optimizer, received {form!r:.100}")
    settings, rules = reader.read(form.get("settings")), reader.read(form.get("rules"))
    if isinstance(settings, dict):
        made.settings |= settings
    for rule in rules if isinstance(rules, list) else []:
        made.register(**rule)
    return made
