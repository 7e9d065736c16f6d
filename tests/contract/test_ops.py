"""What holds for every operation: its gradients, alone and together, and what it leaves behind."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from op_cases import CASES, Case
from singa_lite import autograd, device, tensor
from singa_lite.autograd import ops
from singa_lite.autograd.ops.op import Op
from singa_lite.tensor import Tensor
from singa_lite.testing.gradients import by_tape, outputs_of, spread
from singa_lite.testing.gradients import compare as check_gradients

DIFFERENTIABLE = {key: case for key, case in CASES.items() if case.differentiable}
every_case = pytest.mark.parametrize("key", CASES)
every_differentiable_case = pytest.mark.parametrize("key", DIFFERENTIABLE)


class Prepared:
    """A case's function with its tensors, all inputs storing their gradients."""

    def __init__(self, key: str, on: Any = None) -> None:
        self.case: Case = CASES[key]
        self.function = getattr(autograd, key.split(":")[0])
        self.device = on or device.cpu()
        inputs, self.fixed_arrays = self.case.arrays()
        self.inputs = [tensor.from_numpy(array, self.device) for array in inputs]
        self.fixed = [tensor.from_numpy(array, self.device) for array in self.fixed_arrays]
        for entry in self.inputs:
            entry.stores_grad = True

    def forward(self) -> Any:
        """Call the function, with the fixed tensors as they were at the beginning."""
        for entry, array in zip(self.fixed, self.fixed_arrays, strict=True):
            entry.copy_from_numpy(array)
        if self.case.call is not None:
            return self.case.call(self.function, *self.inputs, *self.fixed)
        return self.function(*self.inputs, *self.fixed, **self.case.settings)


def functions() -> set[str]:
    """Names of the functions that `autograd` takes from the operations' modules and that give tensors."""
    found = {n: f for n, f in vars(autograd).items() if inspect.isfunction(f)}
    return {n for n, f in found.items() if f.__module__.startswith("singa_lite.autograd.ops.") and n != "no_grad"}


def op_classes() -> Iterator[type[Op]]:
    """The Op classes that the operations' modules define for use, not as bases only."""
    for module in pkgutil.iter_modules(ops.__path__, "singa_lite.autograd.ops."):
        for name, member in vars(importlib.import_module(module.name)).items():
            is_op = inspect.isclass(member) and issubclass(member, Op) and hasattr(member, "forward")
            if is_op and name[0] != "_" and not inspect.isabstract(member):
                yield member


def on_the_tape(output: Tensor) -> set[type[Op]]:
    """The classes of all operations that the output depends on."""
    found, nodes = set(), [output.creator] if output.creator is not None else []
    while nodes:
        node = nodes.pop()
        found.add(type(node))
        nodes += [edge.node for edge in node.edges if edge is not None and edge.node is not None]
    return found


def test_every_function_has_a_case():
    missing = functions() - {key.split(":")[0] for key in CASES}
    assert not missing, f"functions without a case in op_cases.py: {sorted(missing)}"


def test_every_op_is_used_in_a_case():
    outputs = [output for key in CASES for output in outputs_of(Prepared(key).forward())]
    used = set().union(*map(on_the_tape, outputs))
    missing = set(op_classes()) - used
    assert not missing, f"operations that no case in op_cases.py uses: {sorted(op.__name__ for op in missing)}"


@every_differentiable_case
def test_gradients_are_those_of_central_differences(key):
    prepared = Prepared(key)
    check_gradients(prepared.forward, prepared.inputs)


@every_differentiable_case
def test_each_gradient_alone_is_the_one_of_all_together(key):
    together = Prepared(key)
    wanted = by_tape(together.forward, together.inputs)
    for place in range(len(wanted)):
        alone = Prepared(key)
        for other, entry in enumerate(alone.inputs):
            entry.stores_grad = other == place
        (found,) = by_tape(alone.forward, [alone.inputs[place]])
        np.testing.assert_allclose(found, wanted[place], rtol=1e-13, atol=1e-13)


@every_case
def test_no_memory_is_left_behind(key):
    prepared = Prepared(key, device.new_cpu())
    before = prepared.device.pool.used
    with autograd.no_grad():
        assert outputs_of(prepared.forward())
    assert prepared.device.pool.used == before
    if prepared.case.differentiable:
        by_tape(prepared.forward, prepared.inputs)
        assert prepared.device.pool.used == before


class WrongScale(Op):
    """Twice x, with a derivative that is wrong in one element by a few millionths."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.empty_like(x)
        self.device.run("scale", x, y, alpha=2.0, beta=0.0)
        return y

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        dx = 2 * tensor.to_numpy(dys[0])
        dx[0, 0] += 4e-6 * abs(dx).max()
        return tensor.from_numpy(dx)


def test_a_slightly_wrong_derivative_is_found():
    x = tensor.from_numpy(spread(np.random.default_rng(1), (2, 3)))
    x.stores_grad = True
    check_gradients(lambda: autograd.scale(x, 2.0), [x])
    with pytest.raises(AssertionError, match=r"tensor 0 of shape \(2, 3\)"):
        check_gradients(lambda: WrongScale()(x), [x])
    with pytest.raises(AssertionError, match="hardly depend"):
        check_gradients(lambda: autograd.scale(x, 1e-5), [x])


@pytest.mark.parametrize("loss", [autograd.softmax_cross_entropy, autograd.huber], ids=lambda loss: loss.__name__)
def test_there_is_no_derivative_by_a_target(loss):
    scores, target = (tensor.from_numpy(np.full((2, 3), 0.5)) for _ in range(2))
    target.stores_grad = True
    with pytest.raises(TypeError, match="has no derivative by its input 1"):
        list(autograd.backward(loss(scores, target)))
