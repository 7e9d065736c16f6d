"""A net's configuration: layers, wiring, objective and how it was compiled, without values; and the net of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from singa_lite.autograd.rewriting import Rule
from singa_lite.common.errors import ConfigError
from singa_lite.layer.layer import Layer
from singa_lite.snapshots.config.forms import change, compile_by, compiled_form, form_of, layer_of, with_inner
from singa_lite.snapshots.config.values import Plain, Reader, Writer
from singa_lite.tensor import DeviceSpec
from singa_lite.training.objective import losses_of, metrics_of
from singa_lite.training.trained_net import TrainedNet

Criteria = TypeVar("Criteria")
Net = TypeVar("Net", bound=TrainedNet)

#: The version of configurations that are written; a later one is refused.
VERSION = 1


def refused(where: str, value: object) -> Plain:
    """What is done with a value that is no plain one: a rule is known by its name, all else is a ConfigError."""
    if isinstance(value, Rule):
        return {"rule": value.name}
    raise ConfigError(
        f"{where}: wanted numbers, text, and objects of singa_lite or of classes that derive from its own, received "
        f"{value!r:.100}, which cannot be written down; the script that made the net can make it again"
    )


def config_of(
    net: TrainedNet, foreign: Callable[[str, object], Plain] = refused, classes: dict[str, type] | None = None
) -> dict[str, Plain]:
    """The net as plain values, which JSON can hold. foreign: writes what is no plain value; classes: where the classes
    that it is made of are entered by name.

    ConfigError names what cannot be written, such as a function that a layer was given.
    """
    paths = {id(layer): path for path, layer in net.all_layers().items()}
    nodes = {node.layer.name: node for node in net.ordered()}
    held: dict[str, Plain] = {"format": "singa_lite config", "version": VERSION}
    held |= {"dtype": net.dtype.name, "seed": net.seed}
    if net.parameter_dtype is not None:
        held |= {"parameter_dtype": net.parameter_dtype}
    known: dict[str, type] = {} if classes is None else classes

    def other(where: str, value: object) -> Plain:
        if isinstance(value, TrainedNet):
            return {"net": config_of(value, foreign, known)}
        return foreign(where, value)

    writer = Writer("config", lambda layer: paths.get(id(layer)), other, known)
    held |= {"loss": writer.at("loss").write(net.loss), "metric": writer.at("metric").write(net.metric)}
    forms: list[Plain] = []
    for name, layer in net.layers.items():
        _check_owners(layer, paths)
        own = {id(inner) for inner in nodes[name].layer.with_sublayers()}
        here = writer.at(f"layer {name!r}")._replace(reference=_outside_path(paths, own))
        forms.append(form_of(nodes[name], net.fed_shapes(name), here))
    return held | {"layers": forms, "compiled": compiled_form(net, writer.at("compile"))}


def _check_owners(layer: Layer, paths: Mapping[int, str]) -> None:
    """ConfigError where the layer's parameters are those of one that is not in the net, as in a submodel."""
    for owner in layer.owners():
        if id(owner) not in paths:
            raise ConfigError(
                f"config: layer {layer.name!r}: wanted the layer whose parameters it uses in the same net, received "
                f"{owner.name!r} of another"
            )


def _outside_path(paths: Mapping[int, str], own: set[int]) -> Callable[[Layer], str | None]:
    """The path of a layer that stands elsewhere in the net than within the layer that is written."""
    return lambda layer: None if id(layer) in own else paths.get(id(layer))


def net_of(
    kind: type[Net],
    config: object,
    device: DeviceSpec = None,
    custom: Mapping[str, type | Rule] | None = None,
) -> Net:
    """A new net of a configuration, with initial values, compiled as that one was.

    kind: the net's class; custom: the user's own classes by name, and rewriting rules by theirs. ConfigError for what
    is no configuration; errors of the constructors.
    """
    held = _checked(config)
    waiting = {_text(form, "name"): form for form in _forms(held)}
    made: dict[str, Layer] = {}

    def layer(path: str) -> Layer:
        """The layer of that path, made now if it is not there yet."""
        name, *within = path.split("/")
        if name not in made:
            if name not in waiting:
                raise ConfigError(f"config: wanted a layer {path!r}, received {list(made) + list(waiting)}")
            form = waiting.pop(name)
            made[name] = layer_of(form, reader, layer)
        found = made[name]
        for inner in within:
            found = found.layers[inner]
        return found

    reader = Reader(custom or {}, layer, lambda within: net_of(kind, within, device, custom))
    loss = _criteria(losses_of, reader.read(held.get("loss")))
    metric = _criteria(metrics_of, reader.read(held.get("metric")))
    stored = _text(held, "parameter_dtype") if "parameter_dtype" in held else None
    net = kind(loss, metric, device, dtype=_text(held, "dtype"), seed=_seed(held), parameter_dtype=stored)
    inner: dict[str, set[str]] = {}
    for form in _forms(held):
        added = layer(_text(form, "name"))
        inner[_text(form, "name")] = {path for path, _ in with_inner(added)}
        net.add(added, _sources(form))
    for form in _forms(held):  # of which some are only set up when a later one is added
        change(made[_text(form, "name")], form, reader, inner[_text(form, "name")])
        fixed = form.get("fixed", [])
        for name in fixed if isinstance(fixed, list) else []:
            net.layers[_text(form, "name")].own_parameters[str(name)].stores_grad = False
    compile_by(net.compile, held.get("compiled"), reader)
    return net


def _checked(config: object) -> Mapping[str, Plain]:
    """ConfigError unless it is a configuration of a version that is known."""
    if not isinstance(config, Mapping) or config.get("format") != "singa_lite config":
        raise ConfigError(f"config: wanted what net.config() gives, received {config!r:.100}")
    version = config.get("version")
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise ConfigError(f"config: wanted version 1 to {VERSION}, received {version!r:.100}")
    return config


def _forms(held: Mapping[str, Plain]) -> list[dict[str, Plain]]:
    forms = held.get("layers")
    if not isinstance(forms, list) or not forms or not all(isinstance(form, dict) for form in forms):
        raise ConfigError(f"config: wanted a list of layers, received {forms!r:.100}")
    return [form for form in forms if isinstance(form, dict)]


def _text(held: Mapping[str, Plain], name: str) -> str:
    found = held.get(name)
    if not isinstance(found, str):
        raise ConfigError(f"config: wanted text as {name!r}, received {found!r:.100}")
    return found


def _seed(held: Mapping[str, Plain]) -> int:
    found = held.get("seed")
    if not isinstance(found, int):
        raise ConfigError(f"config: wanted a number as 'seed', received {found!r:.100}")
    return found


def _criteria(checked: Callable[[object], Criteria], found: object) -> Criteria:
    """Losses or metrics, in any form that a net takes. ConfigError for anything else."""
    try:
        return checked(found)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"config: {error}") from None


def _sources(form: Mapping[str, Plain]) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    sources = form.get("sources")
    for pair in sources if isinstance(sources, list) else [sources]:
        name, number = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        if not isinstance(name, str) or not isinstance(number, int):
            raise ConfigError(f"config: wanted sources as [[layer, number], ...], received {sources!r:.100}")
        found.append((name, number))
    return found
