"""Rules for rewriting: proved when they are made, applied to a record, and held against it; planted faults are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import singa_lite
from singa_lite import FeedForwardNet, Tensor, autograd, device, layers, loss, optimizer, tensor
from singa_lite.compiler import pipeline
from singa_lite.compiler.ir.program import Program
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.errors import ConfigError, GraphError, RuleError
from singa_lite.graph import Graph
from singa_lite.rewriting import Rule


class SquaredExp(autograd.Function):
    """y = (e**x)**2."""

    def makes(self, x: Any) -> dict[str, Any]:
        return {"y": autograd.Output(x.shape)}

    def forward(self, x: Any, y: Any) -> None:
        np.exp(x, out=y)
        np.multiply(y, y, out=y)

    def derivative_x(self, y: Any, dy: Any, dx: Any) -> None:
        np.multiply(dy, y, out=dx)
        np.add(dx, dx, out=dx)


def exp_times_exp(x: Tensor) -> Tensor:
    h = autograd.exp(x)
    return h * h


def relu_twice(x: Tensor) -> Tensor:
    return autograd.relu(autograd.relu(x))


def squared_exp() -> Rule:
    return Rule("squared exp", exp_times_exp, lambda x: SquaredExp()(x), tolerance=1e-5)


def one_relu() -> Rule:
    return Rule("one relu", relu_twice, autograd.relu)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def kernels(graph: Graph) -> list[str]:
    """Of the planned step, in order."""
    return [instruction.kernel for instruction in graph.memory_plan.placed.planned.instructions]


# ---- the proof of a rule


class WrongWay(SquaredExp):
    """Half of the derivative."""

    def derivative_x(self, y: Any, dy: Any, dx: Any) -> None:
        np.multiply(dy, y, out=dx)


class Cleaned(autograd.Function):
    """0 where x is NaN, and x elsewhere: the only difference from x is at NaN."""

    def makes(self, x: Any) -> dict[str, Any]:
        return {"y": autograd.Output(x.shape)}

    def forward(self, x: Any, y: Any) -> None:
        np.copyto(y, x)
        y[np.isnan(x)] = 0.0


def same(x: Tensor) -> Tensor:
    return x * 1.0 * 1.0


def near(x: Tensor) -> Tensor:
    return autograd.scale(x, 2.0 + 1e-4)


def doubled(x: Tensor) -> Tensor:
    return autograd.scale(x, 2.0)


#: {name: (pattern, replacement, options, what of the difference is told)}. Within a tolerance, which is a share of the
#: pattern's value, infinities and NaN stand at the same places however large it is.
FALSE: dict[str, tuple[Callable[..., Any], Callable[..., Any], dict[str, Any], str]] = {
    "two inputs": (lambda a, b: a - b, lambda a, b: b - a, {}, r"'false'.*at \[0\].*float32.* a\[0\] = .*; b\[0\] = "),
    "zeros of both signs": (
        same,
        lambda x: autograd.where(autograd.equal(x, 0.0), 0.0, x),
        {},
        "= -0.0",
    ),
    "infinity": (lambda x: x - x, lambda x: x * 0.0, {}, "= -?inf|nan|-0.0 "),
    "NaN": (same, lambda x: Cleaned()(x), {"tolerance": 1e-6}, "nan of the pattern and 0.0 .*= nan"),
    "beyond the tolerance": (doubled, near, {"tolerance": 1e-5}, "1e-05"),
    "a number for infinity": (
        autograd.exp,
        lambda x: autograd.minimum(autograd.exp(x), 1e30),
        {"tolerance": 1e9},
        "inf",
    ),
    "infinity of the other sign": (lambda x: x**-1, lambda x: autograd.abs(x**-1), {"tolerance": 1e9}, "inf"),
    "a number for NaN": (
        same,
        lambda x: autograd.where(autograd.equal(x, x), x, 0.0),
        {"tolerance": 1e9},
        "nan",
    ),
    "derivative": (
        exp_times_exp,
        lambda x: WrongWay()(x),
        {"tolerance": 1e-5, "derivatives": True},
        r"derivative by 'x'.*dy\[",
    ),
}


@pytest.mark.parametrize("name", FALSE)
def test_a_false_rule_is_refused_and_the_first_input_that_differs_is_told(name):
    pattern, replacement, options, told = FALSE[name]
    with pytest.raises(RuleError, match=told):
        Rule("false", pattern, replacement, **{"derivatives": False, **options})


def test_a_true_rule_is_taken_with_what_it_states():
    one_relu()
    Rule("near", doubled, near, tolerance=1e-3)
    Rule("there alone", exp_times_exp, lambda x: WrongWay()(x), tolerance=1e-5, derivatives=False)


def test_shapes_are_what_the_rule_states():
    """The matrix product by its transpose; a product of (n, k) and (k, n) alone is none of (n, k) and (k, m)."""
    turned = Rule(
        "turned",
        lambda a, b: autograd.transpose(autograd.matmul(a, b), (1, 0)),
        lambda a, b: autograd.matmul(autograd.transpose(b, (1, 0)), autograd.transpose(a, (1, 0))),
        [("n", "k"), ("k", "m")],
        tolerance=1e-5,
        derivatives=False,
    )
    assert turned.name == "turned"
    with pytest.raises(ValueError, match="matmul"):
        Rule("no shapes that fit", autograd.matmul, autograd.matmul, [("n", "k"), ("n", "m")])


@pytest.mark.parametrize(
    ("make", "error", "culprit"),
    [
        (lambda: Rule("", relu_twice, autograd.relu), TypeError, "name"),
        (lambda: Rule("r", 3, autograd.relu), TypeError, "pattern.* 3"),
        (lambda: Rule("r", relu_twice, lambda a, b: a), TypeError, "replacement"),
        (lambda: Rule("r", relu_twice, autograd.relu, [("n",), ("n",)]), ValueError, "inputs"),
        (lambda: Rule("r", relu_twice, autograd.relu, "n"), TypeError, "inputs"),
        (lambda: Rule("r", relu_twice, autograd.relu, [(0,)]), TypeError, "0"),
        (lambda: Rule("r", relu_twice, autograd.relu, dtypes=("int32",)), ValueError, "int32"),
        (lambda: Rule("r", relu_twice, autograd.relu, tolerance=-1), ValueError, "tolerance"),
        (lambda: Rule("r", lambda x: x, autograd.relu), RuleError, "pattern"),
        (lambda: Rule("r", autograd.relu, lambda x: x), RuleError, "input or a view"),
        (lambda: Rule("r", lambda x: 3, autograd.relu), TypeError, "Tensor"),
        (lambda: Rule("r", relu_twice, lambda x: (x + x, x * x)), RuleError, "results"),
        (lambda: Rule("r", lambda x: x + numbers(1), autograd.relu), RuleError, "other tensors"),
        (lambda: Rule("r", lambda a, b: a + a, lambda a, b: a + a), RuleError, "'b'"),
        (lambda: compiled(rules=3), TypeError, "rules.*int"),
        (lambda: compiled(rules=["relu"]), TypeError, "rules.*'relu'"),
        (lambda: compiled(rules=one_relu), TypeError, "rules"),
        (lambda: compiled(rules=[one_relu()], graph=False), ValueError, "graph=True"),
        (lambda: compiled(rules=[one_relu()] * 2), ValueError, "rules.*name"),
        (lambda: recorded()[0].rewrite("relu"), TypeError, "rewrite.*str"),
    ],
)
def test_what_is_no_rule_is_refused(make, error, culprit):
    with pytest.raises(error, match=culprit):
        make()


# ---- a recorded expression


def recorded() -> tuple[Graph, Tensor, Tensor]:
    """exp(x) * exp(x), and relu of relu of x, each once where an inner value is held too."""
    cpu = device.cpu()
    x = tensor.from_numpy(numbers(3, 5), cpu)
    with cpu.recording() as graph:
        held = autograd.exp(x)
        made = held * held
        total = exp_times_exp(x) + relu_twice(x) + made
    return graph, total, held


def test_a_rule_is_applied_wherever_nothing_else_needs_what_goes():
    plain, wanted, _ = recorded()
    plain.run()
    graph, found, _held = recorded()
    assert graph.rewrite(squared_exp()) == 1
    assert graph.rewrite(one_relu()) == 1
    assert graph.rewrite(one_relu()) == 0
    graph.run()
    np.testing.assert_allclose(tensor.to_numpy(found), tensor.to_numpy(wanted), rtol=1e-5)
    assert sorted(k for k in kernels(graph) if "add" not in k) == ["SquaredExp.forward", "exp", "multiply", "relu"]
    assert graph.memory_plan.rewrites == {"squared exp": 1, "one relu": 1}
    assert graph.count == plain.count, "the record is as it was"
    graph.memory_plan.check()


def test_rewriting_comes_before_planning():
    graph, _total, _held = recorded()
    graph.run()
    with pytest.raises(GraphError, match="rewrite"):
        graph.rewrite(one_relu())


def test_a_rule_is_not_applied_where_an_input_changes_on_the_way():
    """The two relus have another parameter's update between them, which moves what the first one reads."""
    cpu = device.cpu()
    x = tensor.from_numpy(numbers(3, 5), cpu)
    with cpu.recording() as graph:
        first = autograd.exp(x)
        cpu.run("fill", x, value=0.0)
        found = first * first
    assert graph.rewrite(squared_exp()) == 0
    graph.run()
    np.testing.assert_allclose(tensor.to_numpy(found), np.exp(2 * numbers(3, 5)), rtol=1e-5)


