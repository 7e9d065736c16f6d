"""Settings: the options of `compile`, each checked by itself and against the others before a net has any of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from singa_lite.autograd.rewriting import Rule
from singa_lite.common.checks import above_zero, check_choice, flag, goes_through, integer, names, narrow_dtype, or_none
from singa_lite.common.deleted_options import OFFLOAD_TO_FOLDER
from singa_lite.common.sizes import budget_size, memory_size
from singa_lite.compiler.ir.target import Narrow
from singa_lite.compiler.report.plan_rows import CLASSES
from singa_lite.graph.graph import ORDERS
from singa_lite.layer.freezing import Freeze
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.stored_parameters import PARAMETER_DTYPES
from singa_lite.optimizer.stored_parameters import ROUNDINGS, Rounding
from singa_lite.parallel.data_parallel import DataParallel

#: What `precision` takes. bfloat16 has 8 bits of exponent, as float32, and 7 of mantissa; float16 has 5, from
#: 6e-8 to 65504, and 10. tf32 stores float32, and has the factors of products rounded to 10 bits of mantissa on a GPU.
PRECISIONS = ("float32", "bfloat16", "float16", "tf32")
_NARROW = ("bfloat16", "float16")
#: What `on_nan` takes: in `fit` alone an error; an error, a warning, or nothing, in every training step.
ON_NAN = ("fit", "raise", "warn", None)

#: Options of the built-in step, which step= leaves no use for.
OF_BUILT_IN_STEP = ("loss_weights", "freeze", "micro_batches", "accumulate", "loss_scale", "keep", "limits")
#: Options of steps that a net does itself, and not another net's step by nets=.
OF_OWN_STEPS = (*OF_BUILT_IN_STEP, "memory_budget", "offload", "order", "precision", "step", "on_nan")
#: Options that several processes cannot have together, beside parallel=.
OF_ONE_PROCESS = ("offload", "order", "step")
#: Options that processes which train a net together have alike, beside `OF_RANKS`.
ALIKE = ("graph", "fuse", "precision", "float32_layers")
#: Options of `parallel.mpi` that they have alike.
OF_RANKS = ("bucket_bytes", "in_flight_bytes", "shard", "sync", "check_every")
#: Options that go by the machine: a configuration is the same whatever its net was trained within.
OF_MACHINE = ("memory_budget", "offload", "order", "workers", "limits", "parallel")
#: Options that are attributes of a net, too, and may be set afterwards.
ATTRIBUTES = ("loss_weights", "freeze", "micro_batches", "on_nan")
#: Options that `compiled_as` has only where they were given.
ONLY_IF_GIVEN = ("step", "nets", "keep", "limits", "rules", "parallel")


@dataclass(frozen=True, eq=False, kw_only=True)
class Settings:
    """The options of `compile` beside optimizer, loss and metric; the docstring of `compile` says what each means."""

    loss_weights: Mapping[str, float] | None = None
    graph: bool = True
    fuse: bool = True
    freeze: Freeze = None
    memory_budget: int | None = None
    micro_batches: int = 1
    state_dtype: str | None = None
    parameter_dtype: str | None = None
    rounding: str | None = None
    offload: str | None = None
    order: str = "recorded"
    workers: int = 1
    precision: str = "float32"
    float32_layers: Sequence[str] = ()
    clip_global_norm: float | None = None
    accumulate: int = 1
    loss_scale: str | float | None = None
    step: Callable[..., object] | None = None
    nets: Mapping[str, Any] | None = None
    keep: Sequence[str] | None = None
    limits: Mapping[str, int] | None = None
    rules: Sequence[Rule] | None = None
    on_nan: str | None = "fit"
    parallel: DataParallel | None = None

    @classmethod
    def checked(cls, given: Mapping[str, Any], parameter_dtype: str | None = None) -> Settings:
        """Returns settings of the options among these values, by name. TypeError or ValueError for an option that
        cannot be, and for options that exclude each other, by `CONSTRAINTS`. parameter_dtype: of a net that was built
        with one, in the place of None.
        """
        found: dict[str, Any] = {
            name: _CHECKS[name](f"compile {name}", given[name]) if name in _CHECKS else given[name] for name in NAMES
        }
        made = cls(**{**found, "parameter_dtype": found["parameter_dtype"] or parameter_dtype})
        for constraint in CONSTRAINTS:
            constraint.check(made)
        return made

    def changed(self, name: str, value: Any) -> Settings:
        """Returns the settings with another value of one option."""
        return replace(self, **{name: value})

    def as_keywords(self) -> dict[str, Any]:
        """{option: value} as `compile` takes them again, without those of `ONLY_IF_GIVEN` that were not given."""
        found = {name: getattr(self, name) for name in NAMES}
        return {name: value for name, value in found.items() if value is not None or name not in ONLY_IF_GIVEN}

    @property
    def of_records(self) -> list[str]:
        """The options that are asked for and kept by recorded steps alone."""
        options = ("memory_budget", "offload", "precision", "order", "limits", "rules")
        return [name for name in options if getattr(self, name) != DEFAULTS[name]]

    def rounding_of(self, seed: int) -> Rounding:
        """Returns how updates round parameters that are stored in bfloat16. seed: of the net."""
        if self.parameter_dtype != "bfloat16":
            return Rounding()
        name = self.rounding or ROUNDINGS[0]
        return Rounding(name, seed if name == "stochastic" else 0)

    @property
    def is_narrow(self) -> bool:
        """Whether recorded steps store activations in 16 bits."""
        return self.precision in _NARROW

    def narrow(self, layers: LayerGraph) -> Narrow | None:
        """Returns how recorded steps store activations of these layers; None: in the net's dtype."""
        if not self.is_narrow:
            return None
        kept = tuple(f"{name}/" for name in self.float32_layers)
        wide = frozenset(path for path in layers.all_layers() if f"{path}/".startswith(kept))
        return Narrow(narrow_dtype("compile precision", self.precision), np.dtype(np.float32), wide)


