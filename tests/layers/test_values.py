"""Values of the layers, worked out by hand or in plain NumPy."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from run_layer import RNG, prepared, random_layer, run, state
from singa_lite import device, layers, tensor
from singa_lite.layer import Layer
from singa_lite.layers.activation import MODES

#: Files that have the values of some layers.
BESIDE = (
    "test_everyday.py",
    "test_composites.py",
    "test_multi_head_attention.py",
    "test_recurrent.py",
    "test_sequences.py",
)


def test_every_layer_and_mode_has_its_values_here():
    offered = {name for name, made in vars(layers).items() if inspect.isclass(made) and issubclass(made, Layer)}
    texts = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in (Path(__file__).name, *BESIDE)]
    missing = offered - {name for text in texts for name in re.findall(r"layers\.(\w+)\(", text)}
    assert not missing, f"layers without values worked out in {Path(__file__).name} or {BESIDE}: {sorted(missing)}"
    assert ACTIVATIONS.keys() == MODES.keys()


# ---- Dense


def test_dense():
    given = {"weight": [[1, 0, -1], [2, 1, 0]], "bias": [0.5, 0, 1]}
    y = run(layers.Dense("d", 3), [[1, 2], [3, 4]], parameters=given)
    np.testing.assert_array_equal(y, [[5.5, 2, 0], [11.5, 4, -2]])


def test_dense_without_a_bias():
    layer = layers.Dense("d", 2, use_bias=False)
    np.testing.assert_array_equal(run(layer, [[3]], parameters={"weight": [[1, 2]]}), [[3, 6]])
    assert layer.param_names() == ["d/weight"]


# ---- convolution: kernels of powers of ten show which element came from where


def test_conv2d_pads_each_side_by_its_own_number():
    layer = layers.Conv2D("c", 1, 2, pad=(1, 0, 0, 2))
    y = run(layer, [[[[1, 2, 3], [4, 5, 6]]]], parameters={"weight": [1, 10, 100, 1000], "bias": [0]})
    np.testing.assert_array_equal(y, [[[[2100, 3200, 300, 0], [5421, 6532, 603, 0]]]])


def test_conv1d_strides_dilates_and_pads():
    layer = layers.Conv1D("c", 1, 3, 3, pad=(1, 2), dilation=2)
    y = run(layer, [[[1, 2, 3, 4, 5, 6, 7]]], parameters={"weight": [1, 10, 100], "bias": [0.5]})
    np.testing.assert_array_equal(y, [[[420.5, 753.5]]])


def test_poolings_rounded_up_take_what_is_left():
    x = [[[1, 2, 3, 4, 5]]]
    np.testing.assert_array_equal(run(layers.MaxPooling1D("p", 2, 2, ceil_mode=True), x), [[[2, 4, 5]]])
    np.testing.assert_array_equal(run(layers.AvgPooling1D("p", 2, 2, ceil_mode=True), x), [[[1.5, 3.5, 5]]])
    # Padding counts, what lies behind it does not, and no window begins in the padding behind.
    y = run(layers.AvgPooling1D("p", 3, 3, pad=(1, 1), ceil_mode=True), x)
    np.testing.assert_array_equal(y, [[[1, 4]]])
    y = run(layers.AvgPooling1D("p", 4, 3, pad=(1, 0), ceil_mode=True), x)
    np.testing.assert_array_equal(y, [[[1.5, 4]]])  # (3 + 4 + 5) / 3


def test_conv1d_causal_sees_nothing_that_comes_later():
    layer = layers.Conv1D("c", 1, 3, padding="causal", dilation=2)
    x = [[[1, 2, 3, 4, 5, 6]]]
    y = run(layer, x, parameters={"weight": [100, 10, 1], "bias": [0.5]})
    np.testing.assert_array_equal(y, [[[1.5, 2.5, 13.5, 24.5, 135.5, 246.5]]])
    every_other = layers.Conv1D("c", 1, 3, 2, padding="causal", dilation=2)
    np.testing.assert_array_equal(run(every_other, x, parameters={"weight": [100, 10, 1], "bias": [0.5]}), y[..., ::2])
    assert run(layers.Conv1D("c", 1, 1, padding="causal"), x).shape == (1, 1, 6)


def test_conv2d_groups_see_their_own_channels():
    layer = layers.Conv2D("c", 2, 1, groups=2)
    x = np.array([1.0, 2, 3, 4]).reshape(1, 4, 1, 1)
    y = run(layer, x, parameters={"weight": [1, 10, 100, 1000], "bias": [0, 0.5]})
    np.testing.assert_array_equal(y.ravel(), [21, 4300.5])


def test_depthwise_kernels_follow_their_channel():
    layer = layers.Conv2D("c", 4, 1, groups=2, use_bias=False)
    y = run(layer, np.array([1.0, 2]).reshape(1, 2, 1, 1), parameters={"weight": [1, 10, 100, 1000]})
    np.testing.assert_array_equal(y.ravel(), [1, 10, 200, 2000])


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "same": ((3, 6, 5), {"nb_kernels": 4}),
    "valid": ((3, 6, 5), {"nb_kernels": 4, "kernel": (2, 3), "border_mode": "valid"}),
    "stride": ((3, 6, 5), {"nb_kernels": 4, "stride": (2, 3)}),
    "pad": ((3, 6, 5), {"nb_kernels": 4, "kernel": (2, 4), "pad": 2}),
    "pair of pads": ((3, 6, 5), {"nb_kernels": 4, "kernel": (2, 4), "pad": (0, 3)}),
    "dilation": ((3, 6, 7), {"nb_kernels": 4, "dilation": (1, 2)}),
    "groups": ((6, 5, 4), {"nb_kernels": 4, "groups": 2, "stride": 2, "use_bias": False}),
    "depthwise": ((3, 6, 5), {"nb_kernels": 6, "groups": 3, "dilation": 2}),
}


@pytest.mark.parametrize(("shape", "options"), CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_conv2d_is_the_sum_that_its_docstring_gives(shape, options):
    layer, values = random_layer(layers.Conv2D, shape, **options)
    x = RNG.standard_normal((2, *shape))
    w, bias, window = values["weight"], values.get("bias"), layer.window
    wanted = np.zeros((2, *layer.get_output_sample_shape()))
    for k, i, j in np.ndindex(wanted.shape[1:]):
        group = k // (w.shape[0] // layer.groups)
        for c, u, v in np.ndindex(w.shape[1:]):
            row = i * window.stride[0] + u * window.dilation[0] - window.pad[0]
            column = j * window.stride[1] + v * window.dilation[1] - window.pad[2]
            if 0 <= row < shape[1] and 0 <= column < shape[2]:
                wanted[:, k, i, j] += w[k, c, u, v] * x[:, group * w.shape[1] + c, row, column]
        wanted[:, k, i, j] += 0 if bias is None else bias[k]
    np.testing.assert_allclose(run(layer, x), wanted, rtol=1e-12, atol=1e-12)


def test_shapes_of_convolutions():
    def output(cls: Any, shape: tuple[int, ...], *args: Any, **options: Any) -> Any:
        return prepared(cls("c", *args, **options), shape).get_output_sample_shape()

    assert output(layers.Conv2D, (3, 224, 112), 4, 3, 2) == (4, 112, 56)
    assert output(layers.Conv2D, (3, 9, 7), 4, (5, 3)) == (4, 9, 7)
    assert output(layers.Conv2D, (3, 9, 7), 4, 3, dilation=2) == (4, 9, 7)
    assert output(layers.Conv2D, (3, 9, 7), 4, 4, border_mode="valid") == (4, 6, 4)
    assert output(layers.Conv2D, (3, 9, 7), 4, 4, pad=(0, 3, 1, 2)) == (4, 9, 7)
    assert output(layers.Conv1D, (3, 9), 4, 5) == (4, 9)
    assert output(layers.Conv1D, (3, 9), 4, 4, 2, pad=(0, 3)) == (4, 5)
    layer = prepared(layers.Conv2D("c", 4, (1, 2), groups=2, border_mode="valid"), (6, 9, 7))
    assert layer.param_names() == ["c/weight", "c/bias"]
    assert [p.shape for p in layer.param_values()] == [(4, 3, 1, 2), (4,)]
    assert prepared(layers.Conv1D("c", 4, 5), (3, 9)).parameters["weight"].shape == (4, 3, 1, 5)


# ---- pooling


def test_max_pooling_never_takes_padding():
    x = -np.arange(1.0, 7).reshape(1, 1, 2, 3)
    y = run(layers.MaxPooling2D("p", 2, 2, pad=(1, 1, 0, 1)), x)
    np.testing.assert_array_equal(y, [[[[-1, -3], [-4, -6]]]])
    np.testing.assert_array_equal(run(layers.MaxPooling1D("p"), [[[-4, -3, -2, -5]]]), [[[-3, -2]]])


def test_average_with_and_without_padding():
    x = [[[[1, 2], [3, 4]]]]
    np.testing.assert_array_equal(run(layers.AvgPooling2D("p", 3, 1), x), [[[[10 / 9] * 2] * 2]])
    pad = (0, 1, 1, 0)
    counted = run(layers.AvgPooling2D("p", 2, 1, pad=pad), x)
    np.testing.assert_array_equal(counted, [[[[1, 2.5], [0.75, 1.75]]]])
    inside = run(layers.AvgPooling2D("p", 2, 1, pad=pad, count_pad=False), x)
    np.testing.assert_array_equal(inside, [[[[2, 2.5], [3, 3.5]]]])


def test_average_along_a_sequence():
    x = [[[2, 4, 6, 8, 10]]]
    np.testing.assert_array_equal(run(layers.AvgPooling1D("p", 2, 3, "valid"), x), [[[3, 9]]])
    np.testing.assert_array_equal(run(layers.AvgPooling1D("p", 4, 3, pad=(2, 0)), x), [[[1.5, 7]]])
    np.testing.assert_array_equal(run(layers.AvgPooling1D("p", 4, 3, pad=(2, 0), count_pad=False), x), [[[3, 7]]])


def test_shapes_of_pooling():
    assert prepared(layers.MaxPooling2D("p"), (3, 224, 112)).get_output_sample_shape() == (3, 112, 56)
    assert prepared(layers.AvgPooling2D("p", (2, 3), (2, 1), "valid"), (3, 7, 5)).get_output_sample_shape() == (3, 3, 3)
    assert prepared(layers.MaxPooling1D("p", 3, 2), (3, 8)).get_output_sample_shape() == (3, 4)


def test_global_average():
    x = np.arange(12.0).reshape(1, 2, 2, 3)
    np.testing.assert_array_equal(run(layers.GlobalAvgPooling2D("p"), x), [[2.5, 8.5]])


# ---- normalization


@pytest.mark.parametrize("shape", [(3,), (3, 5), (3, 5, 4)])
def test_batch_normalization_over_two_steps_and_then_in_evaluation(shape):
    layer = prepared(layers.BatchNormalization("b", 0.3, epsilon=0.01), shape)
    gamma, beta = np.array([1.0, 2, 3]), np.array([-1.0, 0, 1])
    layer.parameters["gamma"].copy_from_numpy(gamma)
    layer.parameters["beta"].copy_from_numpy(beta)
    np.testing.assert_array_equal(state(layer, "running_mean"), [0, 0, 0])
    np.testing.assert_array_equal(state(layer, "running_var"), [1, 1, 1])
    axes = (0, *range(2, len(shape) + 1))

    def normalized(x: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        flat = np.moveaxis(x, 1, -1)
        return np.moveaxis(gamma * (flat - mean) / np.sqrt(var + 0.01) + beta, -1, 1)

    mean, var = np.zeros(3), np.ones(3)
    for _ in range(2):
        x = RNG.normal(2, 3, (6, *shape))
        wanted = normalized(x, x.mean(axes), x.var(axes))
        np.testing.assert_allclose(run(layer, x, training=True), wanted, rtol=1e-12, atol=1e-12)
        mean = 0.7 * mean + 0.3 * x.mean(axes)
        var = 0.7 * var + 0.3 * x.var(axes, ddof=1)
        np.testing.assert_allclose(state(layer, "running_mean"), mean, rtol=1e-12)
        np.testing.assert_allclose(state(layer, "running_var"), var, rtol=1e-12)
    np.testing.assert_allclose(run(layer, x), normalized(x, mean, var), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("axis", "over"), [(-1, (3,)), (3, (3,)), (2, (2, 3)), (-3, (1, 2, 3)), (1, (1, 2, 3))])
def test_layer_normalization(axis, over):
    x = RNG.standard_normal((2, 3, 5, 4))
    layer, values = random_layer(layers.LayerNormalization, (3, 5, 4), axis=axis, epsilon=0.01)
    assert values["gamma"].shape == values["beta"].shape == tuple(x.shape[a] for a in over)
    centered = x - x.mean(over, keepdims=True)
    wanted = values["gamma"] * centered / np.sqrt(x.var(over, keepdims=True) + 0.01) + values["beta"]
    np.testing.assert_allclose(run(layer, x), wanted, rtol=1e-12, atol=1e-12)


def test_normalizations_start_as_plain_ones():
    for layer in (layers.BatchNormalization("b"), layers.LayerNormalization("b", 1)):
        run(layer, RNG.standard_normal((2, 3)))
        gamma, beta = map(tensor.to_numpy, layer.param_values())
        np.testing.assert_array_equal(gamma, [1, 1, 1])
        np.testing.assert_array_equal(beta, [0, 0, 0])
        assert layer.param_names() == ["b/gamma", "b/beta"]


def test_lrn():
    x = RNG.standard_normal((2, 6, 3))
    wanted = np.empty_like(x)
    for c in range(6):
        squares = (x[:, max(c - 1, 0) : c + 2] ** 2).sum(1)
        wanted[:, c] = x[:, c] / (2 + 0.6 / 3 * squares) ** 0.7
    np.testing.assert_allclose(run(layers.LRN("l", 3, 0.6, 0.7, k=2), x), wanted, rtol=1e-12)


def test_l2_norm():
    np.testing.assert_allclose(run(layers.L2Norm("l", 1e-30), [[3, 4], [0, -2]]), [[0.6, 0.8], [0, -1]], rtol=1e-15)
    np.testing.assert_allclose(run(layers.L2Norm("l", 11), [[3, 4]]), [[0.5, 4 / 6]], rtol=1e-15)
    np.testing.assert_array_equal(run(layers.L2Norm("l"), [[0, 0]]), [[0, 0]])


# ---- elementwise and softmax

ACTIVATIONS = {
    "relu": lambda x: max(x, 0),
    "relu6": lambda x: min(max(x, 0), 6),
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "elu": lambda x: x if x > 0 else math.exp(x) - 1,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": math.tanh,
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)),
}


@pytest.mark.parametrize("mode", ACTIVATIONS)
def test_activations(mode):
    x = np.array([[-7, -1.5, -0.25, 0, 0.5, 2, 8.5]])
    wanted = [[ACTIVATIONS[mode](value) for value in x[0]]]
    np.testing.assert_allclose(run(layers.Activation("a", mode), x), wanted, rtol=1e-12, atol=1e-15)


def test_options_of_activations():
    np.testing.assert_allclose(run(layers.Activation("a", "leaky_relu", slope=0.5), [[-3, 3]]), [[-1.5, 3]])
    np.testing.assert_allclose(run(layers.Activation("a", "elu", alpha=2), [[-math.log(2), 3]]), [[-1, 3]])


def test_softmax():
    x = np.log([[[1.0, 2], [3, 6]], [[2, 5], [2, 5]]])
    np.testing.assert_allclose(run(layers.Softmax("s"), x)[0], [[0.25, 0.25], [0.75, 0.75]])
    np.testing.assert_allclose(run(layers.Softmax("s", -1), x)[0], [[1 / 3, 2 / 3]] * 2)
    np.testing.assert_allclose(run(layers.Softmax("s"), [[1000, 1000]]), [[0.5, 0.5]])


# ---- dropout


def test_dropout_keeps_the_mean_and_scales():
    x = np.full((50, 400), 3.0)
    y = run(layers.Dropout("o", 0.2), x, training=True)
    assert set(np.unique(y)) == {0, 3 / 0.8}
    assert abs((y == 0).mean() - 0.2) < 0.015  # five standard deviations of 20,000 draws
    np.testing.assert_array_equal(run(layers.Dropout("o", 0.2), x), x)
    np.testing.assert_array_equal(run(layers.Dropout("o", 0), x, training=True), x)


def test_dropout_repeats_itself_from_the_same_state_only():
    x = np.ones((8, 16))
    layer = layers.Dropout("o")
    first, second = run(layer, x, training=True), run(layer, x, training=True)
    assert (first != second).any()
    assert state(layer, "random")[2] == 2
    again = layers.Dropout("o")
    np.testing.assert_array_equal(run(again, x, training=True), first)
    again.states["random"].copy_from_numpy(layer.random_key("random"))
    np.testing.assert_array_equal(run(again, x, training=True), first)
    assert (run(layers.Dropout("other"), x, training=True) != first).any()
    reseeded = prepared(layers.Dropout("o"), (16,), seed=6)
    assert (run(reseeded, x, training=True) != first).any()


def test_dropout_does_not_move_on_in_evaluation():
    layer = layers.Dropout("o")
    run(layer, np.ones((2, 3)))
    np.testing.assert_array_equal(state(layer, "random"), layer.random_key("random"))


# ---- shapes and joins


def test_flatten_keeps_the_order_and_the_batch():
    x = np.arange(24.0).reshape(2, 3, 1, 4)
    np.testing.assert_array_equal(run(layers.Flatten("f"), x), np.arange(24).reshape(2, 12))
    np.testing.assert_array_equal(run(layers.Flatten("f", 2), x), np.arange(24).reshape(2, 3, 4))
    np.testing.assert_array_equal(run(layers.Flatten("f", -1), x), x)


def test_reshape_works_out_one_extent():
    x = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(run(layers.Reshape("r", (2, -1)), x), np.arange(24).reshape(2, 2, 6))
    assert prepared(layers.Reshape("r", [-1]), (3, 4)).get_output_sample_shape() == (12,)
    assert prepared(layers.Reshape("r", ()), (1, 1)).get_output_sample_shape() == ()


def test_upsampling_repeats_rows_and_columns():
    y = run(layers.Upsampling2D("u", (2, 3)), [[[[1, 2], [3, 4]]]])
    np.testing.assert_array_equal(y, [[[[1, 1, 1, 2, 2, 2]] * 2 + [[3, 3, 3, 4, 4, 4]] * 2]])


def test_merge_and_multiply():
    a, b, c = ([[1, 2]], [[10, 20]], [[100, 300]])
    np.testing.assert_array_equal(run(layers.Merge("m"), a, b, c), [[111, 322]])
    np.testing.assert_array_equal(run(layers.Multiply("m"), a, b, c), [[1000, 12000]])


def test_split_concat_and_slice():
    x = np.arange(30.0).reshape(2, 5, 3)
    copies = run(layers.Split("s", 3), x)
    assert len(copies) == 3
    for copy in copies:
        np.testing.assert_array_equal(copy, x)
    layer = layers.Slice("s", 1, [1, 3])
    pieces = run(layer, x)
    assert layer.get_output_sample_shape() == [(1, 3), (2, 3), (2, 3)]
    for piece, wanted in zip(pieces, (x[:, :1], x[:, 1:3], x[:, 3:]), strict=True):
        np.testing.assert_array_equal(piece, wanted)
    np.testing.assert_array_equal(run(layers.Concat("c", 1), *pieces), x)
    last = run(layers.Slice("s", -1, [2]), x)
    np.testing.assert_array_equal(last[1], x[:, :, 2:])
    np.testing.assert_array_equal(run(layers.Concat("c", 2), *last), x)


@pytest.mark.parametrize(
    "layer",
    [
        layers.Split("s", 3),
        layers.Slice("s", 1, [1]),
        layers.Dummy("d"),
        layers.Flatten("f"),
        layers.Reshape("r", (-1, 2)),
        layers.Dropout("o"),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_what_only_looks_at_its_input_takes_no_memory(layer):
    cpu = device.new_cpu()
    prepared(layer, (3, 4), on=cpu)
    x = tensor.from_numpy(RNG.standard_normal((2, 3, 4)), cpu)
    before = cpu.pool.used
    outputs = layer.forward(False, x)
    assert cpu.pool.used == before
    del outputs


# ---- initial values


def test_initial_values_are_those_asked_for():
    layer = prepared(layers.Dense("d", 30, bias_init=0.25), (40,))
    weight, bias = map(tensor.to_numpy, layer.param_values())
    bound = math.sqrt(6 / (40 + 30))  # Glorot and Bengio 2010
    assert 0.95 * bound < np.abs(weight).max() <= bound
    np.testing.assert_array_equal(bias, 0.25)
    layer = prepared(layers.Conv2D("c", 16, (3, 5), weight_init="he_uniform", groups=2, border_mode="valid"), (4, 9, 8))
    weight, bias = map(tensor.to_numpy, layer.param_values())
    bound = math.sqrt(6 / (2 * 15))  # He et al. 2015; two channels of 15 elements reach an output
    assert 0.95 * bound < np.abs(weight).max() <= bound
    np.testing.assert_array_equal(bias, 0)
    layer = prepared(layers.BatchNormalization("b", gamma_init=0.0, beta_init=2), (3,))
    assert [tensor.to_numpy(p).tolist() for p in layer.param_values()] == [[0] * 3, [2] * 3]
    layer = prepared(layers.LayerNormalization("l", gamma_init=0.5, beta_init=3), (3,))
    assert [tensor.to_numpy(p).tolist() for p in layer.param_values()] == [[0.5] * 3, [3] * 3]


# ---- SwiGLU


def test_swiglu():
    """silu(2) * 3 and silu(-1) * 4, of x as it is opened and as it stands."""
    given = {"gate/weight": [[2.0, 0], [0, -1]], "value/weight": [[3.0, 0], [0, 4]]}
    y = run(layers.SwiGLU("s", 2, use_bias=False), [[1, 1]], parameters=given)
    np.testing.assert_allclose(y, [[3 * 2 / (1 + np.exp(-2.0)), 4 * -1 / (1 + np.exp(1.0))]], rtol=1e-6)
