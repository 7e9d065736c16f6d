"""Cross entropy of the oneDNN set: which sizes, layouts and targets are served; the contract shows the rest."""

from __future__ import annotations

import numpy as np
import pytest
from test_onednn_linear import normal

from layouts import channels_last, serves
from singa_lite.kernels.kernel_set import specs_of
from test_loss_values import ids

#: Few scores; many; images of few and of many classes; a few of them.
SHAPES = [(64, 10), (5, 37), (130, 1000), (4, 5, 61, 90), (2, 150, 17, 19), (2, 3, 4, 5)]


def scores(shape: tuple[int, ...]) -> np.ndarray:
    x = normal(*shape)
    return channels_last(x) if x.ndim == 4 else x


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_which_losses_are_served(onednn, shape, dtype):
    x = scores(shape)
    target = ids(x, dtype)
    assert serves(onednn, "softmax_cross_entropy", [x, target, np.empty(len(x), np.float32), x], {})
    if dtype == "int64":
        assert serves(onednn, "softmax_cross_entropy_derivative", [np.empty(len(x), np.float32), x, target, x], {})


def test_losses_that_are_not_served(onednn):
    kernel, x, target = onednn.kernels["softmax_cross_entropy"], scores((4, 5, 61, 90)), ids(scores((4, 5, 61, 90)))
    losses = np.empty(4, np.float32)
    assert kernel.serves(specs_of((x, target, losses, x)), {})
    assert not kernel.serves(specs_of((x, x, losses, x)), {}), "a target of rows"
    assert not kernel.serves(specs_of((x, target.astype(np.uint64), losses, x)), {}), "ids that NumPy cannot add"
    assert not kernel.serves(specs_of((x, target[:, ::-1], losses, x)), {}), "a target that lies otherwise"
    plain = np.ascontiguousarray(x)
    assert not kernel.serves(specs_of((plain, target, losses, plain)), {}), "classes that do not lie innermost"
    double = x.astype(np.float64)
    assert not kernel.serves(specs_of((double, target, losses, double)), {}), "double precision"