DEFAULTS: Mapping[str, Any] = {each.name: each.default for each in fields(Settings)}
#: All options, in the order of `compile`'s keywords.
NAMES = tuple(DEFAULTS)


class Constraint(NamedTuple):
    """One option that restricts another one.

    option: where it is asked for, `allows` must hold for the value of `other`. wanted: the words of the ValueError.
    when: whether the option's value asks for it; None: any value but the default does.
    """

    option: str
    other: str
    allows: Callable[[Any], bool]
    wanted: str
    when: Callable[[Any], bool] | None = None

    def check(self, settings: Settings, where: str = "compile") -> None:
        """ValueError for settings that it refuses."""
        value, other = getattr(settings, self.option), getattr(settings, self.other)
        asked = value is not None and (self.when or self._differs)(value)
        if asked and not self.allows(other):
            raise ValueError(f"{where} {self.option}: wanted {self.wanted}, received {other!r:.100}")

    def _differs(self, value: object) -> bool:
        return bool(value != DEFAULTS[self.option])


def _membership(*wanted: object) -> Callable[[object], bool]:
    return lambda value: value in wanted


def _default(option: str, other: str, when: Callable[[Any], bool] | None = None) -> Constraint:
    """The other option stays as by default."""
    default = DEFAULTS[other]
    words = f"{other}={default!r}, which it would not use otherwise"
    return Constraint(option, other, lambda value: value is default or value == default, words, when)


def _has_peers(ranks: DataParallel) -> bool:
    return ranks.size > 1


CONSTRAINTS: Sequence[Constraint] = (
    Constraint("nets", "step", callable, "step= beside it, the function that trains them"),
    *(_default("step", other) for other in OF_BUILT_IN_STEP),
    Constraint(
        "step", "precision", _membership("float32", "bfloat16", "tf32"), "a precision whose losses need no scale"
    ),
    Constraint("keep", "micro_batches", _membership(1), "micro_batches=1, whose outputs are whole"),
    Constraint("keep", "loss_scale", _membership(None), "no loss_scale beside it, which multiplies derivatives"),
    Constraint("keep", "precision", _membership("float32", "bfloat16", "tf32"), "a precision without a loss_scale"),
    Constraint("limits", "graph", bool, "graph=True, as they are kept by planning recorded steps"),
    Constraint("rules", "graph", bool, "graph=True, as only recorded steps are rewritten"),
    Constraint("memory_budget", "graph", bool, "graph=True, as it is kept by planning recorded steps"),
    Constraint("order", "graph", bool, "graph=True, as only recorded steps have orders"),
    Constraint("precision", "graph", bool, "graph=True, as only recorded steps are rewritten"),
    Constraint("workers", "order", _membership("dependencies"), "order='dependencies' beside it"),
    Constraint("order", "memory_budget", _membership(None), "no memory_budget, whose repeats want one order"),
    Constraint("rounding", "parameter_dtype", _membership("bfloat16"), "parameter_dtype='bfloat16' beside it"),
    Constraint("float32_layers", "precision", _membership(*_NARROW), "precision='bfloat16' beside it"),
    *(_default("parallel", other, _has_peers) for other in OF_ONE_PROCESS),
    Constraint(
        *("parallel", "precision", _membership("float32"), "precision='float32' beside sync=True"),
        when=lambda ranks: ranks.size > 1 and ranks.sync,
    ),
)


