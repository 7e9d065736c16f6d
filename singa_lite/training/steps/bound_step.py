"""BoundStep: the training of a batch in a form that was trained before, with all found that does not change.

A net finds it by the form of the batch and the version of its settings. The record compares the version of options; the
values of targets and ids are looked at in every batch. Whatever is not as it was, an error among them, is left to the
checks of a first batch, whose messages these are.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from singa_lite.common.array_types import Array, DType, Shaped
from singa_lite.common.arrays import is_plain
from singa_lite.common.value_checks import ClassIds, ValuesCheck, any_values
from singa_lite.device import device_of
from singa_lite.layer.criterion import Criterion
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.tensor import Shape, Tensor
from singa_lite.training.loop.measures import needs_outputs
from singa_lite.training.objective import Objective
from singa_lite.training.steps.recorded_steps import Feeds, RecordedStep, StepKey
from singa_lite.training.steps.step_functions import Values
from singa_lite.training.steps.train_step import TrainStep

#: {"input": {layer: batch}, "target": {layer: targets}}, of arrays that were given as they are fed.
Given: TypeAlias = dict[str, dict[str, Shaped]]
#: The same arrays, one behind the other.
Batch: TypeAlias = Sequence[Array]


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


class BoundStep:
    """The training of batches of a form that has been recorded.

    key, step: by which the record is found, and which it is of; the step itself is never recorded. settings: the
    version of the net's. checks: {("input" or "target", layer): what is asked of the values}. feeds: the batch that was
    let through. recorded: its record, which holds this. checks_loss: whether each loss is looked at.
    """

    def __init__(
        self,
        key: StepKey,
        settings: int,
        step: TrainStep,
        checks: Mapping[tuple[str, str], Sequence[ValuesCheck]],
        feeds: Feeds,
        recorded: RecordedStep,
        checks_loss: bool,
    ) -> None:
        self.key = key
        self.settings = settings
        self.step = step
        self.checks_loss = checks_loss
        #: Whether the metrics look at more than what the step gives.
        self.observes_scores = needs_outputs(step.objective.criteria)
        self._places = [(kind, name) for kind, named in feeds.items() for name in named]
        self._checks = [(self._places.index(at), check) for at, several in checks.items() for check in several]
        loss, values = recorded.results
        self._names, self._results = tuple(values), (loss, *values.values())
        buffer, device = recorded.feed.buffer, device_of(loss)
        fed = any(buffer.has(result.block) for result in self._results)  # which lie elsewhere once a longer batch came
        self._copies = None if fed else device.bound_results(self._results)
        self.here = device.runtime.here
        #: Runs the record; it binds its launches again where their bytes lie elsewhere by then.
        self.executable = recorded.graph.executable()

    def passes(self, batch: Batch) -> bool:
        """Whether the values of a batch, which has the form, do."""
        for place, check in self._checks:  # noqa: SIM110  # at each batch, and a generator takes as long as a check
            if not check(batch[place]):
                return False
        return True

    def by_layer(self, batch: Batch) -> Given:
        """The batch as it is fed."""
        feeds: Given = {"input": {}, "target": {}}
        for (kind, name), array in zip(self._places, batch, strict=True):
            feeds[kind][name] = array
        return feeds

    def results(self) -> Values:
        """The loss and the metrics of the step that was just done, as tensors of their own; where nobody looks at
        operations.
        """
        copies = [copy_of(value) for value in self._results] if self._copies is None else self._copies()
        return copies[0], dict(zip(self._names, copies[1:], strict=True))


def batch_of(x: object, y: object) -> Batch:
    """The arrays of a batch whose form is known, in the order in which a step is fed."""
    return (x, y) if type(x) is type(y) is np.ndarray else (*_arrays(x), *_arrays(y))


def copy_of(value: Tensor) -> Tensor:
    """A tensor of its own, in C order."""
    device = device_of(value)
    made = Tensor.trusted(device.new_block(value.nbytes), value.shape, value.dtype)
    device.copy(value, made)
    return made


def _arrays(given: object) -> Sequence[Array]:
    """One array, or those of a dict."""
    return tuple(given.values()) if isinstance(given, dict) else (given,)  # type: ignore[return-value]  # by its form


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
    return [*feeds] == ["input", "target"] and _is_fed_form(x, feeds["input"]) and _is_fed_form(y, feeds["target"])


def _is_fed_form(given: object, fed: Mapping[str, object]) -> bool:
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
