"""Repeats: a batch of a form that was trained before is checked, and its step found, by what was found then.

    settings    what of the net a step follows, told by identity: else it is done as a first one
    the record  watches options of layers, losses, metrics and the optimizer, see `watch.py`
    given       shapes and dtypes of the arrays, by name; they lie in the host's memory and need no conversion
    values      class ids and the like are looked at in every batch

Whatever is not as it was, an error among them, is left to the checks of a first batch, whose messages these are.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, TypeAlias
from weakref import ref

import numpy as np

from singa_lite.array_types import Array, DType
from singa_lite.arrays import is_plain
from singa_lite.criterion import Criterion
from singa_lite.layer_graph import LayerGraph
from singa_lite.loss import Loss
from singa_lite.metric import Metric
from singa_lite.recorded_steps import Feeds, RecordedStep, RecordedSteps, Shaped, StepKey
from singa_lite.tensor import Shape
from singa_lite.training.measures import Measures
from singa_lite.training.objective import Objective
from singa_lite.training.step_functions import TrainStep
from singa_lite.value_checks import ClassIds, ValuesCheck, any_values

#: What a net's steps follow and no record watches, each known by its identity.
Settings: TypeAlias = Sequence[object]
#: {"input": {layer: batch}, "target": {layer: targets}}, of arrays that were given as they are fed.
Given: TypeAlias = dict[str, dict[str, Shaped]]

#: Forms that are known before those whose records are gone are forgotten.
MOST_FORMS = 64


@dataclass(frozen=True, slots=True, eq=False)
class WholeCheck:
    """Asks a criterion for all that it asks of targets, as it does not say what would be left of it."""

    criterion: Criterion
    shape: Shape
    dtype: DType

    def __call__(self, values: Array) -> bool:
        try:
            self.criterion.check(self.shape, self.dtype, values)
        except Exception:  # which the checks of a first batch raise once more, as one of their own
            return False
        return True


class Repeat:
    """What a batch of this form is trained by.

    key, step: by which the record is found, and which it is of; the step itself is never recorded. measures: of its
    metrics. checks: {("input" or "target", layer): what is asked of the values}.
    """

    def __init__(
        self,
        settings: Settings,
        key: StepKey,
        step: TrainStep,
        measures: Measures,
        checks: Mapping[tuple[str, str], Sequence[ValuesCheck]],
        feeds: Feeds,
    ) -> None:
        self.key = key
        self.step = step
        self.measures = measures
        self._settings = tuple(settings)
        self._checks = [(*at, check) for at, several in checks.items() for check in several]
        self._names = {kind: tuple(named) for kind, named in feeds.items()}

    def follows(self, settings: Settings) -> bool:
        """Whether all of them are as they were."""
        return len(settings) == len(self._settings) and all(map(is_, settings, self._settings))

    def fed(self, x: object, y: object) -> Given | None:
        """The batch by layer, which has the form; None if its values do not pass."""
        feeds: dict[str, dict[str, Any]] = {"input": self._named("input", x), "target": self._named("target", y)}
        for kind, name, check in self._checks:
            if not check(feeds[kind][name]):
                return None
        return feeds

    def _named(self, kind: str, given: object) -> dict[str, Shaped]:
        if isinstance(given, np.ndarray):
            return {self._names[kind][0]: given}
        return dict(given)  # type: ignore[call-overload, no-any-return]


class Repeats:
    """The repeats of a net's recorded training steps, by the form of what was given; they live as long as the records.

    recorded: all recorded steps of the net.
    """

    def __init__(self, recorded: RecordedSteps) -> None:
        self._recorded = recorded
        self._forms: dict[Hashable, ref[RecordedStep]] = {}

    def find(
        self, x: object, y: object, settings: Settings, layers: LayerGraph
    ) -> tuple[RecordedStep, Repeat, Given] | None:
        """The record, what it is repeated by, and the batch by layer; None where it is to be done as a first one."""
        form = form_of_given(x, y)
        known = None if form is None else self._forms.get(form)
        recorded = None if known is None else known()
        if recorded is None:
            return None
        repeat: Repeat | None = recorded.repeat
        if repeat is None or not repeat.follows(settings):
            return None
        if not self._recorded.serves(repeat.key, recorded, layers.ordered()):
            return None
        feeds = repeat.fed(x, y)
        return None if feeds is None else (recorded, repeat, feeds)

    def note(self, x: object, y: object, recorded: RecordedStep, repeat: Repeat) -> None:
        """A step of this form was done by this record."""
        form = form_of_given(x, y)
        if form is None:
            return
        if len(self._forms) >= MOST_FORMS:
            self._forms = {form: known for form, known in self._forms.items() if known() is not None}
        recorded.repeat = repeat
        self._forms[form] = ref(recorded)


def parts(criteria: object) -> tuple[object, ...]:
    """Losses, metrics or their weights, which may be exchanged in place, and the names that metrics have now."""
    if criteria is None or isinstance(criteria, Loss):
        return (criteria,)
    if isinstance(criteria, Metric):
        return criteria, criteria.name
    if isinstance(criteria, Mapping):
        return len(criteria), *(part for name, each in criteria.items() for part in (name, *parts(each)))
    if isinstance(criteria, list | tuple):
        return len(criteria), *(part for each in criteria for part in parts(each))
    return (criteria,)


def form_of_given(x: object, y: object) -> Hashable | None:
    """Names, shapes and dtypes of what was given; None unless it is NumPy's own arrays, or dicts of them."""
    if type(x) is np.ndarray and type(y) is np.ndarray:
        return x.shape, x.dtype, y.shape, y.dtype
    first, second = _form(x), _form(y)
    return None if first is None or second is None else (first, second)


def _form(given: object) -> Hashable | None:
    arrays: dict[str, Any] = given if type(given) is dict else {"": given}
    if not all(type(array) is np.ndarray for array in arrays.values()):
        return None
    return type(given), tuple((name, array.shape, array.dtype) for name, array in arrays.items())


def is_given_as_fed(x: object, y: object, feeds: Feeds) -> bool:
    """Whether what was given needed no conversion."""
    return [*feeds] == ["input", "target"] and _same(x, feeds["input"]) and _same(y, feeds["target"])


def _same(given: object, fed: Mapping[str, object]) -> bool:
    arrays = given if isinstance(given, dict) else dict.fromkeys(fed, given)
    return (
        [*arrays] == [*fed]
        and (isinstance(given, dict) or len(fed) == 1)
        and all(is_plain(array) and array is fed[name] for name, array in arrays.items())
    )


def checks_of(
    layers: LayerGraph, objective: Objective, feeds: Mapping[str, Mapping[str, Array]]
) -> dict[tuple[str, str], Sequence[ValuesCheck]]:
    """What is to be asked of the values of batches of this one's form, which was let through."""
    found: dict[tuple[str, str], Sequence[ValuesCheck]] = {}
    for name, count in layers.input_ids().items():
        found["input", name] = [ClassIds(count)]
    fed = {name: array.shape for name, array in feeds["input"].items()}
    for name, target in feeds["target"].items():
        shape = (len(target), *layers.output_shape(name, fed))
        every = dict.fromkeys(_check(each, shape, layers.dtype, target) for each in objective.criteria_of(name))
        found["target", name] = [check for check in every if check is not any_values]
    return found


def _check(criterion: Criterion, shape: Shape, dtype: DType, target: Array) -> ValuesCheck:
    left = criterion.check_left(shape, dtype, target)
    return WholeCheck(criterion, shape, dtype) if left is None else left
