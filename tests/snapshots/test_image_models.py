"""Nets of images of `singa_lite.models`: torchvision's names and shapes, weights there and back, bad arguments."""

from __future__ import annotations

import importlib
from math import prod
from typing import Any

import numpy as np
import pytest

import skips
from nets import state_of
from singa_lite import FeedForwardNet, SnapshotError, layers, models, optimizer, snapshots

library = skips.library("safetensors.numpy")
maps = snapshots.maps

#: What torchvision publishes: parameters, arrays of parameters, and some names with shapes, for 1,000 classes.
PUBLISHED: dict[str, tuple[int, int, dict[str, tuple[int, ...]]]] = {
    "resnet50": (
        25_557_032,
        161,
        {
            "conv1.weight": (64, 3, 7, 7),
            "bn1.running_mean": (64,),
            "layer1.0.conv1.weight": (64, 64, 1, 1),
            "layer1.0.downsample.0.weight": (256, 64, 1, 1),
            "layer1.0.downsample.1.running_var": (256,),
            "layer2.0.conv2.weight": (128, 128, 3, 3),
            "layer3.5.bn3.bias": (1024,),
            "layer4.2.conv3.weight": (2048, 512, 1, 1),
            "fc.weight": (1000, 2048),
            "fc.bias": (1000,),
        },
    ),
    "mobilenet_v2": (
        3_504_872,
        158,
        {
            "features.0.0.weight": (32, 3, 3, 3),
            "features.1.conv.0.0.weight": (32, 1, 3, 3),
            "features.1.conv.1.weight": (16, 32, 1, 1),
            "features.1.conv.2.running_var": (16,),
            "features.2.conv.0.0.weight": (96, 16, 1, 1),
            "features.2.conv.1.1.weight": (96,),
            "features.17.conv.2.weight": (320, 960, 1, 1),
            "features.17.conv.3.bias": (320,),
            "features.18.0.weight": (1280, 320, 1, 1),
            "classifier.1.weight": (1000, 1280),
        },
    ),
    "densenet121": (
        7_978_856,
        364,
        {
            "features.conv0.weight": (64, 3, 7, 7),
            "features.norm0.weight": (64,),
            "features.denseblock1.denselayer1.norm1.running_mean": (64,),
            "features.denseblock1.denselayer1.conv1.weight": (128, 64, 1, 1),
            "features.denseblock1.denselayer1.conv2.weight": (32, 128, 3, 3),
            "features.transition1.norm.weight": (256,),
            "features.transition3.conv.weight": (512, 1024, 1, 1),
            "features.denseblock4.denselayer16.norm2.bias": (128,),
            "features.norm5.running_var": (1024,),
            "classifier.weight": (1000, 1024),
        },
    ),
}
each_model = pytest.mark.parametrize("model", PUBLISHED)


def small(model: str, classes: int = 7, **options: Any) -> FeedForwardNet:
    return getattr(models, model)(classes, shape=(3, 40, 56), **options)


def named(net: FeedForwardNet, model: str) -> dict[str, str]:
    return getattr(maps, model)(net)


@each_model
def test_names_and_shapes_are_those_that_torchvision_publishes(model, tmp_path):
    net, path = small(model, 1000, init=0.0), tmp_path / "weights.safetensors"
    count, arrays, some = PUBLISHED[model]
    assert sum(prod(value.shape) for value in net.parameters().values()) == count
    assert len(net.parameters()) == arrays
    net.save(path, weights_only=True, names=named(net, model))
    found = {name: array.shape for name, array in library.load_file(path).items()}
    assert {name: found.get(name) for name in some} == some
    assert len(found) == arrays + 2 * sum(name.endswith("running_mean") for name in found)


