"""Updates of the oneDNN set: pieces, threads, what is served; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_case import run
from layouts import c_order
from nets import bits
from singa_lite.kernels.kernel_set import KernelSet, specs_of
from singa_lite.kernels.onednn_kernels import line, one_thread
from test_update_values import SGD, arguments, changed, every_update, kernels_last, rows, steps

Array = np.ndarray
Settings = dict[str, Any]


def serves(kernels: KernelSet, name: str, call: list[Any], settings: Settings) -> bool:
    return kernels.kernels[name].serves(specs_of(call), settings)


@every_update
def test_a_tensor_is_updated_alike_as_a_whole_and_by_rows(onednn, name, states, settings):
    shape = (line.PIECE // 512 + 5, 517)
    whole, cut = (arguments(states, shape) for _ in range(2))
    assert whole[0].size > line.PIECE
    steps(onednn, name, whole, settings)
    for part in (slice(0, 3), slice(3, 1021), slice(1021, None)):
        some = [a if a is None or a.ndim == 0 else a[part] for a in cut]
        steps(onednn, name, [*some[:-1], some[-1].copy()], settings)
    for a, b in zip(changed(whole), changed(cut), strict=True):
        assert bits(a) == bits(b)


@pytest.mark.parametrize("size", [83, line.PIECE + 1])
def test_clip_elements_keeps_nan(onednn, size):
    y = np.resize(np.array([np.nan, 2, -2, np.inf, -np.inf, 0.25, -0.25], np.float32), size)
    run(onednn, "clip_elements", [y], {"threshold": 0.5})
    wanted = np.resize(np.array([np.nan, 0.5, -0.5, 0.5, -0.5, 0.25, -0.25], np.float32), size)
    np.testing.assert_array_equal(y, wanted)


@every_update
@pytest.mark.parametrize("shape, lay", [((512, 512, 3, 3), kernels_last), ((2048, 1000), c_order), ((64,), c_order)])
def test_parameters_of_real_nets_are_served(onednn, name, states, settings, shape, lay):
    parameter = lay(np.empty(shape, np.float32))
    call = [parameter if a is not None and a.ndim else a for a in arguments(states, (1,))]
    assert serves(onednn, name, call, settings)


@every_update
@pytest.mark.parametrize("shape, lay", [((6, 5, 3, 3), kernels_last), ((7, 41), rows), ((67, 1000), c_order)])
def test_which_layouts_are_served(onednn, name, states, settings, shape, lay):
    assert serves(onednn, name, arguments(states, shape, lay), settings)


def test_other_forms_are_left_to_the_next_set(onednn):
    call = arguments(1, (6, 5, 3, 3))
    other_order = [kernels_last(call[0]), *call[1:]]
    gaps = [a if a is None or a.ndim == 0 else a[:, 1:3] for a in call]
    double = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in call]
    for refused in (other_order, gaps, double):
        assert not serves(onednn, "sgd", refused, {"hyper": SGD})
    assert not serves(onednn, "add_scaled", [call[0], other_order[0]], {"alpha": 1.0})
    assert not serves(onednn, "clip_elements", [gaps[0]], {"threshold": 1.0})


def test_small_work_is_done_by_one_thread_and_the_number_comes_back(onednn):
    get, put = one_thread._openmp()
    before = get()
    put(3)
    try:
        seen: list[int] = []
        one_thread.running(lambda: seen.append(get()))()
        with one_thread.making():
            seen.append(get())
        assert (seen, get()) == ([1, 1], 3)
        with pytest.raises(ZeroDivisionError):
            one_thread.running(lambda: 1 // 0)()
        assert get() == 3
    finally:
        put(before)
