"""The nets of `compare.py` in plain PyTorch, written as torchvision writes them: ReLU in place, no dropout.

Modules are named so that a name with "_" for "." is that of our layer: "stage1_1.conv1" is "stage1_1_conv1".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

import torch
from torch import nn

#: (our name, a parameter or a part of one, whether it is the transpose of ours) of all parameters.
Named = Iterator[tuple[str, torch.Tensor, bool]]


def resnet50() -> nn.Module:
    """Samples (3, 224, 224), 1000 classes; the stride on the 3 x 3."""
    net = Chain()
    net.conv_norm("stem", 3, 64, 7, 2).add("stem_relu", nn.ReLU(inplace=True))
    net.add("stem_pool", nn.MaxPool2d(3, 2, 1))
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3), 1):
        width = 32 * 2**stage
        for number in range(1, count + 1):
            stride = 2 if stage > 1 and number == 1 else 1
            net.add(f"stage{stage}_{number}", Residual(channels, (width, 1, 1), (width, 3, stride), (4 * width, 1, 1)))
            channels = 4 * width
    return net.averaged_scores(channels, 1000)


def resnet18_32() -> nn.Module:
    """Samples (3, 32, 32), 10 classes; a stem of 3 x 3 and no pooling behind it."""
    net = Chain()
    net.conv_norm("stem", 3, 64, 3).add("stem_relu", nn.ReLU(inplace=True))
    channels = 64
    for stage in range(1, 5):
        width = 32 * 2**stage
        for number in (1, 2):
            stride = 2 if stage > 1 and number == 1 else 1
            net.add(f"stage{stage}_{number}", Residual(channels, (width, 3, stride), (width, 3, 1)))
            channels = width
    return net.averaged_scores(channels, 10)


def mobilenet_v2() -> nn.Module:
    """Width 1. Samples (3, 224, 224), 1000 classes."""
    net = Chain()
    net.conv_norm("stem", 3, 32, 3, 2).add("stem_relu6", nn.ReLU6(inplace=True))
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    channels = 32
    for stage, (expansion, kernels, count, stride) in enumerate(stages, 1):
        for number in range(1, count + 1):
            block = InvertedResidual(channels, channels * expansion, kernels, stride if number == 1 else 1)
            net.add(f"stage{stage}_{number}", block)
            channels = kernels
    net.conv_norm("last", channels, 1280, 1).add("last_relu6", nn.ReLU6(inplace=True))
    return net.averaged_scores(1280, 1000)


def vgg16() -> nn.Module:
    """Configuration D. Samples (3, 224, 224), 1000 classes."""
    net = Chain()
    channels = 3
    for stage, (count, kernels) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), 1):
        for number in range(1, count + 1):
            net.add(f"stage{stage}_conv{number}", nn.Conv2d(channels, kernels, 3, padding=1))
            net.add(f"stage{stage}_relu{number}", nn.ReLU(inplace=True))
            channels = kernels
        net.add(f"stage{stage}_pool", nn.MaxPool2d(2, 2))
    net.add("flat", nn.Flatten())
    return net.perceptron(channels * 7 * 7, (4096, 4096), 1000)


def lenet() -> nn.Module:
    """Samples (1, 28, 28), 10 classes."""
    net = Chain()
    for name, channels, kernels, padding in (("conv1", 1, 6, 2), ("conv2", 6, 16, 0)):
        net.add(name, nn.Conv2d(channels, kernels, 5, padding=padding))
        net.add(f"{name}_relu", nn.ReLU(inplace=True))
        net.add(f"{name}_pool", nn.MaxPool2d(2, 2))
    net.add("flat", nn.Flatten())
    return net.perceptron(16 * 5 * 5, (120, 84), 10)


def mlp() -> nn.Module:
    """784-2048-2048-2048-10."""
    return Chain().perceptron(784, (2048,) * 3, 10)


NETS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "lenet": lenet,
    "vgg16": vgg16,
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "resnet18_32": resnet18_32,
}


def parameters_by_our_names(net: nn.Module) -> Named:
    """Of all modules."""
    separator = net.separator if isinstance(net, Chain) else "_"
    for path, module in net.named_modules():
        yield from own_by_our_names(path.replace(".", separator), module)


def own_by_our_names(path: str, module: nn.Module) -> Named:
    """Of a module without those in it. path: our layer's name."""
    norm = isinstance(module, (nn.BatchNorm2d, nn.RMSNorm))
    for name, parameter in module.named_parameters(recurse=False):
        kind = {"weight": "gamma", "bias": "beta"}[name] if norm else name
        yield f"{path}/{kind}", parameter, isinstance(module, nn.Linear) and name == "weight"


