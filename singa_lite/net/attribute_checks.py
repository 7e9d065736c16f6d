"""Attributes of a net that may be set after it was compiled, and those that only `compile` sets."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Protocol

from singa_lite.common.described import NEAR, is_ours
from singa_lite.common.errors import GraphError
from singa_lite.common.keywords import hint_for, own_word
from singa_lite.layer import freezing
from singa_lite.layer.layer import Layer
from singa_lite.training.objective import losses_of, metrics_of
from singa_lite.training.settings import ATTRIBUTES, NAMES, checked_on_nan

#: The attribute that a net's constructor sets last.
_LAST = "_settings"

_OF_NET = frozenset({"optimizer", "loss", "metric"})
#: Attributes that `compile` sets and that may be set afterwards: steps follow.
FOLLOWED = _OF_NET.union(ATTRIBUTES)
_COMPILED = _OF_NET.union(NAMES)
#: Attributes whose change raises the version of the net's settings.
OF_STEPS = FOLLOWED | {"verbose"}


class Settable(Protocol):
    """What is asked here of a net."""

    @property
    def layers(self) -> Mapping[str, Layer]: ...

    def all_layers(self) -> Mapping[str, Layer]: ...


def checked_attribute(net: Settable, name: str, value: object) -> object:
    """The value that the attribute is to have. GraphError or AttributeError for one that nothing would follow, and the
    errors of `compile` for what it refuses.
    """
    if name == "loss":
        return losses_of(value)
    if name == "metric":
        return metrics_of(value)
    if name == "on_nan":
        return checked_on_nan("net.on_nan", value)
    known = vars(net)
    if name == "freeze" and known.get("_settings") is not None and not isinstance(value, str):
        return freezing.checked("net.freeze", value, net.all_layers())
    if name in ("device", "dtype") and known.get("_layers"):
        instead = "net.to_device(device)" if name == "device" else "FeedForwardNet(dtype=...)"
        raise GraphError(f"net.{name}: wanted {instead}, as the net has layers, received {value!r:.100}")
    if name in FOLLOWED or name in known:
        return value
    if name in _COMPILED and (known.get("optimizer") is not None or hasattr(type(net), name)):
        raise GraphError(f"net.{name}: wanted compile({name}=...) anew, received {value!r:.100} for the attribute")
    if is_ours(type(net)) and not hasattr(type(net), name) and _LAST in known:
        _refuse_misspelt(net, name)
    return value


def _refuse_misspelt(net: Settable, name: str) -> None:
    """AttributeError for a name that is nearly an attribute's, or another framework's word; others are the user's."""
    public = {word for word in (*vars(net), *dir(type(net))) if not word.startswith("_")}
    options = dict.fromkeys(_COMPILED)
    own = own_word(name, options)
    hint = own if own != name else hint_for(name, options)
    near = hint or next(iter(get_close_matches(name, sorted(public | _COMPILED), 1, NEAR)), "")
    if near:
        raise AttributeError(f"net.{name}: wanted an attribute that a net has, received none; perhaps {near}")
