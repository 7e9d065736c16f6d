"""Checks what a user gives a net to train on, once, against its layers and its objective, before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from singa_lite.common.array_types import DType, Shaped
from singa_lite.common.checks import integer, is_int
from singa_lite.common.errors import GraphError
from singa_lite.data import Bucketed
from singa_lite.data.loading import batch, samples
from singa_lite.data.loading.data_set import DataSet
from singa_lite.data.loading.samples import ArraySource, Samples
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.tensor import Tensor, as_tensor
from singa_lite.training import weights
from singa_lite.training.loop import bucketed_samples, conversion
from singa_lite.training.objective import Objective
from singa_lite.training.steps.step_objective import StepObjective

#: Samples of a batch where nobody says how many.
USUAL = 32

#: {"input": {input layer: batch}, "target": {output layer: targets}}, checked.
CheckedFeeds: TypeAlias = dict[str, dict[str, Shaped]]


def inputs(layers: LayerGraph, x: object) -> CheckedFeeds:
    """A batch as a step without targets takes it."""
    return {"input": batch.checked_inputs(layers, x)}


def inputs_and_targets(
    layers: LayerGraph,
    objective: Objective,
    x: object,
    y: object,
    where: str = "",
    sample_weight: object = None,
    class_weight: object = None,
) -> CheckedFeeds:
    """A batch and its targets by layer, as a step takes them, with weights of samples where there are any."""
    feeds = inputs(layers, x)
    fed = {name: tuple(array.shape) for name, array in feeds["input"].items()}
    wanted = {name: (count(feeds), *layers.output_shape(name, fed)) for name in objective.outputs}
    targets = objective.targets(y, wanted, layers.dtype, {name for name in wanted if layers.features_last(name)})
    feeds["target"] = targets
    batch.same_counts("batch", feeds["input"] | {f"target {name!r}": array for name, array in targets.items()})
    if sample_weight is not None or class_weight is not None:
        found = weights.of_batch(where, layers, objective, targets, sample_weight, class_weight)
        feeds["weight"] = dict(found)
    return feeds


def derivatives(layers: LayerGraph, dy: object) -> dict[str, list[Tensor]]:
    """What `backward` is given, one derivative or {layer: derivative, or a list of them}, as tensors by layer."""
    named = dy if isinstance(dy, Mapping) else batch.by_name(dy, layers.output_names(), "backward")
    given = {name: value if isinstance(value, list) else [value] for name, value in named.items()}
    return {
        name: [as_tensor(batch.as_array(f"backward: dy of {name!r}", value), layers.device) for value in values]
        for name, values in given.items()
    }


def count(feeds: CheckedFeeds) -> int:
    """How many samples the batch has."""
    return next(iter(feeds["input"].values())).shape[0]


def warn_of_nan(feeds: CheckedFeeds) -> None:
    """Warn of inputs, then of targets, that hold NaN or infinity."""
    for kind, arrays in feeds.items():
        batch.warn_of_nan({f"{kind} of layer {name!r}": array for name, array in arrays.items()})


def data(
    where: str,
    layers: LayerGraph,
    objective: Objective,
    x: object,
    y: object,
    batch_size: int | None,
    before: Mapping[str, Callable[[str, ArraySource], ArraySource]] | None = None,
) -> DataSet:
    """The data of `fit` or `evaluate`: shapes, dtypes, counts, and the values of targets in memory.

    x: with its targets and batch sizes where it is Bucketed. batch_size: None for the usual one. before: by input, what
    makes samples for the net of those that are given.
    """
    if isinstance(x, Bucketed):
        for what, given in (("y", y), ("batch_size", batch_size)):
            if given is not None:
                raise ValueError(f"{where} {what}: wanted none beside data in buckets, which have theirs, received one")
        return bucketed_samples.checked(where, layers, objective, x)
    batch_size = integer(f"{where} batch_size", USUAL if batch_size is None else batch_size, 1)
    arrays = samples.checked_inputs(where, layers, x, before)
    count = next(iter(arrays.values())).shape[0]
    single = not isinstance(x, Mapping), not isinstance(y, Mapping)
    if isinstance(objective, StepObjective):
        return Samples(arrays, objective.rows(where, y, count), batch_size, single, _dtypes(layers))
    targets = samples.checked_targets(where, y, objective.outputs, count)
    fed = {name: rows.shape for name, rows in arrays.items()}
    shapes = {name: layers.output_shape(name, fed) for name in targets}
    for name, found in targets.items():
        here, last = f"{where}: target of layer {name!r}", layers.features_last(name)
        targets[name] = conversion.fitted(here, found, objective.losses[name], shapes[name], layers.dtype, last)
    objective.check_data(targets, shapes, layers.dtype, batch_size)
    return Samples(arrays, targets, batch_size, single, _dtypes(layers))


def data_to_predict(layers: LayerGraph, x: object, batch_size: int) -> Samples:
    """The data of `predict`, which have no targets."""
    arrays = samples.checked_inputs("predict", layers, x)
    size = integer("predict batch_size", batch_size, 1)
    return Samples(arrays, None, size, (not isinstance(x, Mapping), True), _dtypes(layers))


def _dtypes(layers: LayerGraph) -> dict[str, DType]:
    """What batches are converted to, by input; ids stay as they are."""
    return dict.fromkeys(layers.input_shapes().keys() - layers.input_ids().keys(), layers.dtype)


def batch_size(where: str, given: object) -> int:
    """The number of samples of a batch. ValueError unless it is a whole number of at least 1."""
    if not is_int(given) or given < 1:
        raise ValueError(f"{where}: wanted a batch of at least 1 sample, received {given!r}")
    return int(given)


def single_outputs(layers: LayerGraph) -> None:
    """GraphError unless each of the last layers has one output."""
    for name in layers.output_names():
        count = len(layers.output_shapes(name))
        if count > 1:
            raise GraphError(
                f"wanted a net whose last layers have one output each, received {name!r} "
                f"with {count} outputs; use forward() and backward()"
            )
