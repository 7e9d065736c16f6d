"""NetClassifier and NetRegressor: nets behind scikit-learn's interfaces of classifiers and regressors."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets
from sklearn.utils.validation import validate_data

from singa_lite import loss
from singa_lite.common.array_types import Array
from singa_lite.common.errors import NonFiniteError
from singa_lite.sklearn.estimator import NetEstimator, checked_weights


class NetClassifier(ClassifierMixin, NetEstimator):
    """A classifier for scikit-learn, a net that is trained with softmax cross entropy. Parameters: see `NetEstimator`.

        Pipeline([("scale", StandardScaler()), ("net", NetClassifier(hidden=(64, 32), random_state=0))]).fit(X, y)

    X: (n, features), or (n, ...) for a net whose `build` takes such samples. y: (n,) of any labels. classes_: which
    there are; the net has a score for each.

    >>> from singa_lite.sklearn import NetClassifier
    >>> X, y = np.array([[0.0, 0.0], [0.1, 0.2], [1.0, 0.9], [0.8, 1.0]]), ["no", "no", "yes", "yes"]
    >>> print(NetClassifier(hidden=(8,), lr=0.05, random_state=0).fit(X, y).predict(X))
    ['no' 'no' 'yes' 'yes']
    """

    def fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Make a new net and train it. sample_weight: (n,), at least 0; one of 2 counts as two equal samples."""
        samples, labels = validate_data(self, X, y, dtype=self._dtypes, allow_nd=True)
        check_classification_targets(labels)
        self.classes_, ids = np.unique(labels, return_inverse=True)
        self._check_classes()
        weights = checked_weights(sample_weight, samples)
        return self._train(samples, ids, len(self.classes_), loss.SoftmaxCrossEntropy(), weights)

    def partial_fit(self, X: object, y: object, classes: object = None, sample_weight: object = None) -> Self:
        """Train for one epoch on some of the data, which makes the net where there is none yet.

        classes: all labels that there will be, wanted by the first call. ValueError for a label that is none of them.
        """
        _check_partial_fit_first_call(self, classes)
        self._check_classes()
        is_new = not hasattr(self, "net_")
        samples, labels = validate_data(self, X, y, dtype=self._next_dtypes, allow_nd=True, reset=is_new)
        check_classification_targets(labels)
        strange = np.setdiff1d(labels, self.classes_)
        if len(strange):
            raise ValueError(f"partial_fit y: wanted labels of {self.classes_}, received {strange[0]!r}")
        ids, weights = np.searchsorted(self.classes_, labels), checked_weights(sample_weight, samples)
        return self._go_on(samples, ids, len(self.classes_), loss.SoftmaxCrossEntropy(), weights)

    def _check_classes(self) -> None:
        if len(self.classes_) < 2:
            raise ValueError(f"NetClassifier: wanted at least 2 classes, received one class, {self.classes_[0]!r}")

    def predict_log_proba(self, X: object) -> Array:
        """Logarithms of `predict_proba`, finite where that is 0 by rounding."""
        scores = self._scores(X).astype(np.float64)
        above = scores - scores.max(axis=1, keepdims=True)
        logs: Array = above - np.log(np.exp(above).sum(axis=1, keepdims=True))
        return logs

    def predict_proba(self, X: object) -> Array:
        """Probabilities (n, classes), float64, in the order of `classes_`."""
        shares: Array = np.exp(self.predict_log_proba(X))
        return shares

    def predict(self, X: object) -> Array:
        """The likeliest class of each sample (n,). NonFiniteError for a sample with a score of NaN, which has none."""
        scores = self._scores(X)
        bad = np.isnan(scores).any(axis=1)
        if bad.any():
            raise NonFiniteError(
                f"NetClassifier predict: wanted scores that are numbers, received {scores[bad][0].tolist()!s:.100} for "
                f"sample {int(bad.argmax())}"
            )
        found: Array = self.classes_[scores.argmax(axis=1)]
        return found


class NetRegressor(RegressorMixin, NetEstimator):
    """A regressor for scikit-learn, a net that is trained with half the squared error. Parameters: see `NetEstimator`.

    X: (n, features), or (n, ...) for a net whose `build` takes such samples. y: (n,) or (n, outputs) of numbers.

    >>> from singa_lite.sklearn import NetRegressor
    >>> X = np.linspace(-1.0, 1.0, 20).reshape(-1, 1)
    >>> net = NetRegressor(hidden=(8,), lr=0.05, random_state=0).fit(X, 3 * X[:, 0])
    >>> net.score(X, 3 * X[:, 0]) > 0.9
    True
    """

    def fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Make a new net and train it. sample_weight: (n,), at least 0; one of 2 counts as two equal samples."""
        samples, wanted = self._checked(X, y, self._dtypes, True)
        weights = checked_weights(sample_weight, samples)
        return self._train(samples, wanted, wanted.shape[1], loss.SquaredError(), weights)

    def partial_fit(self, X: object, y: object, sample_weight: object = None) -> Self:
        """Train for one epoch on some of the data, which makes the net where there is none yet."""
        samples, wanted = self._checked(X, y, self._next_dtypes, not hasattr(self, "net_"))
        weights = checked_weights(sample_weight, samples)
        return self._go_on(samples, wanted, wanted.shape[1], loss.SquaredError(), weights)

    def _checked(self, X: object, y: object, dtypes: list[str], is_new: bool) -> tuple[Array, Array]:
        """Samples, and targets (n, outputs)."""
        samples, targets = validate_data(
            self, X, y, dtype=dtypes, allow_nd=True, multi_output=True, y_numeric=True, reset=is_new
        )
        if is_new:
            self._is_column = targets.ndim == 1
        return samples, targets.reshape(len(targets), -1).astype(samples.dtype)

    def predict(self, X: object) -> Array:
        """Values (n,) or (n, outputs), as y was."""
        found = self._scores(X)
        return found[:, 0] if self._is_column else found

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