def test_dtypes_and_shapes_that_the_rule_does_not_state_are_left_alone():
    cpu = device.cpu()
    rule = Rule("rows of 5", relu_twice, autograd.relu, [("n", 5)], dtypes=("float32",))
    given = [numbers(3, 5), numbers(3, 4), numbers(2, 3, 5), numbers(3, 5).astype(np.float64)]
    with cpu.recording() as graph:
        _made = [relu_twice(tensor.from_numpy(one, cpu)) for one in given]
    assert graph.rewrite(rule) == 1


def test_a_pattern_may_name_operations_of_the_kernel_interface():
    def named(x: Tensor) -> Tensor:
        y, z = x.device.empty(x.shape, x.dtype), x.device.empty(x.shape, x.dtype)
        x.device.run("exp", x, y)
        x.device.run("log", y, z)
        return z

    def copied(x: Tensor) -> Tensor:
        y = x.device.empty(x.shape, x.dtype)
        x.device.run("scale", x, y, alpha=1.0, beta=0.0)
        return y

    with pytest.raises(RuleError, match="log of exp"):
        Rule("log of exp", named, copied, derivatives=False)  # e**-0 is 1, whose log is 0
    rule = Rule("log of exp", named, copied, tolerance=1e-5, derivatives=False)
    cpu = device.cpu()
    with cpu.recording() as graph:
        found = autograd.log(autograd.exp(tensor.from_numpy(numbers(3, 5), cpu)))
    assert graph.rewrite(rule) == 1
    graph.run()
    np.testing.assert_allclose(tensor.to_numpy(found), numbers(3, 5), rtol=1e-6)


