"""The tape: what backward yields and when, how long a gradient lives, and that no derivative is ever spoilt."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from every_row import over_rows
from nets import bits
from op_cases import CASES, Case
from singa_lite import GraphError, ShapeError, Tensor, autograd, device, tensor
from singa_lite.testing.gradients import outputs_of


class Tensors:
    """Makes tensors of random values, equal ones for equal seeds."""

    def __init__(self, seed: int, on: device.Device | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.device = on

    def constant(self, *shape: int, dtype: str = "float64") -> Tensor:
        return tensor.from_numpy(self.rng.uniform(0.3, 1.7, shape).astype(dtype), self.device)

    def parameter(self, *shape: int, name: str = "") -> Tensor:
        made = self.constant(*shape)
        made.name, made.stores_grad = name, True
        return made


constant, parameter = Tensors(5).constant, Tensors(6).parameter


def collected(y: Tensor, dy: Tensor | None = None) -> dict[str, np.ndarray]:
    """Copies of all gradients by the parameter's name, in the order in which they came."""
    found: dict[str, np.ndarray] = {}
    for value, gradient in autograd.backward(y, dy):
        assert value.name not in found
        found[value.name] = tensor.to_numpy(gradient)
    return found


def two_layers() -> tuple[Tensor, list[Tensor]]:
    x, target = constant(5, 3), tensor.from_numpy(np.array([0, 3, 1, 1, 2]))
    w0, b0, w1 = parameter(3, 6, name="w0"), parameter(6, name="b0"), parameter(6, 4, name="w1")
    hidden = autograd.relu(autograd.add_bias(autograd.matmul(x, w0), b0))
    return autograd.softmax_cross_entropy(autograd.matmul(hidden, w1), target), [w0, b0, w1]


# --- what is yielded, and when ------------------------------------------------------------------------------


def test_each_parameter_comes_once_and_last_layers_first():
    y, parameters = two_layers()
    found = collected(y)
    assert list(found) == ["w1", "b0", "w0"]
    assert [found[p.name].shape for p in parameters] == [p.shape for p in parameters]


def test_a_parameter_comes_once_after_its_last_contribution_with_the_sum():
    p, q = parameter(4, name="p"), parameter(4, name="q")
    found = collected(autograd.reduce_sum((p * 3.0) * q * (p * p)))
    assert list(found) == ["q", "p"]
    np.testing.assert_allclose(found["p"], 9 * tensor.to_numpy(p) ** 2 * tensor.to_numpy(q), rtol=1e-14)
    np.testing.assert_allclose(found["q"], 3 * tensor.to_numpy(p) ** 3, rtol=1e-14)


def test_an_output_that_nobody_used_contributes_zero():
    p = parameter(3, 7, name="p")
    left, _, right = autograd.split(p, 1, (2, 4))
    gradient = collected(autograd.reduce_sum(left * 2.0) + autograd.reduce_sum(right * 5.0))["p"]
    assert gradient.tolist() == [[2, 2, 0, 0, 5, 5, 5]] * 3


def test_nothing_is_computed_before_it_is_asked_for():
    y, _ = two_layers()
    kernels: list[str] = []
    with device.default().watch(lambda operation: kernels.append(operation.kernel)):
        walk = autograd.backward(y, tensor.ones((), np.float64))
        before = list(kernels)
        next(walk)
        first = list(kernels)
        list(walk)
    assert "matmul" not in before
    assert 0 < first.count("matmul") < kernels.count("matmul")


def gradients_of(case: Case, function: Callable[..., Any], turn: int, spoil: bool) -> dict[str, Any]:
    """By all inputs, of which one is made by an operation before, so that its derivative comes last."""
    inputs, fixed = case.arrays()
    named = []
    for place, array in enumerate(inputs):
        named.append(tensor.from_numpy(array))
        named[-1].name, named[-1].stores_grad = str(place), True
    given = [value * 1.0 if place == turn else value for place, value in enumerate(named)]
    others = [tensor.from_numpy(array) for array in fixed]
    y = case.call(function, *given, *others) if case.call else function(*given, *others, **case.settings)
    total = constant() * 0.0
    for number, output in enumerate(outputs_of(y)):
        total = total + autograd.reduce_sum(output * Tensors(number).constant(*output.shape))
    found = {}
    for value, gradient in autograd.backward(total):
        found[value.name] = bits(gradient)
        if spoil:
            value.copy_from_numpy(np.full(value.shape, 1e9))
            gradient.copy_from_numpy(np.full(gradient.shape, -1e9))
    return found


