"""Targets and results of a step of the user's own, in the place of losses and metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from singa_lite.common.array_types import DType, Shaped
from singa_lite.common.arrays import converted
from singa_lite.common.errors import DeviceError, GraphError, ShapeError
from singa_lite.data.loading.batch import as_array
from singa_lite.data.loading.samples import ArraySource, checked_targets
from singa_lite.device import Device
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.metric import Metric
from singa_lite.tensor import Shape, Tensor
from singa_lite.training.loop.measures import Measure, check_entries
from singa_lite.training.objective import Objective
from singa_lite.training.steps.step_functions import Values

#: The name of targets that are one array.
TARGET = "y"


class ReportedNumber(Metric):
    """A number that the user's step gives beside its loss. name: under which."""

    def __init__(self, name: str) -> None:
        self.name = name

    def compute(self, x: Tensor, target: Tensor) -> Tensor:
        """Never asked for, as the step computes it."""
        raise TypeError(f"{self.name}: wanted a metric, received a number that a step of the user's own gives")


class StepObjective(Objective):
    """No losses and no metrics: the step makes its own. Targets are whatever the step reads, or none.

    is_known: whether it is known what the step gives, as `measures` then say.
    """

    def __init__(self) -> None:
        self.outputs = []
        self.losses = {}
        self.measures = ()
        self.loss_weights = {}
        self.is_known = False
        self._forms: dict[str, tuple[Shape, DType]] | None = None

    def note(self, names: Sequence[str], training: bool) -> None:
        """What the step gives beside its loss. GraphError where an evaluation gives something else than training."""
        known = [measure.key for measure in self.measures]
        if self.is_known and known != list(names) and not training:
            raise GraphError(
                f"step: wanted the same names in an evaluation as in training, {['loss', *known]}, received "
                f"{['loss', *names]}"
            )
        if not self.is_known or known != list(names):
            check_entries("step", names)
            self.measures = tuple(Measure(name, name, "", ReportedNumber(name)) for name in names)
        self.is_known = True

    def targets(
        self, y: object, shapes: Mapping[str, Shape], dtype: DType, features_last: Collection[str] = ()
    ) -> dict[str, Shaped]:
        """The targets by name: real numbers in the net's dtype, whole ones int64; of one array `TARGET`."""
        named = _named(y)
        arrays = {str(name): _target(f"target {name!r}", given, dtype) for name, given in named.items()}
        self._forms = {name: (tuple(a.shape[1:]), np.dtype(str(a.dtype))) for name, a in arrays.items()}
        return arrays

    def rows(self, where: str, y: object, count: int) -> dict[str, ArraySource] | None:
        """The targets of a data set; None where there are none."""
        named = _named(y)
        return checked_targets(where, named, [*named], count) if named else None

    def batch_forms(self, layers: LayerGraph, size: int) -> dict[str, tuple[Shape, DType]]:
        """Of targets as the last batch had; none before the first one."""
        return {name: ((size, *shape), dtype) for name, (shape, dtype) in (self._forms or {}).items()}

    def target_forms(
        self, shapes: Mapping[str, Shape], dtype: DType, features_last: Collection[str] = ()
    ) -> dict[str, tuple[Shape, DType]]:
        """None that outputs would tell."""
        return {}


def _named(y: object) -> dict[str, object]:
    if y is None:
        return {}
    return {str(name): given for name, given in y.items()} if isinstance(y, Mapping) else {TARGET: y}


def _target(where: str, given: object, dtype: DType) -> Shaped:
    array = as_array(where, given)
    if not array.shape:
        raise ShapeError(f"{where}: wanted one row a sample, received a single number")
    if isinstance(array, np.ndarray):
        return converted(array, np.dtype(np.int64) if array.dtype.kind in "iu" else dtype)
    return array


LOSS = "loss"


def values_of(returned: object, device: Device) -> Values:
    """(loss, {name: number}) of what the function returned: a loss, or a dict with one, all 0-d tensors of the step."""
    named = {LOSS: returned} if isinstance(returned, Tensor) else returned
    if not isinstance(named, Mapping) or LOSS not in named:
        received = f"names {[*named]}" if isinstance(named, Mapping) else f"{type(named).__name__}"
        raise TypeError(f'step: wanted it to return a loss, or {{"loss": tensor, ...}}, received {received}')
    values = {str(name): _checked(str(name), given, device) for name, given in named.items()}
    return values.pop(LOSS), values


def _checked(name: str, given: object, device: Device) -> Tensor:
    """The tensor apart from its tape, so that nothing of the step is held by it."""
    if not isinstance(given, Tensor):
        hint = ": a number of Python's would be the same at each replay" if isinstance(given, int | float) else ""
        raise TypeError(f"step: wanted {name!r} as a tensor of the step, received {type(given).__name__}{hint}")
    if given.shape != () or given.dtype.kind != "f":
        raise ShapeError(
            f"step: wanted {name!r} as one float (), such as autograd.reduce_mean gives, received {given.shape} "
            f"{np.dtype(given.dtype)}"
        )
    if given.block.device is not device:
        raise DeviceError(f"step: wanted {name!r} on {device.name}, received it on {given.device.name}")
    graph = device.graph
    if graph is not None and not graph.knows(given.block):
        raise GraphError(
            f"step: wanted {name!r} made by an operation of this step, received a tensor from outside of it, which no "
            "replay would change"
        )
    return given.detach()