@each_model
def test_weights_of_other_classes_load_but_for_the_scores(model, tmp_path):
    """What the net has no place for is torchvision's count of batches."""
    net, other, path = small(model, seed=1), small(model, 5, seed=2), tmp_path / "weights.safetensors"
    net.save(path, weights_only=True, names=named(net, model))
    arrays = library.load_file(path)
    counts = {name.replace("running_mean", "num_batches_tracked") for name in arrays if name.endswith("running_mean")}
    library.save_file(arrays | {name: np.array(9) for name in counts}, path)
    with pytest.raises(SnapshotError, match="scores/"):
        other.load(path, names=named(other, model))
    left = other.load(path, names=named(other, model), strict=False)
    assert sorted(left.differing) == ["scores/bias", "scores/weight"]
    assert left.missing == () and set(left.unused) == counts
    ours, theirs = state_of(net), state_of(other)
    moved = [name for name in ours if ours[name] != theirs[name]]
    assert moved and all(name.startswith(("parameters/scores", "scores", "drop")) for name in moved), moved


@pytest.mark.peer
@each_model
def test_outputs_are_those_of_torchvisions_form(model, tmp_path):
    torch, files = skips.library("torch"), skips.library("safetensors.torch")
    torch.manual_seed(3)
    nets = importlib.import_module("torchvision_nets").NETS
    module = nets[model](7)
    x = np.random.default_rng(0).standard_normal((4, 3, 40, 56), dtype=np.float32)
    with torch.no_grad():
        for _ in range(3):
            module.train()(torch.from_numpy(x))  # running statistics become the batch's, more or less
    assert sum(parameter.numel() for parameter in nets[model](1000).parameters()) == PUBLISHED[model][0]
    files.save_file(module.state_dict(), tmp_path / "theirs.safetensors")
    net = small(model, seed=1)
    net.load(tmp_path / "theirs.safetensors", names=named(net, model))
    with torch.no_grad():
        wanted = module.eval()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(net.predict(x), wanted, 1e-4, 1e-4 * np.abs(wanted).max())

    net.save(tmp_path / "ours.safetensors", weights_only=True, names=named(net, model))
    back = nets[model](7)
    left = back.load_state_dict(files.load_file(tmp_path / "ours.safetensors"), strict=False)
    assert all(name.endswith("num_batches_tracked") for name in left.missing_keys) and not left.unexpected_keys
    with torch.no_grad():
        np.testing.assert_array_equal(back.eval()(torch.from_numpy(x)).numpy(), wanted)


def test_maps_of_other_nets():
    net = FeedForwardNet()
    net.add(layers.Conv2D("stem", 4, 3, input_sample_shape=(3, 8, 8)))
    for make in (maps.resnet50, maps.mobilenet_v2, maps.densenet121):
        with pytest.raises(SnapshotError, match="number 1 is the first that differs"):
            make(net)
    with pytest.raises(SnapshotError, match=r"maps\.densenet121"):
        maps.densenet121(small("mobilenet_v2", init=0.0))
    with pytest.raises(TypeError, match="FeedForwardNet"):
        maps.resnet50("resnet50")


@pytest.mark.parametrize("model", [*PUBLISHED, "unet"])
@pytest.mark.parametrize(
    ("options", "culprit"),
    [({"classes": 0}, "0"), ({"classes": "ten"}, "'ten'"), ({"shape": (3, -8, 8)}, "-8"), ({"init": "none"}, "none")],
)
def test_models_that_cannot_be(model, options, culprit):
    with pytest.raises((TypeError, ValueError), match=culprit):
        getattr(models, model)(**options)


@pytest.mark.parametrize(
    "options", [{"shape": (1, 20, 24)}, {"shape": (1, 24, 20), "widths": (4, 8, 8, 8)}, {"widths": ()}]
)
def test_a_unet_that_does_not_halve(options):
    with pytest.raises(ValueError, match="unet: wanted levels"):
        models.unet(3, **options)


def test_a_unet_learns_pixels():
    """Each pixel's class is whether it is bright."""
    net = models.unet(2, shape=(1, 16, 24), widths=(4, 8), seed=0)
    x = np.random.default_rng(0).standard_normal((8, 1, 16, 24), dtype=np.float32)
    net.compile(optimizer.Adam(0.02))
    losses = [float(net.train_one_batch(x, (x[:, 0] > 0).astype(int))[0]) for _ in range(12)]
    assert losses[-1] < 0.5 * losses[0]
