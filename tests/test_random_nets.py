"""Random nets: gradients are right, the same in every way to get them, and leave no memory behind."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from drawn_layers import TABLE, options_of, random_chain, unseen
from kernel_sets import kernel_sets
from nets import TOLERANCE, all_bits, bits, difference, gradients_of, state_of
from singa_lite import FeedForwardNet, Layer, Tensor, device, layers, loss, optimizer, tensor

BATCH = 5
SMOOTH = ("tanh", "sigmoid", "softplus", "gelu", "silu")
MODES = (*SMOOTH, "relu", "elu")

#: Nets of one layer: some; in the nightly suite, until all values of its options were drawn, at most.
SOME_CHAINS, MOST_CHAINS = 3, 60

#: A place that a value comes from: a layer, and which of its outputs (None where it has one).
End = tuple[str, int | None]


def for_random(*strategies: Any) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """Makes a test of a check: over 20 examples of what it takes, and over many in the nightly suite."""

    def of(check: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("examples", [20, pytest.param(400, marks=pytest.mark.nightly)])
        def test(examples: int) -> None:
            one = settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
            one(given(*strategies)(check))()

        return test

    return of


@dataclass
class Step:
    """A layer to be: how to make it (shared: with whose parameters), from where, and its outputs' widths."""

    make: Callable[[str, Layer | None], Layer]
    sources: list[End]
    widths: list[int]
    shared: str | None = None


@dataclass
class Plan:
    """Layers by name, each after its sources; `forms` says what a Dense takes and gives; modes: of activations."""

    modes: tuple[str, ...] = MODES
    steps: dict[str, Step] = field(default_factory=dict)
    forms: dict[str, tuple[int, int]] = field(default_factory=dict)
    widths: dict[End, int] = field(default_factory=dict)

    def add(self, step: Step) -> str:
        # Names whose order is not that of adding.
        name = f"{'qdxkbz'[len(self.steps) % 6]}{len(self.steps)}"
        self.steps[name] = step
        several = len(step.widths) > 1
        self.widths |= {(name, i if several else None): width for i, width in enumerate(step.widths)}
        return name

    def loose(self) -> list[End]:
        """Ends that nobody takes."""
        taken = {source for step in self.steps.values() for source in step.sources}
        return [end for end in self.widths if end not in taken]

    def dense(self, source: End | None, width: int, shared: str | None = None) -> str:
        """A Dense layer; an input layer where it has no source."""
        given = 3 if source is None else self.widths[source]

        def make(name: str, owner: Layer | None) -> Layer:
            made = layers.Dense(name, width, input_sample_shape=(given,) if source is None else None)
            return made if owner is None else made.share_parameters(owner)

        name = self.add(Step(make, [] if source is None else [source], [width], shared))
        if shared is None:
            self.forms[name] = given, width
        return name

    def net(self, order: list[str] | None = None) -> FeedForwardNet:
        """The net, its layers added in this order; owners of shared parameters before those who share."""
        net = FeedForwardNet(device=device.new_cpu(), dtype="float64", seed=1)
        left = list(self.steps if order is None else order)
        while left:
            ready = (name for name in left if self.steps[name].shared in (None, *net.layers))
            name = next(ready)
            left.remove(name)
            step = self.steps[name]
            owner = None if step.shared is None else net.layers[step.shared]
            net.add(step.make(name, owner), src=[n if i is None else (n, i) for n, i in step.sources])
        return net


@st.composite
def plans(draw: st.DrawFn, modes: tuple[str, ...] = MODES) -> Plan:
    """One or two inputs, a few layers of any kind over anything before them, and one or several outputs."""
    plan = Plan(modes)
    widths = st.integers(1, 4)
    for _ in range(draw(st.integers(1, 2))):
        plan.dense(None, draw(widths))
    for _ in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from(KINDS))
        kind(draw, plan, draw(st.sampled_from(list(plan.widths))))
    loose = plan.loose()
    if draw(st.booleans()) and len(loose) > 1:
        joined = plan.add(Step(lambda name, _: layers.Concat(name, 1), loose, [sum(map(plan.widths.get, loose))]))
        plan.dense((joined, None), 2)
    for name, step in list(plan.steps.items()):
        if len(step.widths) > 1 and all((name, i) in plan.loose() for i in range(len(step.widths))):
            plan.dense((name, 0), 2)  # a loss wants one output of each last layer
    return plan


def any_dense(draw: st.DrawFn, plan: Plan, end: End) -> None:
    plan.dense(end, draw(st.integers(1, 4)))


