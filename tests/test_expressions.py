"""Expressions of tensors: indices, comparisons and statistics as operators and methods, eager and recorded."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from kernel_sets import kernel_sets
from nets import bits
from op_cases import ARITHMETIC, CASES, LINEAR, ORDERING, SHAPES
from singa_lite import FeedForwardNet, Layer, autograd, device, layers, loss, optimizer, tensor
from singa_lite.device import Device
from singa_lite.errors import ShapeError
from singa_lite.tensor import Tensor

RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 3, 5)).astype("f")

#: Cases of the operations' table, beside those that have been in random graphs all along.
KEYS = [
    *ORDERING,
    *(key for key in LINEAR if key.startswith("matmul:")),
    *(key for key in SHAPES if key.split(":")[0] in ("index", "gather", "stack")),
    *(key for key in ARITHMETIC if key.split(":")[0] in ("sqrt", "square", "reduce_max", "reduce_min")),
]

#: SINGA_LITE_PLAN, SINGA_LITE_CHECKED.
MODES = {"planned": ("", ""), "unplanned": ("off", ""), "checked": ("", "1")}
every_set = pytest.mark.parametrize("kernels", [kernels.name for kernels in kernel_sets()])


def on(kernels: str) -> Device:
    return device.new_cpu(kernels=kernels)


def stored(array: Any, host: Device) -> Tensor:
    made = tensor.from_numpy(array, host)
    made.stores_grad = made.dtype.kind == "f"
    return made


def results(key: str, host: Device, dtype: str, record: bool, runs: int = 2) -> list[bytes]:
    """Bits of a case's output, and of the gradients of the sum of its squares, after so many runs."""
    case = CASES[key]
    inputs, fixed = case.arrays()
    given = [stored(array.astype(dtype), host) for array in inputs]
    others = [tensor.from_numpy(array, host) for array in fixed]

    def once() -> list[Tensor]:
        function = getattr(autograd, key.split(":")[0])
        y = case.call(function, *given, *others) if case.call else function(*given, *others, **case.settings)
        gradients = []
        if case.differentiable:
            gradients = [g.detach() for _, g in autograd.backward(autograd.reduce_sum(autograd.square(y)))]
        return [y.detach(), *gradients]

    if not record:
        return [bits(made) for made in once()]
    with host.recording() as graph:
        made = once()
    for _ in range(runs):
        graph.run()
    graph.memory_plan.check()
    return [bits(each) for each in made]


@every_set
@pytest.mark.parametrize("key", KEYS)
def test_recorded_runs_give_the_bits_of_eager_ones_however_they_are_planned(key, kernels, monkeypatch):
    for dtype in ("f", "d"):
        wanted = results(key, on(kernels), dtype, record=False)
        for plan, checked in MODES.values():
            monkeypatch.setenv("SINGA_LITE_PLAN", plan)
            monkeypatch.setenv("SINGA_LITE_CHECKED", checked)
            assert results(key, on(kernels), dtype, record=True) == wanted, (dtype, plan, checked)


@pytest.mark.parametrize(
    "at",
    [
        0,
        -1,
        np.int64(2),
        slice(0, 2),
        (slice(None), 1),
        (3, 2, 4),
        (..., None),
        (None, 1, ..., slice(None, None, 2)),
        slice(None, None, -1),
        (slice(2, 0, -2), slice(None), slice(4, 1, -1)),
        slice(2, 2),
        (slice(3, 1), ..., 0),
        (slice(-100, 100), slice(1, None, 7)),
        (),
        ...,
    ],
    ids=str,
)
def test_an_index_gives_a_tensor_of_numpys_elements_and_its_derivative_goes_there(at):
    x, wanted = tensor.from_numpy(X), X[at]
    read = x[at]
    assert isinstance(read, Tensor) and read.shape == wanted.shape and read.dtype == X.dtype
    np.testing.assert_array_equal(read, wanted)
    x.stores_grad = True
    y, dy = x[at], RNG.standard_normal(wanted.shape).astype("f")
    np.testing.assert_array_equal(y.detach(), wanted)
    ((_, gradient),) = [(p, tensor.to_numpy(g)) for p, g in autograd.backward(y, tensor.from_numpy(dy))]
    placed = np.zeros_like(X)
    placed[at] = dy
    np.testing.assert_array_equal(gradient, placed)


