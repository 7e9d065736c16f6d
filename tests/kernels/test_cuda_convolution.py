"""Our own CUDA convolutions: windows, groups, layouts, tiles, splits, NaN, halves; the contract shows the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_convolution import SETTINGS, Setting

from kernel_case import garbage, run
from layouts import LAYOUTS, c_order, channels_last, check, image, serves
from singa_lite.kernels.cuda_kernels import convolution, depthwise, filter_sums
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.numpy_kernels import NUMPY

Array = np.ndarray

#: Whole packs of channels and filters, as those of nets, and tiles that are not full.
PACKED = {
    "square tiles": Setting((2, 20, 5, 7), 68, (3, 2), pad=(1, 1, 0, 1)),
    "strided": Setting((2, 20, 9, 8), 20, (3, 3), stride=(2, 3), pad=(1, 0, 2, 1)),
    "dilated": Setting((2, 8, 9, 8), 12, (3, 2), stride=(1, 2), pad=(3, 0, 2, 1), dilation=(3, 2)),
    "pointwise": Setting((3, 24, 5, 7), 20, (1, 1)),
    "grouped": Setting((2, 24, 5, 7), 36, (2, 3), pad=(1, 1, 0, 1), groups=3),
    "grouped, large": Setting((1, 40, 4, 5), 40, (2, 2), groups=2),
    "depthwise": Setting((2, 16, 9, 7), 16, (3, 3), stride=(2, 3), pad=(1, 0, 1, 1), groups=16),
    "depthwise, dilated": Setting((2, 8, 9, 7), 8, (3, 2), pad=(2, 2, 3, 0), dilation=(2, 3), groups=8),
    "depthwise, many taps": Setting((2, 8, 7, 9), 8, (5, 5), pad=(2, 2, 2, 2), groups=8),
    "depthwise, many channels": Setting((1, 132, 3, 4), 132, (2, 2), groups=132),
    "many filters of one channel": Setting((2, 4, 5, 7), 20, (3, 2), groups=4),
}

every_setting = pytest.mark.parametrize("setting", [*SETTINGS.values(), *PACKED.values()], ids=[*SETTINGS, *PACKED])
packed_settings = pytest.mark.parametrize("setting", PACKED.values(), ids=PACKED)
every_pair = pytest.mark.parametrize("first, second", LAYOUTS.values(), ids=LAYOUTS)
every_filter = pytest.mark.parametrize("filters", [channels_last, c_order])


def normal(*shape: int, seed: int = 1, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def three(setting: Setting, dtype: Any, first: Any = c_order, second: Any = c_order, filters: Any = c_order) -> Any:
    """(kernel, tensors, settings) of the three directions. The result is the last tensor."""
    x, dy = first(normal(*setting.x, dtype=dtype)), second(normal(*setting.y, seed=2, dtype=dtype))
    weight = filters(normal(*setting.weight, seed=3, dtype=dtype))
    bias = normal(setting.filters, seed=4, dtype=dtype)
    given = setting.settings
    yield "conv2d", [x, weight, bias, second(garbage(setting.y, dtype))], given
    yield "conv2d_derivative", [dy, weight, first(garbage(setting.x, dtype))], given
    yield "conv2d_gradient", [x, dy, filters(garbage(setting.weight, dtype))], given


def exact(name: str, tensors: list[Array | None], settings: dict[str, Any]) -> Array:
    """The result of the reference in float64."""
    doubles = [None if t is None else np.array(t, np.float64, order="C") for t in tensors]
    run(NUMPY, name, doubles, settings)
    return doubles[-1]


@every_setting
def test_three_directions_in_double_precision(cuda, setting):
    for name, tensors, settings in three(setting, np.float64):
        run(cuda, name, tensors, settings)
        np.testing.assert_allclose(tensors[-1], exact(name, tensors, settings), rtol=1e-12, atol=1e-12, err_msg=name)


@packed_settings
@every_pair
@every_filter
def test_three_directions_in_all_layouts(cuda, setting, first, second, filters):
    for name, tensors, settings in three(setting, np.float32, first, second, filters):
        check(cuda, name, tensors, settings, roundings=64)


@packed_settings
def test_bits_are_the_same_in_all_layouts(cuda, setting):
    found: dict[str, set[bytes]] = {}
    for first, second in LAYOUTS.values():
        for name, tensors, settings in three(setting, np.float32, first, second, channels_last):
            run(cuda, name, tensors, settings)
            found.setdefault(name, set()).add(tensors[-1].tobytes())
    assert {name: len(bits) for name, bits in found.items()} == dict.fromkeys(found, 1)


@pytest.mark.parametrize("setting", [PACKED["square tiles"], PACKED["depthwise"]], ids=["dense", "depthwise"])
@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
def test_activations(cuda, setting, activation, with_bias):
    x, weight = channels_last(normal(*setting.x)), channels_last(normal(*setting.weight, seed=3))
    bias = np.repeat(normal(setting.filters, seed=4), 2)[::2] if with_bias else None
    tensors = [x, weight, bias, channels_last(garbage(setting.y, np.float32))]
    check(cuda, "conv2d_activation", tensors, {**setting.settings, "activation": activation}, roundings=64)


def test_relu_keeps_nan(cuda):
    setting = PACKED["square tiles"]
    x = normal(*setting.x)
    x[0] = np.nan
    tensors = [x, normal(*setting.weight), None, garbage(setting.y, np.float32)]
    run(cuda, "conv2d_activation", tensors, {**setting.settings, "activation": "relu"})
    assert np.isnan(tensors[-1][0]).all() and np.isfinite(tensors[-1][1:]).all()


@pytest.mark.parametrize("setting", [PACKED["square tiles"], PACKED["depthwise"]], ids=["dense", "depthwise"])
def test_what_is_outside_the_window_does_not_matter(cuda, setting):
    """NaN of one image stays in it: zeros are put for padding and unfull tiles, never products by zero."""
    for name, tensors, settings in three(setting, np.float32, channels_last, channels_last, channels_last):
        if name != "conv2d_gradient":
            tensors[0][1] = np.nan
            run(cuda, name, tensors, settings)
            assert np.isfinite(tensors[-1][0]).all(), name
            assert np.isnan(tensors[-1][1]).any(), name


@pytest.mark.parametrize("setting", [Setting((3, 4, 31, 37), 5, (3, 3)), Setting((3, 8, 31, 37), 8, (3, 3), groups=8)])
def test_gradients_of_many_places_are_summed_in_splits(cuda, setting):
    splits = filter_sums.splits_for(3 * 29 * 35, 1, image(*setting.weight))
    assert 8 < splits.number <= filter_sums.MOST_SPLITS
    assert (splits.number - 1) * splits.each < 3 * 29 * 35 <= splits.number * splits.each
    (*_, (name, tensors, settings)) = three(setting, np.float32, channels_last, channels_last, channels_last)
    check(cuda, name, tensors, settings, roundings=64)


def test_splits_have_bounds():
    for positions in (1, 127, 128, 4099, 3 << 20):
        for tiles in (1, 7, 5000):
            for k in (1, 64, 2048):
                weight = image(k, 512, 3, 3)
                splits = filter_sums.splits_for(positions, tiles, weight)
                assert (splits.number - 1) * splits.each < positions <= splits.number * splits.each
                assert splits.number == 1 or splits.number * weight.size * 4 <= filter_sums.MOST_BYTES


@packed_settings
def test_halves_are_summed_in_float32(cuda, setting):
    for name, tensors, settings in three(setting, np.float16, channels_last, channels_last, channels_last):
        run(cuda, name, tensors, settings)
        wanted = exact(name, tensors, settings)
        np.testing.assert_allclose(tensors[-1], wanted, rtol=2**-10, atol=1e-4, err_msg=name)


def test_which_kernel_serves():
    def files(c: int, k: int, groups: int) -> list[str]:
        x, weight, y = image(2, c, 9, 9), image(k, c // groups, 3, 3), image(2, k, 7, 7)
        settings = {"window": Window((3, 3)), "groups": groups}
        return [launch.file for launch in convolution.conv2d(x, weight, None, y, **settings).launches]

    assert files(32, 32, 32) == files(32, 64, 32) == ["copy.cu", depthwise.FILE]
    assert files(1, 6, 1) == files(32, 64, 8) == files(4, 64, 4) == [convolution.FILE]


def test_what_is_not_served(cuda):
    setting = SETTINGS["plain"]
    x, weight, y = (np.zeros(shape, np.float32) for shape in (setting.x, setting.weight, setting.y))
    assert serves(cuda, "conv2d", [x, weight, None, y], setting.settings)
    assert not serves(cuda, "conv2d", [x, weight.astype("f8"), None, y], setting.settings)
    assert not serves(cuda, "conv2d", [x.astype("i4"), weight.astype("i4"), None, y.astype("i4")], setting.settings)
    assert not serves(cuda, "conv2d_activation", [x, weight, None, y], {**setting.settings, "activation": "gelu"})
