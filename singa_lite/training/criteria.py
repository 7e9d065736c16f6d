"""Losses and metrics as users give them: objects, names, lists of metrics, and dicts of these by output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from singa_lite import loss as losses
from singa_lite import metric as metrics
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
        return {name: _loss(each) for name, each in given.items()}
    return None if given is None else _loss(given)


def metrics_of(given: object) -> Metrics | None:
    """The metric, a list of them, or these by output; names become objects. TypeError or ValueError as of losses."""
    if isinstance(given, Mapping):
        return {name: _metrics(each) for name, each in given.items()}
    return None if given is None else _metrics(given)


def _loss(given: object) -> Loss:
    if isinstance(given, str):
        return losses.get(given)
    if not isinstance(given, Loss):
        raise _refused("loss", "Loss", given)
    return given


def _metrics(given: object) -> Metric | list[Metric]:
    return [_metric(each) for each in given] if isinstance(given, list | tuple) else _metric(given)


def _metric(given: object) -> Metric:
    if isinstance(given, str):
        return metrics.get(given)
    if not isinstance(given, Metric):
        raise _refused("metric", "Metric", given)
    return given


def _refused(what: str, kind: str, given: object) -> TypeError:
    hint = f", perhaps {given.__name__}()" if isinstance(given, type) else ""
    return TypeError(f"{what}: wanted a {kind}{hint}, received {type(given).__name__}")
