"""What a user's own operation is refused for, where, and that nothing is changed by it; what check_function finds."""

from __future__ import annotations

import numpy as np
import pytest

from misuse import assert_refused, row
from own_functions import Counted, Noisy, Shrink, SumAndProduct, losses, net_of
from singa_lite import ShapeError, autograd, device, layers, tensor, testing
from singa_lite.autograd import Function, Output, Scratch
from singa_lite.errors import GraphError, OverrunError

RNG = np.random.default_rng(3)
X = RNG.permutation(np.linspace(-2, 2, 15)).reshape(3, 5)


class Twice(Function):
    """y = 2 x, right in all; the classes below are wrong in one thing each."""

    def makes(self, x):
        return {"y": Output(x.shape)}

    def forward(self, x, y):
        np.multiply(x, 2, out=y)

    def derivative_x(self, dy, dx):
        np.multiply(dy, 2, out=dx)


def wrong(**members):
    """An object of a subclass of `Twice` with these members."""
    return type("Wrong", (Twice,), members)()


def call(**members):
    return lambda: wrong(**members)(tensor.from_numpy(X))


kept = []
STATED = {
    "no makes": row(lambda: type("Wrong", (Function,), {})()(), TypeError, "Wrong", "'makes'"),
    "no forward": row(lambda: type("Wrong", (Function,), {"makes": Twice.makes})(), TypeError, "'forward'"),
    "makes of nothing": row(
        lambda: type("Wrong", (Function,), {"makes": lambda self: {"y": Output((2,))}, "forward": Twice.forward})()(),
        TypeError,
        "Wrong.makes",
        "an input at least",
    ),
    "no dict": row(call(makes=lambda self, x: Output(x.shape)), TypeError, "Wrong.makes", "Output"),
    "no Output": row(call(makes=lambda self, x: {"y": x.shape}), TypeError, "'y'", "(3, 5)"),
    "scratch alone": row(call(makes=lambda self, x: {"y": Scratch(x.shape)}), TypeError, "an Output at least"),
    "names twice": row(call(makes=lambda self, x: {"x": Output(x.shape)}), TypeError, "['x']"),
    "unknown argument": row(call(forward=lambda self, x, y, z: None), TypeError, "Wrong.forward", "'z'"),
    "output left out": row(call(forward=lambda self, x: None), TypeError, "Wrong.forward", "'y'"),
    "a default": row(call(forward=lambda self, x, y=1: None), TypeError, "Wrong.forward", "y=1"),
    "derivative of nothing": row(call(derivative_z=lambda self, dy, dz: None), TypeError, "derivative_z"),
    "overwrites text": row(call(overwrites="yx"), TypeError, "Wrong.overwrites", "'yx'"),
    "overwrites unknown": row(call(overwrites=(("z", "x"),)), TypeError, "Wrong.overwrites", "'z'"),
    "repeatable": row(call(repeatable="no"), TypeError, "Wrong.repeatable", "'no'"),
    "array": row(lambda: Twice()(X), TypeError, "Twice", "ndarray"),
    "two inputs": row(lambda: Twice()(tensor.from_numpy(X), tensor.from_numpy(X)), ShapeError, "1 inputs", "2"),
    "lifespan": row(lambda: Scratch((2,), None, "epoch"), ValueError, "lifespan", "'epoch'"),
    "extent": row(lambda: Output((2, -1)), ShapeError, "Output", "-1"),
    "no Function": row(lambda: testing.check_function(autograd.relu, X), TypeError, "check_function", "relu"),
    "no inputs": row(lambda: testing.check_gradients(autograd.relu), TypeError, "check_gradients"),
    "no function": row(lambda: testing.check_gradients(3, X), TypeError, "check_gradients", "3"),
    "placed layer": row(
        lambda: testing.check_gradients(net_of(Twice()).layers["dense0"], X), TypeError, "in no net yet"
    ),
    "step": row(lambda: testing.check_gradients(autograd.tanh, X, step=0), ValueError, "step", "0"),
    "parameters": row(lambda: testing.check_gradients(autograd.tanh, X, parameters=[1]), TypeError, "parameters"),
}


