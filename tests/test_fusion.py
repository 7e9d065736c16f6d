"""Fusion in a recorded step: fewer operations and less memory, the same training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_sets import kernel_sets
from nets import bits, state_of
from programs import with_options
from singa_lite import FeedForwardNet, device, layers, loss, optimizer, regularizer, tensor

every_set = pytest.mark.parametrize("kernels", [s.name for s in kernel_sets()])
WIDE = 1100  # a gradient of (1100, 1027) float32 has 4.3 MiB: five tiles, the last one smaller
BATCH = 7

OPTIMIZERS = {
    "sgd": lambda: optimizer.SGD(lr=0.05, weight_decay=0.01),
    "momentum": lambda: optimizer.SGD(lr=0.05, momentum=0.9),
    "nesterov": lambda: optimizer.Nesterov(lr=0.05, momentum=0.8),
    "adam": lambda: optimizer.Adam(lr=0.01),
    "adamw": lambda: optimizer.AdamW(lr=0.01, weight_decay=0.1),
    "amsgrad": lambda: optimizer.Adam(lr=0.01, amsgrad=True),
    "rms_prop": lambda: optimizer.RMSProp(lr=0.01),
    "ada_grad": lambda: optimizer.AdaGrad(lr=0.01),
    "lion": lambda: optimizer.Lion(lr=0.001),
    "l2": lambda: optimizer.SGD(lr=0.05, regularizer=regularizer.L2Regularizer(0.02)),
}
#: Those whose step does not shrink with the gradient.
DIVIDE_BY_SIZE = ("adam", "adamw", "amsgrad", "rms_prop", "ada_grad", "lion")


def wide_net(kernels: str, make: Any, fuse: bool) -> FeedForwardNet:
    """One large layer between two small ones."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=5)
    net.add(layers.Dense("first", WIDE, input_sample_shape=(9,)))
    net.add(layers.Activation("relu1"))
    net.add(layers.Dense("large", 1027))
    net.add(layers.Activation("relu2"))
    net.add(layers.Dense("scores", 4))
    net.compile(make(), fuse=fuse)
    return net


def trained(net: FeedForwardNet, shape: tuple[int, ...], steps: int = 3) -> list[float]:
    """The losses of some steps."""
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal(shape, dtype=np.float32), rng.integers(0, 4, shape[0])) for _ in range(steps)]
    return [float(net.train_one_batch(*batch)[0]) for batch in batches]


def kernels_of(net: FeedForwardNet) -> list[str]:
    """The kernels of the planned training step, with their options, in order."""
    return list(map(with_options, net.memory_plan.placed.planned.instructions))


@every_set
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_large_gradient_by_tiles_trains_alike(kernels, name):
    fused, whole = (wide_net(kernels, OPTIMIZERS[name], fuse) for fuse in (True, False))
    losses = [trained(net, (BATCH, 9)) for net in (fused, whole)]
    np.testing.assert_allclose(*losses, rtol=1e-6)
    for (parameter, value), other in zip(fused.parameters().items(), whole.param_values(), strict=True):
        # The sums over the batch of 7 are whole in each tile: they differ by their own rounding at most.
        got, wanted = tensor.to_numpy(value), tensor.to_numpy(other)
        apart = np.abs(got - wanted)
        # A gradient that cancels to a rounding of 0 is another one then, and those that divide by its size take a step
        # of any length up to the rate for it. Tiles at a wrong place would show in every element.
        few = 1e-3 if name in DIVIDE_BY_SIZE else 0
        assert np.mean(apart > 1e-6 * np.abs(wanted).max()) <= few, parameter
        assert apart.max() <= 0.01, parameter
    for parameter, state in fused.optimizer.state.items():
        assert int(state["count"]) == int(whole.optimizer.state[parameter]["count"]) == 3


@every_set
def test_a_large_gradient_never_exists_whole(kernels):
    fused, whole = (wide_net(kernels, OPTIMIZERS["momentum"], fuse) for fuse in (True, False))
    for net in (fused, whole):
        trained(net, (BATCH, 9), 1)
    gradient = WIDE * 1027 * 4
    assert whole.memory_plan.arena_bytes > gradient
    assert fused.memory_plan.arena_bytes < gradient / 3
    fused.memory_plan.check()
    assert max(row.nbytes for row in fused.memory_plan.rows) < gradient / 3


@every_set
def test_a_gradient_whose_norm_is_wanted_or_without_fusion_stays_whole(kernels, monkeypatch):
    def clipped() -> optimizer.SGD:
        return optimizer.SGD(lr=0.05, constraint=regularizer.NormConstraint(0.1))

    fused, whole = (wide_net(kernels, clipped, fuse) for fuse in (True, False))
    assert trained(fused, (BATCH, 9), 2) == trained(whole, (BATCH, 9), 2)
    monkeypatch.setenv("SINGA_LITE_FUSE", "off")
    off = wide_net(kernels, OPTIMIZERS["sgd"], True)
    for net in (fused, off):
        assert net.plan_batch(BATCH).arena_bytes > WIDE * 1027 * 4


