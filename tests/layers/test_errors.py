"""What layers refuse: each error names the layer, what was wanted and what was received."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from singa_lite import device, layers
from singa_lite.errors import ShapeError
from singa_lite.layer import Context, Layer

Make = Callable[[], Layer]

WINDOWED = {
    "Conv2D": lambda *args, **options: layers.Conv2D("here", 4, *args, **options),
    "MaxPooling2D": lambda *args, **options: layers.MaxPooling2D("here", *args, **options),
    "AvgPooling2D": lambda *args, **options: layers.AvgPooling2D("here", *args, **options),
}
ALONG = {
    "Conv1D": lambda *args, **options: layers.Conv1D("here", 4, *args, **options),
    "MaxPooling1D": lambda *args, **options: layers.MaxPooling1D("here", *args, **options),
    "AvgPooling1D": lambda *args, **options: layers.AvgPooling1D("here", *args, **options),
}

# options, and what the error must say besides the layer's name
BAD_WINDOWS: list[tuple[dict[str, Any], str]] = [
    ({"kernel": 0}, r"kernel to be an integer or a pair \(height, width\), at least 1, received 0"),
    ({"kernel": -3}, r"kernel .* received -3"),
    ({"kernel": 2.0}, r"kernel .* received 2\.0"),
    ({"kernel": "3"}, r"kernel .* received '3'"),
    ({"kernel": True}, r"kernel .* received True"),
    ({"kernel": (3, 0)}, r"kernel .* received \(3, 0\)"),
    ({"kernel": (3,)}, r"kernel .* received \(3,\)"),
    ({"kernel": (3, 3, 3)}, r"kernel .* received \(3, 3, 3\)"),
    ({"stride": 0}, r"stride .* received 0"),
    ({"stride": (1, -1)}, r"stride .* received \(1, -1\)"),
    ({"border_mode": "full"}, r"border_mode 'same' or 'valid', received 'full'"),
    ({"border_mode": "full", "pad": 1}, r"border_mode 'same' or 'valid', received 'full'"),
    (
        {"kernel": 4, "border_mode": "same"},
        r"odd kernel for border_mode 'same', received 4; use border_mode='valid' or pad=",
    ),
    ({"kernel": (3, 2), "border_mode": "same"}, r"odd kernel .* received \(3, 2\)"),
    ({"pad": -1}, r"pad to be an integer or \(height, width\) or \(top, bottom, left, right\).* received -1"),
    ({"pad": 0.5}, r"pad .* received 0\.5"),
    ({"pad": (1, 1, 1)}, r"pad .* received \(1, 1, 1\)"),
    ({"pad": (0, 0, 0, -1)}, r"pad .* received \(0, 0, 0, -1\)"),
]
BAD_ALONG: list[tuple[dict[str, Any], str]] = [
    ({"kernel": (3, 3)}, r"kernel to be an integer, at least 1, received \(3, 3\)"),
    ({"stride": 0}, r"stride to be an integer, at least 1, received 0"),
    ({"kernel": 2, "border_mode": "same"}, r"odd kernel for border_mode 'same'"),
    ({"pad": (1, 1, 1, 1)}, r"pad to be an integer or \(left, right\), at least 0, received \(1, 1, 1, 1\)"),
    ({"pad": (-1, 1)}, r"pad .* received \(-1, 1\)"),
]


@pytest.mark.parametrize("make", WINDOWED.values(), ids=WINDOWED)
@pytest.mark.parametrize(("options", "wanted"), BAD_WINDOWS)
def test_windows_over_images(make, options, wanted):
    with pytest.raises(ValueError, match=f"layer 'here': wanted .*{wanted}"):
        make(**options)


@pytest.mark.parametrize("make", ALONG.values(), ids=ALONG)
@pytest.mark.parametrize(("options", "wanted"), BAD_ALONG)
def test_windows_along_sequences(make, options, wanted):
    with pytest.raises(ValueError, match=f"layer 'here': wanted .*{wanted}"):
        make(**options)


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: layers.Dense("here", 0), "num_output to be an integer of at least 1, received 0"),
        (lambda: layers.Dense("here", 2.5), "num_output .* received 2.5"),
        (lambda: layers.Conv2D("here", -1), "nb_kernels to be an integer of at least 1, received -1"),
        (lambda: layers.Conv2D("here", 4, groups=0), "groups to be an integer of at least 1, received 0"),
        (lambda: layers.Conv2D("here", 4, groups=3), "groups to divide the 4 kernels, received 3"),
        (lambda: layers.Conv2D("here", 4, dilation=0), "dilation .* received 0"),
        (lambda: layers.Conv1D("here", 4, border_mode="causal", pad=1), "pad or border_mode 'causal'.* received 1"),
        (lambda: layers.Conv2D("here", 4, border_mode="causal"), "'same' or 'valid', received 'causal'"),
        (lambda: layers.Conv1DTranspose("here", 4, border_mode="causal"), "'same' or 'valid', received 'causal'"),
        (lambda: layers.MaxPooling1D("here", 4, border_mode="causal"), "'same' or 'valid', received 'causal'"),
        (lambda: layers.Conv1D("here", 4, dilation=(1, 2)), r"dilation to be an integer.* received \(1, 2\)"),
        (
            lambda: layers.MaxPooling2D("here", 2, pad=2),
            r"pads below the kernel's extents \(2, 2\), received",
        ),
        (lambda: layers.AvgPooling2D("here", (2, 3), pad=(0, 3)), "pads below the kernel's extents"),
        (lambda: layers.AvgPooling1D("here", 2, pad=(0, 2)), "pads below the kernel's extents"),
        (lambda: layers.BatchNormalization("here", 1.5), "momentum to be a number from 0 to 1, received 1.5"),
        (lambda: layers.BatchNormalization("here", epsilon=0), "epsilon to be a number above 0, received 0"),
        (lambda: layers.BatchNormalization("here", epsilon=-1), "epsilon .* received -1"),
        (lambda: layers.LayerNormalization("here", 0), "integer axis other than 0, the batch, received 0"),
        (lambda: layers.LayerNormalization("here", epsilon=float("nan")), "epsilon .* received nan"),
        (lambda: layers.LRN("here", 4), "size to be odd, received 4"),
        (lambda: layers.LRN("here", 0), "size to be an integer of at least 1, received 0"),
        (
            lambda: layers.LRN("here", mode="within_channel"),
            "mode 'cross_channel', .* received 'within_channel'",
        ),
        (lambda: layers.LRN("here", alpha=-1), "alpha to be a number of at least 0, received -1"),
        (lambda: layers.LRN("here", beta=float("inf")), "beta .* received inf"),
        (lambda: layers.LRN("here", k=0), "k to be a number above 0, received 0"),
        (lambda: layers.L2Norm("here", (5,)), r"epsilon to be a number of at least 0, received \(5,\)"),
        (lambda: layers.Activation("here", "swish"), "mode of relu, relu6, .*, received 'swish'"),
        (lambda: layers.Activation("here", slope=0.1), "slope with mode 'leaky_relu' only, .* mode 'relu'"),
        (lambda: layers.Activation("here", "leaky_relu", alpha=1), "alpha with mode 'elu' only"),
        (
            lambda: layers.Activation("here", "leaky_relu", slope=0),
            "slope to be a number above 0, received 0",
        ),
        (lambda: layers.Activation("here", "elu", alpha=-1), "alpha .* received -1"),
        (lambda: layers.Softmax("here", 0), "integer axis other than 0, the batch, received 0"),
        (lambda: layers.Softmax("here", 1.0), "integer axis .* received 1.0"),
        (lambda: layers.Dropout("here", 1), "p, the probability to drop, below 1, received 1"),
        (lambda: layers.Dropout("here", -0.1), "p to be a number from 0 to 1, received -0.1"),
        (lambda: layers.Dropout("here", "half"), "p .* received 'half'"),
        (lambda: layers.Flatten("here", 0), "integer axis other than 0, the batch, received 0"),
        (lambda: layers.Reshape("here", (-1, 2, -1)), r"sample shape .* received \(-1, 2, -1\)"),
        (lambda: layers.Reshape("here", (0, 2)), r"sample shape .* received \(0, 2\)"),
        (lambda: layers.Reshape("here", 12), "sample shape .* received 12"),
        (lambda: layers.Reshape("here", "12"), "sample shape .* received '12'"),
        (lambda: layers.Split("here", 0), "num_output to be an integer of at least 1, received 0"),
        (lambda: layers.Concat("here", 0), "integer axis other than 0, the batch, received 0"),
        (lambda: layers.Slice("here", 0, [1]), "integer axis other than 0, the batch, received 0"),
        (lambda: layers.Slice("here", 1, []), r"slice_point to be rising numbers from 1 on, received \[\]"),
        (lambda: layers.Slice("here", 1, [2, 2]), r"rising numbers from 1 on, received \[2, 2\]"),
        (lambda: layers.Slice("here", 1, [0, 2]), r"rising numbers from 1 on, received \[0, 2\]"),
        (lambda: layers.Slice("here", 1, 2), "rising numbers from 1 on, received 2"),
        (lambda: layers.Slice("here", 1, "12"), "rising numbers from 1 on, received '12'"),
    ],
)
def test_arguments(make: Make, wanted: str):
    with pytest.raises(ValueError, match=f"layer 'here': wanted .*{wanted}"):
        make()


@pytest.mark.parametrize(
    ("make", "shapes", "wanted"),
    [
        (lambda: layers.Dense("here", 2), [()], r"input sample \(\.\.\., features\), received \(\)"),
        (lambda: layers.Conv2D("here", 2), [(3, 4)], r"\(channels, height, width\), received \(3, 4\)"),
        (lambda: layers.Conv2D("here", 2, groups=2), [(3, 4, 5)], r"2 groups divide, .* \(3, 4, 5\)"),
        (
            lambda: layers.Conv2D("here", 2, 5, border_mode="valid"),
            [(3, 4, 7)],
            r"an image of at least 5 x 5 with its padding, received 4 x 7",
        ),
        (lambda: layers.Conv2D("here", 2, 3, dilation=2, pad=0), [(3, 4, 7)], "at least 5 x 5"),
        (lambda: layers.Conv1D("here", 2), [(7,)], r"\(channels, length\), received \(7,\)"),
        (lambda: layers.Conv1D("here", 2, 9, pad=1), [(3, 6)], "at least 1 x 9"),
        (lambda: layers.MaxPooling2D("here"), [(3,)], r"\(channels, height, width\), received \(3,\)"),
        (lambda: layers.AvgPooling2D("here", 4, pad=0), [(3, 3, 9)], "at least 4 x 4"),
        (lambda: layers.AvgPooling1D("here"), [(3, 4, 5)], r"\(channels, length\), received \(3, 4, 5\)"),
        (lambda: layers.GlobalAvgPooling2D("here"), [(3, 4)], r"received \(3, 4\)"),
        (lambda: layers.BatchNormalization("here"), [()], r"\(channels, \.\.\.\), received \(\)"),
        (lambda: layers.LRN("here"), [()], r"\(channels, \.\.\.\), received \(\)"),
        (lambda: layers.LayerNormalization("here", 3), [(4, 5)], r"from 1 to 2 .* \(4, 5\), received 3"),
        (lambda: layers.Softmax("here", -3), [(4, 5)], r"from 1 to 2 .* \(4, 5\), received -3"),
        (lambda: layers.Flatten("here", 3), [(4, 5)], r"from 1 to 2 .* \(4, 5\), received 3"),
        (lambda: layers.Reshape("here", (5, -1)), [(4, 3)], r"fit shape \(5, -1\), received 12 .* \(4, 3\)"),
        (lambda: layers.Reshape("here", (5, 2)), [(4, 5)], r"fit shape \(5, 2\), received 20 .* \(4, 5\)"),
        (lambda: layers.Merge("here"), [(4, 5)], "two inputs or more, received 1"),
        (lambda: layers.Merge("here"), [(4,), (5,)], r"equal sample shapes, received \[\(4,\), \(5,\)\]"),
        (lambda: layers.Multiply("here"), [], "two inputs or more, received 0"),
        (lambda: layers.Multiply("here"), [(4,), (4, 1)], r"equal sample shapes, received"),
        (lambda: layers.Concat("here", 1), [(4, 5)], "two inputs or more, received 1"),
        (lambda: layers.Concat("here", 1), [(4, 5), (4, 6)], "equal shapes but for axis 1, received"),
        (lambda: layers.Concat("here", 2), [(4, 5), (4, 6, 1)], "equal shapes but for axis 2, received"),
        (lambda: layers.Concat("here", 2), [(4, 5), (4,)], r"axis 2, received \[\(4, 5\), \(4,\)\]"),
        (lambda: layers.Concat("here", 3), [(4, 5), (4, 6)], "from 1 to 2 .* received 3"),
        (lambda: layers.Slice("here", 1, [2, 5]), [(5, 9)], r"below 5, .* \(5, 9\), received \(2, 5\)"),
        (lambda: layers.Slice("here", 3, [1]), [(5, 9)], "from 1 to 2 .* received 3"),
    ],
)
def test_input_shapes(make: Make, shapes: list[tuple[int, ...]], wanted: str):
    layer = make()
    with pytest.raises(ShapeError, match=f"layer 'here': wanted .*{wanted}"):
        layer.prepare(shapes, Context(device.cpu(), np.dtype(np.float32), 0))
    assert not layer.parameters
    assert not layer.states


SINGLE: dict[str, Make] = {
    "Dense": lambda: layers.Dense("here", 2),
    "Conv2D": lambda: layers.Conv2D("here", 2),
    "MaxPooling1D": lambda: layers.MaxPooling1D("here"),
    "BatchNormalization": lambda: layers.BatchNormalization("here"),
    "LayerNormalization": lambda: layers.LayerNormalization("here"),
    "L2Norm": lambda: layers.L2Norm("here"),
    "Activation": lambda: layers.Activation("here"),
    "Softmax": lambda: layers.Softmax("here"),
    "Dropout": lambda: layers.Dropout("here"),
    "Flatten": lambda: layers.Flatten("here"),
    "Reshape": lambda: layers.Reshape("here", (1,)),
    "Split": lambda: layers.Split("here", 2),
    "Slice": lambda: layers.Slice("here", 1, [1]),
    "Dummy": lambda: layers.Dummy("here"),
}


@pytest.mark.parametrize("make", SINGLE.values(), ids=SINGLE)
@pytest.mark.parametrize("shapes", [[], [(3, 4), (3, 4)]], ids=["none", "two"])
def test_layers_of_one_input_refuse_other_numbers(make, shapes):
    with pytest.raises(ShapeError, match=f"layer 'here': wanted one input, received {len(shapes)}"):
        make().prepare(shapes, Context(device.cpu(), np.dtype(np.float32), 0))


@pytest.mark.parametrize("name", ["", "a/b", 3, "half \ud800 a letter"])
def test_names(name: Any):
    with pytest.raises(ValueError, match="layer name: wanted"):
        layers.Dense(name=name, num_output=2)


@pytest.mark.parametrize("option", ["weight_init", "bias_init"])
def test_an_unknown_initializer_is_refused_at_once(option):
    with pytest.raises(ValueError, match="received 'nonsense'"):
        layers.Dense("here", 2, **{option: "nonsense"})
