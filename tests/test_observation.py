"""What is seen of a step: kept outputs and derivatives, norms by layer, classes of bytes, profiles, equal records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_sets import kernel_sets
from nets import bits, state_of
from singa_lite import FeedForwardNet, GraphError, autograd, device, layers, loss, optimizer, tensor
from singa_lite.compiler.placed import prove
from singa_lite.compiler.placement.problem import PlanError

RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((6, 2, 5, 4)).astype("f"), RNG.integers(0, 4, 6)
SETS = [kernels.name for kernels in kernel_sets()]


def net_of(kernels: str = "numpy", dtype: str = "float32", with_: Any = None, **options: Any) -> FeedForwardNet:
    """A small net with all that has state: normalisation, dropout, an optimizer with moments."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), dtype=dtype, seed=3)
    net.add(layers.Conv2D("conv", 3, input_sample_shape=(2, 5, 4)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("act"))
    net.add(layers.Dropout("drop", 0.2))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 4))
    net.compile(with_ or optimizer.Adam(), **options)
    return net


# --- keep ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [True, False])
def test_kept_values_are_those_that_central_differences_and_the_forward_give(graph):
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels="numpy"), dtype="float64", seed=3)
    net.add(layers.Dense("first", 5, input_sample_shape=(3,)))
    net.add(layers.Activation("act", "tanh"))
    net.add(layers.Dense("last", 4))
    net.compile(optimizer.SGD(lr=0.0), keep=["first", "last"], graph=graph)
    x, y = RNG.standard_normal((6, 3)), Y
    net.train_one_batch(x, y)
    w1, b1, w2, b2 = (tensor.to_numpy(value) for value in net.param_values())
    first = x @ w1 + b1

    def mean_loss(values: np.ndarray) -> float:
        scores = np.tanh(values) @ w2 + b2
        return float(np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(6), y]))

    wanted = np.zeros_like(first)
    for index in np.ndindex(first.shape):
        moved = first.copy()
        moved[index] += 1e-6
        back = first.copy()
        back[index] -= 1e-6
        wanted[index] = (mean_loss(moved) - mean_loss(back)) / 2e-6
    kept = net.kept["first"]
    np.testing.assert_allclose(tensor.to_numpy(kept.output), first, rtol=1e-12)
    np.testing.assert_allclose(tensor.to_numpy(kept.derivative), wanted, rtol=1e-6, atol=1e-9)
    scores = np.tanh(first) @ w2 + b2
    softmax = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    softmax[np.arange(6), y] -= 1
    np.testing.assert_allclose(tensor.to_numpy(net.kept["last"].derivative), softmax / 6, rtol=1e-9)
    assert [*net.kept] == ["first", "last"]


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("options", [{}, {"accumulate": 2}])
def test_replays_keep_what_single_operations_give(kernels, options):
    keep = ["conv", "act", "dense"]
    kept, eager = (net_of(kernels, keep=keep, graph=graph, **options) for graph in (True, False))
    for net in (kept, eager):
        for _ in range(3):
            net.train_one_batch(X, Y)
    assert state_of(eager) == state_of(kept)
    for name in keep:
        for one, other in zip(kept.kept[name], eager.kept[name], strict=True):
            np.testing.assert_allclose(tensor.to_numpy(one), tensor.to_numpy(other), rtol=1e-5, atol=1e-7)


@pytest.mark.filterwarnings("ignore:compile precision")
def test_in_bfloat16_what_is_kept_is_what_was_stored_and_the_step_stays_as_it_was():
    plain, kept = net_of(precision="bfloat16"), net_of(precision="bfloat16", keep=["conv", "act"])
    for net in (plain, kept):
        net.train_one_batch(X, Y)
    assert state_of(plain) == state_of(kept)
    for value in kept.kept["act"]:
        stored = tensor.to_numpy(value)
        assert stored.dtype == np.float32 and np.abs(stored).sum() > 0
        assert not (stored.view(np.uint32) & 0xFFFF).any()  # each is a bfloat16


def test_an_evaluation_has_outputs_alone_and_the_next_step_derivatives_again():
    net = net_of(keep=["norm"])
    net.train_one_batch(X, Y)
    trained = tensor.to_numpy(net.kept["norm"].output)
    net.evaluate(X, Y)
    evaluated = net.kept["norm"]
    assert evaluated.derivative is None
    wanted = net.forward(False, X, output=["norm"])["norm"]
    np.testing.assert_allclose(tensor.to_numpy(evaluated.output), tensor.to_numpy(wanted), rtol=1e-6)
    assert not np.array_equal(tensor.to_numpy(evaluated.output), trained)
    net.train_one_batch(X, Y)
    assert net.kept["norm"].derivative is not None