def test_a_part_in_an_expression_is_a_view():
    x = stored(X, device.default())
    assert x[1:3, ::2].block is x.block and x[0].block is x.block
    assert x[::-1].block is not x.block and x.detach()[0].block is not x.block
    assert autograd.index(x.detach(), 0).block is x.block


def test_a_part_without_a_derivative_stays_what_it_was_eager_and_recorded():
    host = on("numpy")
    x, one = tensor.zeros((3, 2), device=host), tensor.ones((3, 2), device=host)

    def step() -> list[Tensor]:
        part, view = x[1:], autograd.index(x, slice(1, None))
        host.run("add_scaled", one, x, alpha=1.0)
        return [autograd.reduce_sum(part), autograd.reduce_sum(view)]

    assert [float(value) for value in step()] == [0, 4]
    with host.recording() as graph:
        found = step()
    graph.run()
    assert [float(value) for value in found] == [4, 8]


def test_a_part_prints_its_values_and_one_without_values_what_it_is():
    x = tensor.from_numpy(np.array([[1.5, 2.0], [0.25, 8.0]], "f"))
    assert str(x[1]) == "[0.25 8.  ]" and repr(x[1]) == f"{x[1]}" == "<Tensor (2,) float32 on cpu>"
    with device.default().recording():
        assert str(x[1]) == repr(x[1])
    assert str(tensor.zeros((2,), device=device.abstract("numpy"))).startswith("<Tensor (2,)")


def test_integers_are_indexed_too():
    ids = tensor.from_numpy(np.arange(12).reshape(3, 4))
    np.testing.assert_array_equal(ids[1, ::-1], [7, 6, 5, 4])
    with device.default().recording() as graph:
        turned = ids[:, ::-2]
    graph.run()
    np.testing.assert_array_equal(turned, [[3, 1], [7, 5], [11, 9]])


@every_set
def test_operators_and_methods_are_operations_while_recording(kernels):
    host = on(kernels)
    x, y = tensor.from_numpy(X, host), tensor.from_numpy(X[::-1].copy(), host)
    with host.recording() as graph:
        found = {
            "less": x < y,
            "less_equal": x <= 0.5,
            "greater": x > 0,
            "greater_equal": x >= tensor.from_numpy(X[0], host),
            "mean": x.mean((0, 2)),
            "sum": x.sum(),
            "min": x.min(0, keepdims=True),
            "max": x.max(-1),
            "abs": abs(x),
            "methods": x.clip(-1, high=1).square().sqrt().maximum(0.25).minimum(x.abs()),
            "mask": (x > 0) * x,
            "first": next(iter(x)),
        }
    graph.run()
    wanted = {
        "less": X[::-1] > X,
        "less_equal": X <= 0.5,
        "greater": X > 0,
        "greater_equal": np.greater_equal(X, X[0]),
        "mean": X.mean((0, 2)),
        "sum": X.sum(),
        "min": X.min(0, keepdims=True),
        "max": X.max(-1),
        "abs": np.abs(X),
        "methods": np.minimum(np.maximum(np.abs(np.clip(X, -1, 1)), 0.25), np.abs(X)),
        "mask": np.maximum(X, 0),
        "first": X[0],
    }
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert x == x and x != y and len({x, y}) == 2
    for name in ("mean", "min", "max"):
        np.testing.assert_array_equal(getattr(x, name)(1, keepdims=True), getattr(X, name)(1, keepdims=True))