def shared_dense(draw: st.DrawFn, plan: Plan, end: End) -> None:
    owners = [name for name, (given, _) in plan.forms.items() if given == plan.widths[end]]
    if not owners:
        return any_dense(draw, plan, end)
    owner = draw(st.sampled_from(owners))
    plan.dense(end, plan.forms[owner][1], owner)
    return None


def activation(draw: st.DrawFn, plan: Plan, end: End) -> None:
    mode = draw(st.sampled_from(plan.modes))
    plan.add(Step(lambda name, _: layers.Activation(name, mode), [end], [plan.widths[end]]))


def normalization(draw: st.DrawFn, plan: Plan, end: End) -> None:
    # A large epsilon bounds the slopes, so that central differences stay sharp.
    plan.add(Step(lambda name, _: layers.BatchNormalization(name, epsilon=0.1), [end], [plan.widths[end]]))


def merge(draw: st.DrawFn, plan: Plan, end: End) -> None:
    equal = [other for other, width in plan.widths.items() if width == plan.widths[end]]
    ends = [end, *draw(st.lists(st.sampled_from(equal), min_size=1, max_size=2))]
    kind = draw(st.sampled_from([layers.Merge, layers.Multiply]))
    made = plan.add(Step(lambda name, _: kind(name), ends, [plan.widths[end]]))
    if kind is layers.Multiply:  # products of products would soon leave the floats
        plan.add(Step(lambda name, _: layers.Activation(name, "tanh"), [(made, None)], [plan.widths[end]]))


def concat(draw: st.DrawFn, plan: Plan, end: End) -> None:
    ends = [end, *draw(st.lists(st.sampled_from(list(plan.widths)), min_size=1, max_size=2))]
    plan.add(Step(lambda name, _: layers.Concat(name, 1), ends, [sum(plan.widths[each] for each in ends)]))


def cut(draw: st.DrawFn, plan: Plan, end: End) -> None:
    width = plan.widths[end]
    if width == 1:
        return any_dense(draw, plan, end)
    points = sorted(draw(st.sets(st.integers(1, width - 1), min_size=1, max_size=2)))
    pieces = [stop - start for start, stop in pairwise([0, *points, width])]
    plan.add(Step(lambda name, _: layers.Slice(name, 1, points), [end], pieces))
    return None


def split(draw: st.DrawFn, plan: Plan, end: End) -> None:
    count = draw(st.integers(2, 3))
    plan.add(Step(lambda name, _: layers.Split(name, count), [end], [plan.widths[end]] * count))


KINDS = [any_dense, shared_dense, activation, normalization, merge, concat, cut, split]


