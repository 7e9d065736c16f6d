"""The names of torchvision's nets of images (torchvision/models/resnet.py, mobilenetv2.py and densenet.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from singa_lite.common.errors import SnapshotError
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.snapshots.maps import parts

#: (class of a layer, module of the file).
Pair = tuple[str, str]


def resnet50(net: LayerGraph) -> dict[str, str]:
    """Returns torchvision's module for each layer of a `models.resnet50`: {"stem": "conv1", "stem_norm": "bn1", ...}.

    For `net.load` and `net.save` of .safetensors files, which `safetensors.torch.save_file(module.state_dict(), path)`
    writes. A net whose "scores" are of other classes takes the rest with `strict=False`. SnapshotError for a net of
    another form, TypeError for what is no net.

    >>> snapshots.maps.resnet50(models.resnet50(10, shape=(3, 64, 64)))["stage1_1_shortcut"]
    'layer1.0.downsample.0'
    """
    return _modules("resnet50", net, [*_pair("conv1", "bn1"), *_residual_blocks(), ("Dense", "fc")])


def mobilenet_v2(net: LayerGraph) -> dict[str, str]:
    """Returns torchvision's module for each layer of a `models.mobilenet_v2`: {"stem": "features.0.0", ...}.

    Use and errors are those of `resnet50`.

    >>> snapshots.maps.mobilenet_v2(models.mobilenet_v2(10, shape=(3, 64, 64)))["scores"]
    'classifier.1'
    """
    return _modules("mobilenet_v2", net, [*_inverted_residuals(), ("Dense", "classifier.1")])


def densenet121(net: LayerGraph) -> dict[str, str]:
    """Returns torchvision's module for each layer of a `models.densenet121`: {"stem": "features.conv0", ...}.

    Use and errors are those of `resnet50`.

    >>> snapshots.maps.densenet121(models.densenet121(10, shape=(3, 64, 64)))["last_norm"]
    'features.norm5'
    """
    stem = _pair("features.conv0", "features.norm0")
    last = [("BatchNormalization", "features.norm5"), ("Dense", "classifier")]
    return _modules("densenet121", net, [*stem, *_dense_blocks(), *last])


def _modules(model: str, net: LayerGraph, wanted: Sequence[Pair]) -> dict[str, str]:
    """Pairs the layers that have parameters with modules, in their order. SnapshotError unless the classes agree."""
    layers = parts.parted(net)
    kinds = [parts.kind(layer) or type(layer).__name__ for layer in layers]
    if kinds != [kind for kind, _ in wanted]:
        differing = (n for n, (ours, (kind, _)) in enumerate(zip(kinds, wanted, strict=False)) if ours != kind)
        first = next(differing, min(len(kinds), len(wanted)))
        raise SnapshotError(
            f"maps.{model}: wanted the {len(wanted)} layers with parameters of models.{model}, received {len(kinds)}, "
            f"of which number {first} is the first that differs: {kinds[first : first + 1]}"
        )
    return {layer.path: module for layer, (_, module) in zip(layers, wanted, strict=True)}


def _pair(conv: str, norm: str) -> list[Pair]:
    return [("Conv2D", conv), ("BatchNormalization", norm)]


def _residual_blocks() -> Iterator[Pair]:
    """A stage's first block has a shortcut, which precedes its convolutions in the order of a net."""
    for stage, count in enumerate((3, 4, 6, 3), 1):
        for block in range(count):
            name = f"layer{stage}.{block}"
            if block == 0:
                yield from _pair(f"{name}.downsample.0", f"{name}.downsample.1")
            for number in (1, 2, 3):
                yield from _pair(f"{name}.conv{number}", f"{name}.bn{number}")


def _inverted_residuals() -> Iterator[Pair]:
    """The blocks are modules of one sequence; the first has no expansion."""
    yield from _pair("features.0.0", "features.0.1")
    for block in range(1, 18):
        name, convs = f"features.{block}.conv", 1 if block == 1 else 2
        for number in range(convs):
            yield from _pair(f"{name}.{number}.0", f"{name}.{number}.1")
        yield from _pair(f"{name}.{convs}", f"{name}.{convs + 1}")
    yield from _pair("features.18.0", "features.18.1")


def _dense_blocks() -> Iterator[Pair]:
    for block, count in enumerate((6, 12, 24, 16), 1):
        for layer in range(1, count + 1):
            name = f"features.denseblock{block}.denselayer{layer}"
            for number in (1, 2):
                yield from reversed(_pair(f"{name}.conv{number}", f"{name}.norm{number}"))
        if block < 4:
            name = f"features.transition{block}"
            yield from reversed(_pair(f"{name}.conv", f"{name}.norm"))
