"""Rules for rewriting: proved when they are made, applied to a record, and held against it; planted faults are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import singa_lite
from singa_lite import FeedForwardNet, Tensor, autograd, device, layers, loss, optimizer, tensor
from singa_lite.errors import ConfigError, GraphError, RuleError
from singa_lite.graph import Graph
from singa_lite.memory.problem import PlanError
from singa_lite.passes import pipeline
from singa_lite.passes.program import Program
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


def test_a_true_rule_is_taken_and_a_false_one_shows_the_first_input_that_differs():
    one_relu()
    with pytest.raises(RuleError) as error:
        Rule("wrong", lambda a, b: a - b, lambda a, b: b - a)
    assert "rule 'wrong': wanted both sides equal to the bit, received" in str(error.value)
    assert "at [0] of the result, in float32, from a[0] = " in str(error.value)
    assert "; b[0] = " in str(error.value)


@pytest.mark.parametrize(
    ("pattern", "replacement", "special"),
    [
        pytest.param(lambda x: x * 2.0, lambda x: x + x, "= -0.0 ", id="zero"),
        pytest.param(lambda x: x - x, lambda x: x * 0.0, "= -?inf|nan|-0.0 ", id="infinity"),
    ],
)
def test_zeros_of_both_signs_and_infinities_are_tried(pattern, replacement, special):
    with pytest.raises(RuleError, match=special):
        Rule("nearly", pattern, replacement, derivatives=False)


def test_nan_is_tried():
    """0 where x is NaN, and x elsewhere: the only difference is at NaN."""

    class Cleaned(autograd.Function):
        def makes(self, x: Any) -> dict[str, Any]:
            return {"y": autograd.Output(x.shape)}

        def forward(self, x: Any, y: Any) -> None:
            np.copyto(y, x)
            y[np.isnan(x)] = 0.0

    with pytest.raises(RuleError, match=r"received nan of the pattern and 0.0 of the replacement.*= nan of shape"):
        Rule("cleaned", lambda x: x * 1.0 * 1.0, lambda x: Cleaned()(x), tolerance=1e-6, derivatives=False)


def test_a_tolerance_is_what_the_rule_states():
    def doubled(x: Tensor) -> Tensor:
        return autograd.scale(x, 2.0)

    Rule("near", doubled, lambda x: autograd.scale(x, 2.0 + 1e-4), tolerance=1e-3)
    with pytest.raises(RuleError, match=r"wanted both sides equal within 1e-05"):
        Rule("near", doubled, lambda x: autograd.scale(x, 2.0 + 1e-4), tolerance=1e-5)


@pytest.mark.parametrize(
    ("pattern", "replacement"),
    [
        pytest.param(autograd.exp, lambda x: autograd.minimum(autograd.exp(x), 1e30), id="a number for infinity"),
        pytest.param(lambda x: x**-1, lambda x: autograd.abs(x**-1), id="infinity of the other sign"),
        pytest.param(
            lambda x: x * 1.0 * 1.0, lambda x: autograd.where(autograd.equal(x, x), x, 0.0), id="a number for NaN"
        ),
    ],
)
def test_within_a_tolerance_infinities_and_nan_stand_at_the_same_places(pattern, replacement):
    """However large the tolerance is: it is a share of the pattern's value."""
    with pytest.raises(RuleError, match="wanted both sides equal within 1e"):
        Rule("wide", pattern, replacement, tolerance=1e9, derivatives=False)


