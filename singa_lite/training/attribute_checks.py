"""Attributes of a net that may be set after it was compiled, and those that only `compile` sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from singa_lite.common.checks import integer
from singa_lite.common.described import NEAR, is_ours
from singa_lite.common.errors import GraphError
from singa_lite.common.keywords import hint_for, own_word
from singa_lite.layer import freezing
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.training.objective import losses_of, metrics_of
from singa_lite.training.settings import ATTRIBUTES, NAMES, checked_on_nan
from singa_lite.training.trainer import Trainer

_OF_NET = frozenset({"optimizer", "loss", "metric"})
#: Attributes that `compile` sets and that may be set afterwards: steps follow.
FOLLOWED = _OF_NET.union(ATTRIBUTES)
_COMPILED = _OF_NET.union(NAMES)


def checked_attribute(net: LayerGraph, trainer: Trainer, name: str, value: object) -> object:
    """Returns the value that an attribute of a net is to have. GraphError or AttributeError for one that nothing would
    follow, and the errors of `compile` for what it refuses.
    """
    check = _CHECKS.get(name)
    if check is not None:
        return check(value)
    known, is_compiled = vars(net), trainer.settings is not None
    if name == "freeze" and is_compiled and not isinstance(value, str):
        return freezing.checked("net.freeze", value, net.all_layers())
    if name in ("device", "dtype", "parameter_dtype") and net.layers:
        instead = "net.to_device(device)" if name == "device" else f"FeedForwardNet({name}=...)"
        raise GraphError(f"net.{name}: wanted {instead}, as the net has layers, received {value!r:.100}")
    if name in FOLLOWED or name in known:
        return value
    if name in _COMPILED and (is_compiled or hasattr(type(net), name)):
        raise GraphError(f"net.{name}: wanted compile({name}=...) anew, received {value!r:.100} for the attribute")
    if is_ours(type(net)) and not hasattr(type(net), name):
        _refuse_misspelt(net, name)
    return value


def _checked_verbose(given: Any) -> int:
    found = int(given) if isinstance(given, bool) else integer("net.verbose", given, 0)
    if found > 1:
        raise ValueError(f"net.verbose: wanted 0 or 1, received {given!r}")
    return found


_CHECKS: Mapping[str, Callable[[Any], object]] = {
    "loss": losses_of,
    "metric": metrics_of,
    "on_nan": lambda value: checked_on_nan("net.on_nan", value),
    "verbose": _checked_verbose,
    "seed": lambda value: integer("net.seed", value, 0, 2**64 - 1),
}


def _refuse_misspelt(net: LayerGraph, name: str) -> None:
    """AttributeError for a name that is nearly an attribute's, or another framework's word; others are the user's."""
    public = {word for word in (*vars(net), *dir(type(net))) if not word.startswith("_")}
    options = dict.fromkeys(_COMPILED)
    own = own_word(name, options)
    hint = own if own != name else hint_for(name, options)
    near = hint or next(iter(get_close_matches(name, sorted(public | _COMPILED), 1, NEAR)), "")
    if near:
        raise AttributeError(f"net.{name}: wanted an attribute that a net has, received none; perhaps {near}")
