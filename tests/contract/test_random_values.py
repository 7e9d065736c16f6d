"""Random kernels of every set against NumPy's own Philox, drawn in one piece: the numbers are equal, bit for bit, but
for the normal ones of a GPU, which are those of a formula.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from every_set import ALL, every_set, parameter
from host_loader import missing_to_run
from kernel_case import garbage, run
from normal_numbers import NORMALS, drawn, draws_by_index, philox
from singa_lite.kernels.kernel_set import KernelSet

#: Odd, and larger than what the kernels draw at a time.
LARGE = (7, 47, 101)
sets_of_numpys_normals = pytest.mark.parametrize(
    "kernels", [parameter(kernels) for kernels in ALL if not draws_by_index(kernels)]
)
MISSING = pytest.mark.skip(reason=f"the CUDA kernels on the host want {missing_to_run()}")
sets_of_others = pytest.mark.parametrize(
    "kernels",
    [parameter(kernels) for kernels in ALL if draws_by_index(kernels)]
    or [pytest.param(None, id="none", marks=MISSING)],
)
every_normal = pytest.mark.parametrize("name", NORMALS)
every_shape = pytest.mark.parametrize("shape", [(3, 5), LARGE], ids=str)
#: Each kernel that fills a tensor, of each set that has it.
NAMES = [parameter(kernels, name, label=name) for kernels in ALL for name in ("uniform", *NORMALS)]
#: Sets that leave tensors without elements to the next one, and have none.
LEAVING_NOTHING = {"cuda", "gpu-own"}
every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def key(seed: int = 3, stream: int = 2**63 + 1, counter: int = 2**64 - 2) -> np.ndarray:
    """A key; by default its words are as large as they get."""
    return np.array([seed, stream, counter], np.uint64)


def generator(words: np.ndarray) -> np.random.Generator:
    """The generator that the interface says a key stands for."""
    return np.random.Generator(philox(words))


def draw(
    kernels: KernelSet,
    name: str,
    shape: tuple[int, ...],
    dtype: str,
    words: np.ndarray | None = None,
    **settings: float,
) -> np.ndarray:
    """y of a kernel that fills y from a key."""
    y = garbage(shape, dtype)
    run(kernels, name, [key() if words is None else words, y], settings)
    return y


@every_set
@pytest.mark.parametrize("count, following", [(41, 42), (2**64 - 1, 0)])
def test_draw_key_hands_out_the_state_and_counts_up(kernels: KernelSet, count, following):
    state, drawn = key(counter=count), garbage((3,), np.uint64)
    run(kernels, "draw_key", [state, drawn], {})
    assert drawn.tolist() == [3, 2**63 + 1, count]
    assert state.tolist() == [3, 2**63 + 1, following]


@every_set
@every_shape
@every_dtype
def test_dropout_keeps_what_one_float32_draw_says(kernels: KernelSet, shape, dtype):
    x = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    y = garbage(shape, dtype)
    run(kernels, "dropout", [x, key(), y], {"p": 0.3})
    kept = generator(key()).random(shape, dtype=np.float32) >= np.float32(0.3)
    np.testing.assert_array_equal(y, np.where(kept, x / np.asarray(1 - 0.3, dtype), 0))


@every_set
@pytest.mark.parametrize("number", range(9))
def test_dropout_keeps_an_element_whose_number_is_exactly_p(kernels: KernelSet, number):
    p = float(generator(key()).random(9, dtype=np.float32)[number])
    y = garbage((9,), "float64")
    run(kernels, "dropout", [np.ones(9), key(), y], {"p": p})
    assert y[number] == 1 / (1 - p)


@every_set
def test_p_is_compared_as_float32(kernels: KernelSet):
    """0.1 of float64 lies below 0.1 of float32: a number in between is none, but p's own rounding is one."""
    p = float(generator(key()).random(9, dtype=np.float32)[4]) * (1 + 2**-30)
    y = garbage((9,), "float32")
    run(kernels, "dropout", [np.ones(9, np.float32), key(), y], {"p": p})
    assert y[4] != 0


@every_set
def test_dropout_with_the_same_key_is_its_own_derivative(kernels: KernelSet):
    x, dy = np.random.default_rng(1).standard_normal((2, 31, 37))
    y, dx = garbage(x.shape, x.dtype), garbage(x.shape, x.dtype)
    run(kernels, "dropout", [x, key(), y], {"p": 0.5})
    run(kernels, "dropout", [dy, key(), dx], {"p": 0.5})
    np.testing.assert_array_equal(dx, dy * (2 * (y != 0)))


@every_set
def test_dropout_drops_nan_and_infinity_and_keeps_all_at_p_0(kernels: KernelSet):
    x = np.tile(np.array([np.nan, np.inf, -np.inf, 1.0]), (25, 1))
    y = garbage(x.shape, x.dtype)
    run(kernels, "dropout", [x, key(), y], {"p": 0.5})
    dropped = generator(key()).random(x.shape, dtype=np.float32) < 0.5
    np.testing.assert_array_equal(y, np.where(dropped, 0, 2 * x))
    run(kernels, "dropout", [x, key(), y], {"p": 0.0})
    np.testing.assert_array_equal(y, x)


@every_set
@every_shape
@every_dtype
def test_uniform_equals_one_draw(kernels: KernelSet, shape, dtype):
    y = draw(kernels, "uniform", shape, dtype, low=-1.0, high=3.0)
    np.testing.assert_array_equal(y, generator(key()).random(shape, dtype=dtype) * 4 - 1)