def test_results_that_lie_otherwise_are_left_alone():
    """Of a tensor whose rows lie in columns; the replacement's result would lie in rows."""

    def turned_back(x: Tensor) -> Tensor:
        y = x.device.empty(x.shape, x.dtype)
        x.device.run("relu", x, y)
        return y

    rule = Rule("in rows", relu_twice, turned_back, derivatives=False)
    cpu = device.cpu()
    with cpu.recording() as graph:
        x = tensor.from_numpy(numbers(3, 5), cpu)
        _rows, _columns = relu_twice(x), relu_twice(autograd.transpose(x, (1, 0)))
    assert graph.rewrite(rule) == 1


# ---- a net


def net(rules: list[Rule] | None = None, **options: Any) -> FeedForwardNet:
    """With a relu twice, of images and of rows, and a maximum over images."""
    made = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=4)
    made.add(layers.Conv2D("conv", 4, 3, input_sample_shape=(3, 6, 8)))
    made.add(layers.BatchNormalization("norm"))
    made.add(layers.Activation("a", "relu"))
    made.add(layers.Activation("b", "relu"))
    made.add(layers.MaxPooling2D("pool", 2, 2))
    made.add(layers.Flatten("flat"))
    made.add(layers.Dense("dense", 5))
    made.add(layers.Activation("c", "relu"))
    made.add(layers.Activation("d", "relu"))
    made.add(layers.Dense("scores", 3))
    made.compile(optimizer.Adam(lr=0.01), rules=rules, **options)
    return made


