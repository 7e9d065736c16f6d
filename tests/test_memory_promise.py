"""The generator's promise in pool bytes: one layer's gradients at a time, and no activation longer than it is needed.

Steps are done operation by operation, but where recorded ones are named. Bytes are counted as the pool does, in
whole lines of 64.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from nets import explicit_step, forward_and_loss
from singa_lite import FeedForwardNet, Tensor, autograd, device, layers, loss, metric, optimizer, tensor

BATCH, WIDTH = 16, 300
RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((BATCH, WIDTH)).astype("f"), RNG.integers(0, WIDTH, BATCH)

OPTIMIZERS: dict[str, Callable[[], optimizer.Optimizer]] = {
    "sgd": lambda: optimizer.SGD(lr=0.01),
    "momentum": lambda: optimizer.SGD(lr=0.01, momentum=0.9),
    "adam": lambda: optimizer.Adam(),
}


def lines(nbytes: int) -> int:
    """Bytes as the pool gives them out."""
    return -(-nbytes // 64) * 64


def numbers(*extents: int) -> int:
    """Bytes of a float32 tensor in the pool."""
    return lines(4 * int(np.prod(extents)))


ACTIVATION = numbers(BATCH, WIDTH)
GRADIENTS = numbers(WIDTH, WIDTH) + numbers(WIDTH)  # of one layer


def equal_layers(count: int, opt: str = "sgd") -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device.new_cpu())
    for i in range(count):
        net.add(layers.Dense(f"dense{i}", WIDTH, input_sample_shape=None if i else (WIDTH,)))
    net.compile(OPTIMIZERS[opt](), graph=False)
    net.train_one_batch(X, Y)  # makes the optimizer's state
    return net


class Peak:
    """What the pool held at most inside a block, above what it held at its beginning, and each phase's scratch."""

    nbytes = 0

    def __init__(self) -> None:
        self.scratch: dict[str, int] = {}


@contextmanager
def peak(on: device.Device) -> Iterator[Peak]:
    found = Peak()

    def note(operation: Any) -> None:
        before = found.scratch.get(operation.phase, 0)
        found.scratch[str(operation.phase)] = max(before, lines(operation.scratch_bytes))

    level = on.pool.used
    on.pool.reset_high_water()
    with on.watch(note):
        yield found
    found.nbytes = on.pool.high_water - level


# --- training -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opt", OPTIMIZERS)
def test_a_step_with_updates_in_the_loop_costs_one_layers_gradients(opt):
    """Above parameters, optimizer state, targets and each layer's input; whatever the number of layers.

    While a layer's gradients are computed, its input and the derivatives by its output and by its input are there.
    While they are applied, of these only the derivative by its input is: the layer's place among the activations.
    """
    steps: list[Callable[[FeedForwardNet], object]] = [
        lambda net: net.train_one_batch(X, Y),
        lambda net: explicit_step(net, X, Y),
    ]
    for step in steps:
        above = []
        for count in (2, 5):
            net = equal_layers(count, opt)
            with peak(net.device) as found:
                step(net)
            above.append(found.nbytes - count * ACTIVATION)
        computing, applying = 2 * ACTIVATION + found.scratch["gradient"], found.scratch["update"]
        results = 2 * 64  # loss and metric
        assert GRADIENTS < above[0] <= GRADIENTS + max(computing, applying) + lines(Y.nbytes) + results
        assert above[0] == above[1] < 2 * GRADIENTS


def test_the_loop_itself_costs_one_layers_gradients_and_its_activations_go_as_it_walks():
    net = equal_layers(8)
    level = net.device.pool.used
    dy = forward_and_loss(net, X, Y)
    assert net.device.pool.used == level + 8 * ACTIVATION + ACTIVATION  # each layer's input, and dy
    walk = net.backward(dy)
    del dy
    used = []
    for item in walk:
        assert len(item.gradients) == 2
        used.append(net.device.pool.used - level)
        del item
    # A turn costs a layer's gradients; one derivative by an input is left but after the first layer's turn, and an
    # input fewer is kept each time.
    wanted = [GRADIENTS + ACTIVATION * (8 - turn) for turn in range(8)]
    wanted[-1] -= ACTIVATION
    assert used == wanted
    assert net.device.pool.used == level


