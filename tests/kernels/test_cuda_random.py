"""Random kernels of the CUDA set: the numbers are NumPy's, bit for bit, in C order whatever the strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_case import garbage, run
from layouts import channels_last, piece_in_c_order, turned
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY
from test_random_values import generator, key

Array = np.ndarray

#: One element, a block of words, one more, a pack less; images of odd rows; and more than a block of threads takes.
SHAPES = [(1,), (4,), (8,), (9,), (15,), (3, 5), (2, 3, 5, 7), (2, 4, 3, 8), (7, 47, 101)]
LAYOUTS = {"c order": np.ascontiguousarray, "channels last": channels_last, "piece": piece_in_c_order, "turned": turned}

every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
every_dtype = pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def laid_out(a: Array, layout: Any) -> Array:
    """In a layout, where the tensor has enough axes for it."""
    return layout(a) if a.ndim == 4 else a


def at_an_odd_place(a: Array) -> Array:
    """In C order, from an address on that is no multiple of a pack's size."""
    memory = np.empty(a.size + 1, a.dtype)[1:].reshape(a.shape)
    memory[...] = a
    return memory


def both(cuda: KernelSet, name: str, tensors: list[Array], settings: dict[str, Any]) -> tuple[Array, Array]:
    """The last tensor by the kernels of the set and by NumPy's."""
    plain = [np.array(t, order="C") for t in tensors]
    run(NUMPY, name, plain, settings)
    run(cuda, name, tensors, settings)
    return tensors[-1], plain[-1]


@every_shape
@every_dtype
@every_layout
def test_uniform_equals_numpy(cuda, shape, dtype, layout):
    y = laid_out(garbage(shape, dtype), layout)
    np.testing.assert_array_equal(*both(cuda, "uniform", [key(), y], {"low": -0.3, "high": 2.9}))


def test_dropout_of_halves(cuda):
    """The quotient is that of float32, rounded once."""
    x = np.random.default_rng(1).standard_normal((5, 7, 11)).astype(np.float16)
    y = garbage(x.shape, x.dtype)
    run(cuda, "dropout", [x, key(), y], {"p": 0.3})
    kept = generator(key()).random(x.shape, dtype=np.float32) >= np.float32(0.3)
    np.testing.assert_array_equal(y, np.where(kept, x.astype(np.float32) / np.float32(0.7), 0).astype(np.float16))


@pytest.mark.parametrize("shape", [(37,), (3, 5, 16)], ids=str)
def test_unaligned_memory(cuda, shape):
    x, y = (at_an_odd_place(a) for a in (np.ones(shape, np.float32), garbage(shape, np.float32)))
    np.testing.assert_array_equal(*both(cuda, "dropout", [x, key(), y], {"p": 0.5}))
    np.testing.assert_array_equal(*both(cuda, "uniform", [key(), y], {"low": 0.0, "high": 1.0}))


def test_dropout_over_its_input_and_of_a_broadcast_one(cuda):
    x = np.random.default_rng(1).standard_normal((5, 37)).astype(np.float32)
    wanted = garbage(x.shape, x.dtype)
    run(NUMPY, "dropout", [x, key(), wanted], {"p": 0.6})
    run(cuda, "dropout", [x, key(), x], {"p": 0.6})
    np.testing.assert_array_equal(x, wanted)
    one = np.array([3, *[np.nan] * 7], np.float32)[:1]  # at an aligned address, nothing like it behind
    for source in (np.broadcast_to(one, x.shape), np.broadcast_to(x[:1], x.shape)):
        np.testing.assert_array_equal(*both(cuda, "dropout", [source, key(), garbage(x.shape, x.dtype)], {"p": 0.6}))


def test_uniform_of_halves_never_reaches_the_upper_bound(cuda):
    """Between 1 and the next number of the dtype there is none, so rounding would give either."""
    high = float(np.nextafter(np.float16(1), np.float16(2)))
    y = garbage((7, 47), np.float16)
    run(cuda, "uniform", [key(), y], {"low": 1.0, "high": high})
    assert np.all(y == 1)
