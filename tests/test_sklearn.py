"""Estimators within scikit-learn: its own checks, pipelines, searches."""

from __future__ import annotations

import pickle
from unittest import SkipTest

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from singa_lite import layers, optimizer
from singa_lite.errors import NonFiniteError
from singa_lite.sklearn import NetClassifier, NetRegressor


@parametrize_with_checks([NetClassifier(epochs=25, lr=0.02), NetRegressor(epochs=25, lr=0.02)])
def test_sklearns_own_checks(estimator, check):
    try:
        check(estimator)
    except SkipTest as reason:
        pytest.skip(f"{reason}: scikit-learn looks at it after pip install array-api-strict")


def convolution(net, shape, outputs):
    """Pictures of 8 x 8 out of rows of 64."""
    net.add(layers.Reshape("pictures", (1, 8, 8), input_sample_shape=shape))
    net.add(layers.Conv2D("conv", 8, 3, 2))
    net.add(layers.Activation("relu"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", outputs))


def test_a_convolutional_net_in_a_pipeline_reads_digits():
    x, y = load_digits(return_X_y=True)
    made = make_pipeline(StandardScaler(), NetClassifier(convolution, epochs=12, lr=0.01, random_state=0))
    assert cross_val_score(made, x, y, cv=2).mean() > 0.9


def test_a_search_over_two_processes_finds_the_better_one():
    x, y = load_iris(return_X_y=True)
    labels = np.array(["a", "b", "c"])[y]
    search = GridSearchCV(NetClassifier(epochs=20, random_state=0), {"lr": [1e-6, 0.02]}, cv=2, n_jobs=2)
    search.fit(x, labels)
    assert search.best_params_ == {"lr": 0.02}
    assert set(search.predict(x)) <= {"a", "b", "c"}
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict_proba(x), search.predict_proba(x))


def test_several_outputs_and_an_optimizer_of_ones_own():
    x, y = make_regression(120, 5, n_targets=3, random_state=0)
    y = y / y.std()
    sgd = optimizer.SGD(0.05, momentum=0.9)
    made = NetRegressor(optimizer=sgd, random_state=0).fit(x, y)
    assert made.predict(x).shape == (120, 3)
    assert made.score(x, y) > 0.9
    assert sgd.step == 0  # of which fit takes a copy
    assert clone(made).get_params()["lr"] == made.lr


@pytest.mark.parametrize("kind", [NetClassifier, NetRegressor])
def test_a_weight_of_two_counts_as_two_samples(kind):
    x, y = load_iris(return_X_y=True)
    x, y, weights = x[::5], y[::5] % 2, np.arange(30) % 3
    made = kind(epochs=5, random_state=0)
    weighted = made.fit(x, y, sample_weight=weights)._scores(x)
    repeated = clone(made).fit(x.repeat(weights, 0), y.repeat(weights))._scores(x)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-9)


def test_a_build_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"build: wanted a net with one output of 3 scores, received \[\(2,\)\]"):
        x, y = load_iris(return_X_y=True)
        NetClassifier(lambda net, shape, outputs: net.add(layers.Dense("d", 2, input_sample_shape=shape))).fit(x, y)


def test_widths_that_are_none_are_refused():
    x, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="hidden"):
        NetClassifier(hidden="64").fit(x, y)
    with pytest.raises(ValueError, match="hidden"):
        NetClassifier(hidden=(0,)).fit(x, y)


def test_a_sample_whose_scores_are_nan_is_of_no_class():
    samples = np.random.default_rng(1).standard_normal((12, 3))
    found = NetClassifier(hidden=(4,), epochs=1, random_state=0).fit(samples, np.arange(12) % 3)
    for value in found.net_.param_values():
        value.copy_from_numpy(np.full(value.shape, np.nan, value.dtype))
    with pytest.raises(NonFiniteError, match=r"NetClassifier predict.*sample 0"):
        found.predict(samples)
