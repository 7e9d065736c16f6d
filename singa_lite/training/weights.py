"""Weights of samples, of positions and of classes: what each one's loss is multiplied by, in the mean over the batch.

The loss is sum(weight * loss) / n, as of Keras: n counts the samples, or positions, so that weights of 2 train at twice
the rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from singa_lite.common.array_types import Array, DType, Shaped
from singa_lite.common.arrays import numbers
from singa_lite.common.checks import at_least_zero, is_int
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.data.loading.data_set import DataSet
from singa_lite.data.loading.samples import WEIGHT, HasShape, MemoryArray, Samples
from singa_lite.layer.criterion import received
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.loss import Loss
from singa_lite.tensor import Shape, Tensor, to_numpy
from singa_lite.training.objective import Objective

#: By how much shares of classes may miss 1.
_NEAR = 1e-3

#: {class id: weight}, of the others 1.
Classes = dict[int, float]


def sample_weights(
    where: str, given: object, layers: LayerGraph, objective: Objective, targets: Mapping[str, HasShape]
) -> dict[str, Array]:
    """{output: weights (n,), or (n, ...) by position, in the net's dtype}. given: for all outputs, {output: ...} for
    some, or None.

    ShapeError, TypeError or ValueError for what are no weights of these targets: finite numbers of at least 0.
    """
    if given is None:
        return {}
    named = given if isinstance(given, Mapping) else dict.fromkeys(objective.outputs, given)
    where = f"{where} sample_weight"
    _check_outputs(where, named, objective.outputs)
    found = {}
    for name, each in named.items():
        found[name] = _checked(where, each, targets[name].shape[0], layers.dtype)
        _check_positions(where, found[name].shape, layers, objective.losses[name], targets[name].shape, name)
    return found


def _checked(where: str, given: object, count: int, dtype: DType) -> Array:
    found = received(given, where)
    array = numbers(where, to_numpy(found) if isinstance(found, Tensor) else found)
    if array.shape[:1] != (count,):
        raise ShapeError(f"{where}: wanted one weight for each of {count} samples, received shape {array.shape}")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{where}: wanted real numbers, received {array.dtype}")
    with np.errstate(over="ignore"):  # what the dtype cannot hold is refused below
        weights = (array.reshape(count) if array.size == count else array).astype(dtype)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        first = np.unravel_index(int(bad.argmax()), bad.shape)
        at = [int(index) for index in first]
        raise ValueError(f"{where}: wanted finite numbers of at least 0, received {weights[first]} at {at}")
    return weights


def _check_positions(where: str, shape: Shape, layers: LayerGraph, loss: Loss, target: Shape, output: str) -> None:
    """ShapeError for weights of several axes that are none by position, as the loss has these."""
    if len(shape) == 1:
        return
    if len(target) > len(layers.output_shapes(output)[0]):
        try:
            loss.position_axis(target, target, shape)
        except ShapeError as error:
            raise ShapeError(f"{where} of output {output!r}: {error}") from None
    elif shape != target:
        raise ShapeError(
            f"{where}: wanted one weight for each of {target[0]} samples, or for each position, {target}, received "
            f"shape {shape}"
        )


def class_weights(where: str, given: object, layers: LayerGraph, objective: Objective) -> dict[str, Classes]:
    """{output: {class id: weight}}. given: {class id: weight} or a list of the classes' weights for a net of one
    output, {output: such a one} for others, or None. TypeError, ValueError or GraphError for others, and for a class
    that the net does not have.
    """
    if given is None:
        return {}
    where, outputs = f"{where} class_weight", objective.outputs
    if isinstance(given, Mapping) and given and all(_is_output(*pair) for pair in given.items()):
        _check_outputs(where, given, outputs)
        return {name: _of_classes(where, each, layers, objective, name) for name, each in given.items()}
    if len(outputs) != 1:
        raise GraphError(f"{where}: wanted a dict for some of {list(outputs)}, received one {type(given).__name__}")
    return {outputs[0]: _of_classes(where, given, layers, objective, outputs[0])}


def _is_output(key: object, value: object) -> bool:
    """Whether it is meant as an output and the weights of its classes, not as a class and its weight."""
    return isinstance(key, str) and isinstance(value, Mapping | list | tuple | np.ndarray)


def _of_classes(where: str, given: object, layers: LayerGraph, objective: Objective, output: str) -> Classes:
    if isinstance(given, list | tuple) or (isinstance(given, np.ndarray) and given.ndim):
        given = dict(enumerate(given))
    if not isinstance(given, Mapping):
        raise TypeError(f"{where}: wanted {{class id: weight}}, received {given!r:.100}")
    most = class_count(layers, objective, output)
    for key in given:
        if not is_int(key):
            hint = f"; {int(key)} without quotes is a class" if isinstance(key, str) and key.isdecimal() else ""
            raise TypeError(
                f"{where}: wanted {{class id: weight}} with whole numbers, received the class {key!r:.100}{hint}"
            )
        if not 0 <= key < most:
            raise ValueError(
                f"{where}: wanted classes from 0 to {most - 1}, as output {output!r} has them, received class {key}"
            )
    return {int(key): at_least_zero(f"{where} of class {key}", weight) for key, weight in given.items()}


def class_count(layers: LayerGraph, objective: Objective, output: str) -> int:
    """How many classes an output tells apart: its scores along their axis, or two by an only one."""
    shape = layers.output_shapes(output)[0]
    return max(2, shape[_axis_of_classes(layers, objective, output) - 1]) if shape else 2


def _axis_of_classes(layers: LayerGraph, objective: Objective, output: str) -> int:
    """Counted with the batch: the loss's, or the one that the layers before have their features along."""
    axis = getattr(objective.losses[output], "axis", None)
    axis = (-1 if layers.features_last(output) else 1) if axis is None else axis
    return int(axis) % max(2, len(layers.output_shapes(output)[0]) + 1)


def _check_outputs(where: str, named: Mapping[str, object], outputs: Sequence[str]) -> None:
    unknown = set(named) - set(outputs)
    if unknown:
        raise GraphError(f"{where}: wanted outputs {list(outputs)}, received {sorted(map(str, unknown))}")


def by_class(
    where: str, classes: Classes, target: object, layers: LayerGraph, objective: Objective, output: str
) -> Array:
    """(n, ...): the weight of each position's class. target: ids, or rows of the scores' shape, of which the largest
    entry counts. TypeError for real values.
    """
    found = received(target, where)
    array = to_numpy(found) if isinstance(found, Tensor) else found
    if array.ndim > max(1, len(layers.output_shapes(output)[0])):
        array = np.moveaxis(array, _axis_of_classes(layers, objective, output), -1)
        if array.shape[-1] > 1:
            _check_rows(where, array.reshape(-1, array.shape[-1]))
        array = array.argmax(-1) if array.shape[-1] > 1 else array[..., 0]
    count, ignored = class_count(layers, objective, output), objective.losses[output].ignore_index
    with np.errstate(invalid="ignore"):  # of NaN
        ids = array.astype(np.int64)
    counted = np.ones(ids.shape, bool) if ignored is None else ids != ignored
    bad = (ids != array) | (counted & ((ids < 0) | (ids >= count)))
    if bad.any():
        at = np.unravel_index(int(bad.argmax()), bad.shape)
        raise TypeError(
            f"{where} class_weight: wanted targets that are classes, from 0 to {count - 1}, received {array[at]} at "
            f"{[int(index) for index in at]}"
        )
    weights = np.ones(count, layers.dtype)
    with np.errstate(over="ignore"):
        weights[list(classes)] = list(classes.values())
    weighed: Array = np.where(counted, weights[np.where(counted, ids, 0)], np.ones((), layers.dtype))
    return weighed


def _check_rows(where: str, rows: Array) -> None:
    """TypeError for rows that are real values: neither 0 and 1 nor shares of the classes."""
    whole = ((rows == 0) | (rows == 1)).all(1)
    bad = ~(whole | ((rows >= 0).all(1) & (np.abs(rows.sum(1, dtype=np.float64) - 1) < _NEAR)))
    if bad.any():
        at = int(bad.argmax())
        raise TypeError(
            f"{where} class_weight: wanted targets that are classes, rows of 0 and 1 or of shares that add up to 1, "
            f"received {rows[at].tolist()!s:.100} at [{at}]"
        )


def check_classes(where: str, data: DataSet, layers: LayerGraph, objective: Objective, given: object) -> None:
    """As `class_weights`, and as `by_class` for targets in memory, before the first batch."""
    for name, classes in class_weights(where, given, layers, objective).items():
        rows = data.targets[name] if isinstance(data, Samples) and data.targets is not None else None
        if rows is not None and rows.held:
            by_class(where, classes, rows.take(slice(None)), layers, objective, name)


def of_batch(
    where: str,
    layers: LayerGraph,
    objective: Objective,
    targets: Mapping[str, Shaped],
    sample_weight: object,
    class_weight: object,
) -> dict[str, Array]:
    """{output: weights (n,), or (n, ...) by position} of a batch, the product where both are given; outputs without
    any are left out.
    """
    found = sample_weights(where, sample_weight, layers, objective, targets)
    for name, classes in class_weights(where, class_weight, layers, objective).items():
        own = by_class(where, classes, targets[name], layers, objective, name)
        given = found.get(name, np.ones(own.shape[:1], own.dtype))
        given = given.reshape(-1, *(1,) * (own.ndim - 1)) if given.ndim == 1 else given
        if given.ndim != own.ndim:
            raise ShapeError(f"{where} sample_weight: wanted {own.shape} beside class_weight, received {given.shape}")
        found[name] = own * given
    return found


def weigh(where: str, data: DataSet, layers: LayerGraph, objective: Objective, sample_weight: object) -> None:
    """Let the batches of a data set be (x, y, weights). ValueError where they bring their own."""
    if sample_weight is None:
        return
    if not isinstance(data, Samples) or data.targets is None:
        raise ValueError(
            f"{where} sample_weight: wanted it beside arrays; batches of loaders bring theirs, (x, y, "
            "sample_weight), and sequences in buckets have none"
        )
    found = sample_weights(where, sample_weight, layers, objective, data.targets)
    data.targets |= {WEIGHT + name: MemoryArray(f"{where} sample_weight", weights) for name, weights in found.items()}
