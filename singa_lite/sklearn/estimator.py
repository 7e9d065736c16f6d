"""The base of classifier and regressor: their parameters, the net that they make, and how it is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from singa_lite import layers
from singa_lite import optimizer as optimizers
from singa_lite.common.array_types import Array
from singa_lite.common.checks import fraction, goes_through, integer, number_dtype
from singa_lite.common.keywords import explains_keywords
from singa_lite.layer.layer import Layer
from singa_lite.loss import Loss
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.optimizer import Optimizer
from singa_lite.tensor import DeviceSpec, Shape
from singa_lite.training.fit import Callback, History

#: Makes the layers of a net for samples of this shape and so many scores, and adds them to the net that it is given.
Build = Callable[[FeedForwardNet, Shape, int], object]
#: Samples, targets, and perhaps weights.
_Samples = tuple[Array, ...]


class NetEstimator(BaseEstimator):
    """Base of the estimators. Parameters are kept as they are given, as scikit-learn wants it, and checked by `fit`.

    build: build(net, sample_shape, outputs) adds layers to a net, the first with `input_sample_shape=sample_shape`, the
    last with that many scores; None: dense layers of the widths `hidden`, with ReLU between them. A function of a
    module, for pickles. optimizer: an Optimizer, of which each `fit` takes a copy; None: Adam(lr). batch_size: at most
    so many samples. validation_fraction: that share of the samples, drawn by random_state, of each class as many, is
    no part of the training of `fit`: history_ has "val_loss" of it, which callbacks such as EarlyStopping watch.
    memory_budget, precision: as `FeedForwardNet.compile` takes them. dtype: of the net;
    None: that of the samples if they are float32, which is quicker, else float64.
    random_state: of initial values and the order of samples.

    net_: the trained net. history_: of the last `fit` or `partial_fit`.
    n_features_in_, feature_names_in_: as everywhere.
    """

    @explains_keywords()
    def __init__(
        self,
        build: Build | None = None,
        *,
        hidden: Sequence[int] = (100,),
        optimizer: Optimizer | None = None,
        lr: float = 0.005,
        batch_size: int = 200,
        epochs: int = 100,
        validation_fraction: float = 0.0,
        callbacks: Iterable[Callback] = (),
        memory_budget: int | str | None = None,
        precision: str = "float32",
        device: DeviceSpec = None,
        dtype: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.build = build
        self.hidden = hidden
        self.optimizer = optimizer
        self.lr = lr
        self.batch_size = batch_size
        self.epochs = epochs
        self.validation_fraction = validation_fraction
        self.callbacks = callbacks
        self.memory_budget = memory_budget
        self.precision = precision
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _dtypes(self) -> list[str]:
        """The dtypes that samples may keep, that of others first."""
        if self.dtype is None:
            return ["float64", "float32"]
        return [str(number_dtype(f"{type(self).__name__} dtype", self.dtype))]

    def _train(self, X: Array, y: Array, outputs: int, loss: Loss, sample_weight: Array | None) -> Self:
        """A new net, trained on checked samples and targets; integer ones are classes."""
        net = self._new_net(X, outputs, loss)
        given: _Samples = (X, y) if sample_weight is None else (X, y, sample_weight)
        share, held = fraction(f"{type(self).__name__} validation_fraction", self.validation_fraction), None
        if share:
            found = train_test_split(
                *given, test_size=share, random_state=net.seed % 2**32, stratify=y if y.dtype.kind in "iu" else None
            )
            given, held = tuple(found[::2]), tuple(found[1::2])
        self.history_ = self._fitted(net, given, self.epochs, held)
        self.net_ = net
        return self

    def _go_on(self, X: Array, y: Array, outputs: int, loss: Loss, sample_weight: Array | None) -> Self:
        """Train the net, which is made if there is none, for one epoch."""
        net = self.net_ if hasattr(self, "net_") else self._new_net(X, outputs, loss)
        given = (X, y) if sample_weight is None else (X, y, sample_weight)
        step = 0 if net.optimizer is None else net.optimizer.step
        order = np.random.default_rng((net.seed, step)).permutation(len(X))  # `fit` begins with the same one each time
        self.history_ = self._fitted(net, tuple(array[order] for array in given), 1, None)
        self.net_ = net
        return self

    @property
    def _next_dtypes(self) -> list[str]:
        """As `_dtypes`, of the next `partial_fit`."""
        return [str(self.net_.dtype)] if hasattr(self, "net_") else self._dtypes

    def _new_net(self, X: Array, outputs: int, loss: Loss) -> FeedForwardNet:
        """A compiled net for such samples."""
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        net = FeedForwardNet(loss, device=self.device, dtype=X.dtype, seed=seed)
        self._add_layers(net, X.shape[1:], outputs)
        chosen = optimizers.Adam(self.lr) if self.optimizer is None else deepcopy(self.optimizer)
        net.compile(chosen, memory_budget=self.memory_budget, precision=self.precision)
        return net

    def _add_layers(self, net: FeedForwardNet, shape: Shape, outputs: int) -> None:
        if self.build is not None and not callable(self.build):
            raise TypeError(
                f"{type(self).__name__} build: wanted a function build(net, sample_shape, outputs), "
                f"received {self.build!r:.100}"
            )
        if self.build is None:
            for layer in perceptron(shape, outputs, self.hidden):
                net.add(layer)
        else:
            self.build(net, shape, outputs)
        found = [net.output_shapes(name)[0] for name in net.output_names()]
        if found != [(outputs,)]:
            raise ValueError(
                f"{type(self).__name__} build: wanted a net with one output of {outputs} scores, received {found}"
            )

    def _fitted(self, net: FeedForwardNet, given: _Samples, epochs: int, held: _Samples | None) -> History:
        """given, held: samples, targets and perhaps weights, to train on and for the validation."""
        x, y, *weights = given
        size = min(integer(f"{type(self).__name__} batch_size", self.batch_size, 1), len(x))
        return net.fit(
            x,
            y,
            batch_size=size,
            epochs=epochs,
            shuffle=size < len(x),
            verbose=self.verbose,
            callbacks=self.callbacks,
            sample_weight=_shares(weights[0]) if weights else None,
            validation_data=None if held is None else (*held[:2], *map(_shares, held[2:])),
        )

    def _samples(self, X: object) -> Array:
        """Samples as the net takes them. NotFittedError before `fit`, ValueError for others than it was fitted on."""
        check_is_fitted(self)
        found: Array = validate_data(self, X, dtype=self.net_.dtype, allow_nd=True, reset=False)
        return found

    def _scores(self, X: object) -> Array:
        samples = self._samples(X)
        return np.asarray(self.net_.predict(samples))


def checked_weights(given: object, X: Array) -> Array | None:
    """One weight a sample; None where all count alike."""
    if given is None:
        return None
    found: Array = _check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)
    return found


def _shares(weights: Array) -> Array:
    """Weights whose mean is 1, so that a sample of weight 2 counts as two do."""
    total = weights.sum()
    shares: Array = weights * (len(weights) / total) if total else weights
    return shares


def perceptron(shape: Shape, outputs: int, hidden: Sequence[int]) -> list[Layer]:
    """Layers from samples of this shape to so many scores; hidden: the widths of those between."""
    if not goes_through(hidden):
        raise ValueError(f"hidden: wanted widths of layers, as (100,), received {hidden!r:.100}")
    widths = [integer("hidden", width, 1) for width in hidden]
    made: list[Layer] = [layers.Flatten("flat", input_sample_shape=shape)]
    for number, width in enumerate(widths):
        made.append(layers.Dense(f"hidden{number}", width, weight_init="he_uniform"))
        made.append(layers.Activation(f"relu{number}"))
    return [*made, layers.Dense("scores", outputs)]
