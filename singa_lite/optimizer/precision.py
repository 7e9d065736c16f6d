"""Whether a dtype holds an optimizer's numbers: updates are done in the parameters' dtype, where small ones vanish."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.optimizer import schedule
from singa_lite.optimizer.base import Optimizer
from singa_lite.optimizer.rules import Rule

#: Settings that multiply what is kept at each step; 1 would keep it for ever.
_DECAYS = ("momentum", "rho", "beta_1", "beta_2")


def check(optimizer: Optimizer, dtype: DType) -> None:
    """ValueError for a number that is another one in this dtype: one that vanishes, or rounds to 1.

    An epsilon must be a normal number: in float16 squares of gradients below 1e-4 are 0, and steps, divided by the root
    of their mean, would explode. Of a schedule only a constant one is looked at.
    """
    _check_epsilon(optimizer, dtype)
    for where, value in _numbers(optimizer):
        if value and not dtype.type(value):
            raise ValueError(
                f"{where}: wanted a number that {dtype} holds, {_tiny(dtype):.2g} or more, received {value}"
            )
    for name in _DECAYS:
        value = optimizer.settings.get(name, 0.0)
        if value < 1 and dtype.type(value) == 1:
            raise ValueError(
                f"{_label(optimizer, name)}: wanted a number below 1 in {dtype}, received {value}, which is 1 there"
            )
    _check_decoupled(optimizer, dtype)


def _check_epsilon(optimizer: Optimizer, dtype: DType) -> None:
    """Measured in float16: Adam learns with 1e-4 as in float32; with 1e-5 its loss leaps at first, with 1e-7 to NaN."""
    epsilon, least = optimizer.settings.get("epsilon", np.inf), float(np.finfo(dtype).tiny)
    if epsilon < least:
        raise ValueError(
            f"{_label(optimizer, 'epsilon')}: wanted {least:.2g} or more in {dtype}, where squares of small gradients "
            f"are 0, received {epsilon}; a float32 net may store its activations by compile(precision='bfloat16')"
        )


def _check_decoupled(optimizer: Optimizer, dtype: DType) -> None:
    """Of AdamW: 1 - lr * weight_decay multiplies the value."""
    rate = _rate(optimizer)
    if rate is None or not optimizer.settings.get("decoupled"):
        return
    for rule in optimizer.rules:
        step = rate * rule.lr_mult * optimizer.weight_decay * rule.decay_mult
        if step and dtype.type(1 - step) == 1:
            raise ValueError(
                f"{_label(optimizer, 'weight_decay')}: wanted lr * weight_decay that {dtype} can take from 1, "
                f"{np.finfo(dtype).epsneg:.2g} or more, received {step:.2g}"
            )


def _numbers(optimizer: Optimizer) -> Iterator[tuple[str, float]]:
    """(where it is said, value) of all that enters an update as a number."""
    for name, value in optimizer.settings.items():
        if isinstance(value, float):
            yield _label(optimizer, name), value
    rate = _rate(optimizer)
    for rule in optimizer.rules:
        where = type(optimizer).__name__ if rule.pattern == "*" else f"register {rule.pattern!r}"
        if rate is not None:
            yield f"{where} lr", rate * rule.lr_mult
        if not optimizer.settings.get("decoupled"):
            yield f"{where} weight_decay", optimizer.weight_decay * rule.decay_mult
        yield from ((f"{where} {what}", value) for what, value in _of_rule(rule))


def _of_rule(rule: Rule) -> Iterator[tuple[str, float]]:
    if rule.regularizer is not None:
        yield "regularizer", getattr(rule.regularizer, "coefficient", 0.0) * rule.decay_mult
    if rule.constraint is not None:
        yield "constraint", getattr(rule.constraint, "threshold", 0.0)


def _rate(optimizer: Optimizer) -> float | None:
    given = optimizer.schedule
    return given.value if isinstance(given, schedule.Constant) else None


def _label(optimizer: Optimizer, name: str) -> str:
    return f"{type(optimizer).__name__} {name}"


def _tiny(dtype: DType) -> float:
    """The smallest number above 0."""
    return float(np.finfo(dtype).smallest_subnormal)
