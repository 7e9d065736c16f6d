"""Images that feed a convolution lie in memory as it reads them: copied in once, and converted by no call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernel_sets import kernel_sets
from layouts import channels_last
from nets import all_bits
from singa_lite import FeedForwardNet, device, layers, loss, optimizer, tensor
from singa_lite.common.strides import laid_out
from singa_lite.runtime.host import Host

SAMPLE = (3, 11, 13)

sets = pytest.mark.parametrize("kernels", kernel_sets(), ids=lambda kernels: kernels.name)


def net_on(kernels: Any) -> FeedForwardNet:
    """A convolution that is fed, and one behind it."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels.name), seed=3)
    net.add(layers.Conv2D("first", 8, (3, 5), stride=(2, 1), input_sample_shape=SAMPLE))
    net.add(layers.Activation("act"))
    net.add(layers.Conv2D("second", 4, 1))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 5))
    net.compile(optimizer.SGD(lr=0.05, momentum=0.9))
    return net


def batch() -> tuple[np.ndarray, np.ndarray]:
    """x and y."""
    random = np.random.default_rng(1)
    return random.standard_normal((6, *SAMPLE)).astype("f"), random.integers(0, 5, 6)


@sets
def test_how_the_given_images_lie_does_not_matter(kernels):
    x, y = batch()
    plain = net_on(kernels)
    plain.train_one_batch(x, y)
    for lay in (channels_last, np.asfortranarray, lambda a: a[::-1][::-1], tensor.from_numpy):
        other = net_on(kernels)
        given = tensor.from_numpy(x, other.device) if lay is tensor.from_numpy else lay(x)
        other.train_one_batch(given, y)
        assert all_bits(other.parameters()) == all_bits(plain.parameters())


def test_no_call_converts_the_images():
    """Their calls take less scratch than the images."""
    found = [kernels for kernels in kernel_sets() if kernels.name == "onednn"]
    if not found:
        pytest.skip("wants oneDNN, pip install onednn-cpu-gomp")
    net = net_on(found[0])
    plan = net.plan_batch(64)
    (operand,) = {
        operand
        for i in plan.placed.planned.instructions
        if i.layer == "first" and i.kernel in ("conv2d", "conv2d_gradient")
        for operand in i.operands[:1]
    }
    assert operand.strides == laid_out(operand.shape, found[0].layouts["image"], 4)
    scratch = [i.scratch_bytes for i in plan.placed.planned.instructions if i.kernel == "conv2d"]
    assert max(scratch) < operand.nbytes


@pytest.mark.parametrize("first", [layers.Flatten("flat"), layers.MaxPooling2D("pool")])
def test_other_layers_are_fed_in_c_order(first):
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=3)
    first.input_sample_shapes = [SAMPLE]
    net.add(first)
    if first.name == "pool":
        net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 5))
    net.compile(optimizer.SGD())
    plan = net.plan_batch(4)
    fed = next(i for i in plan.placed.planned.instructions if i.layer in ("pool", "dense"))
    assert fed.operands[0].strides == laid_out(fed.operands[0].shape, range(len(fed.operands[0].shape)), 4)


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (2, 7, 5, 3), (2, 1, 4, 6), (1, 2, 3, 1)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_host_writes_images_in_any_layout(shape, dtype):
    values = np.random.default_rng(2).standard_normal(shape).astype("f4")
    for lying in (channels_last, np.asfortranarray, np.ascontiguousarray):
        target = lying(np.full(shape, np.nan, dtype))
        Host().write(target, values)
        np.testing.assert_array_equal(target, values.astype(dtype))
