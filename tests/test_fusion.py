"""Fusion in a recorded step: fewer operations and less memory, the same training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_sets import kernel_sets
from nets import bits
from singa_lite import FeedForwardNet, autograd, device, layers, loss, optimizer, regularizer, tensor

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
    "l2": lambda: optimizer.SGD(lr=0.05, regularizer=regularizer.L2Regularizer(0.02)),
}
#: Those whose step does not shrink with the gradient.
DIVIDE_BY_SIZE = ("adam", "adamw", "amsgrad", "rms_prop", "ada_grad")


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
    """The kernels of the planned training step, in order."""
    return [operation.kernel for operation in net.training_graph.profile(1).operations]


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
def test_the_count_and_the_rate_of_a_tiled_update_are_those_of_its_step(kernels):
    """Adam's first step moves every element by the rate, whatever its gradient: a tile that counted twice would not."""
    net = wide_net(kernels, lambda: optimizer.Adam(lr=0.01, epsilon=1e-12), True)
    before = tensor.to_numpy(net.parameters()["large/weight"])
    trained(net, (BATCH, 9), 1)
    moved = tensor.to_numpy(net.parameters()["large/weight"]) - before
    active = np.abs(moved) > 0
    assert active.mean() > 0.2
    # All but a few whose gradient is so small that epsilon shows.
    assert np.quantile(np.abs(np.abs(moved[active]) / 0.01 - 1), 0.999) < 1e-3


@every_set
def test_a_gradient_whose_norm_is_wanted_stays_whole(kernels):
    def clipped() -> optimizer.SGD:
        return optimizer.SGD(lr=0.05, constraint=regularizer.NormConstraint(0.1))

    fused, whole = (wide_net(kernels, clipped, fuse) for fuse in (True, False))
    assert trained(fused, (BATCH, 9)) == trained(whole, (BATCH, 9))
    assert fused.memory_plan.arena_bytes > WIDE * 1027 * 4


def product(cpu: device.Device, turned: bool, keep: bool) -> tuple[list[np.ndarray], int]:
    """Weight after two recorded updates of a product's second factor, stored turned or not; bytes of the arena."""
    rng = np.random.default_rng(3)
    x = tensor.from_numpy(rng.standard_normal((5, 1050), dtype=np.float32), cpu)
    given = rng.standard_normal((1050, 1060), dtype=np.float32)
    weight = cpu.empty(given.shape, np.float32, (1, 0) if turned else "")
    weight.copy_from_numpy(given)
    weight.stores_grad = True
    sgd, kept = optimizer.SGD(lr=0.1), []
    with cpu.recording() as graph:
        y = autograd.matmul(x, weight)
        for value, gradient in autograd.backward(y, tensor.ones(y.shape, device=cpu)):
            if keep:
                kept.append(gradient.detach())
            sgd.update("weight", value, gradient)
    graph.run()
    graph.run()
    return [tensor.to_numpy(t) for t in (weight, *kept)], graph.memory_plan.arena_bytes


@every_set
def test_tiles_are_cut_along_the_outermost_axis(kernels):
    plain, bytes_plain = product(device.new_cpu(kernels=kernels), turned=False, keep=False)
    turned, bytes_turned = product(device.new_cpu(kernels=kernels), turned=True, keep=False)
    np.testing.assert_allclose(turned[0], plain[0], rtol=1e-6, atol=1e-6)
    assert max(bytes_plain, bytes_turned) < 1050 * 1060 * 4 / 3


@every_set
def test_a_gradient_that_somebody_holds_stays_whole(kernels):
    (weight, gradient), _ = product(device.new_cpu(kernels=kernels), turned=False, keep=True)
    (alone,), _ = product(device.new_cpu(kernels=kernels), turned=False, keep=False)
    assert gradient.shape == weight.shape
    np.testing.assert_allclose(weight, alone, rtol=1e-6, atol=1e-6)


def image_net(kernels: str, fuse: bool, merged: bool = False) -> FeedForwardNet:
    """Convolution and ReLU; merged: the convolution's result goes elsewhere too."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=7)
    conv = net.add(layers.Conv2D("conv", 8, 3, input_sample_shape=(3, 9, 7)))
    relu = net.add(layers.Activation("relu"))
    if merged:
        net.add(layers.Merge("sum"), [conv, relu])
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 11))
    net.add(layers.Activation("relu2"))
    net.add(layers.Dense("scores", 4))
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), fuse=fuse)
    return net


def test_activations_are_fused_where_the_kernels_can():
    for kernels in kernel_sets():
        nets = [image_net(kernels.name, fuse) for fuse in (True, False)]
        assert trained(nets[0], (6, 3, 9, 7)) == trained(nets[1], (6, 3, 9, 7))
        for value, other in zip(nets[0].param_values(), nets[1].param_values(), strict=True):
            assert bits(value) == bits(other)
        wanted = ("conv2d", "relu") in kernels.fusions
        assert ("conv2d_activation" in kernels_of(nets[0])) is wanted
        assert "conv2d_activation" not in kernels_of(nets[1])


def normalised_net(kernels: str, mode: str = "relu", **compiling: Any) -> FeedForwardNet:
    """Convolution, normalisation and activation: before a convolution, before an average, behind a sum."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=7)
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
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 4))
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), **compiling)
    return net


