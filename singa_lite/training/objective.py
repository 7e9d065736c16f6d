"""Objective: the net's loss and metric, for one output or for several by name.

Users give both as objects, names, lists of metrics, and dicts of these by output.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import TypeAlias

from singa_lite import loss as loss_room
from singa_lite import metric as metric_room
from singa_lite.autograd import add, no_grad, reduce_mean, scale
from singa_lite.common.array_types import DType, Shaped
from singa_lite.common.checks import at_least_zero, kind_of
from singa_lite.common.errors import GraphError
from singa_lite.common.keywords import accepts_arguments
from singa_lite.data.loading.batch import as_array, by_name
from singa_lite.data.loading.samples import ArraySource
from singa_lite.layer.criterion import received
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.loss import Loss
from singa_lite.metric import EpochMetric, Metric
from singa_lite.tensor import Shape, Tensor
from singa_lite.training.loop.conversion import class_ids
from singa_lite.training.loop.measures import LOSSES, SCORES, measures
from singa_lite.training.steps.micro_batches import ALL, Share
from singa_lite.training.steps.recorded_steps import Feeds

GivenLosses: TypeAlias = Loss | str | Mapping[str, Loss | str]
GivenMetric: TypeAlias = Metric | str | Sequence[Metric | str]
GivenMetrics: TypeAlias = GivenMetric | Mapping[str, GivenMetric]
Losses: TypeAlias = Loss | Mapping[str, Loss]
Metrics: TypeAlias = Metric | Sequence[Metric] | Mapping[str, Metric | Sequence[Metric]]
#: {"target": {output layer: targets}, "weight": {output layer: weights of samples}, ...}.
Fed = Mapping[str, Mapping[str, Tensor]]
#: One tensor, or {output layer: tensor}.
Outputs = Tensor | dict[str, Tensor]


class Objective:
    """Losses and metrics over a net's outputs. outputs: names of the output layers; loss_weights: by output, else 1."""

    def __init__(
        self,
        loss: Losses,
        metric: Metrics | None,
        outputs: list[str],
        loss_weights: Mapping[str, float] | None = None,
    ) -> None:
        self.outputs = outputs
        self.losses = _losses(loss, outputs)
        self.measures = () if metric is None else measures(metric, outputs)
        self.loss_weights = {} if loss_weights is None else checked_loss_weights(loss_weights, outputs)

    @property
    def criteria(self) -> tuple[Loss | Metric, ...]:
        """All losses, then all metrics."""
        return *self.losses.values(), *(measure.metric for measure in self.measures)

    @property
    def named_criteria(self) -> tuple[Hashable, ...]:
        """What tells objectives apart: which loss and which metric each output has, known by their identity."""
        losses = tuple((name, id(self.losses[name])) for name in self.outputs)
        metrics = tuple((each.key, each.output, id(each.metric)) for each in self.measures)
        return losses, metrics, tuple(self.loss_weights.items())

    def targets(
        self, y: object, shapes: Mapping[str, Shape], dtype: DType, features_last: Collection[str] = ()
    ) -> dict[str, Shaped]:
        """The targets by output, checked against the outputs' batch shapes before anything runs.

        features_last: outputs whose features lie along the last axis.
        """
        named = by_name(y, self.outputs, "targets of the net")
        arrays = {name: as_array(f"target of layer {name!r}", given) for name, given in named.items()}
        for name, array in arrays.items():
            where, last = f"target of layer {name!r}", name in features_last
            arrays[name] = class_ids(where, array, self.losses[name], shapes[name], dtype, last)
            self._check(name, shapes[name], dtype, arrays[name])
        return arrays

    def check_data(
        self, targets: Mapping[str, ArraySource], shapes: Mapping[str, Shape], dtype: DType, batch_size: int
    ) -> None:
        """Raise for targets of a data set that do not fit outputs of these sample shapes.

        All values of arrays in memory are looked at; of those in files the first batch's, and the others in their turn.
        """
        for name, rows in targets.items():
            for index in rows.slices_to_check(batch_size):
                self._check_piece(name, rows, index, shapes[name], dtype)

    def _check_piece(self, name: str, rows: ArraySource, index: slice, shape: Shape, dtype: DType) -> None:
        piece = rows.take(index)
        try:
            self._check(name, (piece.shape[0], *shape), dtype, piece)
        except (ValueError, TypeError):
            if rows.held:  # once more, so that the message has the whole's shape, and the index in the whole
                self._check(name, (rows.shape[0], *shape), dtype, rows.take(slice(None)))
            raise

    def _check(self, name: str, shape: Shape, dtype: DType, given: object) -> None:
        """Let the output's loss and metric look at its targets."""
        target = received(given)
        for criterion in self.criteria_of(name):
            criterion.check(shape, dtype, target)

    def criteria_of(self, name: str) -> tuple[Loss | Metric, ...]:
        """The loss and the metrics of an output."""
        return self.losses[name], *(each.metric for each in self.measures if each.output == name)

    def target_forms(
        self, shapes: Mapping[str, Shape], dtype: DType, features_last: Collection[str] = ()
    ) -> dict[str, tuple[Shape, DType]]:
        """Shape and dtype of the usual targets for outputs of these batch shapes.

        features_last: outputs whose features lie along the last axis.
        """
        return {
            name: loss.target_form_behind(shapes[name], dtype, name in features_last)
            for name, loss in self.losses.items()
        }

    def batch_forms(self, layers: LayerGraph, size: int) -> dict[str, tuple[Shape, DType]]:
        """Shape and dtype of the usual targets of a batch of so many samples."""
        shapes = {name: (size, *layers.output_shapes(name)[0]) for name in self.outputs}
        last = [name for name in self.outputs if layers.features_last(name)]
        return self.target_forms(shapes, layers.dtype, last)

    def counts(self, feeds: Feeds) -> dict[str, int]:
        """{output: of how many values of this batch its loss is the mean}, and that of all samples under ""."""
        samples = next(iter(feeds["input"].values())).shape[0]
        counted = {name: loss.counted(feeds["target"][name]) for name, loss in self.losses.items()}
        return {"": samples} | {name: samples if count is None else count for name, count in counted.items()}

    def loss(self, training: bool, out: Outputs, fed: Fed) -> Tensor:
        """The sum over the outputs of each loss's mean, times its weight; () in the outputs' dtype.

        fed: targets by output, and perhaps the samples' weights: {"target": ..., "weight": ...}.
        """
        return _total(self._means(training, out, fed, ALL))

    def values(self, training: bool, out: Outputs, fed: Fed, share: Share = ALL) -> tuple[Tensor, dict[str, Tensor]]:
        """What a step gives: `loss`, and {key: metric}. share: of a piece of a batch, by which they are multiplied.

        Beside metrics there are the scores of outputs with metrics of the whole epoch, and, where a loss of several
        counts positions, each one's mean.
        """
        means = self._means(training, out, fed, share)
        losses = {LOSSES + name: mean for name, mean in means.items()} if self._tells_losses else {}
        named, values = self._named(out), dict[str, Tensor]()
        for key, _, output, metric in self.measures:
            if isinstance(metric, EpochMetric):
                values[SCORES + output] = named[output].detach()
            elif share.is_whole or not metric.is_counted:
                values[key] = share.of(key, metric.evaluate(named[output], fed["target"][output]))
            else:
                values[key] = share.of(key, reduce_mean(metric.forward(named[output], fed["target"][output])))
        return _total(means), values | losses

    def of_pieces(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        """The metrics of a batch, of what `values` gave of all its pieces, added up."""
        counted = {each.key: each.metric for each in self.measures if each.metric.is_counted}
        return {key: counted[key].of_mean(value) if key in counted else value for key, value in values.items()}

    def counting(self) -> dict[str, tuple[str, int]]:
        """{loss or metric, as `Share` names it: (its output, the id that does not count)} of those with such an id."""
        every = {LOSSES + name: (name, loss) for name, loss in self.losses.items()}
        every |= {each.key: (each.output, each.metric) for each in self.measures}  # type: ignore[misc]
        return {
            key: (output, criterion.ignore_index)
            for key, (output, criterion) in every.items()
            if criterion.is_counted and criterion.ignore_index is not None
        }

    def _means(self, training: bool, out: Outputs, fed: Fed, share: Share) -> dict[str, Tensor]:
        found, weights = dict[str, Tensor](), fed.get("weight", {})
        for name, value in self._named(out).items():
            mean = self.losses[name].evaluate(training, value, fed["target"][name], weights.get(name))
            with no_grad():
                mean = scale(mean, self.loss_weights[name]) if name in self.loss_weights else mean
            found[name] = share.of(LOSSES + name, mean)
        return found

    @property
    def _tells_losses(self) -> bool:
        return len(self.outputs) > 1 and any(loss.is_counted and loss.of_whole_batch for loss in self.losses.values())

    def backward(self, share: Share = ALL, scales: Mapping[str, Tensor] = MappingProxyType({})) -> dict[str, Tensor]:
        """The derivatives of `loss` by the outputs, times `share`: of a piece of a batch.

        scales: {output: float64 ()}, what multiplies them too, where anything does.
        """
        found = {}
        for name, loss in self.losses.items():
            factor, scale = share.factors(LOSSES + name, scales.get(name))
            found[name] = loss.scaled_backward(factor * self.loss_weights.get(name, 1.0), scale)
        return found

    def _named(self, out: Outputs) -> dict[str, Tensor]:
        return out if isinstance(out, dict) else {self.outputs[0]: out}


def _total(means: Mapping[str, Tensor]) -> Tensor:
    if not means:
        raise GraphError("wanted a net with at least one output")
    with no_grad():
        return reduce(add, means.values())


def _losses(loss: Losses, outputs: list[str]) -> dict[str, Loss]:
    """The losses by output. TypeError for what is no loss, GraphError for one loss of two outputs.

    A loss keeps what one walk back needs, so that it cannot serve two outputs.
    """
    losses: dict[str, Loss] = {}
    owners: dict[int, str] = {}
    for name, each in by_name(loss, outputs, "losses of the net").items():
        if not isinstance(each, Loss):
            raise _refused("loss", name, each, "Loss")
        other = owners.setdefault(id(each), name)
        if other != name:
            raise GraphError(
                f"losses of the net: wanted a loss object of its own for each output, received one "
                f"{type(each).__name__} for {other!r} and {name!r}"
            )
        losses[name] = each
    return losses


def checked_loss_weights(given: object, outputs: list[str]) -> dict[str, float]:
    """Weights of the outputs' losses. TypeError or ValueError for what are none, GraphError for a name of no output."""
    if not isinstance(given, Mapping):
        raise TypeError(f"loss_weights: wanted a dict {{output layer: number}}, received {given!r:.100}")
    unknown = set(given) - set(outputs)
    if unknown:
        raise GraphError(f"loss_weights: wanted outputs {outputs}, received {sorted(map(str, unknown))}")
    return {name: at_least_zero(f"loss_weights of output {name!r}", number) for name, number in given.items()}


def _refused(what: str, name: str, given: object, kind: str) -> TypeError:
    return TypeError(f"{what} of output {name!r}: wanted a {kind}, received {given!r:.100}")


def losses_of(given: object) -> Losses | None:
    """The loss, or those by output; names become objects. TypeError for anything else, ValueError for unknown names."""
    if isinstance(given, Mapping):
        return {name: _one_loss(each, f"loss of output {name!r}") for name, each in given.items()}
    return None if given is None else _one_loss(given, "loss")


def metrics_of(given: object) -> Metrics | None:
    """The metric, a list of them, or these by output; names become objects. TypeError or ValueError as of losses."""
    if isinstance(given, Mapping):
        return {name: _some_metrics(each, f"metric of output {name!r}") for name, each in given.items()}
    return None if given is None else _some_metrics(given, "metric")


def _one_loss(given: object, where: str) -> Loss:
    if isinstance(given, str):
        return loss_room.get(given)
    if not isinstance(given, Loss):
        raise _refused_criterion(where, "Loss", given)
    _check_compute(where, given)
    return given


def _some_metrics(given: object, where: str) -> Metric | list[Metric]:
    return (
        [_one_metric(each, where) for each in given] if isinstance(given, list | tuple) else _one_metric(given, where)
    )


def _one_metric(given: object, where: str) -> Metric:
    if isinstance(given, str):
        return metric_room.get(given)
    if not isinstance(given, Metric):
        raise _refused_criterion(where, "Metric", given)
    _check_compute(where, given)
    return given


def _check_compute(where: str, given: Loss | Metric) -> None:
    if not accepts_arguments(given.compute, 2):
        raise TypeError(f"{where}: wanted a method compute(x, target), received {type(given).__name__} with another")


def _refused_criterion(where: str, base: str, given: object) -> TypeError:
    hint = f", perhaps {given.__name__}()" if isinstance(given, type) else ""
    return TypeError(f"{where}: wanted a {base}{hint}, received {kind_of(given)}")
