"""Batch normalization's loops: in place, with gaps, a few channels with a large mean, a spoilt one beside them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from kernel_case import run
from layouts import Layout, c_order, channels_last, piece_of_channels_last
from test_normalization_values import FORWARD as MOMENTS
from test_normalization_values import empty, normal, vectors

Array = np.ndarray


@pytest.mark.parametrize("layout", [channels_last, piece_of_channels_last])
def test_in_place_gives_equal_bits(onednn, layout):
    shape, c = (3, 16, 25, 70), 16

    def forward(x: Array, y: Array) -> bytes:
        run(onednn, "batch_norm", [x, *vectors(c, 4), None, y, empty(c), empty(c)], MOMENTS)
        return y.tobytes()

    def backward(dy: Array, dx: Array) -> bytes:
        x, (gamma, mean, inv_std) = layout(normal(*shape, seed=2)), vectors(c, 3)
        run(onednn, "batch_norm_derivative", [dy, x, gamma, None, mean, inv_std, None, dx, empty(c), empty(c)], {})
        return dx.tobytes()

    for step in (forward, backward):
        apart, source = layout(empty(*shape)), layout(normal(*shape))
        assert step(source, apart) == step(source, source)


# --- a few channels have a large mean

ROUNDING = 2.0**-24
NAMES = "running_mean", "running_var", "y", "mean", "inv_std"
FORMS = [channels_last, c_order, piece_of_channels_last]
every_layout = pytest.mark.parametrize("lay", FORMS, ids=lambda lay: lay.__name__)


def with_means(shape: tuple[int, ...], means: dict[int, float]) -> Array:
    """Numbers around 0, but for these channels."""
    x = normal(*shape)
    for channel, mean in means.items():
        x[:, channel] += np.float32(mean)
    return x


def statistics(onednn, x: Array, lay: Layout, into: Layout = channels_last) -> dict[str, Array]:
    c = x.shape[1]
    ones, zeros = np.ones(c, np.float32), np.zeros(c, np.float32)
    results = [np.zeros(c, np.float32), np.zeros(c, np.float32), into(empty(*x.shape)), empty(c), empty(c)]
    with np.errstate(invalid="ignore"):  # NumPy warns of what infinity less infinity is
        run(
            onednn,
            "batch_norm",
            [lay(x), ones, zeros, *results[:2], None, *results[2:]],
            {"momentum": 1.0, "epsilon": 1e-5},
        )
    return dict(zip(NAMES, results, strict=True))


def assert_right(got: dict[str, Array], x: Array) -> None:
    """As good as sums of numbers around 0 are (`test_exact_sums.py`)."""
    wide, count = x.astype(np.float64), x.size // x.shape[1]
    axes = (0, *range(2, x.ndim))
    mean, variance = wide.mean(axes), wide.var(axes)
    assert np.all(np.abs(got["mean"] - mean) <= ROUNDING * (np.sqrt(variance) + np.abs(mean)))
    np.testing.assert_allclose(got["running_var"], variance * count / (count - 1), rtol=17 * ROUNDING)
    np.testing.assert_allclose(got["inv_std"], 1 / np.sqrt(variance + 1e-5), rtol=17 * ROUNDING)


@every_layout
@pytest.mark.parametrize("shape", [(3, 65, 9, 7), (5, 96, 31, 27), (37, 64, 3, 1)], ids=str)
@pytest.mark.parametrize("means", [{5: 1e4}, {0: 30.0, 63: -1e6}], ids=str)
def test_few_far_channels(onednn, lay, shape, means):
    x = with_means(shape, means)
    assert_right(statistics(onednn, x, lay), x)


@every_layout
def test_the_other_channels_have_the_bits_that_they_have_without(onednn, lay):
    shape, means = (5, 96, 31, 27), {5: 1e4, 40: -300.0}
    got, without = (statistics(onednn, with_means(shape, m), lay) for m in (means, {}))
    for name in ("running_mean", "running_var", "mean", "inv_std"):
        near, wanted = (np.delete(each[name], list(means)) for each in (got, without))
        np.testing.assert_array_equal(near, wanted, err_msg=name)
        assert not np.array_equal(got[name], without[name])


@pytest.mark.parametrize("shape", [(5, 96, 31, 27), (7, 64, 13), (83, 64)], ids=str)
def test_gaps_change_no_bit(onednn, shape):
    """Where y has some too, x is read where it lies; else a copy without is, that the sums made."""
    x = with_means(shape, {5: 1e4, 40: -300.0})
    wanted = statistics(onednn, x, channels_last)
    for lay, into in product((channels_last, piece_of_channels_last), repeat=2):
        got = statistics(onednn, x, lay, into)
        for name in NAMES:
            np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)


@pytest.mark.parametrize("spoilt", [np.nan, np.inf, -np.inf])
def test_a_spoilt_channel_beside_a_far_one(onednn, spoilt):
    x = with_means((3, 64, 9, 7), {5: 1e4})
    x[1, 8, 2, 3] = spoilt
    got = statistics(onednn, x, channels_last)
    assert not any(np.isfinite(got[name][8]) for name in ("mean", "running_var", "inv_std"))
    whole = {name: np.delete(value, 8, axis=value.ndim > 1) for name, value in got.items()}
    assert_right(whole, np.delete(x, 8, axis=1))
