"""NetRegressor: a net behind scikit-learn's interface of regressors."""

from __future__ import annotations

from typing import Self

from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from singa_lite import loss
from singa_lite.common.array_types import Array
from singa_lite.sklearn.estimator import NetEstimator, checked_weights


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
