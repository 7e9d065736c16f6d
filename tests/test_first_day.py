"""What a person who comes from Keras or PyTorch does on the first day: names that are left out, and other words."""

from __future__ import annotations

import numpy as np
import pytest

from singa_lite import FeedForwardNet, layers, loss, metric, optimizer


def small() -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), seed=5)
    net.add(layers.Conv2D(4, 3, input_sample_shape=(2, 6, 5)))
    net.add(layers.Activation(mode="tanh"))
    net.add(layers.MaxPooling2D(2))
    net.add(layers.Flatten())
    net.add(layers.Dropout(0.5))
    net.add(layers.Dense(7))
    net.add(layers.Dense(num_output=3))
    return net


def test_layers_are_named_by_their_class_where_they_are_added():
    net = small()
    assert list(net.layers) == ["conv2d", "activation", "max_pooling2d", "flatten", "dropout", "dense", "dense_1"]
    assert net.layers["activation"].mode == "tanh" and net.layers["dropout"].p == 0.5
    assert net.param_names() == small().param_names()
    for name, value in small().parameters().items():
        np.testing.assert_array_equal(value, net.parameters()[name])


def test_a_name_that_is_given_stays_and_a_taken_one_is_passed_over():
    net = FeedForwardNet()
    net.add(layers.Dense("dense", 4, input_sample_shape=(3,)))
    net.add(layers.Dense(5, name="dense_1"))
    net.add(layers.Dense(6))
    assert list(net.layers) == ["dense", "dense_1", "dense_2"]
    assert net.layers["dense_1"].num_output == 5


def test_layers_within_layers_may_be_unnamed_too():
    net = FeedForwardNet()
    net.add(layers.Bidirectional(layers.LSTM(4), input_sample_shape=(3, 2)))
    net.add(layers.Sequential([layers.Dense(5), layers.Dense(2)]))
    assert net.param_names()[0].startswith("bidirectional/forward/")
    assert net.param_names()[-4:] == [f"sequential/{name}" for name in _DENSE]


_DENSE = ("dense/weight", "dense/bias", "dense_1/weight", "dense_1/bias")


def test_a_layer_of_the_users_own_may_be_unnamed():
    class OwnScale(layers.Dense):
        pass

    net = FeedForwardNet()
    net.add(OwnScale(4, input_sample_shape=(3,)))
    assert net.param_names() == ["own_scale/weight", "own_scale/bias"]


def test_a_net_of_unnamed_layers_is_written_and_read(tmp_path):
    net, other = small(), small()
    net.save(tmp_path / "net.h5")
    other.load(tmp_path / "net.h5")
    made = FeedForwardNet.from_config(net.config())
    assert made.param_names() == net.param_names()
    assert made.layers["activation"].mode == "tanh"


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (lambda: layers.Dense("d", units=3), "num_output"),
        (lambda: layers.Dense("d", out_features=3), "num_output"),
        (lambda: layers.LSTM(units=3), "hidden_size"),
        (lambda: layers.Dense("d", 3, activation="relu"), "Activation"),
        (lambda: layers.Dense("d", 3, input_shape=(4,)), "input_sample_shape"),
        (lambda: layers.Dense("d", 3, bias=False), "use_bias"),
        (lambda: layers.Conv2D(filters=3), "nb_kernels"),
        (lambda: layers.Conv2D(4, kernel_size=3), "kernel,"),
        (lambda: layers.Conv2D(4, 3, strides=2), "stride,"),
        (lambda: layers.Conv2D(4, 3, padding="same"), "border_mode"),
        (lambda: layers.MaxPooling2D(pool_size=2), "kernel,"),
        (lambda: layers.Dropout(rate=0.5), "wanted p,"),
        (lambda: layers.BatchNormalization(eps=1e-3), "epsilon"),
        (lambda: layers.LSTM(4, batch_first=True), "batch comes first"),
    ],
)
def test_a_word_of_another_framework_names_the_one_here(make, wanted):
    with pytest.raises(TypeError, match=wanted):
        make()


def test_an_activation_by_its_name_alone_stays_refused():
    with pytest.raises(ValueError, match="mode"):
        layers.Activation("tanh")


