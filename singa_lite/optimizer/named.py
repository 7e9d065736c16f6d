"""Optimizers by Keras's names."""

from __future__ import annotations

from singa_lite.common.keywords import by_name, keras_defaults
from singa_lite.optimizer.adaptive import Adam, AdamW, RMSProp
from singa_lite.optimizer.base import Optimizer
from singa_lite.optimizer.sgd import SGD

_KINDS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW, "rmsprop": RMSProp}
_OTHERS = {"adagrad": "optimizer.AdaGrad(), whose sums begin at 0,", "nesterov": "optimizer.Nesterov()"}


def get(name: str) -> Optimizer:
    """Returns a new optimizer with Keras's defaults: "sgd", "adam", "adamw" or "rmsprop". ValueError for another name.

    >>> optimizer.get("adam").lr
    0.001
    """
    kind = by_name("optimizer", name.lower() if isinstance(name, str) else name, _KINDS, _OTHERS)
    return kind(**keras_defaults(kind, {}))  # type: ignore[arg-type]