def test_a_mask_that_is_read_chooses_as_one_that_is_recorded():
    x = tensor.from_numpy(X)
    eager = autograd.where(x > 0, x, -1.0)
    with device.default().recording() as graph:
        recorded = autograd.where(x > 0, x, -1.0)
    graph.run()
    np.testing.assert_array_equal(eager, np.where(X > 0, X, -1))
    assert bits(eager) == bits(recorded)


def test_ties_share_the_derivative_as_the_docstrings_say():
    a, b = (stored(np.array(values, "d"), device.default()) for values in ([1, 2, 3], [1, 3, 2]))
    for function, wanted in ((autograd.maximum, [0.5, 0, 1]), (autograd.minimum, [0.5, 1, 0])):
        found = {id(p): tensor.to_numpy(g) for p, g in autograd.backward(function(a, b), tensor.ones((3,), "d"))}
        np.testing.assert_array_equal(found[id(a)], wanted)
        np.testing.assert_array_equal(found[id(b)], 1 - np.array(wanted))
    x = stored(np.array([[2.0, 7, 7], [7, 1, 0]]), device.default())
    for axes, wanted in (((0, 1), np.array([[0, 1, 1], [1, 0, 0]]) / 3), (1, np.array([[0, 0.5, 0.5], [1, 0, 0]]))):
        y = x.max(axes)
        ((_, found),) = [(p, tensor.to_numpy(g)) for p, g in autograd.backward(y, tensor.ones(y.shape, "d"))]
        np.testing.assert_array_equal(found, wanted)


class Windows(Layer):
    """The larger one of each position and the next but one, both scaled, in another order."""

    def setup(self, shape):
        self.add_parameter("scale", shape[1:], 1.0)
        return shape[0] - 2, shape[1]

    def forward(self, training, x):
        x = x * self.parameters["scale"]
        return autograd.maximum(x[:, :-2], x[:, 2:])[:, ::-1] - x.mean(1, keepdims=True)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_layer_of_them_trains_to_the_same_bits_recorded_or_not(precision):
    def trained(graph: bool) -> list[bytes]:
        net = FeedForwardNet(loss.SquaredError(), seed=2)
        net.add(Windows("windows", input_sample_shape=(7, 5)))
        net.add(layers.Flatten())
        net.add(layers.Dense(3))
        net.compile(optimizer.SGD(lr=0.1, momentum=0.9), graph=graph, precision=precision)
        rng = np.random.default_rng(8)
        x, y = rng.standard_normal((6, 7, 5)).astype("f"), rng.standard_normal((6, 3)).astype("f")
        losses = [float(net.train_one_batch(x, y)[0]) for _ in range(12)]
        assert losses[-1] < losses[0] / 4
        return [bits(value) for value in net.param_values()]

    if precision == "float32":
        assert trained(True) == trained(False)
    else:
        assert len(trained(True)) == 3


# ---- axes and ids that are not there


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize(
    ("axis", "error", "message"),
    [
        (7, ShapeError, "wanted an axis of x (2, 3), received axis 7"),
        (-3, ShapeError, "wanted an axis of x (2, 3), received axis -3"),
        ("a", TypeError, "received 'a'"),
        (True, TypeError, "received True"),
    ],
)
def test_an_axis_that_is_not_there(name: str, axis: Any, error: type[Exception], message: str):
    """Of values that are read at once, and of the operation where there is one."""
    x = tensor.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    asked = {f"{name}()": getattr(x, name)}
    if hasattr(autograd, f"reduce_{name}"):
        asked[f"reduce_{name} axes"] = partial(getattr(autograd, f"reduce_{name}"), x)
    for where, ask in asked.items():
        with pytest.raises(error, match=re.escape(where) + ": .*" + re.escape(message)):
            ask(axis)
    assert getattr(x, name)(-1).shape == (2,)
    np.testing.assert_array_equal(getattr(x, name)(), getattr(np.asarray(x), name)())


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_an_axis_that_is_named_twice(name: str):
    x = tensor.from_numpy(np.zeros((2, 3), np.float32))
    asked = {f"{name}()": getattr(x, name), f"reduce_{name} axes": partial(getattr(autograd, f"reduce_{name}"), x)}
    for where, ask in asked.items():
        message = f"{where}: wanted each axis of x (2, 3) once, received (0, -2)"
        with pytest.raises(ShapeError, match=re.escape(message)):
            ask((0, -2))


