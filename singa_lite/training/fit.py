"""The training loop around `train_one_batch`, and what it calls on its way."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from contextvars import ContextVar
from itertools import islice
from os import PathLike
from typing import ClassVar, Protocol

from singa_lite.arrays import kind
from singa_lite.checks import flag, whole
from singa_lite.contexts import in_own_context
from singa_lite.data import Bucketed, Paired
from singa_lite.layer import OneOrMore
from singa_lite.metric import ConfusionMatrix
from singa_lite.optimizer import Optimizer
from singa_lite.tensor import Tensor
from singa_lite.training.batch_sources import gives_batches
from singa_lite.training.data_set import DataSet, count_of
from singa_lite.training.evaluation import Evaluable, evaluate
from singa_lite.training.given_callbacks import check_methods
from singa_lite.training.means import texts
from singa_lite.training.measures import Measures
from singa_lite.training.non_finite import look_in_fit
from singa_lite.training.progress import History as History
from singa_lite.training.progress import Progress
from singa_lite.training.waiting import Waiting


class Trainable(Evaluable, Protocol):
    """What the loop needs of a net, and callbacks."""

    seed: int
    optimizer: Optimizer | None

    @property
    def knows_measures(self) -> bool: ...

    def train_one_batch(
        self, x: object, y: object, sample_weight: object = None, class_weight: object = None
    ) -> tuple[Tensor, OneOrMore]: ...

    def save(self, path: str | PathLike[str], *, weights_only: bool = False, **options: object) -> None: ...

    def tell_norms(self) -> None: ...


#: The runs of `fit` that the present call is a part of.
_under_way: ContextVar[tuple[Training, ...]] = ContextVar("fits under way", default=())


def is_training(net: object) -> bool:
    """Whether the present call is a part of a `fit` of this net."""
    return any(each.net is net for each in _under_way.get())


class StopTraining(Exception):
    """Raised by a callback: `fit` ends here, without an error, and returns the history of the whole epochs."""


class Callback:
    """What `fit` calls on its way, in the order of `callbacks`; `on_end` in the reverse order. All do nothing here.

    An error that one raises ends the training and comes out of `fit`, but for StopTraining. sets_rate: whether it sets
    the learning rate, and brings it back from a checkpoint. takes_nan: whether it looks at losses that are not finite
    itself, so that `compile(on_nan="fit")` leaves them to it.
    """

    sets_rate: ClassVar[bool] = False
    takes_nan: ClassVar[bool] = False

    def state(self) -> dict[str, object]:
        """What a checkpoint keeps of it, as JSON holds it. Empty: nothing."""
        return {}

    def restore(self, state: dict[str, object]) -> None:
        """Go on from what `state` gave; called before `on_start`, of callbacks of one class in their order."""

    def on_start(self, training: Training) -> None:
        """Before the first batch; after the checkpoint to go on from has been read, if there is one."""

    def on_batch(self, training: Training) -> None:
        """After each training batch. The net has taken the step, and `training.progress` counts it."""

    def on_validation_batch(self, training: Training) -> None:
        """After each batch of the validation, which is at the end of an epoch."""

    def on_epoch(self, training: Training) -> None:
        """After each epoch and its validation. `training.progress.history` has it."""

    def on_end(self, training: Training, error: BaseException | None) -> None:
        """At the end, whatever ended it, of each callback whose `on_start` was called. error: what is raised."""


class Training:
    """One call of `FeedForwardNet.fit`. The data stay where they are; only one batch at a time is copied.

    data, validation: checked already. progress: how far it has come; loss, metric: of the last batch, 0-d tensors, None
    before the first; waiting: for the data, `waiting.seconds` out of `waiting.of`.
    """

    def __init__(
        self,
        net: Trainable,
        data: DataSet,
        validation: DataSet | None,
        epochs: int,
        shuffle: bool,
        verbose: bool,
        callbacks: Iterable[Callback] | Callback = (),
        prefetch: int = 0,
        class_weight: object = None,
        initial_epoch: int = 0,
    ) -> None:
        self.net = net
        self.epochs = whole("fit epochs", epochs, 0)
        self.callbacks = _checked_callbacks(callbacks)
        shuffled = flag("fit shuffle", shuffle)
        check_epochs(data, validation, self.epochs, shuffled)
        step = 0 if net.optimizer is None else net.optimizer.step  # another order where `fit` is called again
        self.progress = Progress(
            data.count, data.batch_size, shuffled, net.seed, data.buckets, data.batches, data.steps, step
        )
        self.progress.epoch = initial_epoch
        self.waiting = Waiting(data.is_loaded)
        self.loss: Tensor | None = None
        self.metric: OneOrMore = None
        self._data = data
        self._validation = validation
        self._options = {} if class_weight is None else {"class_weight": class_weight}
        self._verbose = flag("fit verbose", verbose == 1 if type(verbose) is int and verbose in (0, 1) else verbose)
        self._prefetch = whole("fit prefetch", prefetch, 0)

    @property
    def measures(self) -> Measures:
        """The metrics, or what a step of the user's own gives beside its loss, as far as that is known."""
        return self.net.measures

    @property
    def validates(self) -> bool:
        """Whether there is a validation at the end of each epoch."""
        return self._validation is not None

    @property
    def entries(self) -> list[str]:
        """Names of what the history will have of each epoch, and is one number."""
        numbers = [each.entry for each in self.measures if not isinstance(each.metric, ConfusionMatrix)]
        validated = ["loss", *numbers] if self.validates else []
        return ["loss", *numbers, *(f"val_{name}" for name in validated), "samples_per_second", "high_water"]

    def check_entry(self, where: str, entry: str) -> None:
        """ValueError for an entry that the history will not have, which names those that it will."""
        if entry in self.entries or entry in self.progress.history.history or not self.net.knows_measures:
            return
        hint = "; val_ entries need validation_data" if entry.startswith("val_") and not self.validates else ""
        raise ValueError(f"{where}: wanted one of {self.entries}, received {entry!r}{hint}")

    def go_to(self, progress: Progress) -> None:
        """Let the data go on from there. ValueError where their place cannot be kept."""
        self._data.go_to(progress.epoch, progress.batch, progress.place)

    @property
    def is_under_way(self) -> bool:
        """Whether the present call is a part of it. Also after an interrupt that left callbacks without `on_end`."""
        return self in _under_way.get()

    @in_own_context
    def run(self) -> History:
        """Train until `epochs` are done."""
        _under_way.set((*_under_way.get(), self))
        look_in_fit(not any(callback.takes_nan for callback in self.callbacks))
        started: list[Callback] = []
        error: BaseException | None = None
        try:
            for callback in self.callbacks:
                started.append(callback)
                callback.on_start(self)
            while self.progress.epoch < self.epochs:
                self._epoch()
        except StopTraining:
            pass
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._data.close()
            if self._validation is not None:
                self._validation.close()
            self._end(started, error)
        return self.progress.history

    def _end(self, started: list[Callback], error: BaseException | None) -> None:
        """Call `on_end` of each, also if that of another fails."""
        if started:
            try:
                started.pop().on_end(self, error)
            except BaseException as raised:
                self._end(started, raised)
                raise
            self._end(started, error)

    def _epoch(self) -> None:
        """Train on all samples once, or on those that are left of the epoch; validate."""
        progress = self.progress
        if progress.batch == 0 and progress.order is None:
            progress.begin_epoch(self._data.draw, self._data.is_random)
        self._batches()
        self.net.tell_norms()
        validated = self._validated()
        progress.end_epoch(
            self.measures,
            **validated,
            samples_per_second=progress.mean.count / progress.seconds,
            high_water=self.net.device.pool.high_water,
        )
        for callback in self.callbacks:
            callback.on_epoch(self)

    def _batches(self) -> None:
        from tqdm.auto import tqdm

        progress = self.progress
        start = time.perf_counter() - progress.seconds
        title = f"epoch {progress.epoch + 1}/{self.epochs}" if self._verbose else None
        place = progress.order, progress.batch, self._prefetch, progress.epoch, progress.key
        left = None if progress.steps is None else progress.steps - progress.batch
        with (
            closing(self._data.through(*place)) as all_batches,
            tqdm(
                total=progress.total, initial=progress.mean.count, desc=title, unit=" samples", disable=title is None
            ) as bar,
        ):
            for batch in self.waiting.through(islice(all_batches, left)):
                self.loss, self.metric = self.net.train_one_batch(*batch, **self._options)
                size = count_of(batch[0])
                del batch  # before the next one is taken
                progress.place = self._data.place()
                seconds = time.perf_counter() - start
                progress.end_batch(size, self.loss, self.metric, seconds, self.net.observed, self.measures)
                bar.update(size)
                bar.set_postfix_str(self._state(), refresh=False)
                for callback in self.callbacks:
                    callback.on_batch(self)

    def _state(self) -> str:
        mean = self.progress.mean
        high_water = f"high water {self.net.device.pool.high_water / 2**20:.1f} MiB"
        return ", ".join([f"loss {mean.loss():.4f}", *mean.texts(self.measures), high_water])

    def _validated(self) -> dict[str, OneOrMore]:
        """The entries of the history that the validation makes."""
        if self._validation is None:
            return {}
        mean = evaluate(self.net, self._validation, self._validation_batch, self._prefetch)
        if self._verbose:
            shown = texts(mean.entries(self.measures))
            print(", ".join([f"validation: loss {mean.loss():.4f}", *shown]))
        return {"val_loss": mean.loss()} | mean.entries(self.measures, "val_")

    def _validation_batch(self) -> None:
        for callback in self.callbacks:
            callback.on_validation_batch(self)


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
    count = whole("fit initial_epoch", given, 0)
    if count > whole("fit epochs", epochs, 0):
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


def _checked_callbacks(given: object) -> tuple[Callback, ...]:
    """The callbacks of a list, or one alone."""
    if isinstance(given, Callback):
        given = (given,)
    if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
        raise TypeError(f"fit callbacks: wanted a list of objects of class Callback, received {kind(given)}")
    callbacks = tuple(given)
    for callback in callbacks:
        check_methods(callback)
        if not isinstance(callback, Callback):
            raise TypeError(f"fit callbacks: wanted objects of class Callback, received {kind(callback)}")
    return callbacks
