"""Forms of layers and of how a net was compiled, in a configuration: classes, arguments, and what was changed since."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter

from singa_lite.common.described import options_of
from singa_lite.common.errors import ConfigError
from singa_lite.common.option_version import equal_values, signature_of
from singa_lite.layer import names
from singa_lite.layer.layer import Layer, Node
from singa_lite.optimizer import Muon, Optimizer, schedule
from singa_lite.optimizer.rules import Rule
from singa_lite.snapshots.config.values import Plain, Reader, Writer
from singa_lite.tensor import Shape
from singa_lite.training.settings import OF_MACHINE
from singa_lite.training.trained_net import TrainedNet

#: What has a place of its own in a form.
_NOT_OPTIONS = frozenset({"name", "input_sample_shape", "shared_with"})

#: Options of a user's own class are written if they are of these types.
_PLAIN = (bool, int, float, str, tuple, list, type(None))


def form_of(node: Node, fed: Sequence[Shape] | None, writer: Writer) -> dict[str, Plain]:
    """A layer of a net as a form. fed: sample shapes that an input layer is fed.

    ConfigError for a layer whose arguments cannot be written.
    """
    layer = node.layer
    form: dict[str, Plain] = {"name": layer.name, "sources": [[name, number] for name, number in node.sources]}
    form |= writer.described(layer, _arguments(layer))
    if not node.sources and fed is not None:
        shapes = [tuple(shape) for shape in fed]
        form["input_sample_shape"] = writer.write(shapes[0] if len(shapes) == 1 else shapes)
    if layer.shared_with is not None and "shared_with" in layer.set_later:
        form["shares"] = layer.shared_with.path
    written = {id(each) for each in _layers_in([layer])}
    changes: dict[str, Plain] = {
        path: changed for path, each in with_inner(layer) if (changed := _changes(each, id(each) in written, writer))
    }
    if changes:
        form["changes"] = changes
    fixed: list[Plain] = [name for name, p in layer.own_parameters.items() if not p.stores_grad]
    return form | ({"fixed": fixed} if fixed else {})


def _arguments(layer: Layer) -> dict[str, object]:
    """What the layer's constructor makes an equal one of. ConfigError where it takes no such keywords."""
    arguments, form = names.with_name(layer, layer.given_arguments), signature_of(type(layer).__init__)
    where = f"config: layer {layer.name!r}: wanted a constructor that takes keywords"
    if any(each.kind is Parameter.VAR_POSITIONAL and name in arguments for name, each in form.parameters.items()):
        raise ConfigError(f"{where}, received one of *arguments, of which it was given some")
    try:
        form.bind(None, **arguments)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None
    return arguments


def _layers_in(values: Iterable[object]) -> Iterator[Layer]:
    """The layers among values and among the arguments of these, which are written with all their options."""
    for value in values:
        if isinstance(value, Layer):
            yield value
            yield from _layers_in(value.given_arguments.values())
        elif isinstance(value, list | tuple):
            yield from _layers_in(value)


def _changes(layer: Layer, is_written: bool, writer: Writer) -> dict[str, Plain]:
    """What was set after construction and is not in the layer's arguments. is_written: these are in the form."""
    options = options_of(type(layer))
    found = {name: getattr(layer, name) for name in sorted(layer.set_later - _NOT_OPTIONS) if hasattr(layer, name)}
    return {
        name: writer.at(name).write(value)
        for name, value in found.items()
        if (not is_written if name in options else isinstance(value, _PLAIN))
    }


def with_inner(layer: Layer, path: str = "") -> Iterator[tuple[str, Layer]]:
    """A layer and those within it, each with its path below the layer."""
    yield path, layer
    for inner in layer.layers.values():
        yield from with_inner(inner, f"{path}/{inner.name}" if path else inner.name)


def layer_of(form: Mapping[str, Plain], reader: Reader, owner: Callable[[str], Layer]) -> Layer:
    """A new layer of its form, in no net yet. owner: the layer of that path, whose parameters it may share."""
    layer = reader.made(form)
    if not isinstance(layer, Layer):
        raise ConfigError(f"config: layer {form.get('name')!r:.100}: wanted a layer, received {layer!r:.100}")
    names.rename(layer, form.get("name"))
    if "input_sample_shape" in form and layer.input_sample_shapes is None:
        given = reader.read(form["input_sample_shape"])
        layer.input_sample_shapes = _shapes(given)
    shares = form.get("shares")
    if isinstance(shares, str):
        layer.share_parameters(owner(shares))
    change(layer, form, reader)
    return layer


def change(layer: Layer, form: Mapping[str, Plain], reader: Reader, done: Collection[str] = ()) -> None:
    """Set what was set after construction, of the layer and those within it.

    done: paths of those for which it was done already; others are only there once `setup` has made them.
    """
    inner, changes = dict(with_inner(layer)), form.get("changes")
    for path, changed in (changes if isinstance(changes, dict) else {}).items():
        if path not in inner or path in done:
            continue
        values = {name: reader.read(value) for name, value in (changed if isinstance(changed, dict) else {}).items()}
        for name in values:
            inner[path].note_set(name)
        options = {name: values.pop(name) for name in list(values) if name in options_of(type(inner[path]))}
        others = {name: value for name, value in options.items() if not equal_values(value, getattr(inner[path], name))}
        if others:
            inner[path].change_options(others)
        for name, value in values.items():
            setattr(inner[path], name, value)


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
    form = writer.described(optimizer, _arguments_of(optimizer))
    rules, general = list(optimizer.rules)[1:], optimizer.rules[0]
    form["settings"] = writer.at("settings").write(optimizer.settings)
    form["rules"] = [
        writer.at(f"register {rule.pattern!r}").write(_register_arguments(rule, general)) for rule in rules
    ]
    return form


def _arguments_of(optimizer: Optimizer) -> dict[str, object]:
    """Its constructor's, with the schedules of now."""
    rate = optimizer.schedule
    found = {**optimizer.given_arguments, "lr": rate.value if isinstance(rate, schedule.Constant) else rate}
    if isinstance(optimizer, Muon):
        found["others"] = optimizer.others.made_with(_arguments_of(optimizer.others))
    return found


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
