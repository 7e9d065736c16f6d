"""Initializers: bounds, spread, fans, keys, orthogonality and names."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from singa_lite import ShapeError, initializer, tensor
from singa_lite.tensor import Tensor

FAN_IN, FAN_OUT = 30, 50
SHAPE = (25, 400)
COUNT = 25 * 400

# Standard deviation, and kurtosis, which says how far the deviation of a sample lies from it.
NORMAL, UNIFORM = 3.0, 1.8
SCALED = [
    (initializer.GlorotUniform(), sqrt(2 / 80), UNIFORM),
    (initializer.GlorotNormal(), sqrt(2 / 80), NORMAL),
    (initializer.HeUniform(), sqrt(2 / 30), UNIFORM),
    (initializer.HeNormal(), sqrt(2 / 30), NORMAL),
    (initializer.LecunUniform(), sqrt(1 / 30), UNIFORM),
    (initializer.LecunNormal(), sqrt(1 / 30), NORMAL),
    (initializer.HeNormal(gain=1.5), 1.5 * sqrt(2 / 30), NORMAL),
    (initializer.GlorotUniform(gain=3.0), 3 * sqrt(2 / 80), UNIFORM),
]


def filled(spec, shape=SHAPE, dtype=np.float32, stream=1, fans=(FAN_IN, FAN_OUT)) -> np.ndarray:
    value = tensor.empty(shape, dtype)
    value.name = "dense/weight"
    initializer.get(spec)(value, key(stream), *fans)
    return tensor.to_numpy(value)


def key(stream: int) -> Tensor:
    return tensor.from_numpy(np.array([7, stream, 0], np.uint64))


def assert_spread(values: np.ndarray, mean: float, std: float, kurtosis: float) -> None:
    """Mean and deviation of a sample lie within 4 of their own standard errors."""
    n = values.size
    assert abs(values.mean(dtype=np.float64) - mean) < 4 * std / sqrt(n)
    assert abs(values.std(dtype=np.float64) / std - 1) < 4 * sqrt((kurtosis - 1) / (4 * n))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("init", "std", "kurtosis"), SCALED, ids=lambda v: str(v))
def test_fans_give_the_spread(init, std, kurtosis, dtype):
    values = filled(init, dtype=dtype)
    assert values.dtype == dtype
    assert_spread(values, 0.0, std, kurtosis)
    if kurtosis == UNIFORM:
        assert 0.999 * sqrt(3) * std < np.abs(values).max() <= np.float32(sqrt(3) * std)
    else:
        assert np.abs(values).max() > 3 * std


def test_constant_and_uniform():
    assert np.all(filled(initializer.Constant(-0.25)) == -0.25)
    values = filled(initializer.Uniform(2.0, 5.0))
    assert_spread(values, 3.5, 3 / sqrt(12), UNIFORM)
    assert values.min() >= 2
    assert values.max() < 5


def test_normal_and_truncated_normal():
    assert_spread(filled(initializer.Normal(1.0, 0.5)), 1.0, 0.5, NORMAL)
    assert np.all(filled(initializer.Normal(1.0, 0.0)) == 1)
    values = filled(initializer.TruncatedNormal(1.0, 0.5))
    assert np.abs(values - 1).max() <= 1.0
    # variance of a normal number within 2 deviations: 1 - 4 * density(2) / (1 - 2 * tail(2)) = 0.77374
    assert_spread(values, 1.0, 0.5 * sqrt(0.77374), 2.37)


@pytest.mark.parametrize("spec", ["uniform", "normal", "truncated_normal", "he_normal", "orthogonal"])
def test_equal_keys_give_equal_numbers_and_others_do_not(spec):
    np.testing.assert_array_equal(filled(spec), filled(spec))
    assert not np.any(filled(spec) == filled(spec, stream=2))


@pytest.mark.parametrize("shape", [(7, 3), (3, 7), (4, 2, 3, 5), (20, 2, 3, 2), (1, 6)])
@pytest.mark.parametrize("gain", [1.0, 2.5])
def test_orthogonal(shape, gain):
    matrix = filled(initializer.Orthogonal(gain), shape, np.float64).reshape(shape[0], -1)
    rows, columns = matrix.shape
    product = matrix.T @ matrix if rows >= columns else matrix @ matrix.T
    np.testing.assert_allclose(product, gain**2 * np.eye(min(rows, columns)), atol=1e-12)
    assert filled(initializer.Orthogonal(gain), shape).dtype == np.float32


def test_orthogonal_has_no_preferred_sign():
    """QR alone gives a diagonal of one sign, so the corner would always have the same."""
    corners = [filled("orthogonal", (2, 2), stream=stream)[0, 0] for stream in range(40)]
    assert 8 < sum(corner > 0 for corner in corners) < 32


def test_names_numbers_and_initializers():
    made = initializer.HeNormal()
    assert initializer.get(made) is made
    assert initializer.get("glorot_uniform") == initializer.GlorotUniform()
    assert initializer.get("zeros") == initializer.Constant(0.0)
    assert initializer.get("ones") == initializer.get(1) == initializer.get(np.float32(1.0))


@pytest.mark.parametrize(
    ("call", "error", "culprit"),
    [
        (lambda: initializer.get("xavier"), ValueError, "'xavier'"),
        (lambda: initializer.get(None), TypeError, "None"),
        (lambda: initializer.get(True), TypeError, "True"),
        (lambda: initializer.get([0.0]), TypeError, r"\[0.0\]"),
        (lambda: initializer.Constant(float("nan")), ValueError, "Constant value.*nan"),
        (lambda: initializer.Uniform(1.0, -1.0), ValueError, "1.0 and -1.0"),
        (lambda: initializer.Uniform(0.0, float("inf")), ValueError, "Uniform high"),
        (lambda: initializer.Normal(0.0, -1.0), ValueError, "Normal std"),
        (lambda: initializer.TruncatedNormal(std=-2.0), ValueError, "TruncatedNormal std"),
        (lambda: initializer.HeNormal(gain=float("inf")), ValueError, "HeNormal gain"),
        (lambda: initializer.Orthogonal(float("nan")), ValueError, "Orthogonal gain"),
        (lambda: filled("he_normal", fans=(0, 5)), ValueError, "dense/weight.*fan_in"),
        (lambda: filled("lecun_uniform", fans=(0, 0)), ValueError, "fan_in"),
        (lambda: filled("glorot_uniform", fans=(0, 5)), ValueError, "fan_in"),
        (lambda: filled("glorot_normal", fans=(5, 0)), ValueError, "fan_out"),
        (lambda: filled("orthogonal", (6,)), ShapeError, r"dense/weight \(6,\)"),
    ],
    ids=range(16),
)
def test_what_makes_no_sense_is_refused(call, error, culprit):
    with pytest.raises(error, match=culprit):
        call()


def test_fans_that_are_not_used_may_be_missing():
    assert filled("he_normal", fans=(5, 0)).any()
    assert filled("normal", fans=(0, 0)).any()
