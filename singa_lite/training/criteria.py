"""Losses and metrics as users give them: objects, names, lists of metrics, and dicts of these by output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from singa_lite import loss as losses
from singa_lite import metric as metrics
from singa_lite.common.checks import kind_of
from singa_lite.loss import Loss
from singa_lite.metric import Metric

GivenLosses: TypeAlias = Loss | str | Mapping[str, Loss | str]
GivenMetric: TypeAlias = Metric | str | Sequence[Metric | str]
GivenMetrics: TypeAlias = GivenMetric | Mapping[str, GivenMetric]
Losses: TypeAlias = Loss | Mapping[str, Loss]
Metrics: TypeAlias = Metric | Sequence[Metric] | Mapping[str, Metric | Sequence[Metric]]


def losses_of(given: object) -> Losses | None:
    """The loss, or those by output; names become objects. TypeError for anything else, ValueError for unknown names."""
    if isinstance(given, Mapping):
        return {name: _loss(each, f"loss of output {name!r}") for name, each in given.items()}
    return None if given is None else _loss(given, "loss")


def metrics_of(given: object) -> Metrics | None:
    """The metric, a list of them, or these by output; names become objects. TypeError or ValueError as of losses."""
    if isinstance(given, Mapping):
        return {name: _metrics(each, f"metric of output {name!r}") for name, each in given.items()}
    return None if given is None else _metrics(given, "metric")


def _loss(given: object, where: str) -> Loss:
    if isinstance(given, str):
        return losses.get(given)
    if not isinstance(given, Loss):
        raise _refused(where, "Loss", given)
    return given


def _metrics(given: object, where: str) -> Metric | list[Metric]:
    return [_metric(each, where) for each in given] if isinstance(given, list | tuple) else _metric(given, where)


def _metric(given: object, where: str) -> Metric:
    if isinstance(given, str):
        return metrics.get(given)
    if not isinstance(given, Metric):
        raise _refused(where, "Metric", given)
    return given


def _refused(where: str, base: str, given: object) -> TypeError:
    hint = f", perhaps {given.__name__}()" if isinstance(given, type) else ""
    return TypeError(f"{where}: wanted a {base}{hint}, received {kind_of(given)}")