def described(value: object) -> str:
    """A text that each process gives to equal settings: a class with its public attributes, or a function's name."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return repr(value.item() if isinstance(value, np.generic) else value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {described(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(described, value)) + "]"
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    public = {name: item for name, item in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    return f"{type(value).__name__}({', '.join(f'{name}={described(item)}' for name, item in sorted(public.items()))})"


def check_default(where: str, settings: Settings, options: Sequence[str]) -> None:
    """ValueError unless all of these options are as by default."""
    for name in options:
        value, default = getattr(settings, name), DEFAULTS[name]
        if value is not default and value != default:
            raise ValueError(
                f"{where}: wanted {name}={default!r}, which it would not use otherwise, received {value!r}"
            )


def checked_on_nan(where: str, given: object) -> str | None:
    """Returns it. ValueError for what is none of `ON_NAN`."""
    if not isinstance(given, str | None) or given not in ON_NAN:
        raise ValueError(f'{where}: wanted "fit", "raise", "warn" or None, received {given!r:.100}')
    return given


def _choice_check(choices: Collection[str]) -> Callable[[str, Any], str]:
    return lambda where, given: check_choice(where, given, choices)


def _count(where: str, given: float) -> int:
    return integer(where, given, 1)


def _names(where: str, given: Collection[str]) -> Sequence[str]:
    found = names(where, given)
    return given if isinstance(given, list | tuple) else found


def _keep(where: str, given: Collection[str]) -> list[str] | None:
    found = list(dict.fromkeys(names(where, given)))
    if wrong := [name for name in found if not isinstance(name, str)]:
        raise TypeError(f"{where}: wanted names of layers, received {wrong[0]!r}")
    return found or None


def _offload(where: str, given: object) -> str:
    if not isinstance(given, str | PathLike):
        raise TypeError(f'{where}: wanted "host", received {given!r}')
    if given != "host":
        raise ValueError(OFFLOAD_TO_FOLDER.message(given))
    return "host"


def _step(where: str, given: object) -> object:
    if not callable(given):
        raise TypeError(f"{where}: wanted a function step(net, call), received {given!r:.100}")
    return given


def _nets(where: str, given: object) -> dict[object, object]:
    if not isinstance(given, Mapping):
        raise TypeError(f"{where}: wanted {{name: net}}, received {type(given).__name__}")
    for name in given:
        if not isinstance(name, str) or not name or "/" in name:
            raise TypeError(f"{where}: wanted names without '/', received {name!r}")
    return dict(given)


def _limits(where: str, given: object) -> dict[str, int] | None:
    if not isinstance(given, Mapping):
        raise TypeError(f"{where}: wanted {{class of bytes: size}}, received {type(given).__name__}")
    found = given.items()
    return {check_choice(where, name, CLASSES): memory_size(f"{where} {name!r}", size) for name, size in found} or None


def _rules(where: str, given: object) -> list[Rule] | None:
    if isinstance(given, Rule) or not goes_through(given):
        raise TypeError(f"{where}: wanted a list of rewriting.Rule, received {type(given).__name__}")
    found = list(given)
    for one in found:
        if not isinstance(one, Rule):
            raise TypeError(f"{where}: wanted a list of rewriting.Rule, received {one!r:.100} in it")
    found_names = [rule.name for rule in found]
    if len(set(found_names)) < len(found_names):
        raise ValueError(f"{where}: wanted a name of its own for each, received {found_names}")
    return found or None


def _parallel(where: str, given: object) -> DataParallel:
    if not isinstance(given, DataParallel):
        raise TypeError(f"{where}: wanted parallel.mpi(), received {given!r:.100}")
    return given


#: {option: its check by itself}; those without one are checked with the net or the optimizer.
_CHECKS: Mapping[str, Callable[[str, Any], object]] = {
    "graph": flag,
    "fuse": flag,
    "memory_budget": or_none(budget_size),
    "micro_batches": _count,
    "offload": or_none(_offload),
    "order": _choice_check(ORDERS),
    "workers": _count,
    "parameter_dtype": or_none(_choice_check(PARAMETER_DTYPES)),
    "rounding": or_none(_choice_check(ROUNDINGS)),
    "precision": _choice_check(PRECISIONS),
    "float32_layers": _names,
    "clip_global_norm": or_none(above_zero),
    "accumulate": _count,
    "step": or_none(_step),
    "nets": or_none(_nets),
    "keep": or_none(_keep),
    "limits": or_none(_limits),
    "rules": or_none(_rules),
    "on_nan": checked_on_nan,
    "parallel": or_none(_parallel),
}

#: Of a net that was not compiled: it records the steps that write text alone.
BEFORE_COMPILE = Settings(graph=False)
