"""Attributes of a net that may be set after it was compiled, and those that only `compile` sets."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Protocol

from singa_lite.common.described import NEAR, is_ours
from singa_lite.common.elsewhere import COMPILE
from singa_lite.common.errors import GraphError
from singa_lite.layer.layer import Layer
from singa_lite.layer.traversal import freezing
from singa_lite.training import non_finite
from singa_lite.training.compile_options import ATTRIBUTES, NAMES
from singa_lite.training.criteria import losses_of, metrics_of

#: The attribute that a net's constructor sets last.
_LAST = "compiled_as"

_OF_NET = frozenset({"optimizer", "loss", "metric"})
#: Attributes that `compile` sets and that may be set afterwards: steps follow.
FOLLOWED = _OF_NET | ATTRIBUTES
_COMPILED = _OF_NET.union(NAMES)
#: Attributes whose change raises the version of the net's settings.
OF_STEPS = FOLLOWED | {"verbose"}


#: {attribute that another framework's net has: what stands for it here}.
ELSEWHERE = {
    "lr": "net.optimizer.lr",
    "learning_rate": "net.optimizer.lr",
    "trainable": "trainable of each layer, or compile(freeze=...)",
}


class Settable(Protocol):
    """What is asked here of a net."""

    @property
    def layers(self) -> Mapping[str, Layer]: ...

    def all_layers(self) -> Mapping[str, Layer]: ...


def checked(net: Settable, name: str, value: object) -> object:
    """The value that the attribute is to have. GraphError or AttributeError for one that nothing would follow, and the
    errors of `compile` for what it refuses.
    """
    if name == "loss":
        return losses_of(value)
    if name == "metric":
        return metrics_of(value)
    if name == "on_nan":
        return non_finite.checked(value)
    known = vars(net)
    if name == "freeze" and known.get("compiled_as") and not isinstance(value, str):
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
    near = ELSEWHERE.get(name, "")
    if not near:
        words = [word for word in COMPILE.get(name, ()) if word in _COMPILED]
        near = next(iter(words or get_close_matches(name, sorted(public | _COMPILED), 1, NEAR)), "")
    if near:
        raise AttributeError(f"net.{name}: wanted an attribute that a net has, received none; perhaps {near}")