@pytest.mark.parametrize("count", [2, 8])
def test_collected_gradients_cost_all_layers(count):
    net = equal_layers(count)
    level = net.device.pool.used
    with peak(net.device) as found:
        collected = net.gradients(X, Y)
    assert net.device.pool.used - level == count * GRADIENTS
    beside = 3 * ACTIVATION + lines(Y.nbytes)  # the batch, the output and a derivative by an input
    assert count * GRADIENTS <= found.nbytes <= count * GRADIENTS + beside + found.scratch["gradient"]
    del collected
    assert net.device.pool.used == level


def test_adam_keeps_two_numbers_for_each_parameter_and_results_hold_no_activations():
    plain, momentum, adam = (equal_layers(3, name).device.pool.used for name in OPTIMIZERS)
    assert (momentum - plain, adam - plain) == (3 * GRADIENTS, 2 * 3 * GRADIENTS)
    net = equal_layers(4)
    level = net.device.pool.used
    results: list[Tensor] = []
    for _ in range(5):
        results += net.train_one_batch(X, Y)
    assert net.device.pool.used == level + len(results) * 64


# --- what is kept for backward ------------------------------------------------------------------------------


def dense(name: str, **options: Any) -> layers.Dense:
    return layers.Dense(name, WIDTH, **options)


FIRST = {"input_sample_shape": (WIDTH,)}
IMAGE = (3, 6, 8)
CONV = {"input_sample_shape": IMAGE}
#: (layers, bytes): the input is the caller's, the output the net's; what is between them.
KEPT: dict[str, tuple[Callable[[], list[Any]], int]] = {
    "a product keeps its input": (lambda: [dense("a", **FIRST), dense("b")], ACTIVATION),
    "relu keeps its output, which is the next one's input": (
        lambda: [dense("a", **FIRST), layers.Activation("act"), dense("b")],
        ACTIVATION,
    ),
    "so do tanh, sigmoid, softplus and softmax": (
        lambda: [
            dense("a", **FIRST),
            layers.Activation("act", "tanh"),
            layers.Activation("act 2", "sigmoid"),
            layers.Activation("act 3", "softplus"),
            layers.Softmax("act 4"),
        ],
        3 * ACTIVATION,
    ),
    "gelu and silu keep their input": (
        lambda: [dense("a", **FIRST), layers.Activation("act", "gelu"), layers.Activation("act 2", "silu")],
        2 * ACTIVATION,
    ),
    "a sum keeps nothing": (lambda: [dense("a", **FIRST), layers.Split("split", 2), layers.Merge("sum")], 0),
    "dropout keeps a key and no mask": (lambda: [dense("a", **FIRST), layers.Dropout("drop")], 64),
    "views keep nothing": (
        lambda: [
            dense("a", **FIRST),
            layers.Reshape("images", (3, 10, 10)),
            layers.Flatten("flat"),
            layers.Dummy("same"),
            dense("b"),
        ],
        ACTIVATION,
    ),
    "normalisation keeps its input and two numbers a channel": (
        lambda: [dense("a", **FIRST), layers.BatchNormalization("norm")],
        ACTIVATION + 2 * numbers(WIDTH),
    ),
    "an average of an image keeps nothing": (
        lambda: [layers.Conv2D("conv", 3, **CONV), layers.AvgPooling2D("pool", 2, 2, "valid")],
        0,
    ),
    "a maximum of an image keeps where it was": (
        lambda: [layers.Conv2D("conv", 3, **CONV), layers.MaxPooling2D("pool", 2, 2, "valid")],
        lines(BATCH * 3 * 3 * 4),  # a byte for each
    ),
}


@pytest.mark.parametrize(("make", "wanted"), KEPT.values(), ids=KEPT.keys())
def test_training_keeps_only_what_backward_needs(make, wanted):
    net = FeedForwardNet(device=device.new_cpu())
    for layer in make():
        net.add(layer, ["split", "split"] if isinstance(layer, layers.Merge) else None)
    (shape,) = net.input_shapes().values()
    x = tensor.zeros((BATCH, *shape), device=net.device)
    level = net.device.pool.used
    out = net.forward(True, x)
    assert net.device.pool.used - level - lines(out.nbytes) == wanted


