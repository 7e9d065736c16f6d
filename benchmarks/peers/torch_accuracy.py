"""PyTorch's side of `accuracy.py`: the same nets from equal weights, in float32 or under autocast to bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from .torch_nets import Chain, Residual, parameters_by_our_names

Array = np.ndarray[Any, Any]


def digits_cnn() -> nn.Module:
    """Samples (1, 8, 8), 10 classes."""
    net = Chain()
    net.conv_norm("conv1", 1, 32).add("conv1_relu", nn.ReLU())
    net.conv_norm("conv2", 32, 32).add("conv2_relu", nn.ReLU()).add("pool", nn.MaxPool2d(2))
    net.conv_norm("conv3", 32, 64).add("conv3_relu", nn.ReLU())
    return net.add("flat", nn.Flatten()).add("drop", nn.Dropout(0.5)).add("scores", nn.Linear(1024, 10))


def resnet8_32() -> nn.Module:
    """Samples (3, 32, 32), 10 classes."""
    net = Chain().conv_norm("stem", 3, 16).add("stem_relu", nn.ReLU())
    channels = 16
    for stage, width in enumerate((16, 32, 64), 1):
        stride = 1 if stage == 1 else 2
        net.add(f"stage{stage}", Residual(channels, (width, 3, stride), (width, 3, 1)))
        channels = width
    return net.averaged_scores(channels, 10)


NETS: dict[str, Callable[[], nn.Module]] = {"digits_cnn": digits_cnn, "resnet8_32": resnet8_32}


class Trained:
    """A net with our weights. seed: of dropout."""

    def __init__(self, name: str, weights: Mapping[str, Array], autocast: bool, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.net, self.autocast = NETS[name]().train(), autocast
        with torch.no_grad():
            for own, parameter, turned in parameters_by_our_names(self.net):
                array = weights[own].T if turned else weights[own]
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(array)))

    def _loss(self, x: Array, y: Array) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            scores = self.net(torch.from_numpy(x))
        return cross_entropy(scores.float(), torch.from_numpy(y))

    def train(self, batches: Iterable[tuple[Array, Array]], lr: float) -> list[float]:
        """The loss of each step of SGD with momentum 0.9."""
        optimizer, losses = torch.optim.SGD(self.net.parameters(), lr, momentum=0.9), list[float]()
        for x, y in batches:
            loss = self._loss(x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def accuracy(self, x: Array, y: Array) -> float:
        """The share of samples whose largest score is the right one."""
        self.net.eval()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            return float((self.net(torch.from_numpy(x)).argmax(1).numpy() == y).mean())

    def gradients(self, x: Array, y: Array) -> dict[str, Array]:
        """Of one batch, by our names and in our shapes."""
        self._loss(x, y).backward()
        found = {}
        for own, parameter, turned in parameters_by_our_names(self.net):
            gradient = np.asarray(parameter.grad)
            found[own] = gradient.T if turned else gradient
        return found