def compiled(**options: Any) -> None:
    """Compile a net of one layer with these options."""
    some = FeedForwardNet(loss.SoftmaxCrossEntropy())
    some.add(layers.Dense("scores", 3, input_sample_shape=(4,)))
    some.compile(optimizer.SGD(lr=0.1), **options)


X, Y = numbers(7, 3, 6, 8), np.random.default_rng(1).integers(0, 3, 7)


def trained(some: FeedForwardNet) -> list[float]:
    return [float(some.train_one_batch(X, Y)[0]) for _ in range(3)]


@pytest.mark.parametrize("options", [{}, {"fuse": False}, {"order": "dependencies"}, {"memory_budget": "1 MiB"}])
def test_a_net_trains_alike_with_a_rule_in_training_and_evaluation(options):
    """relu twice is relu, to the bit, on the way there and back."""
    plain, ruled = net(**options), net([one_relu()], **options)
    assert trained(ruled) == trained(plain)
    assert ruled.memory_plan.rewrites == {"one relu": 2}
    if options.get("fuse") is False:
        assert ruled.memory_plan.operations == plain.memory_plan.operations - 4, "two calls there, two back"
    assert float(ruled.evaluate(X, Y)[0]) == float(plain.evaluate(X, Y)[0])
    assert ruled.plan_batch(9).rewrites == {"one relu": 2}
    assert trained(deepcopy(ruled)) == trained(ruled)


def test_a_configuration_has_rules_by_name_and_whoever_reads_it_has_the_rules(tmp_path):
    rule = one_relu()
    made = net([rule])
    config = json.loads(json.dumps(made.config()))
    again = FeedForwardNet.from_config(config, custom={"one relu": rule})
    assert trained(again) == trained(net([rule]))
    assert again.memory_plan.rewrites == {"one relu": 2}
    assert again.config() == made.config()
    trained(made)
    made.save(tmp_path / "net.npz")
    opened = singa_lite.load(tmp_path / "net.npz", custom={"one relu": rule})
    assert opened.plan_batch(7).rewrites == {"one relu": 2}
    np.testing.assert_array_equal(tensor.to_numpy(opened.forward(False, X)), tensor.to_numpy(made.forward(False, X)))
    for custom in ({}, {"one relu": Rule}, {"one relu": Rule("other", relu_twice, autograd.relu)}):
        with pytest.raises(ConfigError, match="'one relu' in custom="):
            FeedForwardNet.from_config(config, custom=custom)


def test_a_net_on_an_abstract_device_is_planned_with_its_rules():
    made = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.abstract("numpy"), seed=4)
    made.add(layers.Dense("dense", 5, input_sample_shape=(3,)))
    made.add(layers.Activation("c", "relu"))
    made.add(layers.Activation("d", "relu"))
    made.compile(optimizer.SGD(lr=0.1), rules=[one_relu()])
    assert made.plan_batch(7).rewrites == {"one relu": 1}


