"""FeedForwardNet: a net over data sets, its copies and parts; its other methods are in the four bases beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from copy import deepcopy
from inspect import isfunction
from os import PathLike
from typing import TYPE_CHECKING

from singa_lite import device as devices
from singa_lite.autograd.rewriting import Rule
from singa_lite.common.checks import integer
from singa_lite.common.keywords import explains_keywords
from singa_lite.common.notice import warn
from singa_lite.common.unique import Unique
from singa_lite.compiler.report import net_text
from singa_lite.compiler.report.net_text import LayerRow
from singa_lite.data import Processes
from singa_lite.data.loading import splitting
from singa_lite.data.loading.data_set import InTurn, Share
from singa_lite.layer.layer import OneOrMore
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.net.adapter_methods import AdapterMethods
from singa_lite.net.file_methods import FileMethods
from singa_lite.net.plan_methods import PlanMethods
from singa_lite.net.step_methods import StepMethods
from singa_lite.net.submodel import Family, move, part_of
from singa_lite.net.summary_rows import layer_rows
from singa_lite.net.text_methods import TextMethods
from singa_lite.tensor import DeviceSpec
from singa_lite.training import checked, fit, weights
from singa_lite.training.loop import evaluation, sources
from singa_lite.training.trained_net import TrainedNet

if TYPE_CHECKING:
    from singa_lite.snapshots.language.config import LanguageConfig


class FeedForwardNet(StepMethods, PlanMethods, FileMethods, TextMethods, AdapterMethods, Unique):
    """A net of layers, any directed acyclic graph of them.

    loss, metric: may also be given to `compile`; objects, or names such as "softmax_cross_entropy" and "accuracy"; a
    list of metrics; a dict {output layer: loss} for several outputs, likewise of metrics.
    device: where parameters and batches live, default `device.default()`; dtype: of parameters and inputs.
    parameter_dtype: "bfloat16" for matrices and filters that are stored so from the start, see `compile`.
    seed: of the net's random numbers (initial values, dropout); default the device's next one, so that a script
    gives the same numbers each time it runs. language: of a language model, its configuration.

    >>> net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=7)
    >>> hidden = net.add(layers.Dense("hidden", 4, activation="relu", input_shape=(5,)))
    >>> scores = net.add(layers.Dense("scores", 3))
    >>> net.compile("adam")
    >>> net
    <FeedForwardNet of 2 layers on cpu: hidden, scores
     39 parameters of float32
     compiled with Adam, SoftmaxCrossEntropy, Accuracy>
    """

    instead = "copy.deepcopy(net) is a net of its own"

    language: LanguageConfig | None = None

    #: The nets that have layers of this one, itself among them; None: there are no others.
    _family: Family | None = None

    def __deepcopy__(self, memo: dict[int, object]) -> FeedForwardNet:
        """A net of its own on the same device: layers, optimizer and their values; it records its steps anew.

        GraphError after an unfinished step. A forward that waits for its backward is not copied.
        """
        self._trainer.runner.check_whole("deepcopy")
        self._trainer.check_copied("deepcopy")
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        kept = {name: value for name, value in vars(self).items() if name not in ("_trainer", "_planner", "_batches")}
        vars(made).update({name: deepcopy(value, memo) for name, value in kept.items()})
        vars(made)["_trainer"] = self._trainer.copy_for(made, memo)
        if made._family is not None:
            made._family.join(made)
        return made

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        """As its configuration and its values, for the default device of whoever reads it.

        SnapshotError after an unfinished step; what the user gave to layers must be picklable itself.
        """
        from singa_lite.snapshots.configured_net import pickled, unpickled

        self._trainer.check_copied("pickle")
        return unpickled, (FeedForwardNet, *pickled(self))

    def to_device(self, device: DeviceSpec) -> None:
        """Moves parameters, state and the optimizer's state; those of all nets that have layers of this one.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> net.to_device(device.new_cpu())
        """
        move(self.family(), devices.get(device))

    def family(self) -> list[TrainedNet]:
        """Returns this net, and after it those that have layers of it, see `submodel`."""
        others = [] if self._family is None else [net for net in self._family.nets() if net is not self]
        return [self, *others]

    def submodel(self, outputs: str | Collection[str], inputs: str | Collection[str] | None = None) -> FeedForwardNet:
        """Returns a net of those layers of this one that lead to `outputs`: the same layer objects, with their
        parameters and state. So training either moves both, `layer.trainable` is of both, and `add` puts a layer into
        one alone.

        outputs: a layer's name, or several, none of which feeds another; inputs: the layers that are fed, in the place
        of their source; default: the net's. The new net has no loss and no optimizer yet; an optimizer's state is its
        own. Saved, pickled or copied it is a net by itself; nets that are copied by one call of `deepcopy` share layers
        again, and `to_device` moves all nets that have layers in common. GraphError for names of no layers, outputs
        that feed others, inputs that do not lead to them, or leave out what does. See docs/submodels.md.

        >>> net = Sequential([layers.Dense("hidden", 4, input_shape=(5,)), layers.Dense("scores", 3)])
        >>> net.submodel("hidden").predict(np.ones((2, 5), "float32")).shape
        (2, 4)
        """
        stored = self.parameter_dtype
        made = FeedForwardNet(device=self.device, dtype=self.dtype, seed=self.seed, parameter_dtype=stored)
        made.adopt(*part_of(self, outputs, inputs))
        made._family = self._family = self._family or Family(self)
        made._family.join(made)
        return made

    @explains_keywords()
    def evaluate(
        self,
        x: object,
        y: object = None,
        batch_size: int | None = None,
        *,
        steps: int | None = None,
        prefetch: int = 0,
        workers: int | Processes = 0,
        sample_weight: object = None,
        class_weight: object = None,
        verbose: bool | int | str = False,
    ) -> tuple[float, OneOrMore]:
        """Returns (loss, metric) over all samples, as numbers, without training; the metric is None if there is none.

        x, y, prefetch, workers, sample_weight, class_weight: as for `fit`, and checked as there. steps: so many batches
        and no more. verbose: print both on a line.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,), weight_init=0.0)])
        >>> net.compile("sgd", "mse", "mae")
        >>> net.evaluate(np.ones((8, 5)), np.full((8, 3), 2.0))
        (4.0, 2.0)
        """
        self.device.check_bytes("evaluate")
        loading, ahead = sources.checked_loading("evaluate", workers, None), integer("evaluate prefetch", prefetch, 0)
        objective = self._trainer.objective()
        shown = sources.checked_verbose("evaluate verbose", verbose)
        self._batches.refuse_weights("evaluate", sample_weight=sample_weight, class_weight=class_weight)
        weights.class_weights("evaluate", class_weight, self, objective)
        data = sources.data_set("evaluate", self, objective, x, y, batch_size, loading, steps=("steps", steps))
        weights.weigh("evaluate", data, self, objective, sample_weight)
        weights.check_classes("evaluate", data, self, objective, class_weight)
        sources.divide("evaluate", data, self.parallel, InTurn)
        with closing(data):
            mean = evaluation.evaluate(self, data, prefetch=ahead, class_weight=class_weight, ranks=self.parallel)
        if shown:
            print(f"loss: {mean.loss()}, metric: {mean.metric(objective.measures)}")
        return mean.loss(), mean.metric(objective.measures)

    @explains_keywords()
    def predict(
        self,
        x: object,
        batch_size: int = 32,
        *,
        output: Collection[str] = (),
        workers: int | Processes = 0,
    ) -> OneOrMore:
        """Returns the net's output for all samples, in evaluation mode: a Tensor, or {output layer: Tensor}.

        What the last layer gives, as it is: raw scores where the loss works on raw scores. output: layers whose outputs
        are wanted too, by path, each of one output; the result is {layer: Tensor} then. x: as for `fit`, or batches of
        samples alone. workers: as for `fit`.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> net.predict(np.ones((8, 5))).shape
        (8, 3)
        """
        self.device.check_bytes("predict")
        checked.single_outputs(self)
        data = sources.data_to_predict(self, x, batch_size, sources.checked_loading("predict", workers, None))
        with closing(data):
            return evaluation.predict(self, data, self._batches.output_paths("predict", output))

    @explains_keywords()
    def fit(
        self,
        x: object,
        y: object = None,
        batch_size: int | None = None,
        epochs: int = 1,
        *,
        validation_data: object = None,
        shuffle: bool = True,
        verbose: bool | int | str = True,
        callbacks: Iterable[fit.Callback] | fit.Callback = (),
        resume: str | PathLike[str] | None = None,
        prefetch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        transform: object = None,
        workers: int | Processes = 0,
        shuffle_window: int | str | None = None,
        sample_weight: object = None,
        class_weight: object = None,
        validation_split: float = 0.0,
        initial_epoch: int = 0,
    ) -> fit.History:
        """Trains for some epochs, with a progress bar.

        x, y: arrays, or dicts of arrays, of equally many samples; or x alone: what has its targets
        (`data.image_folder`, `data.parquet`), sequences in buckets (`data.bucketed`), or what gives batches, (x, y) or
        dicts: an iterator, a PyTorch DataLoader, a Keras Sequence, `data.Epochs`. validation_data: (x, y), or one of
        these. batch_size: None is 32.

        What is in memory stays there, and only a batch at a time is copied; HDF5 sets, and all that can be sliced and
        says its shape and dtype, are read by batches. Before the first step all of it is checked, validation_data,
        (x, y), too: names, shapes, dtypes, counts, and the values of targets in memory; those on disk in their turn.

        shuffle: another order each epoch, the same in each run of the script. callbacks: what is called on the way, in
        any iterable, or one alone. resume: a checkpoint to go on from, until there are `epochs` epochs, as if nothing
        had happened; "auto": the newest one that is whole in the folder of the `Checkpoint` among the callbacks, if
        there is any. SnapshotError for one that does not fit. prefetch: how many batches a thread takes from the data
        ahead of the step, each of which takes its bytes on the host; worth it for data on disk (numpy.memmap, HDF5),
        and the same to the bit. Returns a History of each epoch's means.

        steps_per_epoch: so many batches are an epoch, where an iterator does not end, or an epoch takes other batches
        of much data; validation_steps likewise. transform: of each sample of the training data, transform(sample,
        random), as it is stored, to a sample as the net takes it, or {input layer: transform}; `random` is a
        `numpy.random.Generator` of this sample in this epoch alone, so that results depend neither on workers nor on
        where training went on (`data.transforms` has some). workers: so many threads transform and decode samples, or
        make batches by number; `data.Processes(2)`: processes. shuffle_window: bytes of samples that shuffling an HDF5,
        zarr or Parquet set holds, so that each chunk is read once: 64 MiB by default. See docs/data.md.

        sample_weight, class_weight: as for `train_one_batch`, of all samples; of the validation by
        validation_data=(x, y, sample_weight). validation_split: that share of the samples, the last ones, is the
        validation data. initial_epoch: how many epochs count as done. See docs/metrics_and_callbacks.md.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> net.compile("adam", "mse")
        >>> history = net.fit(np.ones((20, 5)), np.ones((20, 3)), batch_size=4, epochs=2, verbose=False)
        >>> len(history["loss"]), net.optimizer.step
        (2, 10)
        """
        self.device.check_bytes("fit")
        self._trainer.required_optimizer("fit")
        objective = self._trainer.objective()
        values = self.parameters().values()
        if values and self._trainer.own_step is None and not any(value.stores_grad for value in values):
            warn(
                "fit: wanted parameters that train, received a net whose layers are all frozen: set `trainable` of "
                "some, or call add_lora()",
                UserWarning,
            )
        self._batches.refuse_weights("fit", sample_weight=sample_weight, class_weight=class_weight)
        begun = sources.checked_initial_epoch(initial_epoch, epochs, resume)
        classes = weights.class_weights("fit", class_weight, self, objective)
        given = splitting.split(x, y, sample_weight, validation_data, validation_split)
        loading = sources.checked_loading("fit", workers, shuffle_window)
        steps = ("steps_per_epoch", steps_per_epoch)
        data = sources.data_set(
            "fit", self, objective, given.x, given.y, batch_size, loading, transform=transform, steps=steps
        )
        weights.weigh("fit", data, self, objective, given.sample_weight)
        weights.check_classes("fit", data, self, objective, class_weight)
        sources.divide("fit", data, self.parallel, Share)
        kind = sources.Validation(
            batch_size, loading, validation_steps, self._trainer.own_step is not None, self.parallel
        )
        validation = kind.data(self, objective, given)
        self._trainer.steps.check_forms("fit", data.forms + (0 if validation is None else validation.forms))
        training = fit.Training(
            self, data, validation, epochs, shuffle, verbose, callbacks, prefetch, classes or None, begun
        )
        if resume is not None:
            from singa_lite.snapshots.checkpoints.resume import resume as going_on

            going_on(training, resume)
        return training.run()

    def layer_rows(self) -> list[LayerRow]:
        """What `summary` and `reports.plot_net` show of each layer; those within one stand behind it."""
        return list(layer_rows(self.ordered()))

    def summary(self) -> str:
        """Prints a table of the layers with shapes, parameters and bytes; returns its text, which a notebook does not
        show again.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> text = net.summary()
        ┌───────────────┬────────────┬──────────────┬────────────┬───────┐
        │ layer (kind)  │ input from │ output shape │ parameters │ bytes │
        ├───────────────┼────────────┼──────────────┼────────────┼───────┤
        │ dense (Dense) │ input      │ (3,)         │         18 │    72 │
        └───────────────┴────────────┴──────────────┴────────────┴───────┘
        parameters: 18 (72 bytes), state: 0 bytes
        """
        state, frozen = (sum(t.nbytes for t in table.values()) for table in (self.states(), self.frozen()))
        return net_text.printed(net_text.table(self.layer_rows(), state, frozen))

    def __repr__(self) -> str:
        criteria = "" if self.optimizer is None else net_text.kinds(self.optimizer, self.loss, self.metric)
        sizes = {id(p): p.size() for layer in self.layers.values() for p in layer.parameters.values()}
        shown = self.device.name, [layer.name for layer in self.layers.values()], str(self.dtype), sizes.values()
        return net_text.brief(type(self).__name__, *shown, criteria)

    @classmethod
    def from_config(
        cls, config: object, device: DeviceSpec = None, *, custom: Mapping[str, type | Rule] | None = None
    ) -> FeedForwardNet:
        """Returns a new net as `config` wrote it down, with initial values. custom: {name: class} of the user's own
        layers, losses and metrics, {name: rule} of its rewriting rules. ConfigError for what is no configuration, or of
        a class or a rule that is not in custom.

        >>> net = Sequential([layers.Dense(3, input_shape=(5,))])
        >>> FeedForwardNet.from_config(net.config()).predict(np.ones((2, 5))).shape
        (2, 3)
        """
        from singa_lite.snapshots.config import net_of

        return net_of(FeedForwardNet, config, device, custom)


for _kind in FeedForwardNet.__mro__[1:]:  # what Python itself says of arguments names the class that users know
    for _name, _method in vars(_kind).items() if issubclass(_kind, LayerGraph) else ():
        if isfunction(_method) and not _name.startswith("_"):
            _method.__qualname__ = f"{FeedForwardNet.__name__}.{_name}"