def assert_unspoilt(key: str, turn: int) -> None:
    case, function = CASES[key], getattr(autograd, key.split(":")[0])
    wanted = gradients_of(case, function, turn, spoil=False)
    assert len(wanted) == len(case.shapes)
    assert gradients_of(case, function, turn, spoil=True) == wanted


def test_values_and_gradients_may_be_overwritten_inside_the_loop():
    """Whatever the consumer does to a parameter or its gradient, those that come later are the same bits."""
    several = {key: case for key, case in CASES.items() if case.differentiable and len(case.shapes) > 1}
    over_rows(
        assert_unspoilt,
        ((f"{key}, input {turn}", (key, turn)) for key, case in several.items() for turn in range(len(case.shapes))),
    )


def test_dy_scales_the_gradient_and_stays_as_it_is():
    p, q = parameter(4, 3, name="p"), parameter(4, 3, name="q")
    dy = constant(4, 3)
    before = bits(dy)
    for _, gradient in autograd.backward(p + q, dy):
        assert bits(gradient) == before
        gradient.copy_from_numpy(np.zeros((4, 3)))
    assert bits(dy) == before


# --- a gradient's life --------------------------------------------------------------------------------------


def test_a_gradient_dies_when_the_next_is_asked_for_and_a_copy_does_not():
    y, _ = two_layers()
    kept, copies, arrays = [], [], []
    for value, gradient in autograd.backward(y):
        kept.append((value.name, gradient))
        copies.append(gradient * 1.0)
        arrays.append(tensor.to_numpy(gradient))
        for name, old in kept[:-1]:
            with pytest.raises(GraphError, match=name):
                tensor.to_numpy(old)
    for copied, array in zip(copies, arrays, strict=True):
        np.testing.assert_array_equal(tensor.to_numpy(copied), array)
    uses = (lambda g: g.block, lambda g: g + 1.0, autograd.relu, lambda g: g.copy_from_numpy(np.zeros(g.shape)))
    for name, old in kept:
        assert repr(old)
        for use in uses:
            with pytest.raises(GraphError, match=name):
                use(old)


@pytest.mark.parametrize("stop", [0, 1, 2])
def test_closing_early_gives_all_memory_back(stop):
    on = device.new_cpu()
    made = Tensors(2, on)
    x, ws = made.constant(50, 40), [made.parameter(40, 40, name=f"w{i}") for i in range(4)]
    level = on.pool.used
    y = x
    for w in ws:
        y = autograd.relu(autograd.matmul(y, w))
    walk = autograd.backward(autograd.reduce_sum(y))
    del y
    for _ in range(stop):
        next(walk)
    assert on.pool.used > level
    walk.close()
    del walk
    assert on.pool.used == level
    assert x.device is ws[0].device is on  # alive until here


def test_the_tape_is_forgotten_as_it_is_walked():
    """While the first gradient of a chain is out, what only later operations needed is back in the pool."""
    on = device.new_cpu()
    made = Tensors(2, on)
    x, ws = made.constant(64, 32), [made.parameter(32, 32, name=f"w{i}") for i in range(6)]
    y = x
    for w in ws:
        y = autograd.matmul(y, w)
    walk = autograd.backward(autograd.reduce_sum(y))
    del y
    used = []
    for _ in walk:
        used.append(on.pool.used)
    activation = 64 * 32 * 8
    # The last gradient has no derivative beside it, and its activation is x itself.
    np.testing.assert_array_equal(-np.diff(used[:-1]), activation)


def test_no_memory_waits_for_the_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        on = device.new_cpu()
        x, w = Tensors(2, on).constant(30, 20), Tensors(3, on).parameter(20, 20, name="w")
        level = on.pool.used
        for value, gradient in autograd.backward(autograd.reduce_sum(autograd.relu(autograd.matmul(x, w)))):
            del value, gradient
        assert on.pool.used == level
        y = autograd.relu(autograd.matmul(x, w))
        assert on.pool.used > level
        del y
        assert on.pool.used == level
    finally:
        gc.enable()


# --- no tape ------------------------------------------------------------------------------------------------


def test_no_grad_tapes_nothing_and_keeps_nothing_and_ends_with_its_block():
    on = device.new_cpu()
    x, w = Tensors(2, on).constant(30, 20), Tensors(3, on).parameter(20, 20, name="w")
    level = on.pool.used
    with autograd.no_grad():
        y = autograd.relu(autograd.matmul(x, w))
    assert on.pool.used == level + y.nbytes
    assert not y.requires_grad
    with pytest.raises(ShapeError), autograd.no_grad():
        w + Tensors(2, on).constant(4)
    assert list(collected(autograd.reduce_sum(w * 2.0))) == ["w"]