# ---- planted faults


def plant(monkeypatch: pytest.MonkeyPatch, name: str, kernel: str, change: Callable[[Any], Any]) -> None:
    """The pass of this name does what it does, and changes the first call of the kernel; None leaves the call out."""

    def faulty(program: Program, run: Callable[[Program], Program]) -> Program:
        made = list(run(program).instructions)
        at = next(step for step, i in enumerate(made) if i.kernel == kernel)
        new = change(made[at])
        return run(program).with_instructions([*made[:at], *([] if new is None else [new]), *made[at + 1 :]])

    found = [one._replace(run=partial(faulty, run=one.run)) if one.name == name else one for one in pipeline.PASSES]
    monkeypatch.setattr(pipeline, "PASSES", tuple(found))


def left_out(instruction: Any) -> None:
    """The change that leaves nothing."""


def swap(instruction: Any) -> Any:
    a, b, y = instruction.operands
    return instruction.with_operands((b, a, y))


def reads_its_result(instruction: Any) -> Any:
    return instruction.with_operands((instruction.operands[1], instruction.operands[1]))


def setting(name: str, value: Any) -> Callable[[Any], Any]:
    return lambda instruction: replace(instruction, settings={**instruction.settings, name: value})


def expression(rule: Rule | None = None) -> Callable[[], Any]:
    """Runs relu(x @ w) - x, relu of relu of a difference, and what nobody uses, with the rule."""

    def run() -> None:
        cpu = device.cpu()
        x, w = tensor.from_numpy(numbers(5, 5), cpu), tensor.from_numpy(numbers(5, 5, seed=1), cpu)
        x.name, w.name = "data", "weight"
        with cpu.recording() as graph:
            made = relu_twice(x - w) if rule else autograd.relu(autograd.linear(x, w)) - x
            autograd.exp(made)
            last = autograd.exp(autograd.log(made))
        assert rule is None or graph.rewrite(rule) == 1
        graph.run()
        del made, last

    return run


def of_a_difference() -> Rule:
    return Rule("of a difference", lambda a, b: relu_twice(a - b), lambda a, b: autograd.relu(a - b), derivatives=False)


def trains() -> None:
    net().train_one_batch(X, Y)


#: {name: (what is run, pass, kernel, change, what is told)}.
FAULTS: dict[str, tuple[Callable[[], Any], str, str, Callable[[Any], Any], str]] = {
    **{
        f"operands swapped by {name}": (expression(), name, "subtract", swap, r"2 \(subtract.*'a'.*relu.*'data'")
        for name in ("fuse", "pool_first", "tiles", "linear_gradient")
    },
    "a call that nobody needs": (expression(), "fuse", "exp", reads_its_result, r"\(exp.*'x'"),
    "a call left out": (expression(), "fuse", "subtract", left_out, r"3 \(exp"),
    "an update left out": (trains, "fuse", "adam", left_out, r"held block \d+ \(tensor '.*'\).*adam"),
    "a call left out as if it were dead": (expression(), "dead", "log", left_out, r"\(exp.*'x'.*\(log"),
    "a setting of a net's call": (trains, "pool_first", "batch_norm", setting("momentum", 0.9), r"\(batch_norm"),
    "another activation": (expression(), "fuse", "linear", setting("activation", "tanh"), "'tanh'"),
    "another replacement": (expression(of_a_difference()), "rules", "subtract", swap, r"\(subtract"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_pass_is_told(monkeypatch, name):
    run, faulty, kernel, change, told = FAULTS[name]
    if name == "another activation":
        try:
            device.new_cpu(kernels="onednn")
        except device.DeviceError as error:  # says what brings the library
            pytest.skip(str(error))
    plant(monkeypatch, faulty, kernel, change)
    with pytest.raises(PlanError, match=told):
        run()
