"""Weights of samples and of classes: what each sample's loss is multiplied by, in the mean over the batch.

The loss is sum(weight * loss) / n, as of Keras: n counts the samples, so that weights of 2 train at twice the rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from singa_lite.array_types import Array, DType
from singa_lite.arrays import numbers
from singa_lite.checks import at_least_zero, is_int
from singa_lite.criterion import received
from singa_lite.errors import GraphError, ShapeError
from singa_lite.tensor import Tensor, to_numpy
from singa_lite.training.batch import Shaped
from singa_lite.training.data_set import DataSet
from singa_lite.training.samples import WEIGHT, Held, Samples

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


def class_weights(where: str, given: object, outputs: Sequence[str]) -> dict[str, Classes]:
    """{output: {class id: weight}}. given: {class id: weight} or a list of the classes' weights for a net of one
    output, {output: such a one} for others, or None. TypeError, ValueError or GraphError for others.
    """
    if given is None:
        return {}
    where = f"{where} class_weight"
    if isinstance(given, Mapping) and given and all(isinstance(name, str) for name in given):
        _check_outputs(where, given, outputs)
        return {name: _of_classes(where, each) for name, each in given.items()}
    if len(outputs) != 1:
        raise GraphError(f"{where}: wanted a dict for some of {list(outputs)}, received one {type(given).__name__}")
    return {outputs[0]: _of_classes(where, given)}


def _of_classes(where: str, given: object) -> Classes:
    if isinstance(given, list | tuple | np.ndarray):
        given = dict(enumerate(given))
    if not isinstance(given, Mapping) or not all(is_int(key) and key >= 0 for key in given):
        raise TypeError(f"{where}: wanted {{class id: weight}}, received {given!r:.100}")
    return {int(key): at_least_zero(f"{where} of class {key}", weight) for key, weight in given.items()}


def _check_outputs(where: str, named: Mapping[str, object], outputs: Sequence[str]) -> None:
    unknown = set(named) - set(outputs)
    if unknown:
        raise GraphError(f"{where}: wanted outputs {list(outputs)}, received {sorted(map(str, unknown))}")


def by_class(where: str, classes: Classes, target: object, dtype: DType) -> Array:
    """(n,): the weight of each sample's class. target: ids (n,) or rows (n, c), of which the largest entry counts.

    ShapeError for targets of several positions a sample, TypeError for what are no classes.
    """
    found = received(target, where)
    array = to_numpy(found) if isinstance(found, Tensor) else found
    if array.ndim == 2:
        array = array[:, 0] if array.shape[1] == 1 else array.argmax(1)
    if array.ndim != 1:
        raise ShapeError(f"{where} class_weight: wanted one class a sample, received targets {array.shape}")
    ids = array.astype(np.int64)
    if array.dtype.kind == "f" and (ids != array).any():
        raise TypeError(f"{where} class_weight: wanted targets that are classes, received {array.dtype} between them")
    weights = np.ones(max(ids.max(), *classes, 0) + 1, dtype)
    weights[list(classes)] = list(classes.values())
    weighed: Array = weights[ids]
    return weighed


def of_batch(
    where: str,
    outputs: Sequence[str],
    targets: Mapping[str, Shaped],
    dtype: DType,
    sample_weight: object,
    class_weight: object,
) -> dict[str, Array]:
    """{output: weights (n,)} of a batch, the product where both are given; outputs without any are left out."""
    count = next(iter(targets.values())).shape[0]
    found = sample_weights(where, sample_weight, outputs, count, dtype)
    for name, classes in class_weights(where, class_weight, outputs).items():
        own = by_class(where, classes, targets[name], dtype)
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