def test_derivatives_pass_no_detached_tensor_and_others_where_asked():
    p, q, x = parameter(3, name="p"), parameter(3, name="q"), constant(4)
    assert list(collected(autograd.reduce_sum((p * 2.0).detach() * q))) == ["q"]
    assert not (x * 2.0).requires_grad
    x.requires_grad = True
    assert (x * 2.0).requires_grad


# --- errors -------------------------------------------------------------------------------------------------


def untaped() -> Tensor:
    with autograd.no_grad():
        return parameter(3) * 2.0


def walked() -> Tensor:
    y, _ = two_layers()
    collected(y)
    return y


def partly_walked() -> Tensor:
    """A part of it was a part of another expression too, which was walked."""
    shared = parameter(3, name="p") * 2.0
    first, second = autograd.reduce_sum(shared), autograd.reduce_sum(shared * parameter(3, name="q"))
    collected(first)
    return second


@pytest.mark.parametrize(
    ("make", "dy", "error", "culprit"),
    [
        (lambda: constant(3), None, GraphError, "taped"),
        (untaped, None, GraphError, "taped"),
        (walked, None, GraphError, "walked once"),
        (partly_walked, None, GraphError, "walked once"),
        (lambda: parameter(3) * 2.0, None, ShapeError, r"\(3,\)"),
        (lambda: parameter(3) * 2.0, constant(4), ShapeError, r"\(4,\)"),
        (lambda: parameter(3) * 2.0, constant(3, dtype="float32"), TypeError, "float32"),
    ],
)
def test_what_backward_refuses(make, dy, error, culprit):
    y = make()
    with pytest.raises(error, match=culprit):
        autograd.backward(y, dy)


# --- long expressions --------------------------------------------------------------------------------------


def test_a_chain_of_thousands_neither_recurses_nor_overflows_walked_or_dropped():
    p = parameter(3, name="p")
    y = p
    for _ in range(5000):
        y = y + 1.0
    np.testing.assert_array_equal(collected(y, tensor.ones((3,), np.float64))["p"], np.ones(3))
    y = p
    for _ in range(20_000):
        y = y + 1.0
    del y


# --- operations ---------------------------------------------------------------------------------------------


def test_operations_of_an_expression_state_phase_reads_and_writes():
    x, p = constant(5, 3), parameter(3, 4, name="p")
    q = parameter(3, name="q")
    seen = []
    with device.default().watch(seen.append):
        with device.default().scope(layer="here"):
            y = autograd.matmul(x * q, p)
        walk = autograd.backward(y, constant(5, 4))
        for _ in walk:
            pass
    assert [(o.kernel, o.phase, o.layer) for o in seen] == [
        ("multiply", "forward", "here"),
        ("matmul", "forward", "here"),
        ("matmul", "derivative", "here"),
        ("matmul", "gradient", "here"),
        ("multiply", "gradient", "here"),
        ("reduce_sum", "gradient", "here"),
    ]
    product, forward, derivative, gradient, *_ = seen
    assert [t.shape for t in product.reads] == [(5, 3), (3,)]
    assert [t.shape for t in forward.reads] == [(5, 3), (3, 4)]
    assert forward.reads[0].block is product.writes[0].block
    assert forward.reads[1].block is p.block
    assert [t.block for t in forward.writes] == [y.block]
    assert [t.shape for t in derivative.writes] == [(5, 3)]
    assert [t.shape for t in gradient.writes] == [(3, 4)]
    assert gradient.reads[0].block is product.writes[0].block


def test_cast_rounds_there_and_back():
    x = tensor.from_numpy(np.array([1.0, 1 + 2**-12, 60001.0, -3e-9], np.float32))
    x.stores_grad = True
    y = autograd.cast(x, "float16")
    assert tensor.to_numpy(y).tolist() == np.array([1, 1, 60000, 0], np.float16).tolist()
    dy = np.array([1, 2, 3, 0.1], np.float16)
    for _, dx in autograd.backward(y, tensor.from_numpy(dy)):
        assert dx.dtype == np.float32
        assert tensor.to_numpy(dx).tolist() == dy.astype(np.float32).tolist()
    assert autograd.cast(x, "float32") is x
