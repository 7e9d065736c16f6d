"""torchvision's nets of images, written again in PyTorch with its module names: what its weight files have.

After torchvision/models/resnet.py, mobilenetv2.py and densenet.py, without what their options add.
"""

from __future__ import annotations

import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int, differs: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU()
        shortcut = nn.Conv2d(channels, 4 * width, 1, stride, bias=False)
        self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(4 * width)) if differs else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        channels = 64
        for stage, count in enumerate((3, 4, 6, 3), 1):
            blocks = []
            for number in range(count):
                stride = 2 if stage > 1 and number == 0 else 1
                blocks.append(Bottleneck(channels, 32 * 2**stage, stride, number == 0))
                channels = 4 * 32 * 2**stage
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        return self.fc(y.mean((2, 3)))


def conv_norm_relu6(channels: int, kernels: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(channels, kernels, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(kernels), nn.ReLU6())


class InvertedResidual(nn.Module):
    def __init__(self, channels: int, kernels: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = channels * expansion
        wide = [] if expansion == 1 else [conv_norm_relu6(channels, width, 1)]
        narrow = [nn.Conv2d(width, kernels, 1, bias=False), nn.BatchNorm2d(kernels)]
        self.conv = nn.Sequential(*wide, conv_norm_relu6(width, width, 3, stride, width), *narrow)
        self.adds = stride == 1 and channels == kernels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        features, channels = [conv_norm_relu6(3, 32, 3, 2)], 32
        for expansion, kernels, count, first in (
            *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2)),
            (6, 320, 1, 1),
        ):
            for number in range(count):
                features.append(InvertedResidual(channels, kernels, first if number == 0 else 1, expansion))
                channels = kernels
        self.features = nn.Sequential(*features, conv_norm_relu6(320, 1280, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


class DenseLayer(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.relu = nn.BatchNorm2d(channels), nn.ReLU()
        self.conv1 = nn.Conv2d(channels, 128, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(128)
        self.conv2 = nn.Conv2d(128, 32, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv2(self.relu(self.norm2(self.conv1(self.relu(self.norm1(x))))))
        return torch.cat([x, y], 1)


class DenseNet121(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential()
        self.features.add_module("conv0", nn.Conv2d(3, 64, 7, 2, 3, bias=False))
        self.features.add_module("norm0", nn.BatchNorm2d(64))
        self.features.add_module("relu0", nn.ReLU())
        self.features.add_module("pool0", nn.MaxPool2d(3, 2, 1))
        channels = 64
        for block, count in enumerate((6, 12, 24, 16), 1):
            dense = nn.Sequential()
            for number in range(1, count + 1):
                dense.add_module(f"denselayer{number}", DenseLayer(channels))
                channels += 32
            self.features.add_module(f"denseblock{block}", dense)
            if block < 4:
                transition = nn.Sequential()
                transition.add_module("norm", nn.BatchNorm2d(channels))
                transition.add_module("relu", nn.ReLU())
                transition.add_module("conv", nn.Conv2d(channels, channels // 2, 1, bias=False))
                transition.add_module("pool", nn.AvgPool2d(2, 2))
                self.features.add_module(f"transition{block}", transition)
                channels //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(channels))
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.relu(self.features(x)).mean((2, 3)))


NETS = {"resnet50": ResNet50, "mobilenet_v2": MobileNetV2, "densenet121": DenseNet121}
