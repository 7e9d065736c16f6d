"""Products and sums by every kernel set: NaN and infinities reach what they are added to, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from every_set import every_set
from kernel_case import garbage, run
from layouts import c_order, channels_last
from singa_lite.kernels.kernel_set import KernelSet
from test_activation_values import normal

NAN, INF = np.nan, np.inf
IMAGES = (3, 8, 14, 18)


@every_set
@pytest.mark.parametrize("rows", [6, 33, 150])
@pytest.mark.parametrize("transpose_b", [False, True], ids=["by rows", "transposed"])
def test_nan_and_infinity_stay_in_their_rows(kernels: KernelSet, rows, transpose_b):
    a, b, y = normal(rows, 520), np.abs(normal(520, 70, seed=4)), garbage((rows, 70), np.float32)
    a[3, 5], a[5, 2] = NAN, INF
    calls = [("matmul", [a, b.T.copy() if transpose_b else b], {"transpose_a": False, "transpose_b": transpose_b})]
    calls += [("linear", [a, b, None], {}), ("linear_activation", [a, b, None], {"activation": "relu"})]
    for name, given, settings in calls:
        with np.errstate(invalid="ignore"):  # NumPy's may warn of NaN
            run(kernels, name, [*given, y], settings)
        assert np.isnan(y[3]).all()
        assert (y[5] == INF).all()
        assert np.isfinite(np.delete(y, (3, 5), axis=0)).all()


@every_set
@pytest.mark.parametrize("lay", [channels_last, c_order])
@pytest.mark.parametrize("axes", [(2, 3), (0, 2, 3), (1,)], ids=str)
def test_nan_and_infinity_reach_their_sum_and_no_other(kernels: KernelSet, lay, axes):
    x = np.abs(normal(*IMAGES))
    x[1, 2, 3, 4], x[1, 4, 5, 6] = NAN, INF
    wanted = x.sum(axes, keepdims=True)
    y = lay(garbage(wanted.shape, np.float32))
    run(kernels, "reduce_sum", [lay(x), y], {"axes": axes, "alpha": 0.5})
    np.testing.assert_array_equal(np.isnan(y), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(y), np.isinf(wanted))