class Chain(nn.Sequential):
    """Named modules, one after the other. Every method returns the chain.

    separator: in our names, between a module and those in it.
    """

    separator = "_"

    def __init__(self) -> None:
        super().__init__(OrderedDict())

    def add(self, name: str, module: nn.Module) -> Chain:
        """Any module."""
        self.add_module(name, module)
        return self

    def conv_norm(
        self, name: str, channels: int, kernels: int, kernel: int = 3, stride: int = 1, groups: int = 1
    ) -> Chain:
        """A convolution padded with kernel // 2, without bias, and batch normalization."""
        conv = nn.Conv2d(channels, kernels, kernel, stride, kernel // 2, groups=groups, bias=False)
        return self.add(name, conv).add(f"{name}_norm", nn.BatchNorm2d(kernels))

    def perceptron(self, inputs: int, widths: tuple[int, ...], classes: int) -> Chain:
        """Linear layers of these widths, each with a ReLU, then scores."""
        for number, width in enumerate(widths, 1):
            self.add(f"dense{number}", nn.Linear(inputs, width)).add(f"dense{number}_relu", nn.ReLU(inplace=True))
            inputs = width
        return self.add("scores", nn.Linear(inputs, classes))

    def averaged_scores(self, channels: int, classes: int) -> Chain:
        """The end of a classifier: average of each channel's image, scores."""
        self.add("average", nn.AdaptiveAvgPool2d(1)).add("flat", nn.Flatten())
        return self.add("scores", nn.Linear(channels, classes))


class Residual(nn.Module):
    """relu(x + convolutions of x), x by a convolution of 1 x 1 where the shapes differ.

    steps: (kernels, extent of a kernel, stride) of each convolution.
    """

    def __init__(self, channels: int, *steps: tuple[int, int, int]) -> None:
        super().__init__()
        body, stride, inputs = Chain(), 1, channels
        for number, (kernels, kernel, step) in enumerate(steps, 1):
            body.conv_norm(f"conv{number}", inputs, kernels, kernel, step)
            if number < len(steps):
                body.add(f"conv{number}_relu", nn.ReLU(inplace=True))
            stride, inputs = stride * step, kernels
        _adopt(self, body)
        self.order = list(dict(body.named_children()))
        self.differs = stride > 1 or inputs != channels
        if self.differs:
            _adopt(self, Chain().conv_norm("shortcut", channels, inputs, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, c, h, w) -> (n, kernels of the last step, h / strides, w / strides)."""
        y = x
        for name in self.order:
            y = getattr(self, name)(y)
        if self.differs:
            x = self.shortcut_norm(self.shortcut(x))
        y += x
        return self.relu(y)


class InvertedResidual(nn.Module):
    """Wide, depthwise, narrow; plus x where the shapes are equal."""

    def __init__(self, channels: int, width: int, kernels: int, stride: int) -> None:
        super().__init__()
        body = Chain()
        if width != channels:
            body.conv_norm("expand", channels, width, 1).add("expand_relu6", nn.ReLU6(inplace=True))
        body.conv_norm("depthwise", width, width, 3, stride, width).add("depthwise_relu6", nn.ReLU6(inplace=True))
        body.conv_norm("project", width, kernels, 1)
        _adopt(self, body)
        self.order = list(dict(body.named_children()))
        self.adds = stride == 1 and kernels == channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, c, h, w) -> (n, kernels, h / stride, w / stride)."""
        y = x
        for name in self.order:
            y = getattr(self, name)(y)
        return x + y if self.adds else y


def _adopt(module: nn.Module, chain: Chain) -> None:
    """Make the chain's modules those of `module`, under their own names."""
    for name, child in chain.named_children():
        module.add_module(name, child)