@every_set
@pytest.mark.parametrize("mode", ["relu", "relu6"])
def test_activations_are_fused_with_the_normalisation_before_them(kernels, mode):
    fused, whole = (normalised_net(kernels, mode, fuse=fuse) for fuse in (True, False))
    assert trained(fused, (6, 3, 9, 7)) == trained(whole, (6, 3, 9, 7))
    for value, other in zip(fused.param_values(), whole.param_values(), strict=True):
        assert bits(value) == bits(other)
    joined = "batch_norm_activation", "batch_norm_add", "batch_norm_activation_derivative"
    apart = "add", "batch_norm", f"{mode}_derivative", "batch_norm_derivative"
    assert [kernels_of(fused).count(name) for name in joined] == [2, 1, 1]
    assert [kernels_of(fused).count(name) for name in apart] == [1, 0, 2, 2]
    assert [kernels_of(whole).count(name) for name in joined] == [0, 0, 0]
    assert [kernels_of(whole).count(name) for name in apart] == [2, 3, 3, 3]
    behind = [i.settings for i in fused.memory_plan.placed.planned.instructions if i.kernel == "batch_norm_add"]
    assert behind[0]["activation"] == (mode if ("add", mode) in fused.device.kernels.fusions else "")
    x = np.random.default_rng(4).standard_normal((5, 3, 9, 7), dtype=np.float32)
    assert bits(fused.predict(x)) == bits(whole.predict(x))  # so running statistics moved alike


def dense_net(kernels: str, fuse: bool) -> FeedForwardNet:
    """Two densely connected layers, each normalised and activated before its convolution."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=7)
    x = net.add(layers.Conv2D("conv", 5, 3, input_sample_shape=(3, 9, 7)))
    for number in (1, 2):
        net.add(layers.BatchNormalization(f"norm{number}"), x)
        net.add(layers.Activation(f"active{number}"))
        new = net.add(layers.Conv2D(f"conv{number}", 4, 3))
        x = net.add(layers.Concat(f"both{number}", 1), [x, new])
    net.add(layers.Conv2D("last", 3, 1))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 4))
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), fuse=fuse)
    return net


@every_set
def test_derivatives_of_a_dense_block_are_summed_within_those_of_normalisations(kernels):
    fused, whole = (dense_net(kernels, fuse) for fuse in (True, False))
    shape = 300, 3, 9, 7
    assert trained(fused, shape, 2) == trained(whole, shape, 2)
    for value, other in zip(fused.param_values(), whole.param_values(), strict=True):
        assert bits(value) == bits(other)
    joined, apart = (kernels_of(fused).count(name) for name in ("batch_norm_derivative_add", "add"))
    assert joined + apart == kernels_of(whole).count("add") == 2
    assert joined >= 1  # where the joined call's scratch would raise the floor, they stay apart
    assert fused.memory_plan.floor_bytes <= whole.memory_plan.floor_bytes


def test_a_fused_normalisation_is_repeated_within_a_budget():
    """A batch so large that the scratch of kernels is little."""
    free = normalised_net("numpy")
    wanted, curve = trained(free, (1000, 3, 9, 7), 2), free.budget_curve(1000)
    net = normalised_net("numpy", memory_budget=curve[-1][0])
    assert trained(net, (1000, 3, 9, 7), 2) == wanted
    used = [i.kernel for i in net.memory_plan.placed.planned.instructions if i.repeats is not None]
    assert "batch_normalize_activation" in used
    assert "batch_norm_activation" not in used


@every_set
def test_without_a_budget_fused_calls_pay_for_repeats_where_they_save_time(kernels, monkeypatch):
    free = normalised_net(kernels)
    wanted, plan = trained(free, (800, 3, 9, 7), 2), free.memory_plan
    monkeypatch.setenv("SINGA_LITE_PASSES", "-paid_for")
    plain = normalised_net(kernels)
    assert trained(plain, (800, 3, 9, 7), 2) == wanted
    for value, other in zip(free.param_values(), plain.param_values(), strict=True):
        assert bits(value) == bits(other)
    assert plan.repeats_are_paid_for == (free.device.kernels.one_pass)
    assert ("no more than fused operations save" in plan.summary()) == plan.repeats_are_paid_for
    assert plan.estimated_slowdown == 0.0
    assert (plan.floor_bytes < plain.memory_plan.floor_bytes) == plan.repeats_are_paid_for
    assert not plain.memory_plan.repeats


@every_set
def test_a_fused_activation_shows_what_is_no_number(kernels):
    nets = [image_net(kernels, fuse) for fuse in (True, False)]
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 7), dtype=np.float32)
    x[1, 2, 4, 3] = np.nan
    for net in nets:
        out = tensor.to_numpy(net.predict(x))
        assert np.isfinite(out[0]).all()
        assert np.isnan(out[1]).all()


@every_set
def test_an_operation_whose_result_is_used_elsewhere_is_not_fused(kernels):
    fused, whole = (image_net(kernels, fuse, merged=True) for fuse in (True, False))
    assert trained(fused, (6, 3, 9, 7)) == trained(whole, (6, 3, 9, 7))
    assert "conv2d_activation" not in kernels_of(fused)


@every_set
def test_fusion_is_switched_off_by_the_environment(kernels, monkeypatch):
    monkeypatch.setenv("SINGA_LITE_FUSE", "off")
    net = wide_net(kernels, OPTIMIZERS["sgd"], True)
    trained(net, (BATCH, 9), 1)
    assert net.memory_plan.arena_bytes > WIDE * 1027 * 4


def pooled_net(kernels: str, fuse: bool, mode: str = "relu", **pooling: Any) -> FeedForwardNet:
    """Convolution, activation, max pooling, twice."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=9)
    for number, kernels_of_layer in enumerate((6, 10), 1):
        first = {"input_sample_shape": (3, 32, 20)} if number == 1 else {}
        net.add(layers.Conv2D(f"conv{number}", kernels_of_layer, 3, **first))
        net.add(layers.Activation(f"active{number}", mode))
        net.add(layers.MaxPooling2D(f"pool{number}", **pooling))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 4))
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9), fuse=fuse)
    return net