# --- calls that are joined, to equal bits


def on_set(kernels: str) -> FeedForwardNet:
    return FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=7)


def ended(net: FeedForwardNet, **compiling: Any) -> FeedForwardNet:
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 4))
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), **compiling)
    return net


def image_net(kernels: str, merged: bool = False, **compiling: Any) -> FeedForwardNet:
    """Convolution and ReLU; merged: the convolution's result goes elsewhere too."""
    net = on_set(kernels)
    conv = net.add(layers.Conv2D("conv", 8, 3, input_sample_shape=(3, 9, 7)))
    relu = net.add(layers.Activation("relu"))
    if merged:
        net.add(layers.Merge("sum"), [conv, relu])
    return ended(net, **compiling)


def normalised_net(kernels: str, mode: str = "relu", **compiling: Any) -> FeedForwardNet:
    """Convolution, normalisation and activation: before a convolution, before an average, behind a sum."""
    net = on_set(kernels)
    net.add(layers.Conv2D("conv1", 6, 3, input_sample_shape=(3, 9, 7)))
    net.add(layers.BatchNormalization("norm1"))
    first = net.add(layers.Activation("active1", mode))
    net.add(layers.Conv2D("conv2", 10, 3, stride=2))
    net.add(layers.BatchNormalization("norm2"))
    net.add(layers.Activation("active2", mode))
    net.add(layers.AvgPooling2D("mean", 3, 1))
    net.add(layers.Conv2D("conv3", 10, 3))
    last = net.add(layers.BatchNormalization("norm3"))
    net.add(layers.Merge("sum"), [last, net.add(layers.Conv2D("short", 10, 1, 2), first)])
    net.add(layers.Activation("active3", mode))
    return ended(net, **compiling)


def dense_net(kernels: str, **compiling: Any) -> FeedForwardNet:
    """Two densely connected layers, each normalised and activated before its convolution."""
    net = on_set(kernels)
    x = net.add(layers.Conv2D("conv", 5, 3, input_sample_shape=(3, 9, 7)))
    for number in (1, 2):
        net.add(layers.BatchNormalization(f"norm{number}"), x)
        net.add(layers.Activation(f"active{number}"))
        new = net.add(layers.Conv2D(f"conv{number}", 4, 3))
        x = net.add(layers.Concat(f"both{number}", 1), [x, new])
    net.add(layers.Conv2D("last", 3, 1))
    return ended(net, **compiling)


def pooled_net(kernels: str, mode: str = "relu", kernel: int = 2, pad: int = 0, **compiling: Any) -> FeedForwardNet:
    """Convolution, activation, max pooling, twice."""
    net = on_set(kernels)
    for number, filters in enumerate((6, 10), 1):
        first = {"input_sample_shape": (3, 16, 12)} if number == 1 else {}
        net.add(layers.Conv2D(f"conv{number}", filters, 3, **first))
        net.add(layers.Activation(f"active{number}", mode))
        net.add(layers.MaxPooling2D(f"pool{number}", kernel, 2, pad=pad))
    return ended(net, **compiling)


def pooled_besides(kernels: str, **compiling: Any) -> FeedForwardNet:
    """What is pooled is used elsewhere too."""
    net = on_set(kernels)
    relu = net.add(layers.Activation("relu", input_sample_shape=(3, 8, 6)))
    net.add(layers.Merge("sum"), [net.add(layers.MaxPooling2D("pool", 3, 1), relu), relu])
    return ended(net, **compiling)


#: f: for the net's activation, which may stand behind a sum or within its call.
NORMS = "batch_norm+f batch_norm+other batch_norm_derivative+f batch_norm batch_norm_derivative add"
#: (net, its options, samples, kernels to count, how many of each are in the fused step, and in the other one).
ROWS: dict[str, tuple[Any, dict[str, Any], int, str, list[int], list[int]]] = {
    "used elsewhere": (image_net, {"merged": True}, 6, "conv2d+relu conv2d relu", [0, 1, 1], [0, 1, 1]),
    "normalised": (normalised_net, {}, 6, NORMS, [2, 1, 1, 0, 2, 1], [0, 0, 0, 3, 3, 2]),
    "normalised, relu6": (normalised_net, {"mode": "relu6"}, 6, NORMS, [2, 1, 1, 0, 2, 1], [0, 0, 0, 3, 3, 2]),
    "pooled": (pooled_net, {}, 6, "relu max_pool2d", [2, 2], [2, 2]),
    "pooled, relu6": (pooled_net, {"mode": "relu6", "kernel": 3, "pad": 1}, 6, "relu6 max_pool2d", [2, 2], [2, 2]),
    "pooled, tanh": (pooled_net, {"mode": "tanh"}, 6, "tanh max_pool2d", [2, 2], [2, 2]),
    "pooled besides": (pooled_besides, {}, 5, "relu max_pool2d", [1, 1], [1, 1]),
}


