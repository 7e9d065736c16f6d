"""Values of transposed, depthwise and separable convolutions, margins, noise, and other everyday layers, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from run_layer import RNG, prepared, random_layer, run, state
from singa_lite import FeedForwardNet, autograd, layers, loss, optimizer, tensor
from singa_lite.errors import GraphError, ShapeError

# ---- transposed convolution: kernels of powers of ten show which element came from where


def test_conv2d_transpose_adds_the_kernel_at_each_pixel():
    layer = layers.Conv2DTranspose("t", 1, 2, 2, "valid")
    y = run(layer, [[[[1, 2, 3]]]], parameters={"weight": [1, 10, 100, 1000], "bias": [0.5]})
    np.testing.assert_array_equal(
        y, [[[[1.5, 10.5, 2.5, 20.5, 3.5, 30.5], [100.5, 1000.5, 200.5, 2000.5, 300.5, 3000.5]]]]
    )


def test_conv1d_transpose_overlaps_pads_and_has_steps_that_no_pixel_reaches():
    layer = layers.Conv1DTranspose("t", 1, 3, 3, pad=(1, 0), dilation=2, output_padding=2)
    y = run(layer, [[[1, 2]]], parameters={"weight": [1, 10, 100], "bias": [0]})
    np.testing.assert_array_equal(y, [[[0, 10, 2, 100, 20, 0, 200, 0, 0]]])


def test_conv2d_transpose_groups_see_their_own_channels():
    layer = layers.Conv2DTranspose("t", 4, 1, groups=2, use_bias=False)
    y = run(layer, np.array([1.0, 2]).reshape(1, 2, 1, 1), parameters={"weight": [1, 10, 100, 1000]})
    np.testing.assert_array_equal(y.ravel(), [1, 10, 200, 2000])


def test_conv2d_transpose_hands_back_what_a_convolution_of_its_weights_makes():
    layer, values = random_layer(layers.Conv2DTranspose, (3, 4, 5), nb_kernels=2, stride=(2, 3), use_bias=False)
    x, image = RNG.standard_normal((2, 3, 4, 5)), RNG.standard_normal((2, 2, 8, 15))
    convolved = run(layers.Conv2D("c", 3, 3, (2, 3), use_bias=False), image, parameters={"weight": values["weight"]})
    np.testing.assert_allclose(np.vdot(run(layer, x), image), np.vdot(x, convolved), rtol=1e-12)


def output(make, shape):
    return prepared(make, shape).get_output_sample_shape()


def test_shapes_of_transposed_convolutions():
    assert output(layers.Conv2DTranspose("t", 4), (3, 5, 6)) == (4, 5, 6)
    assert output(layers.Conv2DTranspose("t", 4, 3, 2), (3, 5, 6)) == (4, 10, 12)
    assert output(layers.Conv2DTranspose("t", 4, 5, (1, 3), dilation=2), (3, 5, 6)) == (4, 5, 18)
    assert output(layers.Conv2DTranspose("t", 4, 3, 2, output_padding=0), (3, 5, 6)) == (4, 9, 11)
    assert output(layers.Conv2DTranspose("t", 4, (2, 3), 2, "valid"), (3, 5, 6)) == (4, 10, 13)
    assert output(layers.Conv2DTranspose("t", 4, 3, 2, pad=(0, 1, 0, 1)), (3, 5, 6)) == (4, 10, 12)
    assert output(layers.Conv1DTranspose("t", 4, 3, 4), (3, 5)) == (4, 20)
    layer = prepared(layers.Conv2DTranspose("t", 4, (1, 2), groups=2, border_mode="valid"), (6, 9, 7))
    assert [p.shape for p in layer.param_values()] == [(6, 2, 1, 2), (4,)]


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: layers.Conv2DTranspose("here", 4, 3, 2, output_padding=2), r"below the stride \(2, 2\), received 2"),
        (lambda: layers.Conv2DTranspose("here", 4, 3, (2, 1), output_padding=1), "below the stride"),
        (lambda: layers.Conv2DTranspose("here", 4, output_padding=-1), "at least 0, received -1"),
        (lambda: layers.Conv1DTranspose("here", 4, output_padding=(0, 0)), "an integer, at least 0"),
        (lambda: layers.Conv2DTranspose("here", 4, groups=3), "groups to divide the 4 kernels"),
        (lambda: layers.Conv2DTranspose("here", 4, 2), "odd kernel for border_mode 'same'"),
        (lambda: layers.DepthwiseConv2D("here", depth_multiplier=0), "depth_multiplier .* received 0"),
        (lambda: layers.ZeroPadding2D("here", -1), "pad to be an integer .* received -1"),
        (lambda: layers.Cropping2D("here", (1, 2, 3)), r"crop to be an integer .* received \(1, 2, 3\)"),
        (lambda: layers.GroupNormalization("here", 0), "groups .* received 0"),
        (lambda: layers.PReLU("here", (0,)), r"0 is the batch\), received \(0,\)"),
        (lambda: layers.SpatialDropout2D("here", 1), "below 1, received 1"),
        (lambda: layers.GaussianNoise("here", -0.1), "std to be a number of at least 0, received -0.1"),
        (lambda: layers.Rescaling("here", np.inf), "scale to be a number, finite, received inf"),
        (lambda: layers.Normalization("here", 1), "mean and variance, or neither, received mean 1 and variance None"),
        (lambda: layers.Normalization("here", 1, -1), "variance .* at least 0.* received -1"),
        (lambda: layers.Normalization("here", [1, None], 1), "mean .* received"),
    ],
)
def test_options_that_make_no_sense_are_refused(make, wanted):
    with pytest.raises(ValueError, match=f"layer 'here': wanted .*{wanted}"):
        make()


@pytest.mark.parametrize(
    ("layer", "shape", "wanted"),
    [
        (layers.Conv2DTranspose("here", 4, pad=9), (3, 4, 5), r"of which -12 x -11 would be left"),
        (layers.Conv2DTranspose("here", 4, groups=2), (3, 4, 5), "that the 2 groups divide"),
        (layers.Cropping2D("here", (2, 2, 0, 0)), (3, 4, 5), "leave something"),
        (layers.GroupNormalization("here", 2), (3, 4, 5), "that the 2 groups divide"),
        (layers.PReLU("here", (3,)), (3, 4), r"shared axes \(3,\), received \(3, 4\)"),
        (layers.Normalization("here", [1, 2], 1), (3, 4), "a mean for each channel .* received 2"),
        (layers.SpatialDropout1D("here"), (3, 4, 5), r"\(channels, length\), received"),
        (layers.GlobalMaxPooling1D("here"), (3, 4, 5), r"\(channels, length\), received"),
        (layers.Lambda("here", lambda x: autograd.reduce_sum(x, 0)), (3, 4), "keeps the batch as the first axis"),
        (layers.Lambda("here", lambda x: autograd.reshape(x, (-1,))), (3, 4), "keeps the batch as the first axis"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(layer, shape, wanted):
    with pytest.raises(ShapeError, match=f"layer 'here': wanted .*{wanted}"):
        prepared(layer, shape)


# ---- depthwise and separable convolution


def test_depthwise_kernels_follow_their_channel():
    layer = layers.DepthwiseConv2D("d", 1, use_bias=False, depth_multiplier=2)
    y = run(layer, np.array([1.0, 2]).reshape(1, 2, 1, 1), parameters={"weight": [1, 10, 100, 1000]})
    np.testing.assert_array_equal(y.ravel(), [1, 10, 200, 2000])
    assert layer.parameters["weight"].shape == (4, 1, 1, 1)


def test_a_separable_convolution_is_the_two():
    layer = layers.SeparableConv2D("s", 1, (1, 2), 1, "valid")
    given = {"depthwise/weight": [1, 10, 100, 1000], "pointwise/weight": [1, 2], "pointwise/bias": [0.5]}
    y = run(layer, [[[[1, 2, 3]], [[4, 5, 6]]]], parameters=given)
    np.testing.assert_array_equal(y, [[[[21 + 2 * 5400 + 0.5, 32 + 2 * 6500 + 0.5]]]])
    assert layer.param_names() == ["s/depthwise/weight", "s/pointwise/weight", "s/pointwise/bias"]


# ---- margins and poolings over all


def test_zero_padding_and_cropping_are_each_other_s_reverse():
    x = np.arange(1.0, 7).reshape(1, 1, 2, 3)
    padded = run(layers.ZeroPadding2D("z", (0, 1, 2, 0)), x)
    np.testing.assert_array_equal(padded, [[[[0, 0, 1, 2, 3], [0, 0, 4, 5, 6], [0, 0, 0, 0, 0]]]])
    np.testing.assert_array_equal(run(layers.Cropping2D("c", (0, 1, 2, 0)), padded), x)
    assert output(layers.ZeroPadding2D("z", (1, 2)), (3, 4, 5)) == (3, 6, 9)
    assert output(layers.Cropping2D("c", (1, 2)), (3, 4, 5)) == (3, 2, 1)


def test_poolings_over_whole_images_and_sequences():
    x = [[[1, 5, 3], [-1, -4, -7]]]
    np.testing.assert_array_equal(run(layers.GlobalMaxPooling1D("p"), x), [[5, -1]])
    np.testing.assert_array_equal(run(layers.GlobalAvgPooling1D("p"), x), [[3, -4]])
    np.testing.assert_array_equal(run(layers.GlobalMaxPooling2D("p"), [[[[1, 2], [4, 3]], [[0, 9], [8, 7]]]]), [[4, 9]])


def test_of_equal_largest_elements_the_first_gets_the_derivative():
    x = tensor.from_numpy(np.array([[[[1.0, 5], [5, 5]]]]))
    x.stores_grad = True
    _, dx = next(autograd.backward(prepared(layers.GlobalMaxPooling2D("p"), (1, 2, 2)).forward(True, x)))
    np.testing.assert_array_equal(tensor.to_numpy(dx), [[[[0, 1], [0, 0]]]])


# ---- activations and normalisations


def test_prelu_has_a_slope_for_each_channel():
    y = run(layers.PReLU("p"), [[[2, -2], [3, -4]]], parameters={"alpha": [0.5, -1]})
    np.testing.assert_array_equal(y, [[[2, -1], [3, 4]]])
    shapes = {
        axes: prepared(layers.PReLU("p", axes), (3, 4, 5)).parameters["alpha"].shape
        for axes in (None, (), (2,), (1, 2, 3))
    }
    assert shapes == {None: (3, 1, 1), (): (3, 4, 5), (2,): (3, 1, 5), (1, 2, 3): (1, 1, 1)}


def test_prelu_of_what_is_not_finite_and_at_zero():
    x = tensor.from_numpy(np.array([[np.inf, -np.inf, np.nan, 0, -0.0]]))
    alpha = tensor.from_numpy(np.full(5, 0.25))
    x.stores_grad = True
    y = autograd.prelu(x, alpha)
    np.testing.assert_array_equal(tensor.to_numpy(y), [[np.inf, -np.inf, np.nan, 0, 0]])
    _, dx = next(autograd.backward(y, tensor.from_numpy(np.full((1, 5), 2.0))))
    np.testing.assert_array_equal(tensor.to_numpy(dx)[0, [0, 1, 3, 4]], [2, 0.5, 0.5, 0.5])


def test_group_normalization_of_two_groups():
    x = [[[1, 3], [5, 7], [10, 10], [10, 10]]]
    given = {"gamma": [1, 2, 3, 4], "beta": [0, 0, 5, 6]}
    y = run(layers.GroupNormalization("g", 2, epsilon=1e-12), x, parameters=given)
    np.testing.assert_allclose(y[0, :2], np.array([[-3, -1], [2, 6]]) / np.sqrt(5), rtol=1e-9)
    np.testing.assert_array_equal(y[0, 2:], [[5, 5], [6, 6]])


def test_group_normalization_in_float32_beside_a_large_mean():
    """A variance as the mean of squares less the square of the mean would be all rounding here."""
    x = (10000 + RNG.standard_normal((2, 4, 9, 7))).astype(np.float32)
    wide = x.reshape(2, 2, -1).astype(np.float64)
    wanted = (wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + 1e-5)
    layer = prepared(layers.GroupNormalization("g", 2), (4, 9, 7), dtype=np.float32)
    y = tensor.to_numpy(layer.forward(False, tensor.from_numpy(x)))
    np.testing.assert_allclose(y.reshape(wanted.shape), wanted, atol=2e-3)


def test_rescaling():
    np.testing.assert_array_equal(run(layers.Rescaling("r", 0.5, -1), [[0, 2, 4]]), [[-1, 0, 1]])


def test_normalization_takes_its_numbers_from_data():
    data = RNG.integers(0, 256, (9, 3, 4, 5)).astype(np.uint8)
    data[:, 1] = 7
    layer = layers.Normalization("n")
    layer.adapt(data)
    y = run(layer, data)
    np.testing.assert_allclose(y.mean((0, 2, 3)), [0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(y.std((0, 2, 3)), [1, 0, 1])
    np.testing.assert_array_equal(y[:, 1], 0)
    layer.adapt(data[:4] + 1.0)  # in a net, too
    np.testing.assert_allclose(run(layer, data[:4] + 1.0).mean((0, 2, 3)), [0, 0, 0], atol=1e-12)
    given = layers.Normalization("n", [1, 2], 4)
    np.testing.assert_array_equal(run(given, [[3, 2]]), [[1, 0]])


def test_normalization_takes_data_by_parts(monkeypatch):
    monkeypatch.setattr("singa_lite.layers.normalization._PIECE", 25)
    data = 1e6 + RNG.standard_normal((17, 3, 4))
    layer = layers.Normalization("n")
    layer.adapt(data)
    np.testing.assert_allclose(layer.mean, data.mean((0, 2)), rtol=1e-14)
    np.testing.assert_allclose(layer.variance, data.var((0, 2)), rtol=1e-9)


@pytest.mark.parametrize(
    ("data", "error"),
    [([1, 2], ValueError), (np.zeros((0, 3)), ValueError), ([["a", "b"]], TypeError), ([[1, np.nan]], ValueError)],
)
def test_normalization_refuses_what_is_no_data(data, error):
    layer = layers.Normalization("here", 1, 2)
    with pytest.raises(error, match=r"layer 'here': adapt: wanted .* received"):
        layer.adapt(data)
    assert layer.mean == (1.0,)


@pytest.mark.parametrize("graph", [True, False])
def test_normalization_wants_its_numbers_before_the_first_batch(graph, tmp_path):
    def built() -> FeedForwardNet:
        net = FeedForwardNet(loss.SquaredError())
        net.add(layers.BatchNormalization("before", input_sample_shape=(2,)))
        net.add(layers.Sequential([layers.Normalization("n")], name="held"))
        net.compile(optimizer.SGD(0.1), graph=graph)
        return net

    x = np.array([[1, 2], [3, 2]], "f")
    net, other = built(), built()
    for call in (
        net.predict_one_batch,
        lambda x: net.forward(True, x),
        net.predict,
        lambda x: net.train_one_batch(x, x),
        lambda x: net.fit(iter([(x, x)]), steps_per_epoch=1),
        lambda x: net.fit(x, x),
        lambda x: net.evaluate(x, x),
    ):
        with pytest.raises(GraphError, match=r"layer 'held/n': wanted mean and variance .* call adapt\(data\)"):
            call(x)
    assert not net.unfinished_at and net.optimizer.step == 0 and net.plan_batch(4).total_bytes
    net.layers["held"].layers["n"].adapt(x)
    net.fit(x, x, verbose=False)
    np.testing.assert_allclose(tensor.to_numpy(other_of(net, other, tmp_path).predict(x)), net.predict(x))


def other_of(net: FeedForwardNet, other: FeedForwardNet, folder: Path) -> FeedForwardNet:
    net.save(folder / "n.npz")
    other.load(folder / "n.npz")
    return other


# ---- noise


def test_spatial_dropout_drops_whole_channels():
    for layer, extents in ((layers.SpatialDropout1D("o", 0.25), (5,)), (layers.SpatialDropout2D("o", 0.25), (2, 3))):
        y = run(layer, np.ones((40, 20, *extents)), training=True).reshape(40, 20, -1)
        assert (y == y[..., :1]).all()
        np.testing.assert_allclose(np.unique(y), [0, 4 / 3])
        assert 0.2 < (y[..., 0] == 0).mean() < 0.3
        assert state(layer, "random")[2] == 1


def test_gaussian_noise_is_normal_and_moves_on():
    layer = layers.GaussianNoise("n", 0.5)
    x = np.full((200, 100), 3.0)
    first, second = run(layer, x, training=True), run(layer, x, training=True)
    assert not np.array_equal(first, second)
    np.testing.assert_allclose([first.mean(), first.std(), second.std()], [3, 0.5, 0.5], rtol=0.02)
    np.testing.assert_array_equal(run(layer, x), x)
    key = np.random.Generator(np.random.Philox(key=layer.random_key("random")[:2], counter=[0, 0, 0, 0]))
    np.testing.assert_allclose(first.ravel()[:9], 3 + 0.5 * key.standard_normal(9, np.float32), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "error", "wanted"),
    [
        ({"shape": (2, 0)}, ShapeError, "extents of at least 1"),
        ({"dtype": "int32"}, TypeError, "a float dtype"),
        ({"state": tensor.zeros((3,))}, ShapeError, r"state uint64 \(3,\)"),
        ({"std": -1.0}, ValueError, "normal std"),
    ],
)
def test_normal_numbers_of_what_makes_no_sense_are_refused(options, error, wanted):
    given = {"shape": (2, 3), "state": tensor.zeros((3,), np.uint64), **options}
    with pytest.raises(error, match=wanted):
        autograd.normal(**given)
    assert not tensor.to_numpy(given["state"]).any()


# ---- Lambda


def test_lambda_computes_what_its_function_says():
    double = layers.Lambda("l", lambda x: 2 * x + 1)
    np.testing.assert_array_equal(run(double, [[1, 2]]), [[3, 5]])
    both = layers.Lambda("l", lambda a, b: (a + b, a * b))
    for found, wanted in zip(run(both, [[1, 2]], [[3, 4]]), ([[4, 6]], [[3, 8]]), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert both.get_output_sample_shape() == [(2,), (2,)]


@pytest.mark.parametrize("given", [None, 3, [], [3], "x"])
def test_lambda_refuses_what_is_no_tensor(given):
    with pytest.raises(TypeError, match="layer 'here': wanted a function that returns a Tensor"):
        prepared(layers.Lambda("here", lambda x: given), (3,))
    with pytest.raises(TypeError, match="layer 'here': wanted a function of tensors, received"):
        layers.Lambda("here", given)
