"""Estimators within scikit-learn: its own checks, pipelines, searches."""

from __future__ import annotations

import pickle
from importlib import import_module
from unittest import SkipTest

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris, make_regression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.utils.estimator_checks import parametrize_with_checks

from misuse import assert_clear
from singa_lite import callbacks, layers, optimizer
from singa_lite.errors import NonFiniteError
from singa_lite.sklearn import NetClassifier, NetRegressor


@parametrize_with_checks([NetClassifier(epochs=25, lr=0.02), NetRegressor(epochs=25, lr=0.02)])
def test_sklearns_own_checks(estimator, check):
    try:
        check(estimator)
    except SkipTest as reason:
        pytest.skip(f"{reason}: scikit-learn looks at it after pip install array-api-strict")


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
    with pytest.raises(ValueError, match="build"):
        x, y = load_iris(return_X_y=True)
        NetClassifier(lambda net, shape, outputs: net.add(layers.Dense("d", 2, input_sample_shape=shape))).fit(x, y)


def test_a_sample_whose_scores_are_nan_is_of_no_class():
    samples = np.random.default_rng(1).standard_normal((12, 3))
    found = NetClassifier(hidden=(4,), epochs=1, random_state=0).fit(samples, np.arange(12) % 3)
    for value in found.net_.param_values():
        value.copy_from_numpy(np.full(value.shape, np.nan, value.dtype))
    with pytest.raises(NonFiniteError, match=r"NetClassifier predict.*sample 0"):
        found.predict(samples)


@pytest.mark.parametrize("kind", [NetClassifier, NetRegressor])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("build", "dense"),
        ("batch_size", "auto"),
        ("batch_size", 0),
        ("epochs", 2.5),
        ("validation_fraction", 1),
        ("validation_fraction", "a tenth"),
        ("callbacks", np.array(1)),
        ("dtype", "floaty"),
        ("precision", np.ones(3)),
        ("hidden", np.array(3)),
        ("hidden", "64"),
        ("hidden", (0,)),
    ],
)
def test_options_are_checked(kind, option, value):
    x, y = load_iris(return_X_y=True)
    with pytest.raises((TypeError, ValueError), match=option) as caught:
        kind(**{option: value}).fit(x, y)
    assert_clear(caught.value)
    with pytest.raises(TypeError, match=kind.__name__):
        kind(**{f"{option}s_": value})


def test_partial_fit_learns_from_one_part_after_the_other():
    x, y = load_iris(return_X_y=True)
    labels, x = np.array(["a", "b", "c"])[y], (x - x.mean(0)) / x.std(0)
    made = NetClassifier(lr=0.02, batch_size=16, random_state=0)
    for _ in range(20):
        for part in range(4):
            made.partial_fit(x[part::4], labels[part::4], ["a", "b", "c"] if not hasattr(made, "net_") else None)
    assert made.score(x, labels) > 0.95 and len(made.history_["loss"]) == 1
    with pytest.raises(ValueError, match="'d'"):
        made.partial_fit(x[:3], ["a", "b", "d"])
    with pytest.raises(ValueError, match="features"):
        made.partial_fit(x[:3, :2], labels[:3])
    assert made.score(x, labels) > 0.95


def test_partial_fit_of_all_is_an_epoch_of_fit():
    x, y = make_regression(40, 3, n_targets=2, random_state=0)
    made = NetRegressor(epochs=1, random_state=3)
    twice = clone(made).set_params(epochs=2).fit(x, y).predict(x)
    np.testing.assert_allclose(made.fit(x, y).partial_fit(x, y).predict(x), twice, rtol=1e-9)
    np.testing.assert_allclose(clone(made).partial_fit(x, y).partial_fit(x, y).predict(x), twice, rtol=1e-9)


def test_the_first_partial_fit_wants_the_classes():
    with pytest.raises(ValueError, match="classes"):
        NetClassifier().partial_fit([[1.0], [2.0]], [0, 1])
    with pytest.raises(ValueError, match="one class"):
        NetClassifier().partial_fit([[1.0], [2.0]], [0, 0], [0])


def test_logarithms_of_probabilities_are_finite_and_sum_to_one():
    x, y = load_iris(return_X_y=True)
    made = NetClassifier(epochs=3, random_state=0).fit(x, y)
    far = made.predict_log_proba(1e4 * x)
    assert np.isfinite(far).all() and (made.predict_proba(1e4 * x) == 0).any()
    np.testing.assert_allclose(np.log(made.predict_proba(x)), made.predict_log_proba(x), rtol=1e-9)
    np.testing.assert_allclose(made.predict_proba(x).sum(1), 1)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_share_is_kept_for_the_validation(weighted):
    """Of each class as many; it is not trained on, and callbacks watch it."""
    x, y = load_iris(return_X_y=True)
    weights = np.arange(150) % 3 if weighted else None
    stop = callbacks.EarlyStopping("val_loss", patience=1, min_delta=10.0)
    made = NetClassifier(epochs=30, validation_fraction=0.2, callbacks=[stop], random_state=0)
    found = made.fit(x, y, sample_weight=weights).history_["val_loss"]
    assert len(found) == 2 and np.isfinite(found).all()
    kept = train_test_split(x, y, test_size=0.2, random_state=made.net_.seed, stratify=y)
    assert np.bincount(kept[3]).tolist() == [10, 10, 10]
    if not weighted:
        scores = np.asarray(made.net_.predict(kept[1]))
        losses = np.log(np.exp(scores).sum(1)) - scores[np.arange(30), kept[3]]
        assert losses.mean() == pytest.approx(found[-1], rel=1e-6)


def test_estimators_are_found_by_their_earlier_paths():
    """Pickles of fitted estimators name them."""
    for path, name in (("classifier", "NetClassifier"), ("regressor", "NetRegressor")):
        assert vars(import_module(f"singa_lite.sklearn.{path}"))[name].__name__ == name
    assert import_module("singa_lite.callbacks.early_stopping").EarlyStopping is callbacks.EarlyStopping
