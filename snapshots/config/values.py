"""Values of a configuration: arguments as what JSON holds, and back.

Numbers, flags, text, None and lists stand as they are; {"tuple": [...]}, {"dict": [[key, value], ...]}, {"float":
"nan"}, {"dtype": "float32"}, {"array": [...], "dtype": ...}, {"layer": path} for a layer elsewhere in the net, {"net":
configuration} for a whole net, {"rule": name} for a rewriting rule, and
{"class": name, "arguments": {...}} for an object that knows its arguments (`Described`, and frozen dataclasses).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from inspect import isabstract
from math import isfinite
from types import ModuleType
from typing import NamedTuple, TypeAlias

import numpy as np

from singa_lite import layers, loss, metric, optimizer
from singa_lite.autograd.rewriting import Rule
from singa_lite.common.described import Described
from singa_lite.common.errors import ConfigError
from singa_lite.layer import initializer
from singa_lite.layer.layer import Layer
from singa_lite.layers import onnx
from singa_lite.optimizer import regularizer, schedule

#: What JSON holds.
Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"

#: Arrays of more elements are no settings but data, which a configuration does not hold.
MOST_ELEMENTS = 65536


class Writer(NamedTuple):
    """Writes values as plain ones. where: for errors; reference: the path of a layer of the net that stands elsewhere
    than here, None for one that is made here; foreign: writes what is no plain value, or raises. classes: where those
    that were met are entered by name.
    """

    where: str
    reference: Callable[[Layer], str | None]
    foreign: Callable[[str, object], Plain]
    classes: dict[str, type]

    def at(self, place: str) -> Writer:
        """The same, for a value within this one."""
        return self._replace(where=f"{self.where}: {place}")

    def write(self, value: object) -> Plain:
        """The value as JSON holds it. ConfigError for one that cannot be written."""
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not isfinite(value):
            return {"float": repr(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, np.dtype):
            return {"dtype": value.name}
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.size <= MOST_ELEMENTS:
            return {"array": self.write(value.tolist()), "dtype": value.dtype.name}
        if isinstance(value, list | tuple | Mapping):
            return self._container(value)
        return self._object(value)

    def _container(self, value: list[object] | tuple[object, ...] | Mapping[object, object]) -> Plain:
        if isinstance(value, Mapping):
            return {"dict": [[self.write(key), self.write(held)] for key, held in value.items()]}
        held = [self.write(one) for one in value]
        return {"tuple": held} if isinstance(value, tuple) else held

    def _object(self, value: object) -> Plain:
        if isinstance(value, Layer):
            path = self.reference(value)
            if path is not None:
                return {"layer": path}
        arguments = arguments_of(value)
        if arguments is None:
            return self.foreign(self.where, value)
        return self.described(value, arguments)

    def described(self, value: object, arguments: Mapping[str, object]) -> dict[str, Plain]:
        """An object by its class and what its constructor is given."""
        written = {name: self.at(name).write(given) for name, given in arguments.items()}
        kind = name_of(type(value))
        self.classes[kind] = type(value)
        return {"class": kind, "arguments": written}


def arguments_of(value: object) -> Mapping[str, object] | None:
    """What makes an equal object; None for one that does not know."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    return value.given_arguments if isinstance(value, Described) else None


