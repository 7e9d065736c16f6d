"""The options of `compile`, a row each: name, default, and its traits, such as what it may not stand beside.

What each may be, and what two of them want of each other, `net/compile/checked.py` checks, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from enum import Flag, auto
from typing import Annotated, Any, get_type_hints

from singa_lite.autograd.rewriting import Rule
from singa_lite.layer.layer import Layer
from singa_lite.parallel.data_parallel import DataParallel


class Trait(Flag):
    """What several options have in common."""

    #: It is of the built-in step: not beside step=, which leaves no use for it.
    BUILT_IN = auto()
    #: It is of steps that a net does itself: not of one that another net's step trains, by compile(nets=).
    OWN_STEPS = auto()
    #: Several processes cannot do it together: not beside parallel=.
    ONE_PROCESS = auto()
    #: Processes that train a net together are to have it alike, beside what `settings.settings` tells.
    ALIKE = auto()
    #: It goes by the machine: a configuration is the same whatever its net was trained within.
    MACHINE = auto()
    #: It is an attribute of the net, too, that may be set afterwards; a configuration has what it is then.
    ATTRIBUTE = auto()
    #: `compiled_as` has it only where it was given.
    ASKED_FOR = auto()


_USUAL_STEP = Trait.BUILT_IN | Trait.OWN_STEPS


@dataclass(frozen=True, eq=False, kw_only=True)
class CompileOptions:
    """What `compile` was given beside optimizer, loss and metric, in the order of its keywords, which say the rest."""

    loss_weights: Annotated[Mapping[str, float] | None, _USUAL_STEP | Trait.ATTRIBUTE] = None
    graph: Annotated[bool, Trait.ALIKE] = True
    fuse: Annotated[bool, Trait.ALIKE] = True
    freeze: Annotated[str | Collection[str | Layer] | None, _USUAL_STEP | Trait.ATTRIBUTE] = None
    memory_budget: Annotated[int | str | None, Trait.OWN_STEPS | Trait.MACHINE] = None
    micro_batches: Annotated[int, _USUAL_STEP | Trait.ATTRIBUTE] = 1
    state_dtype: str | None = None
    offload: Annotated[str | None, Trait.OWN_STEPS | Trait.ONE_PROCESS | Trait.MACHINE] = None
    order: Annotated[str, Trait.OWN_STEPS | Trait.ONE_PROCESS | Trait.MACHINE] = "recorded"
    workers: Annotated[int, Trait.OWN_STEPS | Trait.ONE_PROCESS | Trait.MACHINE] = 1
    precision: Annotated[str, Trait.OWN_STEPS | Trait.ALIKE] = "float32"
    float32_layers: Annotated[Collection[str], Trait.ALIKE] = ()
    clip_global_norm: float | None = None
    accumulate: Annotated[int, _USUAL_STEP] = 1
    loss_scale: Annotated[str | float | None, _USUAL_STEP] = None
    step: Annotated[Callable[..., object] | None, Trait.OWN_STEPS | Trait.ONE_PROCESS | Trait.ASKED_FOR] = None
    nets: Annotated[Mapping[str, Any] | None, Trait.ONE_PROCESS | Trait.ASKED_FOR] = None
    keep: Annotated[Collection[str] | None, _USUAL_STEP | Trait.ASKED_FOR] = None
    limits: Annotated[Mapping[str, int | str] | None, _USUAL_STEP | Trait.MACHINE | Trait.ASKED_FOR] = None
    rules: Annotated[Collection[Rule] | None, Trait.ASKED_FOR] = None
    on_nan: Annotated[str | None, Trait.OWN_STEPS | Trait.ATTRIBUTE] = "fit"
    parallel: Annotated[DataParallel | None, Trait.MACHINE | Trait.ASKED_FOR] = None

    @classmethod
    def among(cls, given: Mapping[str, Any]) -> CompileOptions:
        """Those of these values that are options, by name."""
        return cls(**{name: given[name] for name in NAMES})

    def given(self) -> dict[str, object]:
        """{option: value} as `compiled_as` has them, and as `compile` takes them again."""
        found = {name: getattr(self, name) for name in NAMES}
        return {name: value for name, value in found.items() if value is not None or name not in ASKED_FOR}


_DEFAULTS = {each.name: each.default for each in fields(CompileOptions)}
_MARKED = get_type_hints(CompileOptions, include_extras=True)
#: All of them.
NAMES = tuple(_DEFAULTS)


def with_trait(trait: Trait) -> dict[str, object]:
    """Those that have it, with their defaults."""
    return {name: default for name, default in _DEFAULTS.items() if trait in _traits(name)}


def _traits(name: str) -> Trait:
    (found,) = getattr(_MARKED[name], "__metadata__", (Trait(0),))
    return Trait(found)


ASKED_FOR = frozenset(with_trait(Trait.ASKED_FOR))
ATTRIBUTES = frozenset(with_trait(Trait.ATTRIBUTE))


def check_usual(where: str, given: Mapping[str, object], trait: Trait) -> None:
    """ValueError unless all options with this trait are as by default. given: as of `CompileOptions.given`."""
    for name, value in with_trait(trait).items():
        if given.get(name, value) != value:
            raise ValueError(
                f"{where}: wanted {name}={value!r}, which it would not use otherwise, received {given[name]!r}"
            )
