"""Convolution of the NumPy set in three directions: settings of all kinds, in pieces of all sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from every_row import over_rows
from kernel_case import garbage, run
from kernel_formulas import conv2d, conv2d_derivative, conv2d_gradient
from singa_lite.errors import ShapeError
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.numpy_kernels import NUMPY, convolution


class Setting(NamedTuple):
    """One convolution: x's shape, filters, window and groups."""

    x: tuple[int, int, int, int]
    filters: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def weight(self) -> tuple[int, int, int, int]:
        """Shape of the weight."""
        return self.filters, self.x[1] // self.groups, *self.kernel

    @property
    def window(self) -> Window:
        """What slides over x."""
        return Window(self.kernel, self.stride, self.pad, self.dilation)

    @property
    def y(self) -> tuple[int, int, int, int]:
        """Shape of the output."""
        return self.x[0], self.filters, *self.window.positions("y", self.x[2:])

    @property
    def settings(self) -> dict[str, Any]:
        """The kernel's settings."""
        return {"window": self.window, "groups": self.groups}


SETTINGS = {
    "plain": Setting((2, 3, 5, 7), 4, (3, 2)),
    "padded": Setting((2, 3, 5, 7), 4, (3, 2), pad=(1, 2, 0, 1)),
    "strided": Setting((2, 3, 9, 8), 4, (3, 2), stride=(2, 3), pad=(1, 0, 2, 1)),
    "dilated": Setting((2, 3, 9, 8), 4, (3, 2), pad=(1, 0, 2, 1), dilation=(3, 2)),
    "grouped": Setting((2, 6, 5, 7), 9, (2, 3), pad=(1, 1, 0, 1), groups=3),
    "depthwise": Setting((2, 3, 5, 7), 3, (3, 2), pad=(1, 1, 1, 0), groups=3),
    "multiplied depthwise": Setting((2, 3, 5, 7), 6, (3, 2), stride=(2, 1), groups=3),
    "pointwise": Setting((2, 3, 7, 5), 4, (1, 1)),
    "pointwise, grouped": Setting((2, 6, 7, 5), 9, (1, 1), groups=3),
    "pointwise, few positions": Setting((5, 3, 2, 3), 4, (1, 1)),
    "pointwise, strided": Setting((2, 3, 7, 5), 4, (1, 1), stride=(2, 3)),
    "pointwise, padded": Setting((2, 3, 7, 5), 4, (1, 1), pad=(1, 0, 2, 0)),
    "one position": Setting((3, 2, 4, 5), 6, (4, 5)),
    "stride beyond the window": Setting((2, 3, 9, 8), 4, (2, 1), stride=(4, 3)),
    "windows in the padding alone": Setting((2, 3, 2, 3), 4, (2, 2), pad=(3, 4, 2, 5)),
}
KINDS = {"float64": (np.float64, 1e-12), "float32": (np.float32, 1e-5), "with gaps": (np.float64, 1e-12)}


def tensors(setting: Setting, dtype: Any = np.float64) -> tuple[np.ndarray, ...]:
    """x, weight, bias, dy."""
    rng = np.random.default_rng(11)
    shapes = setting.x, setting.weight, (setting.filters,), setting.y
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def convolve(
    setting: Setting, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, dy: np.ndarray
) -> tuple[np.ndarray, ...]:
    """y, dx and dweight from the kernels."""
    y, dx, dweight = (garbage(shape, x.dtype) for shape in (setting.y, setting.x, setting.weight))
    run(NUMPY, "conv2d", [x, weight, bias, y], setting.settings)
    run(NUMPY, "conv2d_derivative", [dy, weight, dx], setting.settings)
    run(NUMPY, "conv2d_gradient", [x, dy, dweight], setting.settings)
    return y, dx, dweight


def equals_the_formulas(setting: Setting, kind: str) -> None:
    dtype, tolerance = KINDS[kind]
    x, weight, bias, dy = tensors(setting, dtype)
    if kind == "with gaps":
        x, weight, dy = (np.repeat(t, 2, axis=-1)[..., ::2] for t in (x, weight, dy))
    wide = [t.astype(float) for t in (x, weight, dy)]
    wanted = (
        conv2d(wide[0], wide[1], bias, **setting.settings),
        conv2d_derivative(wide[2], wide[1], setting.x, **setting.settings),
        conv2d_gradient(wide[0], wide[2], **setting.settings),
    )
    for got, right in zip(convolve(setting, x, weight, bias, dy), wanted, strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, right, rtol=tolerance, atol=tolerance)


#: Bytes of tiles and products: as they are, and so few that the settings are cut into images, rows, and all there is.
@pytest.mark.parametrize("cut", [None, 6000, 1000, 1], ids=["whole", "images", "rows", "smallest"])
def test_equals_the_formulas_however_it_is_cut(cut, monkeypatch):
    for name in ("TILE", "SMALL", "PRODUCT") if cut else ():
        monkeypatch.setattr(convolution, name, cut)
    over_rows(equals_the_formulas, ((f"{n}, {k}", (s, k)) for n, s in SETTINGS.items() for k in KINDS))


@pytest.mark.parametrize("name", ["plain", "pointwise", "depthwise"])
def test_an_empty_batch_has_gradient_zero(name):
    setting = SETTINGS[name]._replace(x=(0, *SETTINGS[name].x[1:]))
    y, dx, dweight = convolve(setting, *tensors(setting))
    assert y.shape == setting.y and dx.shape == setting.x
    assert not dweight.any()


def test_scratch_does_not_grow_with_the_images():
    setting = Setting((64, 32, 224, 224), 48, (3, 3), pad=(1, 1, 1, 1))
    x, weight, y = (np.broadcast_to(np.float32(0), shape) for shape in (setting.x, setting.weight, setting.y))
    calls = {"conv2d": (x, weight, None, y), "conv2d_derivative": (y, weight, x), "conv2d_gradient": (x, y, weight)}
    for name, given in calls.items():
        assert NUMPY.scratch_bytes(name, given, setting.settings) < 4 * 2**20


# --- windows: how many of them fit, and which are refused

WINDOW = Window((3, 2), stride=(2, 1), pad=(1, 0, 0, 3), dilation=(2, 3))


def test_what_it_spans_and_counts():
    assert WINDOW.taps == 6
    assert WINDOW.span == (5, 4)
    assert WINDOW.pad_before == (1, 0) and WINDOW.pad_behind == (0, 3)
    assert WINDOW.positions("here", (8, 5)) == (3, 5)
    assert WINDOW.positions("here", (4, 1)) == (1, 1)


@pytest.mark.parametrize("extents", [(3, 1), (4, 0)])
def test_an_image_must_hold_one(extents):
    with pytest.raises(ShapeError, match=r"here.*5 x 4"):
        WINDOW.positions("here", extents)


@pytest.mark.parametrize("pad", [(3, 0, 0, 0), (0, 3, 0, 0), (0, 0, 2, 0), (0, 0, 0, 2)])
def test_pads_below_the_extents_are_told_from_others(pad):
    Window((3, 2), pad=(2, 2, 1, 1)).check_pads("here")
    with pytest.raises(ShapeError, match=r"here.*\(3, 2\)"):
        Window((3, 2), pad=pad).check_pads("here")