def batch(net: FeedForwardNet, seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs and targets by layer, the same for every order of adding."""
    rng = np.random.default_rng(seed)
    x = {name: rng.standard_normal((BATCH, *net.input_shapes()[name])) for name in sorted(net.input_shapes())}
    y = {name: rng.standard_normal((BATCH, *net.output_shapes(name)[0])) for name in sorted(net.output_names())}
    return x, y


def with_losses(net: FeedForwardNet) -> FeedForwardNet:
    net.compile(optimizer.SGD(lr=1e-3, momentum=0.5), {name: loss.SquaredError() for name in net.output_names()})
    return net


def loss_and_derivatives(net: FeedForwardNet, x: Any, y: Any) -> tuple[float, dict[str, Tensor]]:
    """A training forward: the sum of the losses, and the derivatives by the outputs."""
    out = net.forward(True, x)
    named = out if isinstance(out, dict) else {net.output_names()[0]: out}
    total = sum(float(net.loss[name].evaluate(True, named[name], y[name])) for name in sorted(named))
    return total, {name: net.loss[name].backward() for name in named}


# --- properties ---------------------------------------------------------------------------------------------


@for_random(plans())
def test_yielded_gradients_are_the_collected_ones_whatever_is_done_to_them_in_the_loop(plan):
    net = with_losses(plan.net())
    x, y = batch(net)
    collected = net.gradients(x, y)
    assert set(collected) == set(net.param_names())
    level = net.device.pool.used
    _, dy = loss_and_derivatives(net, x, y)
    assert all_bits(gradients_of(net.backward(dy))) == all_bits(collected)
    _, dy = loss_and_derivatives(net, x, y)
    spoilt = {}
    for names, values, gradients, _ in net.backward(dy):
        for name, value, gradient in zip(names, values, gradients, strict=True):
            spoilt[name] = bits(gradient)
            value.copy_from_numpy(np.full(value.shape, 1e6))
            gradient.copy_from_numpy(np.full(value.shape, 1e6))
    assert spoilt == all_bits(collected)
    del dy, values, gradients, value, gradient
    assert net.device.pool.used == level


@for_random(plans(), st.integers())
def test_the_order_is_valid_and_does_not_depend_on_the_order_of_adding(plan, seed):
    first = with_losses(plan.net())
    names = list(plan.steps)
    random.Random(seed).shuffle(names)
    second = with_losses(plan.net(names))
    order = [node.layer.name for node in first.ordered()]
    assert order == [node.layer.name for node in second.ordered()]
    assert sorted(order) == sorted(plan.steps)
    for name, step in plan.steps.items():
        assert all(order.index(source) < order.index(name) for source, _ in step.sources)
    assert first.param_names() == second.param_names()
    x, y = batch(first)
    assert all_bits(first.gradients(x, y)) == all_bits(second.gradients(x, y))


@for_random(plans(SMOOTH), st.integers(0, 2**32))
def test_a_random_element_of_each_gradient_is_a_central_difference(plan, seed):
    net = with_losses(plan.net())
    x, y = batch(net)
    rng = np.random.default_rng(seed)
    for name, gradient in net.gradients(x, y).items():
        found = tensor.to_numpy(gradient)
        place = tuple(rng.integers(found.shape))
        wanted, error = slope(lambda: loss_and_derivatives(net, x, y)[0], net.parameters()[name], place)
        scale = np.abs(found).max()
        assume(error < TOLERANCE * max(1, scale))  # too rough a function is no evidence
        assert abs(found[place] - wanted) < TOLERANCE * max(1, scale), name


def slope(function: Callable[[], float], moved: Tensor, place: tuple[int, ...]) -> tuple[float, float]:
    """The slope from differences of two widths, so that only the fifth derivative counts, and what that may do."""
    wide, middle, narrow = (difference(function, moved, place, width) for width in (4e-4, 2e-4, 1e-4))
    first, second = (4 * middle - wide) / 3, (4 * narrow - middle) / 3
    return second, abs(first - second)


@for_random(plans())
def test_training_in_one_call_is_the_explicit_loop_bit_for_bit(plan):
    nets = [with_losses(plan.net()) for _ in range(2)]
    for seed in range(2):
        x, y = batch(nets[0], seed)
        nets[0].train_one_batch(x, y)
        _, dy = loss_and_derivatives(nets[1], x, y)
        for names, values, gradients, _ in nets[1].backward(dy):
            for each in zip(names, values, gradients, strict=True):
                nets[1].optimizer.update(*each)
        assert state_of(nets[0]) == state_of(nets[1])


# --- every layer, with every option -------------------------------------------------------------------------


def test_every_option_of_every_layer_can_be_drawn():
    known = {name for name, kind in vars(layers).items() if isinstance(kind, type) and issubclass(kind, Layer)}
    assert set(TABLE) == known, "layers without a row in drawn_layers.py, or rows without a layer"
    for kind, options in TABLE.items():
        assert set(options) == options_of(kind), f"options of {kind} in drawn_layers.py"


def trained(seed: int, kind: str, seen: Any, graph: bool) -> list[Any]:
    """Losses and state over three steps of a net with this layer, and a prediction; in one kernel set or another."""
    sets = kernel_sets()
    net = random_chain(seed, kind, seen, device.new_cpu(kernels=sets[seed % len(sets)].name))
    losses = {name: loss.SquaredError() for name in net.output_names()}
    net.compile(optimizer.SGD(lr=0.01, momentum=0.5), losses, graph=graph)
    rng, ids, found = np.random.default_rng(seed), net.input_ids(), list[Any]()
    for _ in range(3):
        x = {
            name: rng.integers(0, 5, (4, *shape)) if ids.get(name) else rng.standard_normal((4, *shape)).astype("f")
            for name, shape in net.input_shapes().items()
        }
        y = {name: rng.standard_normal((4, 2)).astype("f") for name in net.output_names()}
        found += [bits(net.train_one_batch(x, y)[0]), state_of(net)]
    out = net.predict_one_batch(x)
    return [*found, *map(bits, out.values() if isinstance(out, dict) else [out])]


@pytest.mark.filterwarnings("ignore:.*a mask of its input ends here:UserWarning")  # pooling takes no mask
@pytest.mark.parametrize("most", [SOME_CHAINS, pytest.param(MOST_CHAINS, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", TABLE)
def test_activations_and_poolings_behind_a_layer_train_recorded_as_they_do_eagerly(kind, most):
    seen, seed = set[tuple[str, str, int]](), 0
    while seed < 2 or (unseen(kind, seen) and seed < most):
        before = set(seen)
        assert trained(seed, kind, seen, graph=True) == trained(seed, kind, before, graph=False), f"seed {seed}"
        seed += 1
    assert most == SOME_CHAINS or not unseen(kind, seen), "values that no net could be made with"
