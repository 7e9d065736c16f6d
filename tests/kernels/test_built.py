"""Built kernels: one routine for each combination of tensor specs and settings, and no more than so many."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from singa_lite.kernels import built
from singa_lite.kernels.built import BuiltKernel
from singa_lite.kernels.kernel_set import TensorSpec

LIVING: weakref.WeakSet[Fill] = weakref.WeakSet()


class Fill:
    """A routine that writes a number."""

    scratch_bytes = 0
    variant = ""
    levels = ()

    def __init__(self, value: float) -> None:
        self.value = value
        LIVING.add(self)

    def bind(self, specs: Any, arrays: Any, scratch: Any) -> Any:
        return lambda: arrays[0].fill(self.value)


def fill(spec: TensorSpec, value: float) -> Fill:
    return Fill(value)


def test_the_oldest_routine_goes_and_what_was_bound_still_runs(monkeypatch):
    monkeypatch.setattr(built, "MOST_ROUTINES", 3)
    kernel, arrays = BuiltKernel(fill), [np.zeros(size) for size in range(1, 8)]
    launches = [kernel.prepare((array,), None, {"value": array.size}) for array in arrays]
    for launch in launches:
        launch()
    assert [array.tolist() for array in arrays] == [[array.size] * array.size for array in arrays]
    launches.clear()
    del launch
    assert len(LIVING) == 3
    kernel.prepare((arrays[0],), None, {"value": 9.0})()
    assert arrays[0].tolist() == [9.0]