class AsItIs(dict[str, Plain]):
    """The form of a value that is none of JSON's, in configurations that a pickle holds."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class Reader(NamedTuple):
    """Reads values from plain ones. custom: a user's classes and rules by name; layer: the layer of that path; net: the
    net of a configuration within this one, on the same device.
    """

    custom: Mapping[str, type | Rule]
    layer: Callable[[str], Layer]
    net: Callable[[Plain], object]

    def read(self, form: Plain) -> object:
        """The value of a form. ConfigError for what is no form."""
        if isinstance(form, list):
            return [self.read(one) for one in form]
        if not isinstance(form, dict):
            return form
        if isinstance(form, AsItIs):
            return form.value
        if "class" in form:
            return self.made(form)
        for kind, make in _KINDS.items():
            if kind in form:
                return make(self, form)
        raise ConfigError(f"config: wanted one of {', '.join(_KINDS)} or class, received {form!r:.100}")

    def made(self, form: Mapping[str, Plain]) -> object:
        """The object of {"class": name, "arguments": {...}}."""
        kind, arguments = class_of(form.get("class"), self.custom), form.get("arguments")
        if not isinstance(arguments, dict):
            raise ConfigError(f"config: wanted arguments of {form.get('class')!r}, received {arguments!r:.100}")
        given = {name: self.read(value) for name, value in arguments.items()}
        made: object = kind.construct(**given) if issubclass(kind, Described) else kind(**given)
        return made

    def _pairs(self, form: Mapping[str, Plain]) -> dict[object, object]:
        pairs = _list_of(form, "dict")
        found: dict[object, object] = {}
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2:
                raise ConfigError(f"config: wanted pairs of keys and values, received {pair!r:.100}")
            found[self.read(pair[0])] = self.read(pair[1])
        return found

    def _layer(self, form: Mapping[str, Plain]) -> Layer:
        path = form["layer"]
        if not isinstance(path, str):
            raise ConfigError(f"config: wanted the path of a layer, received {path!r:.100}")
        return self.layer(path)


def _list_of(form: Mapping[str, Plain], kind: str) -> list[Plain]:
    held = form[kind]
    if not isinstance(held, list):
        raise ConfigError(f"config: wanted a list in {kind!r}, received {held!r:.100}")
    return held


def _dtype(form: Mapping[str, Plain]) -> np.dtype[np.generic]:
    name = form.get("dtype")
    if not isinstance(name, str):
        raise ConfigError(f"config: wanted the name of a dtype, received {name!r:.100}")
    return np.dtype(name)


_KINDS: Mapping[str, Callable[[Reader, Mapping[str, Plain]], object]] = {
    "tuple": lambda reader, form: tuple(reader.read(one) for one in _list_of(form, "tuple")),
    "dict": Reader._pairs,
    "float": lambda reader, form: float(str(form["float"])),
    "array": lambda reader, form: np.array(reader.read(form["array"]), _dtype(form)),
    "dtype": lambda reader, form: _dtype(form),
    "layer": Reader._layer,
    "rule": lambda reader, form: rule_of(form["rule"], reader.custom),
    "net": lambda reader, form: reader.net(form["net"]),
}


#: Whose public classes are known by "<module>.<class>".
_MODULES: Mapping[str, ModuleType] = {
    "layers": layers,
    "layers.onnx": onnx,
    "loss": loss,
    "metric": metric,
    "optimizer": optimizer,
    "initializer": initializer,
    "regularizer": regularizer,
    "schedule": schedule,
}


def name_of(kind: type) -> str:
    """ "layers.Dense" for one of ours, the class's own name for others."""
    for module, holder in _MODULES.items():
        if getattr(holder, kind.__name__, None) is kind:
            return f"{module}.{kind.__name__}"
    return kind.__qualname__


def class_of(name: object, custom: Mapping[str, type | Rule]) -> type:
    """The class of that name. custom: a user's own classes by name.

    ConfigError for one that is unknown: no class is looked for by what a file says alone.
    """
    if isinstance(name, str):
        module, _, short = name.rpartition(".")
        found = custom.get(name, getattr(_MODULES.get(module), short, None) if module in _MODULES else None)
        if isinstance(found, type) and not isabstract(found):
            return found
    raise ConfigError(
        f"config: wanted a class of singa_lite, or one of custom={sorted(custom)}, received {name!r:.100}; "
        "custom={'" + f"{name!s:.60}" + "': <the class>} says which it is"
    )


def rule_of(name: object, custom: Mapping[str, type | Rule]) -> Rule:
    """The rewriting rule of that name. ConfigError for one that custom has not: its functions are in no file."""
    found = custom.get(name) if isinstance(name, str) else None
    if isinstance(found, Rule) and found.name == name:
        return found
    raise ConfigError(
        f"config: wanted the rewriting rule {name!r:.100} in custom={sorted(custom)}, as its functions are in no file, "
        f"received {'none' if found is None else repr(found)}; custom={{{name!r:.60}: <the Rule>}} says which it is"
    )