def test_derivatives_are_proved_too_unless_they_are_not_asked_for():
    class WrongWay(SquaredExp):
        def derivative_x(self, y: Any, dy: Any, dx: Any) -> None:
            np.multiply(dy, y, out=dx)

    with pytest.raises(RuleError, match=r"of the derivative by 'x'.*dy\["):
        Rule("wrong way back", exp_times_exp, lambda x: WrongWay()(x), tolerance=1e-5)
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
    ("make", "error", "message"),
    [
        (lambda: Rule("", relu_twice, autograd.relu), TypeError, "wanted a name"),
        (lambda: Rule("r", 3, autograd.relu), TypeError, "pattern: wanted a function of tensors, received 3"),
        (lambda: Rule("r", relu_twice, lambda a, b: a), TypeError, "replacement of the pattern's 1 inputs"),
        (lambda: Rule("r", relu_twice, autograd.relu, [("n",), ("n",)]), ValueError, "a shape for each of 1 inputs"),
        (lambda: Rule("r", relu_twice, autograd.relu, "n"), TypeError, "inputs: wanted a shape for each"),
        (lambda: Rule("r", relu_twice, autograd.relu, [(0,)]), TypeError, "numbers and names"),
        (lambda: Rule("r", relu_twice, autograd.relu, dtypes=("int32",)), ValueError, "wanted float16"),
        (lambda: Rule("r", relu_twice, autograd.relu, tolerance=-1), ValueError, "tolerance"),
        (lambda: Rule("r", lambda x: x, autograd.relu), RuleError, "a pattern with operations"),
        (lambda: Rule("r", autograd.relu, lambda x: x), RuleError, "hands on an input or a view"),
        (lambda: Rule("r", lambda x: 3, autograd.relu), TypeError, "wanted a Tensor"),
        (lambda: Rule("r", relu_twice, lambda x: (x + x, x * x)), RuleError, "as many results of both sides"),
        (lambda: Rule("r", lambda x: x + numbers(1), autograd.relu), RuleError, "takes other tensors"),
        (lambda: Rule("r", lambda a, b: a + a, lambda a, b: a + a), RuleError, "gives 'b' to an operation"),
    ],
)
def test_what_is_no_rule_is_refused(make, error, message):
    with pytest.raises(error, match=message):
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


def test_rewriting_comes_before_planning_and_takes_rules_alone():
    graph, _total, _held = recorded()
    with pytest.raises(TypeError, match=r"rewrite: wanted a rewriting\.Rule, received str"):
        graph.rewrite("relu")
    graph.run()
    with pytest.raises(GraphError, match="rewrite: wanted a graph that is not planned yet"):
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

    with pytest.raises(RuleError, match=r"received -?0.0 of the pattern|of shape"):
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


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rules": 3}, TypeError, "compile rules: wanted a list of rewriting.Rule, received int"),
        ({"rules": ["relu"]}, TypeError, "compile rules: wanted a list of rewriting.Rule, received 'relu' in it"),
        ({"rules": one_relu}, TypeError, "compile rules: wanted a list"),
    ],
)
def test_compile_refuses_what_are_no_rules(options, error, message):
    some = net()
    with pytest.raises(error, match=message):
        some.compile(optimizer.SGD(lr=0.1), **options)


def test_compile_refuses_rules_that_would_do_nothing_and_equal_names():
    some, rule = net(), one_relu()
    with pytest.raises(ValueError, match="compile rules: wanted graph=True"):
        some.compile(optimizer.SGD(lr=0.1), rules=[rule], graph=False)
    with pytest.raises(ValueError, match="compile rules: wanted a name of its own for each"):
        some.compile(optimizer.SGD(lr=0.1), rules=[rule, rule])


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
        with pytest.raises(ConfigError, match=r"wanted the rewriting rule 'one relu' in custom=.*says which it is"):
            FeedForwardNet.from_config(config, custom=custom)


def test_a_net_on_an_abstract_device_is_planned_with_its_rules():
    made = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.abstract("numpy"), seed=4)
    made.add(layers.Dense("dense", 5, input_sample_shape=(3,)))
    made.add(layers.Activation("c", "relu"))
    made.add(layers.Activation("d", "relu"))
    made.compile(optimizer.SGD(lr=0.1), rules=[one_relu()])
    assert made.plan_batch(7).rewrites == {"one relu": 1}


# ---- planted faults


def planted(monkeypatch: pytest.MonkeyPatch, name: str, fault: Callable[[Program], Program]) -> None:
    """The pass of this name does what it does, and then the fault."""
    faulty = [
        one._replace(run=lambda program, run=one.run: fault(run(program))) if one.name == name else one
        for one in pipeline.PASSES
    ]
    monkeypatch.setattr(pipeline, "PASSES", tuple(faulty))


def changed(program: Program, kernel: str, change: Callable[[Any], Any]) -> Program:
    """With the first call of the kernel changed, or left out where `change` gives None."""
    at = next(step for step, i in enumerate(program.instructions) if i.kernel == kernel)
    made = [change(i) if step == at else i for step, i in enumerate(program.instructions)]
    return program.with_instructions([i for i in made if i is not None])


def differences() -> tuple[Graph, Tensor]:
    """relu(x @ w) - x, of which the difference is no part of any fusion."""
    cpu = device.cpu()
    x, w = tensor.from_numpy(numbers(5, 5), cpu), tensor.from_numpy(numbers(5, 5, seed=1), cpu)
    x.name, w.name = "data", "weight"
    with cpu.recording() as graph:
        made = autograd.relu(autograd.linear(x, w)) - x
        unused = autograd.exp(made)
        del unused
    return graph, made


