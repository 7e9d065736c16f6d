"""What a person who comes from Keras or PyTorch does on the first day: names that are left out, and other words."""

from __future__ import annotations

import numpy as np
import pytest

from singa_lite import FeedForwardNet, layers, loss, metric


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
