"""summary(): the table of layers, and its sums."""

from __future__ import annotations

import re

import pytest

from singa_lite import FeedForwardNet, GraphError, layers


def small_net() -> FeedForwardNet:
    net = FeedForwardNet(dtype="float64")
    net.add(layers.Conv2D("conv", 6, 3, input_sample_shape=(3, 8, 10)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Flatten("flat"))
    first = net.add(layers.Dense("first", 480))
    net.add(layers.Dense("again", 480).share_parameters(first))
    net.add(layers.Slice("cut", 1, [100, 300]))
    net.add(layers.Activation("act"), src=("cut", 2))
    return net


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if "│" in line]


def test_each_layer_has_a_row_with_its_kind_source_shape_parameters_and_bytes(capsys):
    text = small_net().summary()
    assert capsys.readouterr().out == text + "\n"
    head, *body = rows(text)
    assert head == ["layer (kind)", "input from", "output shape", "parameters", "bytes"]
    assert body == [
        ["conv (Conv2D, 3 x 3, stride 1, pad 1)", "input", "(6, 8, 10)", "168", "1,344"],
        ["norm (BatchNormalization)", "conv", "(6, 8, 10)", "12", "96"],
        ["flat (Flatten)", "norm", "(480,)", "0", "0"],
        ["first (Dense)", "flat", "(480,)", "230,880", "1,847,040"],
        ["again (Dense)", "first", "(480,)", "0", "0"],
        ["cut (Slice)", "again", "(100,), (200,), (180,)", "0", "0"],
        ["act (Activation, relu)", "cut[2]", "(180,)", "0", "0"],
    ]


def test_the_last_line_sums_up_and_a_shared_parameter_counts_once():
    net = small_net()
    last = net.summary().splitlines()[-1]
    count, nbytes, state = (int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", last))
    assert count == sum(value.size() for value in net.param_values()) == 231_060
    assert nbytes == sum(value.nbytes for value in net.param_values())
    assert state == sum(value.nbytes for value in net.states().values()) == 2 * 6 * 8


def test_windows_and_activations_are_shown():
    net = FeedForwardNet()
    net.add(layers.Conv2D("uneven", 4, (2, 3), (3, 2), padding="same", activation="tanh", input_sample_shape=(3, 7, 9)))
    net.add(layers.MaxPooling2D("pool", 2, 1))
    net.add(layers.Conv2D("wide", 4, 3, dilation=2))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 3, activation=layers.Activation(mode="elu", alpha=0.5)))
    assert [row[0] for row in rows(net.summary())[1:]] == [
        "uneven (Conv2D, 2 x 3, stride (3, 2), pad (0, 1, 1, 1), tanh)",
        "pool (MaxPooling2D, 2 x 2, stride 1, pad 0)",
        "wide (Conv2D, 3 x 3, stride 1, pad 2, dilation (2, 2))",
        "flat (Flatten)",
        "dense (Dense, elu)",
    ]


def test_a_net_that_is_not_whole_has_no_summary():
    with pytest.raises(GraphError, match="at least one layer"):
        FeedForwardNet().summary()
    net = FeedForwardNet()
    net.add(layers.Dense("late", 4), src="nowhere")
    with pytest.raises(GraphError, match=r"'late'.*'nowhere'"):
        net.summary()
