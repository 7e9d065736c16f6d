"""Expressions of tensors: indices, comparisons and statistics as operators and methods, eager and recorded."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from kernel_sets import kernel_sets
from nets import bits
from op_cases import ARITHMETIC, CASES, LINEAR, ORDERING, SHAPES
from singa_lite import FeedForwardNet, Layer, autograd, device, layers, optimizer, tensor
from singa_lite.device import Device
from singa_lite.errors import ShapeError
from singa_lite.tensor import Tensor

RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 3, 5)).astype("f")


#: Cases of the operations' table, beside those that random graphs are made of.
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


def gradient_of(y: Tensor, dy: np.ndarray | None = None) -> np.ndarray:
    """By the one tensor that y depends on; dy is 1 where none is given."""
    given = np.ones(y.shape, y.dtype) if dy is None else dy
    ((_, gradient),) = [(p, tensor.to_numpy(g)) for p, g in autograd.backward(y, tensor.from_numpy(given, y.device))]
    return gradient


def results(key: str, host: Device, dtype: str, record: bool) -> list[Any]:
    """Bits of a case's output, and of the gradients of the sum of its squares; recorded, after two runs."""
    case = CASES[key]
    inputs, fixed = case.arrays()
    given = [stored(array.astype(dtype), host) for array in inputs]
    others = [tensor.from_numpy(array, host) for array in fixed]

    def once() -> list[Tensor]:
        function = getattr(autograd, key.split(":")[0])
        y = case.call(function, *given, *others) if case.call else function(*given, *others, **case.settings)
        total = autograd.reduce_sum(autograd.square(y)) if case.differentiable else None
        gradients = [] if total is None else [g.detach() for _, g in autograd.backward(total)]
        return [y.detach(), *gradients]

    if not record:
        return [bits(made) for made in once()]
    with host.recording() as graph:
        made = once()
    for _ in range(2):
        graph.run()
    graph.memory_plan.check()
    return [bits(each) for each in made]


def same_in_each_mode(key: str, kernels: str) -> None:
    for dtype in ("f", "d"):
        wanted = results(key, on(kernels), dtype, record=False)
        for mode, (plan, checked) in MODES.items():
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SINGA_LITE_PLAN", plan)
                patch.setenv("SINGA_LITE_CHECKED", checked)
                assert results(key, on(kernels), dtype, record=True) == wanted, (dtype, mode)


@every_set
def test_recorded_runs_give_the_bits_of_eager_ones_however_they_are_planned(kernels):
    over_rows(same_in_each_mode, ((key, (key, kernels)) for key in KEYS))


@pytest.mark.parametrize("values", [X, np.arange(60).reshape(4, 3, 5)], ids=["floats", "whole numbers"])
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
def test_an_index_gives_a_tensor_of_numpys_elements_and_its_derivative_goes_there(at, values):
    x, wanted = stored(values, device.default()), values[at]
    for read in (x[at], x.detach()[at]):
        assert isinstance(read, Tensor) and read.shape == wanted.shape and read.dtype == values.dtype
        np.testing.assert_array_equal(read.detach(), wanted)
    if x.stores_grad:
        dy, placed = RNG.standard_normal(wanted.shape).astype("f"), np.zeros_like(X)
        placed[at] = dy
        np.testing.assert_array_equal(gradient_of(x[at], dy), placed)


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
            "where": autograd.where(x > 0, x, -1.0),
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
        "where": np.where(X > 0, X, -1),
        "first": X[0],
    }
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-6, err_msg=name)
    assert x == x and x != y and len({x, y}) == 2
    for name in ("mean", "min", "max"):
        np.testing.assert_array_equal(getattr(x, name)(1, keepdims=True), getattr(X, name)(1, keepdims=True))


