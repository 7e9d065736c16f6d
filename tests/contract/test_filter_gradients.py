"""The gradient by the filters in each of its ways: against float64, and equal bits wherever the tensors lie."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from kernel_case import garbage, run
from layouts import PAIRS, c_order, check
from singa_lite.errors import DeviceError
from singa_lite.kernels.choice import cpu_kernels
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import KernelSet, specs_of
from singa_lite.kernels.onednn_kernels import blocked_gradient
from singa_lite.kernels.variants import using_choices

NAME = "conv2d_gradient"
WAYS = ("direct", "product", "blocked")


class Setting(NamedTuple):
    """One convolution: x's shape, filters, window and groups."""

    x: tuple[int, int, int, int]
    filters: int
    window: Window
    groups: int = 1

    @property
    def settings(self) -> dict[str, Any]:
        """The kernel's settings."""
        return {"window": self.window, "groups": self.groups}

    def tensors(self) -> list[np.ndarray]:
        """x, dy and dweight in C order."""
        random = np.random.default_rng(5)
        dy = self.x[0], self.filters, *self.window.positions("dy", self.x[2:])
        x, slopes = (random.standard_normal(shape).astype(np.float32) for shape in (self.x, dy))
        return [x, slopes, garbage((self.filters, self.x[1] // self.groups, *self.window.kernel), np.float32)]


SETTINGS = {
    "pixels": Setting((3, 5, 7, 9), 11, Window((1, 1))),
    "pixels, packs of channels": Setting((2, 16, 6, 5), 24, Window((1, 1))),
    "pixels, many": Setting((3, 33, 41, 37), 65, Window((1, 1))),
    "pixels, strided": Setting((3, 5, 7, 9), 6, Window((1, 1), (2, 3))),  # the fourth row is the next image's
    "pixels, strided, packs": Setting((2, 16, 8, 10), 24, Window((1, 1), (2, 2))),
    "pixels of one channel": Setting((4, 1, 3, 5), 7, Window((1, 1))),
    "one filter of single pixels": Setting((4, 6, 3, 5), 1, Window((1, 1))),
    "one pixel": Setting((5, 6, 1, 1), 7, Window((1, 1))),
    "pixels, padded": Setting((2, 3, 7, 5), 4, Window((1, 1), pad=(1, 0, 2, 0))),
    "pixels in groups": Setting((2, 6, 7, 5), 9, Window((1, 1)), 3),
    "larger": Setting((2, 16, 6, 5), 24, Window((3, 2), pad=(1, 1, 1, 0))),
    "larger, strided": Setting((2, 8, 9, 11), 16, Window((3, 3), (2, 1), (1, 0, 1, 2))),
    "larger, dilated": Setting((2, 8, 9, 11), 16, Window((3, 2), (1, 1), (1, 0, 1, 2), (2, 3))),
    "a first one": Setting((2, 3, 13, 11), 16, Window((7, 5), (2, 2), (3, 3, 2, 2))),
    "groups": Setting((2, 16, 7, 5), 24, Window((3, 3), pad=(1, 1, 1, 1)), 2),
    "depthwise": Setting((2, 16, 7, 5), 16, Window((3, 3), pad=(1, 1, 1, 1)), 16),
}

settings = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(scope="module")
def onednn() -> KernelSet:
    """The set that has the ways."""
    try:
        return cpu_kernels("onednn")
    except DeviceError as error:
        pytest.skip(f"{error}; pip install onednn-cpu-gomp")


def kernels_last(a: np.ndarray) -> np.ndarray:
    """The same filters, kernels innermost."""
    return np.ascontiguousarray(a.transpose(2, 3, 1, 0)).transpose(3, 2, 0, 1)


def by(onednn: KernelSet, way: str, setting: Setting) -> Any:
    """A context in which this call goes this way, if it can."""
    variants = onednn.kernels[NAME].variants
    return using_choices({variants.call_name(specs_of(setting.tensors()), setting.settings): way})


@settings
@ways
def test_equals_float64_with_the_same_bits_wherever_tensors_lie(onednn, setting, way):
    x, dy, dweight = setting.tensors()
    seen = set()
    with by(onednn, way, setting):
        for of_x, of_dy in PAIRS.values():
            for of_dweight in (c_order, kernels_last):
                result = of_dweight(dweight)
                run(onednn, NAME, [of_x(x), of_dy(dy), result], setting.settings)
                seen.add(result.tobytes())
        check(onednn, NAME, [of_x(x), of_dy(dy), kernels_last(dweight)], setting.settings, 64)
    assert len(seen) == 1


@pytest.mark.parametrize(("nbytes", "filters"), [(1, 16), (30_000, 16), (30_000, 13)])
def test_samples_in_pieces_of_one_or_two_lengths(onednn, nbytes, filters, monkeypatch):
    """13 filters are padded in blocks, so that pieces' sums do not fit into dweight."""
    monkeypatch.setattr(blocked_gradient, "PIECE_BYTES", nbytes)
    setting = Setting((5, 8, 13, 12), filters, Window((3, 3), pad=(1, 0, 1, 1)))
    x, dy, dweight = setting.tensors()
    seen = set()
    with by(onednn, "blocked", setting):
        for of_x, of_dy in PAIRS.values():
            result = kernels_last(dweight)
            check(onednn, NAME, [of_x(x), of_dy(dy), result], setting.settings, 64)
            seen.add(result.tobytes())
    assert len(seen) == 1
