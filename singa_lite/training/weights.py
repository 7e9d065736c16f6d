"""Weights of samples and of classes: what each sample's loss is multiplied by, in the mean over the batch.

The loss is sum(weight * loss) / n, as of Keras: n counts the samples, so that weights of 2 train at twice the rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from singa_lite.common.array_types import Array, DType
from singa_lite.common.arrays import numbers
from singa_lite.common.checks import at_least_zero, is_int
from singa_lite.criterion import received
from singa_lite.errors import GraphError, ShapeError
from singa_lite.layer_graph import LayerGraph
from singa_lite.tensor import Tensor, to_numpy
from singa_lite.training.batch import Shaped
from singa_lite.training.data_set import DataSet
from singa_lite.training.objective import Objective
from singa_lite.training.samples import WEIGHT, Held, Samples

#: By how much shares of classes may miss 1.
_NEAR = 1e-3

#: {class id: weight}, of the others 1.
Classes = dict[int, float]


def sample_weights(where: str, given: object, outputs: Sequence[str], count: int, dtype: DType) -> dict[str, Array]:
    """{output: weights (n,) of this dtype}. given: (n,) for all outputs, {output: (n,)} for some, or None.

    ShapeError, TypeError or ValueError for what are no weights of so many samples: finite numbers of at least 0.
    """
    if given is None:
        return {}
    named = given if isinstance(given, Mapping) else dict.fromkeys(outputs, given)
    _check_outputs(f"{where} sample_weight", named, outputs)
    return {name: _checked(f"{where} sample_weight", each, count, dtype) for name, each in named.items()}


def _checked(where: str, given: object, count: int, dtype: DType) -> Array:
    found = received(given, where)
    array = numbers(where, to_numpy(found) if isinstance(found, Tensor) else found)
    if array.shape not in ((count,), (count, 1)):
        raise ShapeError(f"{where}: wanted one weight for each of {count} samples, received shape {array.shape}")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{where}: wanted real numbers, received {array.dtype}")
    weights = array.reshape(count).astype(dtype)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(f"{where}: wanted finite numbers of at least 0, received {weights[first]} at [{first}]")
    return weights


def class_weights(where: str, given: object, layers: LayerGraph, outputs: Sequence[str]) -> dict[str, Classes]:
    """{output: {class id: weight}}. given: {class id: weight} or a list of the classes' weights for a net of one
    output, {output: such a one} for others, or None. TypeError, ValueError or GraphError for others, and for a class
    that the net does not have.
    """
    if given is None:
        return {}
    where = f"{where} class_weight"
    if isinstance(given, Mapping) and given and all(_is_output(*pair) for pair in given.items()):
        _check_outputs(where, given, outputs)
        return {name: _of_classes(where, each, layers, name) for name, each in given.items()}
    if len(outputs) != 1:
        raise GraphError(f"{where}: wanted a dict for some of {list(outputs)}, received one {type(given).__name__}")
    return {outputs[0]: _of_classes(where, given, layers, outputs[0])}


def _is_output(key: object, value: object) -> bool:
    """Whether it is meant as an output and the weights of its classes, not as a class and its weight."""
    return isinstance(key, str) and isinstance(value, Mapping | list | tuple | np.ndarray)


def _of_classes(where: str, given: object, layers: LayerGraph, output: str) -> Classes:
    if isinstance(given, list | tuple) or (isinstance(given, np.ndarray) and given.ndim):
        given = dict(enumerate(given))
    if not isinstance(given, Mapping):
        raise TypeError(f"{where}: wanted {{class id: weight}}, received {given!r:.100}")
    most = class_count(layers, output)
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


def class_count(layers: LayerGraph, output: str) -> int:
    """How many classes an output tells apart: its scores, or two by an only one. ShapeError where it has more axes."""
    shape = layers.output_shapes(output)[0]
    if len(shape) > 1:
        raise ShapeError(f"class_weight: wanted one class a sample, received an output {output!r} of samples {shape}")
    return max(2, *shape) if shape else 2


def _check_outputs(where: str, named: Mapping[str, object], outputs: Sequence[str]) -> None:
    unknown = set(named) - set(outputs)
    if unknown:
        raise GraphError(f"{where}: wanted outputs {list(outputs)}, received {sorted(map(str, unknown))}")


def by_class(where: str, classes: Classes, target: object, dtype: DType, count: int, ignored: int | None) -> Array:
    """(n,): the weight of each sample's class. target: ids (n,) or rows (n, c), of which the largest entry counts.

    count: of the classes; ignored: the id that is none. ShapeError for targets of several positions a sample,
    TypeError for real values.
    """
    found = received(target, where)
    array = to_numpy(found) if isinstance(found, Tensor) else found
    if array.ndim == 2 and array.shape[1] > 1:
        _check_rows(where, array)
        array = array.argmax(1)
    array = array[:, 0] if array.ndim == 2 else array
    if array.ndim != 1:
        raise ShapeError(f"{where} class_weight: wanted one class a sample, received targets {array.shape}")
    with np.errstate(invalid="ignore"):  # of NaN
        ids = array.astype(np.int64)
    counted = np.ones(ids.shape, bool) if ignored is None else ids != ignored
    bad = (ids != array) | (counted & ((ids < 0) | (ids >= count)))
    if bad.any():
        at = int(bad.argmax())
        raise TypeError(
            f"{where} class_weight: wanted targets that are classes, from 0 to {count - 1}, received {array[at]} at "
            f"[{at}]"
        )
    weights = np.ones(count, dtype)
    weights[list(classes)] = list(classes.values())
    weighed: Array = np.where(counted, weights[np.where(counted, ids, 0)], np.ones((), dtype))
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
    for name, classes in class_weights(where, given, layers, objective.outputs).items():
        rows = data.targets[name] if isinstance(data, Samples) and data.targets is not None else None
        if rows is not None and rows.held:
            _by_class(where, classes, rows.take(slice(None)), layers, objective, name)


def _by_class(
    where: str, classes: Classes, target: object, layers: LayerGraph, objective: Objective, name: str
) -> Array:
    ignored = getattr(objective.losses[name], "ignore_index", None)
    return by_class(where, classes, target, layers.dtype, class_count(layers, name), ignored)


def of_batch(
    where: str,
    layers: LayerGraph,
    objective: Objective,
    targets: Mapping[str, Shaped],
    sample_weight: object,
    class_weight: object,
) -> dict[str, Array]:
    """{output: weights (n,)} of a batch, the product where both are given; outputs without any are left out."""
    count, outputs = next(iter(targets.values())).shape[0], objective.outputs
    found = sample_weights(where, sample_weight, outputs, count, layers.dtype)
    for name, classes in class_weights(where, class_weight, layers, outputs).items():
        own = _by_class(where, classes, targets[name], layers, objective, name)
        found[name] = found[name] * own if name in found else own
    return found


def weigh(where: str, data: DataSet, outputs: Sequence[str], dtype: DType, sample_weight: object) -> None:
    """Let the batches of a data set be (x, y, weights). ValueError where they bring their own."""
    if sample_weight is None:
        return
    if not isinstance(data, Samples) or data.targets is None:
        raise ValueError(
            f"{where} sample_weight: wanted it beside arrays; batches of loaders bring theirs, (x, y, "
            "sample_weight), and sequences in buckets have none"
        )
    found = sample_weights(where, sample_weight, outputs, data.count, dtype)
    data.targets |= {WEIGHT + name: Held(f"{where} sample_weight", weights) for name, weights in found.items()}
