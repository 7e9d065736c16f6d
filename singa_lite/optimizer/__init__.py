"""Optimizers: how a parameter moves, given its gradient. `get` finds one by its name."""

from typing import TYPE_CHECKING

from singa_lite.common.keywords import by_name, class_lookup, keras_defaults
from singa_lite.optimizer.adafactor import Adafactor as Adafactor
from singa_lite.optimizer.adaptive import AdaGrad as AdaGrad
from singa_lite.optimizer.adaptive import Adam as Adam
from singa_lite.optimizer.adaptive import AdamW as AdamW
from singa_lite.optimizer.adaptive import RMSProp as RMSProp
from singa_lite.optimizer.base import Optimizer as Optimizer
from singa_lite.optimizer.global_norm import GlobalNorm as GlobalNorm
from singa_lite.optimizer.global_norm import clip_global_norm as clip_global_norm
from singa_lite.optimizer.lion import Lion as Lion
from singa_lite.optimizer.muon import Muon as Muon
from singa_lite.optimizer.sgd import SGD as SGD
from singa_lite.optimizer.sgd import Nesterov as Nesterov

_KINDS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW, "lion": Lion, "rmsprop": RMSProp}
_OTHERS = {
    "adafactor": "optimizer.Adafactor(), in PyTorch's form,",
    "adagrad": "optimizer.AdaGrad(), whose sums begin at 0,",
    "nesterov": "optimizer.Nesterov()",
}


def get(name: str) -> Optimizer:
    """Returns a new optimizer with Keras's defaults: "sgd", "adam", "adamw", "lion", "rmsprop"; else ValueError.

    >>> optimizer.get("adam").lr
    0.001
    """
    kind = by_name("optimizer", name.lower() if isinstance(name, str) else name, _KINDS, _OTHERS)
    return kind(**keras_defaults(kind, {}))  # type: ignore[arg-type]


if not TYPE_CHECKING:  # where it would let any name pass
    __getattr__ = class_lookup(__name__)
