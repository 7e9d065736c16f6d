"""The nets of the benchmarks: as large as published, of the shapes that their table tells, and they train."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_lite import FeedForwardNet, device, optimizer, tensor

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks" / "nets"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="this copy has no benchmarks, the checkout has")


def dense(*widths: int) -> int:
    """Parameters of Dense layers with biases."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))


def conv_norm(*channels: int) -> int:
    """Parameters of convolutions of 3 x 3 without bias, each with a batch normalization."""
    return sum((9 * inputs + 2) * outputs for inputs, outputs in pairwise(channels))


UNET_DOWN = conv_norm(3, 32, 32, 64, 64, 128, 128, 256, 256)
UNET_UP = sum(conv_norm(2 * width, width) + conv_norm(2 * width, width, width) for width in (128, 64, 32))

# Torchvision's ResNet-18 has a stem of 7 x 7 and 1000 classes; in all else it is resnet18_32.
RESNET18 = 11_689_512

# Those with separators of thousands are from torchvision's documentation.
PARAMETERS = {
    "digits_cnn": conv_norm(1, 32, 32, 64) + dense(64 * 4 * 4, 10),
    "lenet": (25 + 1) * 6 + (6 * 25 + 1) * 16 + dense(16 * 5 * 5, 120, 84, 10),
    "mlp": dense(784, 2048, 2048, 2048, 10),
    "vgg16": 138_357_544,
    "resnet50": 25_557_032,
    "resnet18_32": RESNET18 - (49 - 9) * 3 * 64 - dense(512, 1000 - 10),
    "mobilenet_v2": 3_504_872,
    "densenet121": 7_978_856,
    "unet": UNET_DOWN + UNET_UP + dense(32, 5),
    "chain": dense(8, *[16] * 1000, 4),
}

# Output sample shapes of layers, which show where the strides are: parameters do not tell.
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "vgg16": {"stage1_conv2": (64, 224, 224), "stage5_pool": (512, 7, 7)},
    "resnet50": {
        "stem": (64, 112, 112),
        "stem_pool": (64, 56, 56),
        "stage2_1_conv1": (128, 56, 56),
        "stage2_1_conv2": (128, 28, 28),
        "stage4_3_relu": (2048, 7, 7),
    },
    "resnet18_32": {"stem_relu": (64, 32, 32), "stage4_2_relu": (512, 4, 4)},
    "mobilenet_v2": {
        "stage1_1_depthwise": (32, 112, 112),
        "stage4_1_expand": (192, 28, 28),
        "stage4_1_depthwise": (192, 14, 14),
        "stage5_1_project": (96, 14, 14),
        "last_relu6": (1280, 7, 7),
    },
    "densenet121": {
        "block1_6_all": (256, 56, 56),
        "transition1_pool": (128, 28, 28),
        "last_relu": (1024, 7, 7),
    },
    "unet": {"level4_conv1": (256, 16, 20), "up3_join": (256, 32, 40)},
}


@pytest.fixture(scope="module")
def nets() -> Iterator[Any]:
    """The package benchmarks/nets, under a name of its own: helpers of the tests are called `nets` too."""
    name = "benchmark_nets"
    start, folders = FOLDER / "__init__.py", [str(FOLDER)]
    spec = importlib.util.spec_from_file_location(name, start, submodule_search_locations=folders)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    for loaded in [loaded for loaded in sys.modules if loaded.split(".")[0] == name]:
        del sys.modules[loaded]


def test_every_net_is_counted_here(nets):
    assert set(nets.NETS) == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_and_shapes(nets, name):
    entry = nets.NETS[name]
    net = entry.build(device.new_cpu(), init=0.0)
    assert nets.parameter_count(net) == PARAMETERS[name]
    assert list(net.input_shapes().values()) == [entry.input_shape]
    (output,) = net.output_names()
    assert net.layers[output].get_output_sample_shape() == (entry.classes, *entry.target_shape)
    wanted = SHAPES.get(name, {})
    assert {layer: net.layers[layer].get_output_sample_shape() for layer in wanted} == wanted


def test_a_batch_is_random_and_repeatable(nets):
    x, y = nets.batch("unet", 3, seed=5)
    assert (x.shape, x.dtype, y.shape) == ((3, 3, 128, 160), np.float32, (3, 128, 160))
    assert set(np.unique(y)) == set(range(5))
    again, other = nets.batch("unet", 3, seed=5), nets.batch("unet", 3, seed=6)
    assert all(np.array_equal(*pair) for pair in zip((x, y), again, strict=True))
    assert not any(np.array_equal(*pair) for pair in zip((x, y), other, strict=True))


def small(nets: Any, name: str) -> Any:
    """A net's entry, in a size that trains within a second."""
    entry = nets.NETS[name]
    if name == "chain":
        return entry._replace(build=partial(entry.build, depth=12))
    if name == "unet":
        sizes = {"shape": (3, 8, 12), "widths": (4, 6, 5), "classes": 4}
        return nets.Entry(partial(entry.build, **sizes), (3, 8, 12), 4, (8, 12))
    return entry


def loss_of_a_step(net: FeedForwardNet, states: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> float:
    """A training step from these running statistics and this random state; the loss before its update."""
    for name, state in net.states().items():
        state.copy_from_numpy(states[name])
    return float(net.train_one_batch(x, y)[0])


@pytest.mark.parametrize(
    ("name", "n"), [("digits_cnn", 5), ("lenet", 5), ("chain", 6), ("unet", 3), ("resnet18_32", 2)]
)
def test_a_step_lowers_the_loss_by_what_the_gradient_tells(nets, name, n):
    entry = small(nets, name)
    net, (x, y) = entry.build(seed=1), nets.random_batch(entry, n, seed=2)
    states = {name: tensor.to_numpy(state) for name, state in net.states().items()}
    gradients = [tensor.to_numpy(g).astype(float) for g in net.gradients(x, y).values()]
    slope = sum((g**2).sum() for g in gradients)
    net.compile(optimizer.SGD(lr=0.002 / slope))
    before, after = (loss_of_a_step(net, states, x, y) for _ in range(2))
    assert before - after == pytest.approx(0.002, rel=0.05)