def test_ties_share_the_derivative_as_the_docstrings_say():
    a, b = (stored(np.array(values, "d"), device.default()) for values in ([1, 2, 3], [1, 3, 2]))
    for function, wanted in ((autograd.maximum, [0.5, 0, 1]), (autograd.minimum, [0.5, 1, 0])):
        found = {id(p): tensor.to_numpy(g) for p, g in autograd.backward(function(a, b), tensor.ones((3,), "d"))}
        np.testing.assert_array_equal(found[id(a)], wanted)
        np.testing.assert_array_equal(found[id(b)], 1 - np.array(wanted))
    x = stored(np.array([[2.0, 7, 7], [7, 1, 0]]), device.default())
    for axes, wanted in (((0, 1), np.array([[0, 1, 1], [1, 0, 0]]) / 3), (1, np.array([[0, 0.5, 0.5], [1, 0, 0]]))):
        np.testing.assert_array_equal(gradient_of(x.max(axes)), wanted)


class Windows(Layer):
    """The larger one of each position and the next but one, both scaled, in another order."""

    def setup(self, shape):
        self.add_parameter("scale", shape[1:], 1.0)
        return shape[0] - 2, shape[1]

    def forward(self, training, x):
        x = x * self.parameters["scale"]
        return autograd.maximum(x[:, :-2], x[:, 2:])[:, ::-1] - x.mean(1, keepdims=True)


def test_a_layer_of_them_trains_to_the_same_bits_recorded_or_not_and_in_16_bits():
    x, y = RNG.standard_normal((6, 7, 5)).astype("f"), RNG.standard_normal((6, 3)).astype("f")
    found = []
    for options in ({}, {"graph": False}, {"precision": "bfloat16"}):
        net = FeedForwardNet("mse", seed=2)
        net.add(Windows("windows", input_sample_shape=(7, 5)))
        net.add(layers.Flatten())
        net.add(layers.Dense(3))
        net.compile(optimizer.SGD(lr=0.1, momentum=0.9), **options)
        losses = [float(net.train_one_batch(x, y)[0]) for _ in range(12)]
        assert losses[-1] < losses[0] / 4
        found.append([bits(value) for value in net.param_values()])
    assert found[0] == found[1]


# ---- axes and ids that are not there


AXES = [(7, ShapeError, "7"), (-3, ShapeError, "-3"), ("a", TypeError, "'a'"), (True, TypeError, "True")]


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "argmax", "argmin"])
def test_axes_are_there_and_named_once(name: str):
    """For values that are read at once, and for the operation where there is one."""
    x = tensor.from_numpy(np.arange(6, dtype=np.float32).reshape(2, 3))
    asked = {f"{name}()": getattr(x, name)}
    if hasattr(autograd, f"reduce_{name}"):
        asked[f"reduce_{name} axes"] = partial(getattr(autograd, f"reduce_{name}"), x)
    wrong = AXES if name.startswith("arg") else [*AXES, ((0, -2), ShapeError, "(0, -2)")]
    for where, ask in asked.items():
        for axes, error, received in wrong:
            with pytest.raises(error, match=re.escape(where) + ": .*" + re.escape(received)):
                ask(axes)
    assert getattr(x, name)(-1).shape == (2,)
    np.testing.assert_array_equal(getattr(x, name)(), getattr(np.asarray(x), name)())


def test_an_id_of_no_element():
    x = tensor.from_numpy(np.zeros((2, 3), np.float32))
    for wrong in (-1, 2):
        with pytest.raises(IndexError, match=rf"ids: .* {wrong} at \[1, 0\]"):
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
        np.testing.assert_array_equal(gradient_of(y), np.ones(3))


@every_set
def test_powers_of_0_are_constant_and_the_root_of_a_negative_zero_is_one(kernels):
    """x ** 0 is 1, at 0 and at NaN too."""
    x = stored(np.array([0.0, -0.0, 2.0, np.nan, np.inf]), on(kernels))
    y = x**0
    np.testing.assert_array_equal(y.detach(), np.ones(5))
    np.testing.assert_array_equal(gradient_of(y), np.zeros(5))
    zeros = tensor.from_numpy(np.full((5, 7), -0.0, np.float32), on(kernels))
    assert np.signbit(tensor.to_numpy(autograd.sqrt(zeros))).all()
