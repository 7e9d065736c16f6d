"""A user's own operation that fails or does what it may not, in a step and in check_function."""

from __future__ import annotations

import numpy as np
import pytest

from nets import all_bits
from own_functions import Counted, Noisy, Shrink, SumAndProduct, Twice, losses, net_of, wrong
from singa_lite import autograd, device, layers, tensor, testing
from singa_lite.autograd import Function, Output, Scratch
from singa_lite.errors import GraphError, OverrunError

RNG = np.random.default_rng(3)
X = RNG.permutation(np.linspace(-2, 2, 15)).reshape(3, 5)


kept = []


def test_a_derivative_that_is_missing_is_told_before_anything_runs():
    x = tensor.from_numpy(X)
    x.stores_grad = True
    ran = []

    class Without(Function):
        makes = Twice.makes

        def forward(self, x, y):
            ran.append(1)

    with pytest.raises(TypeError, match="derivative_x"):
        Without()(x)
    assert not ran


def shape_of_a_row(self, x, y):
    y[...] = np.ones((4, 5))


def into_its_input(self, x, y):
    np.multiply(x, 2, out=x)


def returns(self, x, y):
    return 2 * x


def fails(self, x, y):
    raise ArithmeticError("on purpose")


FAILING = [
    (shape_of_a_row, ValueError, "broadcast"),
    (into_its_input, ValueError, "read-only"),
    (returns, TypeError, "ndarray"),
    (fails, ArithmeticError, "on purpose"),
]


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize(("forward", "error", "words"), FAILING)
def test_a_function_that_fails_leaves_the_parameters_as_they_were(forward, error, words, graph):
    net = net_of(wrong(forward=forward), graph=graph)
    before = all_bits(net.parameters())
    for _ in range(2):
        with pytest.raises(error, match=words):
            losses(net, 1)
        assert all_bits(net.parameters()) == before
        net.discard_step()  # is enough to go on


def keeps_a_view(self, x, y):
    kept.append(x[1:])
    np.multiply(x, 2, out=y)


def writes_behind(self, x, y):
    np.multiply(x, 2, out=y)
    np.lib.stride_tricks.as_strided(y.reshape(-1), (y.size + 24,))[-24:] = 0.25


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize(
    ("forward", "error", "words"),
    [(keeps_a_view, GraphError, "'x'"), (writes_behind, OverrunError, "Wrong.forward")],
)
def test_checked_mode_tells_what_is_kept_and_what_is_written_beyond(monkeypatch, forward, error, words, graph):
    monkeypatch.setenv("SINGA_LITE_CHECKED", "1")
    net = net_of(wrong(forward=forward), device.new_cpu(kernels="numpy"), graph=graph)
    with pytest.raises(error, match=words):
        losses(net, 1)
    assert losses(net_of(Shrink(0.1), device.new_cpu(kernels="numpy"), graph=graph))  # a right one passes


# --- what check_function finds ------------------------------------------------------------------------------


def forgets_a_row(self, x, y):
    np.multiply(x[1:], 2, out=y[1:])


def reads_its_output(self, x, y):
    y[...] += 2 * x


def slightly_off(self, dy, dx):
    np.multiply(dy, 2, out=dx)
    dx[0, 0] *= 1.001


def backwards(self, x, y):
    y[0] = 2 * x[-1]
    y[1:] = 2 * x[:-1]


def reads_its_scratch(self, x, y, work):
    y[...] = x * 2 + np.nan_to_num(work, nan=1.0)


FOUND = [
    ({"forward": forgets_a_row}, "'y'"),
    ({"forward": reads_its_output}, "'y'"),
    ({"derivative_x": slightly_off}, r"input 0 .*\[0, 0\]"),
    ({"forward": backwards, "overwrites": (("y", "x"),)}, "y in the memory of x"),
    (
        {"forward": reads_its_scratch, "makes": lambda self, x: {"y": Output(x.shape), "work": Scratch(x.shape)}},
        "scratch",
    ),
]


@pytest.mark.parametrize(("members", "words"), FOUND, ids=["output", "garbage", "gradient", "in place", "scratch"])
def test_what_is_planted_is_found(members, words):
    with pytest.raises(testing.CheckError, match=words):
        testing.check_function(wrong(**members), X)


def test_keeping_and_allocating_are_found():
    with pytest.raises(GraphError, match="'x'"):
        testing.check_function(wrong(forward=keeps_a_view), X)
    large = wrong(forward=lambda self, x, y: np.copyto(y, np.ones(100_000)[:1] + 2 * x))
    with pytest.raises(testing.CheckError, match="4096"):
        testing.check_function(large, X, allowed_bytes=4096)


def test_right_ones_pass():
    assert [one.name for one in testing.check_function(SumAndProduct(), X, X[::-1]).gradients] == ["input 0", "input 1"]
    for function in (Shrink(0.31), Counted(), Twice()):
        (gradient,) = testing.check_function(function, X).gradients
        assert gradient.error < 1e-8
    assert testing.check_function(Noisy(0.31), X).gradients == []


def test_layers_and_functions_of_parameters():
    rows = testing.check_gradients(layers.Dense("dense", 4), X)
    assert [one.name for one in rows] == ["input 0", "weight", "bias"]
    weight = tensor.from_numpy(RNG.uniform(0.5, 1, (5, 2)))
    weight.stores_grad = True
    rows = testing.check_gradients(lambda x: autograd.matmul(x, weight), X, parameters={"w": weight})
    assert [one.name for one in rows] == ["input 0", "w"]
    with pytest.raises(testing.CheckError, match="depend"):
        testing.check_gradients(lambda x: autograd.scale(x, 1e-6), X)
