"""Rules: what an optimizer does differently for parameters of some names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from singa_lite.common.checks import at_least_zero
from singa_lite.optimizer.regularizer import Constraint, Regularizer


@dataclass(frozen=True)
class Rule:
    """What `register` says about the parameters whose names match `pattern`."""

    pattern: str
    lr_mult: float = 1.0
    decay_mult: float = 1.0
    regularizer: Regularizer | None = None
    constraint: Constraint | None = None

    def check_names(self, names: Sequence[str], where: str = "register") -> None:
        """ValueError where the pattern matches none of the names."""
        if not any(fnmatchcase(name, self.pattern) for name in names):
            raise ValueError(f"{where}: wanted a pattern of parameters {list(names)}, received {self.pattern!r}")


class Rules:
    """The rules of one optimizer, the general one first, which holds for all parameters: of those that match a
    parameter's name, the last holds.
    """

    def __init__(self, general: Rule) -> None:
        self._rules = [general]

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    @property
    def general(self) -> Rule:
        """The rule of all parameters that no other one names."""
        return self._rules[0]

    @general.setter
    def general(self, rule: Rule) -> None:
        """Those that took its regularizer or constraint take the new one's."""
        was = self._rules[0]
        for place, other in enumerate(self._rules[1:], 1):
            if other.regularizer is was.regularizer:
                other = replace(other, regularizer=rule.regularizer)
            if other.constraint is was.constraint:
                other = replace(other, constraint=rule.constraint)
            self._rules[place] = other
        self._rules[0] = rule

    def add(self, rule: Rule) -> None:
        """Add one that comes before all that were there."""
        self._rules.append(rule)

    def of(self, name: str) -> Rule:
        """The rule that holds for the parameter of this name."""
        return next(rule for rule in reversed(self._rules) if fnmatchcase(name, rule.pattern))

    def check_names(self, names: Iterable[str]) -> None:
        """ValueError for a registered pattern that matches none of the names."""
        names = list(names)
        for rule in self._rules[1:]:
            rule.check_names(names)


def checked_rule(
    where: str,
    pattern: str,
    lr_mult: float = 1.0,
    decay_mult: float = 1.0,
    regularizer: Regularizer | None = None,
    constraint: Constraint | None = None,
) -> Rule:
    """A rule of checked values. TypeError or ValueError for others; where: what the message begins with."""
    for what, given, kind, example in (
        ("regularizer", regularizer, Regularizer, "L2Regularizer(0.1)"),
        ("constraint", constraint, Constraint, "NormConstraint(5)"),
    ):
        if given is not None and not isinstance(given, kind):
            raise TypeError(f"{where} {what}: wanted a {kind.__name__} such as {example}, or None, received {given!r}")
    lr_mult = at_least_zero(f"{where} lr_mult", lr_mult)
    return Rule(pattern, lr_mult, at_least_zero(f"{where} decay_mult", decay_mult), regularizer, constraint)
