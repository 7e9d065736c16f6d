"""The training loop around `train_one_batch`, and what it calls on its way."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from contextvars import ContextVar
from functools import partial
from itertools import islice
from typing import ClassVar

import numpy as np

from singa_lite.common.arrays import kind
from singa_lite.common.checks import flag, goes_through, integer
from singa_lite.common.contexts import in_own_context
from singa_lite.common.described import is_ours
from singa_lite.common.errors import ParallelError
from singa_lite.common.keywords import explains_keywords
from singa_lite.common.terminal import Unfailing, write_line
from singa_lite.data.loading.data_set import DataSet, count_of, positions_of
from singa_lite.data.loading.workers import Waiting
from singa_lite.layer.layer import OneOrMore
from singa_lite.tensor import Tensor, from_numpy
from singa_lite.training.loop.callback_calls import StopTraining as StopTraining
from singa_lite.training.loop.callback_calls import call_each, call_each_end, check_calls, check_methods
from singa_lite.training.loop.callback_calls import is_stop as is_stop
from singa_lite.training.loop.evaluation import Trainable, evaluate
from singa_lite.training.loop.means import Mean, MetricShard, Value, part_of, texts
from singa_lite.training.loop.measures import Measures, direction, entries
from singa_lite.training.loop.on_ranks import OnRanks, in_words, own_process
from singa_lite.training.loop.progress import History as History
from singa_lite.training.loop.progress import Progress
from singa_lite.training.loop.rank_batches import RankBatches, check_same_call, joined_places, own_place
from singa_lite.training.loop.sources import check_epochs, checked_verbose
from singa_lite.training.non_finite import look_in_fit
from singa_lite.training.settings import described

#: The runs of `fit` that the present call is a part of.
_under_way: ContextVar[tuple[Training, ...]] = ContextVar("fits under way", default=())


def is_training(net: object) -> bool:
    """Whether the present call is a part of a `fit` of this net."""
    return any(each.net is net for each in _under_way.get())


class Callback:
    """The base of what `fit` calls on its way, in the order of `callbacks`; `on_end` in the reverse order. All do
    nothing here.

    An error that one raises ends the training and comes out of `fit`, but for StopTraining. sets_rate: whether it sets
    the learning rate, and brings it back from a checkpoint. takes_nan: whether it looks at losses that are not finite
    itself, so that `compile(on_nan="fit")` leaves them to it. enters: whether it puts entries of its own into the
    history, which a `Checkpoint` may then monitor; None: a user's class with an `on_start` or `on_epoch` may.

    >>> class Shown(callbacks.Callback):
    ...     def on_epoch(self, training):
    ...         print(f"epoch {training.progress.epoch} is done")
    """

    sets_rate: ClassVar[bool] = False
    takes_nan: ClassVar[bool] = False
    enters: bool | None = None

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            setattr(cls, "__init__", explains_keywords()(vars(cls)["__init__"]))  # noqa: B010, as mypy wants

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


def enters(callback: Callback) -> bool:
    """Whether a callback may put entries of its own into the history."""
    if callback.enters is not None:
        return callback.enters
    kind = type(callback)
    is_looking = (kind.on_start, kind.on_epoch) == (Callback.on_start, Callback.on_epoch)
    return not is_ours(kind) and not is_looking


class Training(OnRanks):
    """One call of `FeedForwardNet.fit`. The data stay where they are; only one batch at a time is copied.

    data, validation: checked already. progress: how far it has come; loss, metric: of the last batch, 0-d tensors, None
    before the first; waiting: for the data, `waiting.seconds` out of `waiting.of`.

    >>> shown = callbacks.LambdaCallback(on_epoch=lambda training: print(training.progress.epoch))
    """

    def __init__(
        self,
        net: Trainable,
        data: DataSet,
        validation: DataSet | None,
        epochs: int,
        shuffle: bool,
        verbose: bool | int | str,
        callbacks: Iterable[Callback] | Callback = (),
        prefetch: int = 0,
        class_weight: object = None,
        initial_epoch: int = 0,
    ) -> None:
        self.net = net
        self.epochs = integer("fit epochs", epochs, 0)
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
        self._verbose = checked_verbose("fit verbose", verbose) and self.is_first
        self._prefetch = integer("fit prefetch", prefetch, 0)

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
        return entries(self.measures, self.validates)

    def check_entry(self, where: str, entry: str) -> None:
        """ValueError for an entry that the history will not have, which names those that it will."""
        if entry in self.entries or entry in self.progress.history.history or not self.net.knows_measures:
            return
        hint = "; val_ entries need validation_data" if entry.startswith("val_") and not self.validates else ""
        raise ValueError(f"{where}: wanted one of {self.entries}, received {entry!r}{hint}")

    def direction(self, where: str, entry: str, mode: str = "auto") -> str:
        """ "min" or "max": mode itself, or for "auto" by the metric's `higher_is_better`, or a name that is known.

        ValueError where neither says which is better. where: the callback's name.
        """
        return direction(where, entry, mode, self.measures)

    def go_to(self, progress: Progress) -> None:
        """Let the data go on from there. ValueError where their place cannot be kept."""
        self._data.go_to(progress.epoch, progress.batch, own_place(self.ranks, progress.place))

    @property
    def is_under_way(self) -> bool:
        """Whether the present call is a part of it. Also after an interrupt that left callbacks without `on_end`."""
        return self in _under_way.get()

    @in_own_context
    def run(self) -> History:
        """Train until `epochs` are done. What ends it on one rank, other ranks are told."""
        try:
            return self._run()
        except BaseException as error:
            if self.ranks is not None and not isinstance(error, ParallelError) and not is_stop(error):
                self.ranks.fail(error)
            raise

    def _run(self) -> History:
        _under_way.set((*_under_way.get(), self))
        look_in_fit(not any(callback.takes_nan for callback in self.callbacks))
        started: list[Callback] = []

        def start(callback: Callback) -> None:
            started.append(callback)
            callback.on_start(self)

        error: BaseException | None = None
        try:
            self._check_equal()
            self._each(start)
            while self.progress.epoch < self.epochs:
                self._epoch()
        except StopTraining:
            self._check_stopped()
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._data.close()
            if self._validation is not None:
                self._validation.close()
            call_each_end([partial(each.on_end, self) for each in started], error)
        return self.progress.history

    def _each(self, call: Callable[[Callback], object]) -> None:
        call_each(self.callbacks, call)

    def _check_equal(self) -> None:
        """ParallelError where other ranks have called `fit` otherwise, or are elsewhere of it."""
        if self.ranks is None:
            return
        progress, validation = self.progress, self._validation
        mine = {
            "epochs": self.epochs,
            **{name: getattr(progress, name) for name in ("samples", "batch_size", "shuffle", "buckets")},
            **{"batches": progress.batches, "steps_per_epoch": progress.steps, "the net's seed": self.net.seed},
            "validation samples": None if validation is None else (validation.count, validation.steps),
            "epochs done": progress.epoch,
            "batches done": progress.batch,
            "a digest of some samples": self._data.digest(),
            "class_weight": described(self._options.get("class_weight")),
            "callbacks": [type(each).__name__ for each in self.callbacks],
        }
        told, processes = zip(*self.gathered((mine, own_process()), "fit: its beginning"), strict=True)
        if self._verbose:
            write_line(in_words(processes), sys.stderr)
        check_same_call("fit", told)

    def _check_stopped(self) -> None:
        """ParallelError where a callback has ended the training on some ranks and not on all."""
        self.gathered(None, "fit: ended by a callback's StopTraining")

    def _epoch(self) -> None:
        """Train on all samples once, or on those that are left of the epoch; validate."""
        progress = self.progress
        if progress.batch == 0 and progress.order is None:
            progress.begin_epoch(self._data.draw, self._data.is_random)
        self._batches()
        if self.is_first:
            self.net.print_norms()
        validated = self._validated()
        spent = self.gathered((progress.seconds, self.net.device.pool.high_water), "fit: the end of an epoch")
        progress.end_epoch(
            self.measures,
            None if self.net.optimizer is None else self.net.optimizer.last_rate,
            **validated,
            samples_per_second=progress.mean.count / max(seconds for seconds, _ in spent),
            high_water=max(nbytes for _, nbytes in spent),
        )
        self._each(lambda callback: callback.on_epoch(self))

    def _batches(self) -> None:
        from tqdm.auto import tqdm

        progress = self.progress
        start = time.perf_counter() - progress.seconds
        title = f"epoch {progress.epoch + 1}/{self.epochs}" if self._verbose else None
        place = progress.order, progress.batch, self._prefetch, progress.epoch, progress.key
        left = None if progress.steps is None else progress.steps - progress.batch
        with (
            closing(self._data.iterate(*place)) as all_batches,
            tqdm(
                total=progress.total,
                initial=progress.mean.count,
                desc=title,
                unit=" samples",
                file=Unfailing(sys.stderr),
                dynamic_ncols=True,  # as it asks its own streams alone for their width
                disable=title is None or sys.stderr is None,
            ) as bar,
        ):
            turns, tokens, before = RankBatches(self.ranks, islice(all_batches, left), self._data), 0, progress.seconds
            for batch in self.waiting.timed(iter(turns)):
                self.loss, self.metric = self.net.train_one_batch(*batch, **self._options)
                size, positions = count_of(batch[0]), positions_of(batch[0])
                del batch  # before the next one is taken
                progress.place = self._data.place()
                seconds = time.perf_counter() - start
                if self.ranks is None:
                    progress.end_batch(size, self.loss, self.metric, seconds, self.net.observed, self.measures)
                else:
                    part = part_of(size, self.net.loss_weight, self.loss, self.metric, self.net.observed)
                    size = self._end_parts(turns.gather_shards(part, progress.place), seconds)
                    progress.place = joined_places(turns.places)
                bar.update(size)
                tokens += size * positions
                rate = tokens / max(seconds - before, 1e-9)
                bar.set_postfix_str(progress.state(self.measures, rate, self.net.device.pool.high_water), refresh=False)
                self._each(lambda callback: callback.on_batch(self))

    def _end_parts(self, parts: list[MetricShard], seconds: float) -> int:
        """Enters what all processes have seen of a batch, makes loss and metrics the whole's; returns its samples."""
        mean = Mean()
        mean.add_parts(parts, self.measures)
        self.loss = self._tensor(mean.loss())
        values = {key: self._tensor(value) for key, value in mean.values(self.measures).items()}
        self.metric = values.get("", values or None)
        self.progress.end_parts(parts, seconds, self.measures)
        return mean.count

    def _tensor(self, value: Value) -> Tensor:
        return from_numpy(np.asarray(value, self.net.dtype), self.net.device)

    def _validated(self) -> dict[str, OneOrMore]:
        """The entries of the history that the validation makes."""
        if self._validation is None:
            return {}
        on_batch = partial(self._each, lambda callback: callback.on_validation_batch(self))
        mean = evaluate(self.net, self._validation, on_batch, self._prefetch, None, self.ranks)
        if self._verbose:
            shown = texts(mean.entries(self.measures))
            write_line(", ".join([f"validation: loss {mean.loss():.4f}", *shown]), sys.stdout)
        return {"val_loss": mean.loss()} | mean.entries(self.measures, "val_")


def _checked_callbacks(given: object) -> tuple[Callback, ...]:
    """The callbacks of a list, or one alone."""
    if isinstance(given, Callback):
        given = (given,)
    if not goes_through(given):
        raise TypeError(f"fit callbacks: wanted a list of objects of class Callback, received {kind(given)}")
    callbacks = tuple(given)
    for callback in callbacks:
        check_methods(callback)
        if not isinstance(callback, Callback):
            raise TypeError(f"fit callbacks: wanted objects of class Callback, received {kind(callback)}")
        check_calls(callback)
        if sum(other is callback for other in callbacks) > 1:
            raise ValueError(f"fit callbacks: wanted each object once, received {kind(callback)} several times")
    return callbacks