@every_set
@every_dtype
def test_uniform_never_reaches_the_upper_bound(kernels: KernelSet, dtype):
    """Between 1 and the next number of the dtype there is none, so rounding would give either."""
    high = float(np.nextafter(np.dtype(dtype).type(1), np.dtype(dtype).type(2)))
    assert np.all(draw(kernels, "uniform", LARGE, dtype, low=1.0, high=high) == 1)


@sets_of_numpys_normals
@every_shape
@every_dtype
@every_normal
def test_normal_numbers_are_those_of_one_draw(kernels: KernelSet, shape, dtype, name):
    """Truncated: those within two standard deviations, in order."""
    y = draw(kernels, name, shape, dtype, mean=0.5, std=2.0)
    numbers = generator(key()).standard_normal(2 * y.size, dtype=dtype)
    taken = numbers[np.abs(numbers) <= 2] if name == "truncated_normal" else numbers
    np.testing.assert_array_equal(y, taken[: y.size].reshape(shape) * 2 + np.asarray(0.5, dtype))


@sets_of_others
@every_shape
@every_dtype
@every_normal
def test_normal_numbers_of_a_gpu_are_those_of_the_formula(kernels: KernelSet, shape, dtype, name):
    settings = {"mean": 0.5, "std": 2.0}
    y = draw(kernels, name, shape, dtype, **settings)
    _, wanted = drawn(name, [key(), y], settings)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=64 * np.finfo(dtype).eps)


#: Of a normal number, and of one within 2 of the mean: the standard deviation and the fourth moment,
#: 1 - 4 * density(2) / share and 3 * (1 - 4 * density(2) / share) - 16 * density(2) / share, share that within 2.
MOMENTS = {"normal": (1.0, 3.0), "truncated_normal": (0.7737413, 1.4161887)}


@sets_of_others
@every_dtype
@every_normal
def test_normal_numbers_have_the_distribution(kernels: KernelSet, dtype, name):
    """Mean and even moments to 4 standard errors, and the largest distance of the distributions (Kolmogorov and
    Smirnov), which in one of 1,000 keys is more than 1.95 / sqrt(numbers); neighbours are independent."""
    y = draw(kernels, name, (4, 25_000), dtype, mean=0.0, std=1.0).astype(np.float64).reshape(-1)
    second, fourth = MOMENTS[name]
    error = 1 / np.sqrt(y.size)
    assert abs(y.mean()) < 4 * error * np.sqrt(second)
    assert abs((y**2).mean() - second) < 4 * error * np.sqrt(fourth - second**2)
    assert abs((y**4).mean() - fourth) < 4 * error * np.std(y**4)
    assert all(abs((y[:-gap] * y[gap:]).mean()) < 4 * error * second for gap in (1, 2, 3, 4, 8))
    assert all(abs((y[:-gap] ** 2 * y[gap:] ** 2).mean() - second**2) < 5 * error * fourth for gap in (1, 2, 4))
    ordered = np.sort(y)
    low, high = (NormalDist().cdf(bound) for bound in ((-2, 2) if name == "truncated_normal" else (-np.inf, np.inf)))
    below = (np.vectorize(NormalDist().cdf)(ordered) - low) / (high - low)
    assert np.abs(below - (np.arange(y.size) + 0.5) * error**2).max() < 1.95 * error


@sets_of_others
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_truncated_numbers_stay_within_their_bounds_and_come_near(kernels: KernelSet, dtype):
    y = draw(kernels, "truncated_normal", (4, 25_000), dtype, mean=1.0, std=0.25)
    assert 0.5 <= y.min() < 0.501
    assert 1.499 < y.max() <= 1.5


@sets_of_others
@every_normal
def test_an_element_has_its_number_whatever_the_strides_and_the_extents_behind_it(kernels: KernelSet, name):
    settings = {"mean": 0.5, "std": 2.0}
    whole = draw(kernels, name, (9, 4, 6), "float32", **settings)
    for like in (np.empty((6, 4, 9), "f").T, np.empty((9, 5, 7), "f")[:, 1:, 1:], np.empty((9, 4, 12), "f")[..., ::2]):
        run(kernels, name, [key(), like], settings)
        np.testing.assert_array_equal(like, whole)
    np.testing.assert_array_equal(draw(kernels, name, (25,), "float32", **settings), whole.reshape(-1)[:25])


@pytest.mark.parametrize("kernels, name", NAMES)
def test_each_word_of_the_key_matters_and_nothing_else(kernels: KernelSet, name):
    settings = {"low": 0.0, "high": 1.0} if name == "uniform" else {"mean": 0.0, "std": 1.0}
    keys = [key(), key(seed=4), key(stream=4), key(counter=4)]
    drawn = [draw(kernels, name, (40,), "float32", words, **settings) for words in keys]
    assert len({y.tobytes() for y in drawn}) == 4
    np.testing.assert_array_equal(drawn[1], draw(kernels, name, (40,), "float32", key(seed=4), **settings))
    assert keys[0].tolist() == key().tolist()


@pytest.mark.parametrize("kernels, name", [made for made in NAMES if made.values[0].name not in LEAVING_NOTHING])
def test_nothing_to_draw_is_no_error(kernels: KernelSet, name):
    settings = {"low": 0.0, "high": 1.0} if name == "uniform" else {"mean": 0.0, "std": 1.0}
    assert draw(kernels, name, (0, 3), "float64", **settings).shape == (0, 3)