@pytest.mark.parametrize("wrong", [-1, 2])
def test_an_id_of_no_element(wrong: int):
    x = tensor.from_numpy(np.zeros((2, 3), np.float32))
    with pytest.raises(IndexError, match=rf"ids: wanted 0 to 1, received {wrong} at \[1, 0\]"):
        autograd.gather(x, tensor.from_numpy(np.array([[0, 1], [wrong, 0]])))


#: What takes one tensor of any shape, or two.
ANY_SHAPE = [
    *(autograd.abs, autograd.sqrt, autograd.square, autograd.exp, autograd.log, autograd.relu, autograd.tanh),
    *(autograd.sigmoid, autograd.softplus, autograd.silu, autograd.gelu, autograd.elu),
    *(lambda x: autograd.clip(x, -1, 1), lambda x: x**3, lambda x: 1 / x, lambda x: autograd.maximum(x, 1.0)),
    *(lambda x: autograd.minimum(x, x * 2.0), lambda x: autograd.where(autograd.less(x, 0.5), x, x - 1.0)),
    *(
        lambda x: autograd.softmax(x, -1),
        lambda x: autograd.stack([x, x], -1),
        lambda x: x[..., None],
        autograd.reduce_sum,
    ),
]


@every_set
@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_tensors_without_elements_have_results_and_derivatives_without(shape, kernels):
    host = on(kernels)

    def once(function: Any) -> list[Tensor]:
        x = stored(np.zeros(shape, "f"), host)
        y = function(x)
        ((_, gradient),) = [(p, g.detach()) for p, g in autograd.backward(y, tensor.ones(y.shape, device=host))]
        return [y.detach(), gradient]

    for function in ANY_SHAPE:
        done = once(function)
        with host.recording() as graph:
            found = once(function)
        graph.run()
        assert [each.shape for each in done] == [each.shape for each in found] == [done[0].shape, shape]
        assert bits(done[0]) == bits(found[0])


@every_set
def test_the_mean_of_nothing_is_nan_and_that_of_no_axis_each_element(kernels):
    host = on(kernels)
    nothing = stored(np.zeros((0, 3), "f"), host)
    np.testing.assert_array_equal(autograd.reduce_mean(nothing, 0).detach(), np.full(3, np.nan))
    np.testing.assert_array_equal(autograd.reduce_mean(nothing, 1).detach(), np.zeros(0))
    x = stored(np.array([1.0, np.nan, -np.inf], "f"), host)
    for function in (autograd.reduce_max, autograd.reduce_min, autograd.reduce_mean):
        y = function(x, ())
        np.testing.assert_array_equal(y.detach(), [1.0, np.nan, -np.inf])
        ((_, gradient),) = [(p, tensor.to_numpy(g)) for p, g in autograd.backward(y, tensor.ones((3,), device=host))]
        np.testing.assert_array_equal(gradient, np.ones(3))


def test_what_does_not_depend_on_x_has_no_derivative_by_it():
    """x ** 0 is 1, at 0 and at NaN too."""
    x = stored(np.array([0.0, -0.0, 2.0, np.nan, np.inf]), device.default())
    y = x**0
    np.testing.assert_array_equal(y.detach(), np.ones(5))
    ((_, gradient),) = [(p, tensor.to_numpy(g)) for p, g in autograd.backward(y, tensor.ones((5,), "d"))]
    np.testing.assert_array_equal(gradient, np.zeros(5))


@every_set
def test_the_root_of_a_negative_zero_is_one(kernels: str):
    zeros = tensor.from_numpy(np.full((5, 7), -0.0, np.float32), on(kernels))
    assert np.signbit(tensor.to_numpy(autograd.sqrt(zeros))).all()