@pytest.mark.parametrize("one", STATED.values(), ids=STATED)
def test_what_does_not_fit_together_is_refused(one):
    def refused():
        if one is STATED["no forward"]:
            type("Wrong", (Function,), {"makes": Twice.makes})()(tensor.from_numpy(X))
        return one.call()

    assert_refused(one._replace(call=refused))


def test_a_derivative_that_is_missing_is_told_before_anything_runs():
    x = tensor.from_numpy(X)
    x.stores_grad = True
    ran = []

    class Forward(Twice):
        derivative_x = None

    class Without(Function):
        makes = Twice.makes

        def forward(self, x, y):
            ran.append(1)

    with pytest.raises(TypeError, match="Without: wanted a function derivative_x"):
        Without()(x)
    assert not ran
    with pytest.raises(TypeError, match="wanted a plain method, received NoneType"):
        Forward()(x)


def shape_of_a_row(self, x, y):
    y[...] = np.ones((4, 5))


def into_its_input(self, x, y):
    np.multiply(x, 2, out=x)


def returns(self, x, y):
    return 2 * x


def fails(self, x, y):
    raise ArithmeticError("on purpose")


FAILING = {
    "shape": (shape_of_a_row, ValueError, "broadcast"),
    "input": (into_its_input, ValueError, "read-only"),
    "returns": (
        returns,
        TypeError,
        r"writes into the arrays .*\(y\[...\] = \) and returns None, received nd",
    ),
    "fails": (fails, ArithmeticError, "on purpose"),
}


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize(("forward", "error", "words"), FAILING.values(), ids=FAILING)
def test_a_function_that_fails_leaves_the_parameters_as_they_were(forward, error, words, graph):
    net = net_of(wrong(forward=forward), graph=graph)
    net.build() if hasattr(net, "build") else None
    before = {name: tensor.to_numpy(value) for name, value in net.parameters().items()}
    with pytest.raises(error, match=words):
        losses(net, 1)
    for name, value in net.parameters().items():
        np.testing.assert_array_equal(tensor.to_numpy(value), before[name])
    net.discard_step()  # is enough to go on
    with pytest.raises(error, match=words):
        losses(net, 1)


def keeps_a_view(self, x, y):
    kept.append(x[1:])
    np.multiply(x, 2, out=y)


def writes_behind(self, x, y):
    np.multiply(x, 2, out=y)
    np.lib.stride_tricks.as_strided(y.reshape(-1), (y.size + 24,))[-24:] = 0.25


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize(
    ("forward", "error", "words"),
    [(keeps_a_view, GraphError, "keeps 'x', or a view"), (writes_behind, OverrunError, "Wrong.forward")],
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


FOUND = {
    "output": ({"forward": forgets_a_row}, r"wanted all of 'y' written"),
    "garbage": ({"forward": reads_its_output}, "wanted all of 'y' written"),
    "gradient": ({"derivative_x": slightly_off}, r"input 0 of shape \(3, 5\): .*most at \[0, 0\]"),
    "in place": ({"forward": backwards, "overwrites": (("y", "x"),)}, "equal bits with y in the memory of x"),
    "scratch": (
        {"forward": reads_its_scratch, "makes": lambda self, x: {"y": Output(x.shape), "work": Scratch(x.shape)}},
        "do not depend on what the scratch held",
    ),
}


@pytest.mark.parametrize(("members", "words"), FOUND.values(), ids=FOUND)
def test_what_is_planted_is_found(members, words):
    with pytest.raises(testing.CheckError, match=words):
        testing.check_function(wrong(**members), X)


def test_keeping_and_allocating_are_found():
    with pytest.raises(GraphError, match="keeps 'x'"):
        testing.check_function(wrong(forward=keeps_a_view), X)
    large = wrong(forward=lambda self, x, y: np.copyto(y, np.ones(100_000)[:1] + 2 * x))
    with pytest.raises(testing.CheckError, match="at most 4096 bytes allocated, received 8"):
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
    with pytest.raises(testing.CheckError, match="hardly depend"):
        testing.check_gradients(lambda x: autograd.scale(x, 1e-6), X)