@every_set
@pytest.mark.parametrize(
    ("mode", "pooling"),
    [("relu", {"kernel": 2, "stride": 2, "border_mode": "valid"}), ("relu6", {"kernel": 3, "stride": 2, "pad": 1})],
)
def test_pooling_before_the_activation_gives_equal_bits_and_needs_less(kernels, mode, pooling):
    """What a window covers and which activation stands before it are apart: each is met once."""
    fused, whole = (pooled_net(kernels, fuse, mode, **pooling) for fuse in (True, False))
    assert trained(fused, (6, 3, 32, 20)) == trained(whole, (6, 3, 32, 20))
    for value, other in zip(fused.param_values(), whole.param_values(), strict=True):
        assert bits(value) == bits(other)
    order = [kernel for kernel in kernels_of(fused) if kernel in (mode, "max_pool2d", f"{mode}_derivative")]
    assert order == ["max_pool2d", mode] * 2 + [f"{mode}_derivative"] * 2
    # A large batch: the scratch of a convolution does not grow with it.
    needed, unfused = (net.plan_batch(500, samples=500).arena_bytes for net in (fused, whole))
    assert needed < 0.9 * unfused


@every_set
def test_pooling_stays_behind_an_activation_that_is_not_exact(kernels):
    net = pooled_net(kernels, True, "tanh", kernel=2, stride=2, border_mode="valid")
    trained(net, (6, 3, 32, 20), 1)
    assert [k for k in kernels_of(net) if k in ("tanh", "max_pool2d")] == ["tanh", "max_pool2d"] * 2


@every_set
def test_pooling_stays_behind_an_activation_that_is_used_elsewhere(kernels):
    def make(fuse: bool) -> FeedForwardNet:
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=9)
        relu = net.add(layers.Activation("relu", input_sample_shape=(3, 8, 6)))
        left = net.add(layers.MaxPooling2D("pool", 3, 1), relu)
        net.add(layers.Merge("sum"), [left, relu])
        net.add(layers.Flatten("flat"))
        net.add(layers.Dense("scores", 4))
        net.compile(optimizer.SGD(lr=0.05), fuse=fuse)
        return net

    fused, whole = make(True), make(False)
    assert trained(fused, (5, 3, 8, 6)) == trained(whole, (5, 3, 8, 6))
    assert [k for k in kernels_of(fused) if k in ("relu", "max_pool2d")] == ["relu", "max_pool2d"]


@every_set
def test_a_prediction_pools_first_too(kernels):
    fused, whole = (pooled_net(kernels, fuse, kernel=2, stride=2, border_mode="valid") for fuse in (True, False))
    x = np.random.default_rng(4).standard_normal((5, 3, 32, 20), dtype=np.float32)
    assert bits(fused.predict(x)) == bits(whole.predict(x))