RANDOM = np.random.default_rng(3)
IMAGES = RANDOM.integers(0, 256, (11, 2, 6, 5))
IDS = np.arange(11) % 3


def fitted(x, y, **options) -> list[np.ndarray]:
    net = small()
    net.compile(optimizer.SGD(lr=0.001))
    net.fit(x, y, batch_size=4, verbose=False, **options)
    assert net.evaluate(x, y)[0] == net.evaluate(IMAGES.astype("f"), IDS)[0]
    return [np.asarray(value) for value in net.param_values()]


WANTED = IMAGES.astype("f"), IDS


@pytest.mark.parametrize("dtype", ["uint8", "float64", "list"])
def test_samples_of_any_real_dtype_are_converted_batch_by_batch(dtype):
    x = IMAGES.tolist() if dtype == "list" else IMAGES.astype(dtype)
    for value, wanted in zip(fitted(x, IDS, validation_data=(x, IDS)), fitted(*WANTED), strict=True):
        np.testing.assert_array_equal(value, wanted)
    np.testing.assert_array_equal(small().predict(x, 4), small().predict(IMAGES.astype("f"), 4))


@pytest.mark.parametrize("y", [IDS[:, None], IDS.astype("f"), IDS.astype("d")[:, None], IDS.tolist()])
def test_class_ids_in_other_forms_are_taken(y):
    for value, wanted in zip(fitted(IMAGES, y), fitted(*WANTED), strict=True):
        np.testing.assert_array_equal(value, wanted)


def test_batches_of_another_dtype_from_an_iterable_are_converted():
    net = small()
    net.compile(optimizer.SGD(lr=0.001))
    batches = [(IMAGES[:4].astype("uint8"), IDS[:4]), (IMAGES[4:8].tolist(), IDS[4:8])]
    net.fit(iter(batches), steps_per_epoch=2, shuffle=False, verbose=False)
    by_hand = small()
    by_hand.compile(optimizer.SGD(lr=0.001))
    for x, y in batches:
        by_hand.train_one_batch(np.asarray(x, "f"), y)
    for value, wanted in zip(net.param_values(), by_hand.param_values(), strict=True):
        np.testing.assert_array_equal(value, wanted)


def test_targets_of_a_regression_are_converted():
    net = FeedForwardNet(loss.SquaredError(), seed=2)
    net.add(layers.Dense(2, input_sample_shape=(3,)))
    for y in (np.ones((5, 2)), np.ones((5, 2), "int8"), np.ones((5, 2), bool)):
        found, _ = net.evaluate(np.zeros((5, 3)), y)  # the bias is 0, half a square is 1 / 2
        assert found == 0.5


@pytest.mark.parametrize(
    ("x", "y", "kind", "wanted"),
    [
        (IMAGES, np.where(np.arange(11) == 7, 1.5, IDS), ValueError, r"received 1.5 at \[7\]"),
        (IMAGES, np.where(np.arange(11) == 6, np.nan, IDS), ValueError, r"received nan at \[6\]"),
        (IMAGES, np.where(np.arange(11) == 5, 3.0, IDS), ValueError, r"received 3 at \[5\]"),
        (IMAGES.astype(object), IDS, TypeError, "object"),
        (IMAGES.astype(complex), IDS, TypeError, "complex"),
        (IMAGES.astype(str), IDS, TypeError, "<U"),
        (IMAGES.astype("M8[s]"), IDS, TypeError, "datetime"),
    ],
)
def test_what_cannot_be_converted_is_refused_before_the_first_step(x, y, kind, wanted):
    net = small()
    net.compile(optimizer.SGD(lr=0.001))
    for given in ({"x": x, "y": y}, {"x": IMAGES, "y": IDS, "validation_data": (x, y)}):
        with pytest.raises(kind, match=wanted):
            net.fit(**given, verbose=False)
    for value, before in zip(net.param_values(), small().param_values(), strict=True):
        np.testing.assert_array_equal(value, before)


def test_one_batch_wants_the_nets_dtype_and_says_which_call_converts():
    net = small()
    net.compile(optimizer.SGD(lr=0.001))
    with pytest.raises(TypeError, match=r"float32, received uint8.*fit\(\)"):
        net.train_one_batch(IMAGES.astype("uint8"), IDS)