def images(net: FeedForwardNet, count: int) -> np.ndarray:
    (shape,) = net.input_shapes().values()
    return np.random.default_rng(4).standard_normal((count, *shape), dtype=np.float32)


def equal_bits(one: FeedForwardNet, other: FeedForwardNet, count: int) -> None:
    """Of steps, of what they leave, and of a prediction, which shows that running statistics moved alike."""
    (shape,) = one.input_shapes().values()
    assert trained(one, (count, *shape), 2) == trained(other, (count, *shape), 2)
    assert state_of(one) == state_of(other)
    x = images(one, 5)
    assert bits(one.predict(x)) == bits(other.predict(x))


@every_set
@pytest.mark.parametrize("name", ROWS)
def test_activations_are_fused_with_the_normalisation_before_them(kernels, name):
    """And a pooling goes before its activation where that is exact and used by nobody else."""
    make, options, count, names, joined, apart = ROWS[name]
    activation = options.get("mode", "relu")
    names = names.replace("+f", f"+{activation}")
    fused, whole = (make(kernels, fuse=fuse, **options) for fuse in (True, False))
    equal_bits(fused, whole, count)
    if make is normalised_net and fused.device.kernels.one_pass:  # a mask that a convolution reads is made again too
        joined = [2, 1, 2, 0, 1, 1]
    for net, counts in ((fused, joined), (whole, apart)):
        made = [kernel.replace(f"+other+{activation}", "+other") for kernel in kernels_of(net)]
        assert [made.count(kernel) for kernel in names.split()] == counts
    if "max_pool2d" in names:
        mode = names.split()[0]
        order = [kernel for kernel in kernels_of(fused) if kernel in (mode, "max_pool2d")]
        pooled_first = make is pooled_net and mode != "tanh"
        assert order[:2] == (["max_pool2d", mode] if pooled_first else [mode, "max_pool2d"])
        if pooled_first:  # a large batch: the scratch of a convolution does not grow with it
            needed, unfused = (net.plan_batch(900, samples=900).arena_bytes for net in (fused, whole))
            assert needed < 0.9 * unfused


@every_set
def test_activations_are_fused_where_the_kernels_can(kernels):
    fused, whole = (image_net(kernels, fuse=fuse) for fuse in (True, False))
    equal_bits(fused, whole, 6)
    assert ("conv2d+relu" in kernels_of(fused)) is (("conv2d", "relu") in fused.device.kernels.fusions)
    assert "conv2d+relu" not in kernels_of(whole)
    x = images(fused, 2)
    x[1, 2, 4, 3] = np.nan
    for net in (fused, whole):
        out = tensor.to_numpy(net.predict(x))
        assert np.isfinite(out[0]).all() and np.isnan(out[1]).all()


@every_set
def test_derivatives_of_a_dense_block_are_summed_within_those_of_normalisations(kernels):
    """With a batch so large that the scratch of kernels is little."""
    fused, whole = (dense_net(kernels, fuse=fuse) for fuse in (True, False))
    equal_bits(fused, whole, 200)
    joined, apart, masked = (
        kernels_of(fused).count(name) for name in ("batch_norm_derivative+other", "add", "batch_norm_derivative+relu")
    )
    assert joined + apart == kernels_of(whole).count("add") == 2
    # Where the joined call's scratch would raise the floor, they stay apart; so do those that make a mask again.
    assert joined + masked >= 1
    assert fused.memory_plan.floor_bytes <= whole.memory_plan.floor_bytes


@every_set
def test_without_a_budget_fused_calls_pay_for_repeats_where_they_save_time(kernels, monkeypatch):
    free, plain = normalised_net(kernels), normalised_net(kernels)
    plan = free.plan_batch(50)
    first = trained(free, (50, 3, 9, 7), 1)
    monkeypatch.setenv("SINGA_LITE_PASSES", "-paid_for")
    assert trained(plain, (50, 3, 9, 7), 1) == first
    assert state_of(free) == state_of(plain)
    assert plan.repeats_are_paid_for == free.device.kernels.one_pass
    assert plan.estimated_slowdown == 0.0
    assert (plan.floor_bytes < plain.memory_plan.floor_bytes) == plan.repeats_are_paid_for
    assert not plain.memory_plan.repeats