def deep(count: int, on: device.Device) -> FeedForwardNet:
    net = FeedForwardNet(device=on)
    net.add(dense("first", **FIRST))
    for i in range(count):
        net.add(layers.Activation(f"act{i}"))
        net.add(dense(f"dense{i}"))
    return net


def branched(on: device.Device) -> FeedForwardNet:
    """Twelve branches from one input, each summed with the next as soon as both are there: three live at once."""
    net = FeedForwardNet(device=on)
    net.add(layers.Dummy("x", (WIDTH,)))
    before = "x"
    for i in range(12):
        net.add(dense(f"branch{i}"), src="x")
        net.add(layers.Merge(f"sum{i}"), src=[before, f"branch{i}"])
        before = f"sum{i}"
    return net


@pytest.mark.parametrize(("make", "activations"), [*((lambda on, n=n: deep(n, on), 2) for n in (1, 12)), (branched, 3)])
def test_evaluation_holds_what_is_still_read_whatever_the_depth(make, activations):
    on = device.new_cpu()
    net, x = make(on), tensor.from_numpy(X, on)
    with peak(on) as found:
        net.forward(False, x)
    assert found.nbytes == activations * ACTIVATION


def test_named_outputs_are_held_and_no_others_and_an_expression_frees_what_no_one_holds():
    on = device.new_cpu()
    net, x = deep(6, on), tensor.from_numpy(X, on)
    level = on.pool.used
    out = net.forward(False, x, output=["act1", "dense3"])
    assert on.pool.used == level + 3 * ACTIVATION
    del out["act1"]
    assert on.pool.used == level + 2 * ACTIVATION
    with peak(on) as found:
        y = x
        for _ in range(20):
            y = autograd.relu(y * 2.0)
    assert found.nbytes == 2 * ACTIVATION + ACTIVATION


# --- leaks --------------------------------------------------------------------------------------------------


def convolutional(graph: bool) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device.new_cpu())
    net.add(layers.Conv2D("conv", 4, input_sample_shape=IMAGE))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("act"))
    net.add(layers.MaxPooling2D("pool"))
    net.add(layers.Dropout("drop"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 5))
    net.compile(optimizer.Adam(), graph=graph)
    return net


def uses(net: FeedForwardNet) -> dict[str, Callable[[], object]]:
    x, y = RNG.standard_normal((BATCH, *IMAGE)).astype("f"), RNG.integers(0, 5, BATCH)

    def refused() -> None:
        for batch, labels in ((x[:, :2], y), (x, y + 5)):
            with pytest.raises(ValueError, match="wanted"):
                net.train_one_batch(batch, labels)

    def dropped() -> None:
        walk = net.backward(forward_and_loss(net, x, y))
        next(walk)
        walk.close()
        net.discard_step()

    def derivatives() -> None:
        for item in net.backward(forward_and_loss(net, x, y), output=["conv", "dense"]):
            del item

    return {
        "steps": lambda: net.train_one_batch(x, y),
        "steps in other sizes": lambda: [net.train_one_batch(x[:n], y[:n]) for n in (3, 16, 7)],
        "explicit steps": lambda: explicit_step(net, x, y),
        "gradients": lambda: net.gradients(x, y),
        "evaluation": lambda: net.evaluate(x, y, batch_size=5),
        "prediction": lambda: net.predict(x, batch_size=5),
        "forward without backward": lambda: (net.forward(True, x), net.discard_step()),
        "refused batches": refused,
        "dropped walks": dropped,
        "derivatives by inputs": derivatives,
    }


@pytest.mark.parametrize("graph", [False, True], ids=["at once", "recorded"])
def test_nothing_leaks_and_a_net_gives_back_all_it_had(graph):
    """Without the garbage collector: what the pool holds after 3 and after 12 times is the same."""
    net = convolutional(graph)
    on = net.device
    for name, do in uses(net).items():
        used = {}
        gc.collect()
        gc.disable()
        try:
            for times in range(1, 13):
                do()
                used[times] = on.pool.used
        finally:
            gc.enable()
        assert used[12] == used[3], name
    del net, do
    gc.collect()
    assert on.pool.used == 0
