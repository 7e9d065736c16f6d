"""Names of classes in a configuration: ours by their module, a user's own, and rewriting rules, by what the reader says
they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import isabstract
from types import ModuleType

from singa_lite import layers, loss, metric, optimizer
from singa_lite.autograd.rewriting import Rule
from singa_lite.common.errors import ConfigError
from singa_lite.layer import initializer
from singa_lite.optimizer import regularizer, schedule

#: Whose public classes are known by "<module>.<class>".
_MODULES: Mapping[str, ModuleType] = {
    "layers": layers,
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
