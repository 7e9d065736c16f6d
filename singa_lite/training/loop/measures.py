"""Measures: which metric looks at which output, under which entry of the history, and which values are better."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.checks import check_choice, flag
from singa_lite.common.errors import GraphError
from singa_lite.data.loading.batch import by_name
from singa_lite.layer.criterion import Criterion, received
from singa_lite.loss import Loss
from singa_lite.metric import EpochMetric, Metric
from singa_lite.tensor import Tensor, from_numpy, to_numpy

#: Before an output's name in what a step gives: its scores.
SCORES = "scores/"
#: Entries of the history beside metrics: the loss and the learning rate; what stands before those of the validation.
LOSS, RATE, VALIDATED = "loss", "lr", "val_"
#: And those of the machine.
FIXED = ("samples_per_second", "high_water")
#: Before an output's name in what a step of several outputs gives: the mean of its loss.
LOSSES = "loss/"


class Measure(NamedTuple):
    """A metric of an output. key: in what `train_one_batch` returns, "" of an only metric; entry: in the history."""

    key: str
    entry: str
    output: str
    metric: Metric


Measures: TypeAlias = tuple[Measure, ...]


class Observed(NamedTuple):
    """What an epoch's values take of a batch.

    counts: {key: what a mean counts as}; statistics: {key: of an EpochMetric}; losses: {output, or "" of an only one:
    (of how many values its loss is the mean, the mean)}, where that is not of all samples.
    """

    counts: dict[str, float]
    statistics: dict[str, Array]
    losses: dict[str, tuple[int, float]]


def measures(given: object, outputs: list[str]) -> Measures:
    """The metrics, of one output or {output: ...} of some; each one metric or a list of them, objects of its own.

    GraphError for a name of no output, TypeError for what is no metric, ValueError for two of one name.
    """
    by_output = given if isinstance(given, Mapping) else by_name(given, outputs, "metrics of the net")
    unknown = set(by_output) - set(outputs)
    if unknown:
        raise GraphError(f"metrics of the net: wanted outputs {outputs}, received {sorted(map(str, unknown))}")
    named = isinstance(given, Mapping)
    found = [measure for output, several in by_output.items() for measure in _of_output(output, several, named)]
    entries = [measure.entry for measure in found]
    check_entries("metrics of the net", entries)
    twice = sorted({entry for entry in entries if entries.count(entry) > 1})
    if twice:
        raise ValueError(
            f"metrics of the net: wanted each name once, received several {twice}; an object's name can be set, as by "
            f"metric.name = {twice[0] + '_2'!r}"
        )
    return tuple(found)


def check_entries(where: str, entries: Sequence[str]) -> None:
    """TypeError for a name that is no text, ValueError for one that the history has for something else."""
    for entry in entries:
        if not isinstance(entry, str) or not entry:
            raise TypeError(f"{where}: wanted names as text, received {entry!r:.100}")
    taken = {LOSS, *FIXED, *(VALIDATED + entry for entry in (LOSS, *entries))}
    for entry in taken.intersection(entries):
        raise ValueError(f"{where}: wanted other names than those of the history's own entries, received {entry!r}")


def _of_output(output: str, given: object, named: bool) -> Iterable[Measure]:
    for each in given if isinstance(given, list | tuple) else [given]:
        if not isinstance(each, Metric):
            raise TypeError(f"metric of output {output!r}: wanted a Metric, received {each!r:.100}")
        entry = f"{output}_{each.name}" if named else each.name
        key = "" if not named else output
        yield Measure(entry if isinstance(given, list | tuple) else key, entry, output, each)


def public(values: Mapping[str, Tensor]) -> Tensor | dict[str, Tensor] | None:
    """The metrics' values as users get them: of an only metric its value, of none None."""
    return values[""] if "" in values else dict(values) or None


def observe(
    every: Measures,
    losses: Mapping[str, Loss],
    step: tuple[Tensor, Mapping[str, Tensor]],
    targets: Mapping[str, object],
    samples: int,
) -> tuple[dict[str, Tensor], Observed | None]:
    """The metrics' values of a batch by key, and what an epoch's values take of it; None: samples and values alone.

    losses: by output; step: what it gave; targets: as it was fed with, of so many samples.
    """
    loss, values = step
    if not needs_outputs((*losses.values(), *(each.metric for each in every))):
        return dict(values), None
    host = {name: _on_host(target) for name, target in targets.items()}
    scores = {name: to_numpy(value) for name, value in values.items() if name.startswith(SCORES)}
    found, observed = dict[str, Tensor](), Observed({}, {}, {})
    if any(each.of_whole_batch and each.is_counted for each in losses.values()):
        for name, each in losses.items():
            mean = values.get(LOSSES + name, loss)
            count = each.counted(host[name])
            observed.losses[name] = samples if count is None else count, float(mean)
    for key, _, output, metric in every:
        if isinstance(metric, EpochMetric):
            statistics = metric.statistics_of(scores[SCORES + output], host[output])
            observed.statistics[key] = statistics
            value = metric.result_of(statistics).astype(np.float64)
            found[key] = from_numpy(value, values[SCORES + output].device)
        else:
            found[key] = values[key]
            observed.counts[key] = metric.count(host[output])
    return found, observed


def needs_outputs(criteria: Iterable[Criterion]) -> bool:
    """Whether an epoch's value of one of these losses and metrics takes more than a batch's and its samples."""
    return any(isinstance(each, EpochMetric) or each.of_whole_batch for each in criteria)


def _on_host(target: object) -> Array:
    given = received(target)
    return to_numpy(given) if isinstance(given, Tensor) else given


#: What `mode` of a callback may be.
MODES = ("auto", "min", "max")

#: The direction of an entry whose last words are these, where no metric says it.
_KNOWN: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("loss", "error", "mse", "mae", "rmse", "perplexity", "high_water"), "min")
    | dict.fromkeys(("accuracy", "acc", "auc", "f1", "r2", "precision", "recall", "samples_per_second"), "max")
)


def entries(measures: Measures, validates: bool) -> list[str]:
    """Names of what the history will have of each epoch, and is one number. validates: whether a validation ends it."""
    numbers = [each.entry for each in measures if each.metric.is_number]
    validated = [f"{VALIDATED}{name}" for name in (LOSS, *numbers)] if validates else []
    return list(dict.fromkeys([LOSS, *numbers, *validated, *FIXED, RATE]))


def checked_mode(where: str, mode: object) -> str:
    """ValueError unless it is one of `MODES`."""
    return check_choice(f"{where} mode", mode, MODES)


def direction(where: str, entry: str, mode: str, measures: Measures) -> str:
    """ "min" or "max": mode itself, or for "auto" what the entry's metric states, or what is known of its name.

    ValueError where neither says it.
    """
    found = None if mode == "auto" else mode
    if found is None:
        found = _stated(entry, measures) or next((way for name, way in _KNOWN.items() if _ends_with(entry, name)), None)
    if found is None:
        raise ValueError(
            f"{where} mode: wanted 'min' or 'max' for the entry {entry!r}, as neither its name nor higher_is_better of "
            f"its metric's class says which is better, received {mode!r}"
        )
    return found


def _stated(entry: str, measures: Measures) -> str | None:
    for each in measures:
        stated = each.metric.higher_is_better
        if entry in (each.entry, VALIDATED + each.entry) and stated is not None:
            return "max" if flag(f"{type(each.metric).__name__} higher_is_better", stated) else "min"
    return None


def _ends_with(entry: str, name: str) -> bool:
    """Whether these are its last whole words."""
    return f"_{entry.replace('/', '_')}".endswith(f"_{name}")