def test_of_several_outputs_there_are_lists_and_of_frozen_layers_no_derivative():
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(kernels="numpy"), dtype="float64")
    net.add(layers.Dense("in", 6, input_sample_shape=(3,)))
    first = net.add(layers.Slice("cut", 1, [2]))
    net.add(layers.Dense("a", 2), first)
    net.add(layers.Dense("b", 2), first)
    net.add(layers.Merge("sum"), ["a", "b"])
    net.compile(optimizer.SGD(lr=0.1), keep=["in", "cut"], freeze=["in"])
    net.train_one_batch(RNG.standard_normal((5, 3)), RNG.standard_normal((5, 2)))
    cut = net.kept["cut"]
    assert [t.shape for t in cut.output] == [(5, 2), (5, 4)] and [t.shape for t in cut.derivative] == [(5, 2), (5, 4)]
    assert net.kept["in"].derivative is None and net.kept["in"].output.shape == (5, 6)


# --- verbose ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("graph", [True, False])
def test_norms_are_those_of_the_values_themselves(kernels, graph, capsys):
    net = net_of(kernels, graph=graph, keep=["conv", "dense"])
    twin = net_of(kernels, graph=False)
    net.verbose = 1
    before = {name: tensor.to_numpy(value) for name, value in net.parameters().items()}
    gradients = {name: tensor.to_numpy(value) for name, value in twin.gradients(X, Y).items()}
    net.train_one_batch(X, Y)
    norms = net.norms
    assert {*norms.parameters} == {*norms.gradients} == {*net.param_names()}
    for name, value in before.items():
        assert norms.parameters[name] == pytest.approx(np.linalg.norm(value.astype(float)), rel=1e-6)
        assert norms.gradients[name] == pytest.approx(np.linalg.norm(gradients[name].astype(float)), rel=1e-4, abs=1e-6)
    for name in ("conv", "dense"):
        kept = tensor.to_numpy(net.kept[name].output).astype(float)
        assert norms.outputs[name] == pytest.approx(np.linalg.norm(kept), rel=1e-6)
    assert [*norms.outputs] == ["conv", "norm", "act", "drop", "flat", "dense"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "step 1" and len(lines) == 7
    told = [norms.outputs["conv"], norms.parameters["conv/weight"], norms.gradients["conv/bias"]]
    assert lines[1].startswith("conv") and all(f"{number:.4e}" in lines[1] for number in told)


def test_norms_move_no_bit_unless_operations_were_fused_and_may_be_turned_on_and_off(capsys):
    plain, told = net_of(fuse=False), net_of(fuse=False)
    for step in range(4):
        told.verbose = step % 2
        plain.train_one_batch(X, Y)
        told.train_one_batch(X, Y)
    assert state_of(plain) == state_of(told)
    told.verbose = True
    told.fit(X, Y, batch_size=3, epochs=2, verbose=False)  # tells the last step of each epoch
    lines = [line for line in capsys.readouterr().out.splitlines() if "step" in line]
    assert lines == ["step 2", "step 4", "step 6", "step 8"]


@pytest.mark.filterwarnings("ignore:compile precision")
def test_norms_of_gradients_are_of_the_loss_and_not_of_its_scale(capsys):
    plain, scaled = net_of(fuse=False), net_of(fuse=False, loss_scale=1024.0)
    for net in (plain, scaled):
        net.verbose = 1
        net.train_one_batch(X, Y)
    for name, norm in plain.norms.gradients.items():
        assert scaled.norms.gradients[name] == pytest.approx(norm, rel=1e-4, abs=1e-6)


def test_a_step_of_ones_own_says_that_it_tells_no_norms():
    net = FeedForwardNet(device=device.new_cpu(kernels="numpy"))
    net.add(layers.Dense("dense", 2, input_sample_shape=(3,)))

    def step(net: Any, call: Any) -> Any:
        total = autograd.reduce_mean(net.forward(call.training, call.x))
        call.update(total)
        return total

    net.compile(optimizer.SGD(lr=0.1), step=step)
    net.verbose = 1
    with pytest.raises(GraphError, match="verbose"):
        net.train_one_batch(np.ones((4, 3), "f"))
    net.verbose = 0
    net.train_one_batch(np.ones((4, 3), "f"))


# --- classes of bytes ---------------------------------------------------------------------------------------


def test_classes_are_counted_by_hand():
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(kernels="numpy"), dtype="float64")
    net.add(layers.Dense("a", 5, input_sample_shape=(3,)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Dense("b", 2))
    net.compile(optimizer.Adam())
    found = net.plan_batch(7).by_class
    parameters = 8 * (3 * 5 + 5 + 5 + 5 + 5 * 2 + 2)
    assert found["parameters"] == parameters
    assert found["running statistics"] == 8 * (5 + 5)
    assert 2 * parameters <= found["optimizer state"] <= 2 * parameters + 64 * 8  # two moments, and counters
    assert found["inputs"] >= 8 * (7 * 3 + 7 * 2)
    assert 8 * (5 * 2 + 2) <= found["gradients"] <= parameters
    net.compile(optimizer.SGD(lr=0.1))
    found = net.plan_batch(7).by_class
    assert found["optimizer state"] <= 8 * 8  # how often each parameter was updated
    net.compile(optimizer.Adam(), accumulate=3)
    assert net.plan_batch(7).by_class["gradients"] >= parameters


def test_a_limit_of_a_class_is_told_before_the_first_step():
    net = net_of()
    needed = net.plan_batch(6).by_class["optimizer state"]
    limited = net_of(limits={"optimizer state": needed - 1, "parameters": "1 MiB"})
    before = state_of(limited)
    says = f"{needed - 1:,} bytes of class 'optimizer state'"
    for call in (lambda: limited.plan_batch(6), lambda: limited.train_one_batch(X, Y)):
        with pytest.raises(PlanError, match=says):
            call()
    after = state_of(limited)
    assert {name: after[name] for name in before} == before
    kept = net_of(limits={"optimizer state": needed})
    kept.train_one_batch(X, Y)
    limited.compile(optimizer.SGD(lr=0.1), limits={"optimizer state": 64, "gradients": "1 MiB"})
    limited.train_one_batch(X, Y)


# --- profile ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("made", [lambda: optimizer.SGD(0.1, 0.9, nesterov=True), optimizer.Adam], ids=["SGD", "Adam"])
def test_a_profile_moves_nothing(made, kernels):
    net, twin = (net_of(kernels, with_=made(), keep=["conv"]) for _ in range(2))
    for each in (net, twin):
        each.train_one_batch(X, Y)
    before, kept = state_of(net), bits(net.kept["conv"].output)
    assert net.training_graph.profile(runs=3, peaks=False).seconds > 0
    assert state_of(net) == before and bits(net.kept["conv"].output) == kept
    for each in (net, twin):
        each.train_one_batch(X, Y)
    assert state_of(net) == state_of(twin)


# --- equal records ------------------------------------------------------------------------------------------


def recorded(names: tuple[str, str], batch: int = 4, mode: str = "tanh") -> Any:
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(kernels="numpy"), seed=len(names[0]))
    net.add(layers.Dense(names[0], 5, input_sample_shape=(3,)))
    net.add(layers.Activation(names[1], mode))
    net.compile(optimizer.SGD(lr=0.1))
    net.train_one_batch(np.ones((batch, 3), "f"), np.ones((batch, 5), "f"))
    return net.training_graph