def swap(instruction: Any) -> Any:
    a, b, y = instruction.operands
    return instruction.with_operands((b, a, y))


@pytest.mark.parametrize("name", ["fuse", "pool_first", "tiles", "linear_gradient"])
def test_operands_of_a_subtraction_that_a_rewriting_pass_swaps_are_told(monkeypatch, name):
    graph, _made = differences()
    planted(monkeypatch, name, lambda program: changed(program, "subtract", swap))
    with pytest.raises(PlanError) as error:
        graph.run()
    text = str(error.value)
    assert "rewriting, instruction 2 (subtract, layer ''): 'a': wanted what instruction 1 (relu" in text
    assert "received what block" in text
    assert "(tensor 'data') held before the step" in text


def test_a_call_that_nobody_needs_is_held_against_the_record_too(monkeypatch):
    graph, _made = differences()

    def other(instruction: Any) -> Any:
        return instruction.with_operands((instruction.operands[1], instruction.operands[1]))

    planted(monkeypatch, "fuse", lambda program: changed(program, "exp", other))
    with pytest.raises(PlanError, match=r"rewriting, instruction 3 \(exp, layer ''\): 'x': wanted what instruction 2"):
        graph.run()


def test_a_call_that_is_left_out_is_told(monkeypatch):
    graph, _made = differences()
    planted(monkeypatch, "fuse", lambda program: changed(program, "subtract", lambda i: None))
    with pytest.raises(PlanError, match=r"rewriting, instruction 3 \(exp.*received what block"):
        graph.run()


def test_an_update_that_is_left_out_is_told(monkeypatch):
    some = net()
    planted(monkeypatch, "fuse", lambda program: changed(program, "adam", lambda i: None))
    with pytest.raises(PlanError, match=r"rewriting, held block \d+ \(tensor '.*'\): wanted it left with what .*adam"):
        some.train_one_batch(X, Y)


def test_what_is_left_out_as_if_nobody_needed_it_is_told(monkeypatch):
    """The pass that leaves out what is dead comes behind those that rewrite; the reads of the plan show it."""
    cpu = device.cpu()
    x = tensor.from_numpy(numbers(3, 5), cpu)
    with cpu.recording() as graph:
        _made = autograd.exp(autograd.log(x))
    planted(monkeypatch, "dead", lambda program: changed(program, "log", lambda i: None))
    with pytest.raises(PlanError, match=r"instruction 1 \(exp, layer ''\), read 0, 'x'.*instruction 0 \(log"):
        graph.run()


def test_a_setting_that_a_pass_changes_is_told(monkeypatch):
    some = net()

    def leaned(instruction: Any) -> Any:
        changed_one = instruction.with_operands(instruction.operands)
        changed_one.settings = {**instruction.settings, "momentum": 0.9}
        return changed_one

    planted(monkeypatch, "pool_first", lambda program: changed(program, "batch_norm", leaned))
    with pytest.raises(PlanError, match=r"rewriting, instruction \d+ \(batch_norm"):
        some.train_one_batch(X, Y)


def test_a_fusion_with_another_activation_is_told(monkeypatch):
    other_graph, _other = differences()
    graph, _made = differences()
    if "linear_activation" not in kernels(other_graph):
        pytest.skip("kernels that fuse a product with its activation: pip install onednn-cpu-gomp")

    def other(instruction: Any) -> Any:
        changed_one = instruction.with_operands(instruction.operands)
        changed_one.settings = {**instruction.settings, "activation": "tanh"}
        return changed_one

    planted(monkeypatch, "fuse", lambda program: changed(program, "linear_activation", other))
    with pytest.raises(PlanError, match=r"wanted a call that operations of the record stand for.*'activation': 'tanh'"):
        graph.run()


def test_a_replacement_that_a_pass_does_otherwise_is_told(monkeypatch):
    """The rule is true, and what stands in the program is another thing."""
    cpu = device.cpu()
    a, b = tensor.from_numpy(numbers(3, 5), cpu), tensor.from_numpy(numbers(3, 5, seed=1), cpu)
    pattern = lambda a, b: relu_twice(a - b)  # noqa: E731
    rule = Rule("of a difference", pattern, lambda a, b: autograd.relu(a - b), derivatives=False)
    with cpu.recording() as graph:
        _made = relu_twice(a - b)
    assert graph.rewrite(rule) == 1
    planted(monkeypatch, "rules", lambda program: changed(program, "subtract", swap))
    with pytest.raises(PlanError, match=r"rewriting, instruction \d+ \(subtract"):
        graph.run()
