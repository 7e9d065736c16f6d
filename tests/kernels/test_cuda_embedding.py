"""Gradients of embeddings in the CUDA set: ids are sorted in tiles, tiles are merged, and equal ids are summed."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_values import normal

from kernel_case import garbage, run
from layouts import check, serves

#: Numbers of ids around one tile, of an odd number of tiles, and of several merges.
PLACES = [1, 255, 256, 257, 3 * 256, 5 * 256 + 3, 4097]


@pytest.mark.parametrize("places", PLACES)
def test_gradients_of_any_number_of_ids(cuda, places):
    ids = np.random.default_rng(places).integers(0, 71, places)
    dy = normal(places, 5)
    check(cuda, "embedding_gradient", [ids, dy, garbage((60, 5), np.float32)], {"first": 7, "padding": 11})
    check(cuda, "embedding_gradient_add", [ids, dy, normal(60, 5)], {"first": 7, "padding": -1})


@pytest.mark.parametrize("features", [1, 31, 129, 300])
def test_one_id_that_occurs_everywhere(cuda, features):
    dy, gradient = normal(700, features), garbage((3, features), np.float32)
    run(cuda, "embedding_gradient", [np.full(700, 2, np.uint8), dy, gradient], {"first": 0, "padding": -1})
    assert not gradient[:2].any()
    wanted = np.zeros(features, np.float32)
    for row in dy:  # in rising order of places, so that the bits are known
        wanted += row
    np.testing.assert_array_equal(gradient[2], wanted)


def test_keys_of_64_bits_hold_what_is_served(cuda):
    few = np.broadcast_to(np.zeros((), np.int64), (2**32,))
    wide = np.broadcast_to(np.zeros((), np.float32), (2**32, 1))
    one = np.zeros((1, 1), np.float32)
    settings = {"first": 0, "padding": -1}
    assert serves(cuda, "embedding_gradient", [np.zeros(1, np.int64), one, one], settings)
    assert not serves(cuda, "embedding_gradient", [few, wide, one], settings)
    assert not serves(cuda, "embedding_gradient", [np.zeros(1, np.int64), one, wide], settings)
