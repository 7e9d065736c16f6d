"""NetSettings: settings of a net that its steps depend on and no record watches, compared by identity in one go."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter, is_

from singa_lite.loss import Loss
from singa_lite.metric import Metric

_PLAIN = (
    *("optimizer", "optimizer._serves", "optimizer.gathering.count", "loss", "metric", "loss_weights", "freeze"),
    *("micro_batches", "_clip", "_scale", "_own", "_together", "_keep", "_verbose"),
)
_of_any = attrgetter(*_PLAIN)
_of_one_metric = attrgetter(*_PLAIN, "metric.name")


class NetSettings:
    """The settings of a net that does built-in steps, as they are now."""

    def __init__(self, net: object) -> None:
        plain = _of_any(net)
        _, _, _, loss, metric, weights, *_ = plain
        self._get = _of_one_metric if isinstance(metric, Metric) else _of_any
        self._values = self._get(net)
        #: Of losses, metrics and weights that may be exchanged in place.
        self._parts = () if all(map(_is_single, (loss, metric, weights))) else _parts_of(net)

    def by(self, net: object) -> bool:
        """Whether a net has all of it."""
        try:
            values = self._get(net)
        except AttributeError:  # of an optimizer or a metric that is None by now
            return False
        return all(map(is_, values, self._values)) and (not self._parts or self._has_parts(net))

    def _has_parts(self, net: object) -> bool:
        now = _parts_of(net)
        return len(now) == len(self._parts) and all(map(is_, now, self._parts))


def _is_single(given: object) -> bool:
    return given is None or isinstance(given, Loss | Metric)


_criteria = attrgetter("loss", "metric", "loss_weights")


def _parts_of(net: object) -> tuple[object, ...]:
    return tuple(part for given in _criteria(net) for part in _parts(given))


def _parts(criteria: object) -> tuple[object, ...]:
    """Losses, metrics or their weights, and the names that metrics have now."""
    if isinstance(criteria, Metric):
        return criteria, criteria.name
    if isinstance(criteria, Mapping):
        return len(criteria), *(part for name, each in criteria.items() for part in (name, *_parts(each)))
    if isinstance(criteria, list | tuple):
        return len(criteria), *(part for each in criteria for part in _parts(each))
    return (criteria,)