def test_records_are_equal_up_to_names():
    one = recorded(("a", "b"))
    assert one.equals(one) and one.equals(recorded(("dense", "act")))
    assert not one.equals(recorded(("a", "b"), batch=6))
    assert not one.equals(recorded(("a", "b"), mode="sigmoid"))
    with pytest.raises(TypeError, match="str"):
        one.equals("a")


def test_records_that_hang_together_otherwise_differ():
    on = device.new_cpu(kernels="numpy")
    x, y = tensor.ones((3, 2), device=on), tensor.ones((3, 2), device=on)
    graphs = []
    for left, right in ((x, y), (y, x), (x, x)):
        with on.recording() as graph:
            _ = left + right
        graphs.append(graph)
    assert graphs[0].equals(graphs[1]) and not graphs[0].equals(graphs[2]) and not graphs[2].equals(graphs[0])
    with on.recording() as open_:
        with pytest.raises(GraphError, match="equals"):
            graphs[0].equals(open_)
        _ = x + y


# --- what the proof says ------------------------------------------------------------------------------------


def test_the_proof_names_the_tensor_its_layer_and_both_operations():
    net = net_of(fuse=False)
    net.train_one_batch(X, Y)
    plan = net.memory_plan
    placed = plan.placed
    steps = placed.planned.instructions
    touched = [{o.block for o in i.operands if o is not None} & placed.offsets.keys() for i in steps]
    uses = {block: [at for at, blocks in enumerate(touched) if block in blocks] for block in placed.offsets}
    victim, between = next(  # of two steps that lie apart, and one between that writes something else
        (block, at)
        for block, (first, *later) in uses.items()
        for at in range(first + 1, later[-1] if later else 0)
        if block not in touched[at] and any(o.block in placed.offsets for o in steps[at].writes)
    )
    other = next(o.block for o in steps[between].writes if o.block in placed.offsets)
    placed.offsets[other] = placed.offsets[victim]
    names = {block.number: block.name for block in plan._blocks}
    with pytest.raises(PlanError) as caught:
        prove(placed, names)
    overwriting = f"instruction {steps[between].number} ({steps[between].kernel}, layer {steps[between].layer!r})"
    assert repr(names[victim]) in str(caught.value) and overwriting in str(caught.value)
