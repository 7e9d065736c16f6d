"""Joined calls: cases beside those of single kernels, as their number of tensors is none of the interface's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernel_case import Case, Tensors
from singa_lite.kernels.interface import joined_name
from singa_lite.kernels.interface.update import AdaGradHyper, AdamHyper, Hyper, LionHyper, RmsPropHyper, SgdHyper

SGD = SgdHyper(momentum=0.9, dampening=0.3, nesterov=True, weight_decay=0.1, lr_mult=0.5)
#: Shapes of the values: one element, less than a pack, one more than a block takes, several axes.
SHAPES = (1,), (3,), (2, 5, 7), (1025,), (13, 11)
#: More than one launch has.
MANY = ((2, 3),) * 65


def several(hyper: Hyper, states: int, shapes: tuple[tuple[int, ...], ...], has_state: bool = True) -> Case:
    """Updates after 0, 1, 2 and more earlier ones, each with a rate of its own."""

    def build(rng: np.random.Generator, dtype: np.dtype, big: bool) -> tuple[Tensors, dict[str, Any]]:
        tensors: Tensors = []
        for count, shape in enumerate(shapes):
            made = [rng.standard_normal(shape).astype(dtype) for _ in range(2 + states * has_state)]
            gradient, value, *state = made
            state = [np.abs(one) for one in state] if has_state else [None] * states
            state += [None] * (isinstance(hyper, AdamHyper) and states == 2)  # no largest second moment
            tensors += [gradient, np.array(0.03 + 0.01 * count), value, *state, np.array(count, np.int64)]
        return tensors, {"hyper": hyper}

    return Case(build)


_RULES: dict[str, tuple[str, Hyper, int, bool]] = {
    "plain": ("sgd", replace(SGD, momentum=0.0, weight_decay=0.0, nesterov=False), 1, False),
    "momentum": ("sgd", SGD, 1, True),
    "rms_prop": ("rms_prop", RmsPropHyper(rho=0.9, epsilon=1e-3, weight_decay=0.1, lr_mult=0.5), 1, True),
    "ada_grad": ("ada_grad", AdaGradHyper(epsilon=1e-3, weight_decay=0.0, lr_mult=0.5), 1, True),
    "adam": (
        "adam",
        AdamHyper(beta_1=0.9, beta_2=0.99, epsilon=1e-3, weight_decay=0.1, decoupled=True, lr_mult=0.5),
        2,
        True,
    ),
    "largest": (
        "adam",
        AdamHyper(beta_1=0.9, beta_2=0.99, epsilon=1e-3, weight_decay=0.1, decoupled=False, lr_mult=0.5),
        3,
        True,
    ),
    "lion": ("lion", LionHyper(beta_1=0.9, beta_2=0.99, weight_decay=0.1, lr_mult=0.5), 1, True),
}
#: {"sgd*5:momentum": case}.
JOINED: dict[str, Case] = {
    f"{joined_name(kernel, len(SHAPES))}:{label}": several(hyper, states, SHAPES, has_state)
    for label, (kernel, hyper, states, has_state) in _RULES.items()
}
JOINED[f"{joined_name('sgd', len(MANY))}:many"] = several(SGD, 1, MANY)
