"""Variants: ways in which a kernel set does a call of one kernel, of which one is chosen by the form of the call.

They agree to rounding. Which is fastest goes by extents, processor and number of threads: a table of measured choices
(`tuning_file.py`) decides where it has the call, else the rule of the set. Addresses and strides have no say, so that a
call is done in the same way wherever its tensors lie, planned or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from singa_lite.common.notice import warn
from singa_lite.kernels import tuning_file
from singa_lite.kernels.call import Call
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import Settings, TensorSpecs
from singa_lite.kernels.routine import Routine

AnyRoutine = TypeVar("AnyRoutine", bound=Routine[Any])
#: {call, by `call_name`: name of a variant}.
Choices = Mapping[str, str]


class _ChoiceTable:
    """choices: in the place of the file's, None: these. stamp: another one for other choices."""

    choices: Choices | None = None
    stamp = 0


@dataclass(frozen=True)
class Variants(Generic[AnyRoutine]):
    """The variants of one kernel.

    kernel: its name; builders: {variant: what makes the routine of a call, None where it cannot}, first the one that
    serves wherever the chosen one cannot; rule: which to take where no table has the call; library: whose code it is,
    with its version; threads: that an operation may use now.
    """

    kernel: str
    builders: Mapping[str, Callable[[Call], AnyRoutine | None]]
    rule: Callable[[Call], str]
    library: Callable[[], str]
    threads: Callable[[], int]

    def routine(self, specs: TensorSpecs, settings: Settings) -> AnyRoutine | None:
        """Of the variant that is chosen for the call, which it names, else of the first one that can do it."""
        for name in dict.fromkeys((self._chosen(specs, settings), *self.builders)):
            made = self.builders[name](self._call(specs, settings))
            if made is not None:
                made.variant = name
                return made
        return None

    def routines(self, specs: TensorSpecs, settings: Settings) -> dict[str, AnyRoutine]:
        """The routine of each variant that can do the call, by its name."""
        call = self._call(specs, settings)
        made = {name: build(call) for name, build in self.builders.items()}
        return {name: routine for name, routine in made.items() if routine is not None}

    def default(self, specs: TensorSpecs, settings: Settings) -> str:
        """What the rule says; the first variant where that one cannot do the call."""
        call = self._call(specs, settings)
        name = self.rule(call)
        return name if self.builders[name](call) is not None else next(iter(self.builders))

    def _call(self, specs: TensorSpecs, settings: Settings) -> Call:
        return Call.from_specs(self.kernel, specs, settings)

    def call_name(self, specs: TensorSpecs, settings: Settings) -> str:
        """What tells the call from others that may take another time, in words. Strides are left out."""
        names = zip(SIGNATURES[self.kernel].tensors, specs, strict=True)
        tensors = ", ".join(f"{name} {spec.shape} {spec.dtype}" for name, spec in names if spec is not None)
        plain = ", ".join(f"{name}={value}" for name, value in sorted(settings.items()))
        return f"{self.kernel}: {tensors}; {plain}; threads={self.threads()}"

    def _chosen(self, specs: TensorSpecs, settings: Settings) -> str:
        table = choices(self.library())
        if table:
            name = table.get(self.call_name(specs, settings))
            if name is not None and name in self.builders:
                return name
            if name is not None:
                warn(f"tuning of {self.kernel}: wanted one of {[*self.builders]}, received {name!r}; the rule decides")
        return self.rule(self._call(specs, settings))


#: Of whatever kernel set.
AnyVariants: TypeAlias = Variants[Any]


def choices(library: str) -> Choices:
    """The table of `using_choices`, else that of the user's file, if it was made here with this library."""
    return tuning_file.tuning_for(library).choices if _ChoiceTable.choices is None else _ChoiceTable.choices


def stamp() -> int:
    """Equal as long as the table is: what was built by one table is not asked for by another."""
    return _ChoiceTable.stamp


@contextmanager
def using_choices(table: Choices) -> Iterator[None]:
    """Routines that are built inside go by this table, whatever the file says; {}: by the rules alone."""
    before = _ChoiceTable.choices
    _choose(table)
    try:
        yield
    finally:
        _choose(before)


def _choose(table: Choices | None) -> None:
    _ChoiceTable.choices = table
    _ChoiceTable.stamp += 1
