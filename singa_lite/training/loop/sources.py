"""The data of `fit`, `evaluate` and `predict`: arrays, sets on disk, loaders, with or without work; their checks."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from singa_lite.common.arrays import kind
from singa_lite.common.checks import integer
from singa_lite.common.sizes import memory_size
from singa_lite.data import Bucketed, Paired, Texts
from singa_lite.data.loading.batch_sources import check_is_no_dataset, gives_batches
from singa_lite.data.loading.data_set import Batch, DataSet, InTurn, Share
from singa_lite.data.loading.loaded_samples import USUAL_WINDOW, LoadedSamples, Loading
from singa_lite.data.loading.samples import Samples
from singa_lite.data.loading.splitting import TrainingData
from singa_lite.data.loading.streams import Stream
from singa_lite.data.loading.transformed import Transformed, checked_transforms, stored
from singa_lite.data.loading.workers import checked_workers
from singa_lite.data.text_rows import IGNORED
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.parallel.data_parallel import DataParallel
from singa_lite.training import checked
from singa_lite.training.loop import conversion
from singa_lite.training.loop.bucketed_samples import check_ignored
from singa_lite.training.objective import Objective
from singa_lite.training.weights import weigh


def checked_loading(where: str, workers: object, shuffle_window: object) -> Loading:
    """Options of how batches are made, checked."""
    window = USUAL_WINDOW if shuffle_window is None else memory_size(f"{where} shuffle_window", shuffle_window)
    return Loading(checked_workers(f"{where} workers", workers), window)


def data_set(
    where: str,
    layers: LayerGraph,
    objective: Objective,
    x: object,
    y: object,
    batch_size: int | None,
    loading: Loading,
    *,
    transform: object = None,
    steps: tuple[str, object] = ("steps", None),
) -> DataSet:
    """The data of `fit` or `evaluate`, checked as far as they can be before the first batch.

    x: arrays with y; or alone: `Paired`, `Bucketed`, or what gives batches. transform: of samples, see `fit`. steps:
    the option's name, and batches of an epoch or None.
    """
    layers.check_usable()
    limit = None if steps[1] is None else integer(f"{where} {steps[0]}", steps[1], 1)  # type: ignore[arg-type]
    if isinstance(x, Paired):
        _refuse(where, "data that have their targets", y=y)
        given = x
        if isinstance(x, Texts):
            check_ignored(where, objective, IGNORED, "targets of prompts and padding are")
        x, y = given.x, given.y
    elif y is None and gives_batches(x):
        _refuse(where, "batches that come ready-made", batch_size=batch_size, transform=transform)
        check_is_no_dataset(where, x)
        names = list(layers.input_shapes()), objective.outputs
        return Stream(where, x, partial(_checked_batch, where, layers, objective), limit, loading, names)
    transforms = checked_transforms(f"{where} transform", transform, list(layers.input_shapes()))
    before = {name: partial(Transformed, transform=each) for name, each in transforms.items()}
    found = checked.data(where, layers, objective, x, y, batch_size, before)
    if isinstance(found, Samples):
        found = loaded(where, found, loading)
    elif isinstance(x, Bucketed):
        loading.workers_for(where, False, "data in buckets")
        _refuse(where, "data in buckets", transform=transform)
    return _limited(where, found, steps[0], limit)


class Validation(NamedTuple):
    """The options by which `fit` takes its validation data. steps: how many batches; own_step: whether the step is the
    user's own, so that targets may be missing.
    """

    batch_size: int | None
    loading: Loading
    steps: int | None
    own_step: bool
    ranks: DataParallel | None

    def data(self, layers: LayerGraph, objective: Objective, given: TrainingData) -> DataSet | None:
        """The data, checked, weighed and divided among the ranks; None without any."""
        if given.validation is None:
            if self.steps is not None:
                raise ValueError(
                    f"fit validation_steps: wanted validation_data beside it, received {self.steps!r} alone"
                )
            return None
        where = "fit validation_data"
        x, y = pair(where, given.validation)
        size = self.batch_size if y is not None or isinstance(x, Paired) or self.own_step else None
        loading = self.loading._replace(is_strict=False)
        data = data_set(where, layers, objective, x, y, size, loading, steps=("validation_steps", self.steps))
        weigh(where, data, layers, objective, given.validation_weight)
        divide(where, data, self.ranks, InTurn)
        return data


def divide(where: str, data: DataSet, ranks: DataParallel | None, shares: type[Share]) -> None:
    """Let the processes that train together have their shares of the data. ValueError for too few samples."""
    if ranks is None or ranks.size == 1:
        return
    if data.batches is None and data.count < ranks.size and shares is Share:
        raise ValueError(f"{where}: wanted at least a sample for each of {ranks.size} ranks, received {data.count}")
    data.divide(shares(ranks.rank, ranks.size))


def data_to_predict(layers: LayerGraph, x: object, batch_size: int, loading: Loading) -> DataSet:
    """The data of `predict`, which have no targets, or whose targets are left aside."""
    layers.check_usable()
    if isinstance(x, Paired):
        x = x.x
    elif gives_batches(x):
        check_is_no_dataset("predict", x)
        names = list(layers.input_shapes()), layers.output_names()
        return Stream("predict", x, partial(_checked_inputs, layers), None, loading, names, wants_targets=False)
    return loaded("predict", checked.data_to_predict(layers, x, batch_size), loading)


def loaded(where: str, samples: Samples, loading: Loading) -> Samples:
    """The same samples, with what their batches take of work. ValueError for workers without work."""
    every = [*samples.inputs.values(), *(samples.targets or {}).values()]
    read = [stored(rows) for rows in every]
    if any(rows.starts is not None or rows.one_by_one for rows in read) or read != every or loading.workers:
        return LoadedSamples(where, samples, loading)
    return samples


def _limited(where: str, data: DataSet, name: str, steps: int | None) -> DataSet:
    """The data, of which an epoch takes so many batches. ValueError for more than there are."""
    data.steps = steps
    if steps is not None and not data.buckets and steps > -(-data.count // data.batch_size):
        raise ValueError(
            f"{where} {name}: wanted at most the {-(-data.count // data.batch_size)} batches that there are, received "
            f"{steps}"
        )
    return data


def _checked_batch(
    where: str, layers: LayerGraph, objective: Objective, x: object, y: object, sample_weight: object
) -> Batch:
    feeds = checked.inputs_and_targets(layers, objective, conversion.inputs(layers, x), y, where, sample_weight)
    if "weight" in feeds:
        return feeds["input"], feeds["target"], feeds["weight"]
    return feeds["input"], feeds["target"]


def _checked_inputs(layers: LayerGraph, x: object, y: object, sample_weight: object) -> Batch:
    return checked.inputs(layers, conversion.inputs(layers, x))["input"], None


def _refuse(where: str, beside: str, **options: object) -> None:
    """ValueError for an option that these data have no use for."""
    for name, given in options.items():
        if given is not None:
            raise ValueError(f"{where} {name}: wanted none beside {beside}, received {given!r:.100}")


def checked_verbose(where: str, given: object) -> bool:
    """Whether progress is shown: for True, 1, 2 and "auto", not for False and 0. ValueError for others."""
    if isinstance(given, bool | np.bool_) or (type(given) is int and given in (0, 1, 2)):
        return bool(given)
    if not isinstance(given, str) or given != "auto":
        raise ValueError(f"{where}: wanted True or False, or Keras's 0, 1, 2 or 'auto', received {given!r:.100}")
    return True


def check_epochs(data: DataSet, validation: DataSet | None, epochs: int, shuffle: bool) -> None:
    """ValueError where the data do not have so many epochs, or where steps_per_epoch would leave some out for ever."""
    if data.steps is not None and data.ordered and not shuffle:
        raise ValueError(
            "fit steps_per_epoch: wanted shuffle=True, so that each epoch takes other batches of the data, received "
            "shuffle=False"
        )
    for word, each in (("steps_per_epoch", data), ("validation_steps", validation)):
        if each is not None and each.once and each.steps is None and epochs > 1:
            raise ValueError(
                f"fit {word}: wanted how many batches of the iterator an epoch takes, as it can be gone through but "
                f"once, received none for {epochs} epochs"
            )


def checked_initial_epoch(given: int, epochs: int, resume: object) -> int:
    """How many epochs count as done. ValueError for more than `epochs`, and for any beside `resume`."""
    count = integer("fit initial_epoch", given, 0)
    if count > integer("fit epochs", epochs, 0):
        raise ValueError(
            f"fit initial_epoch: wanted at most epochs={epochs}, which counts those before, received {count}"
        )
    if count and resume is not None:
        raise ValueError(f"fit initial_epoch: wanted none beside resume, whose checkpoint says it, received {count}")
    return count


def pair(where: str, given: object) -> tuple[object, object]:
    """(samples, targets); None where the data have theirs.

    TypeError for what is no tuple or list, ValueError for one of another length.
    """
    if isinstance(given, Bucketed | Paired) or gives_batches(given):
        return given, None
    if not isinstance(given, tuple | list):
        raise TypeError(f"{where}: wanted (x, y), received {kind(given)}")
    if len(given) != 2:
        raise ValueError(f"{where}: wanted (x, y), received {len(given)} parts")
    return given[0], given[1]
