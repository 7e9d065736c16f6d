"""The nets of `budget.py` in PyTorch, cut into segments for `torch.utils.checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from .torch_llama import llama
from .torch_nets import NETS as COMPARED
from .torch_nets import Chain, Named, own_by_our_names, parameters_by_our_names

#: What belongs to the convolution before it: no segment begins with one, as a ReLU in place would change its input.
_FOLLOWING = (nn.BatchNorm2d, nn.ReLU, nn.ReLU6)
#: As `models.densenet121` and `models.unet` have them.
_GROWTH, _BLOCKS, _WIDTHS = 32, (6, 12, 24, 16), (32, 64, 128, 256)


class Segments(nn.Module):
    """A chain of modules in so many segments, as PyTorch cuts it; 0 or 1: nothing is done again. The last is kept."""

    def __init__(self, chain: nn.Sequential, count: int) -> None:
        super().__init__()
        self._chain = (chain,)  # whose modules are in `units`
        units: list[list[nn.Module]] = []
        for module in chain:
            if units and isinstance(module, _FOLLOWING):
                units[-1].append(module)
            else:
                units.append([module])
        self.units = nn.Sequential(*(nn.Sequential(*unit) for unit in units))
        self.count = count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the chain."""
        if self.count < 2:
            return self.units(x)
        return checkpoint_sequential(self.units, min(self.count, len(self.units)), x, use_reentrant=False)

    def by_our_names(self) -> Named:
        """All parameters."""
        return parameters_by_our_names(self._chain[0])


class DenseLayer(nn.Module):
    """x, and `_GROWTH` new channels made of it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*_norm_relu_conv(channels, 4 * _GROWTH, 1), *_norm_relu_conv(4 * _GROWTH, _GROWTH, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, c, h, w) -> (n, c + growth, h, w)."""
        return torch.cat([x, self.body(x)], 1)


def _norm_relu_conv(channels: int, kernels: int, kernel: int) -> tuple[nn.Module, ...]:
    conv = nn.Conv2d(channels, kernels, kernel, padding=kernel // 2, bias=False)
    return nn.BatchNorm2d(channels), nn.ReLU(inplace=True), conv


def densenet121() -> Chain:
    """DenseNet-121, as `models.densenet121`."""
    net, channels = Chain().conv_norm("stem", 3, 64, 7, 2).add("stem_relu", nn.ReLU(inplace=True)), 64
    net.add("stem_pool", nn.MaxPool2d(3, 2, 1))
    for block, count in enumerate(_BLOCKS, 1):
        if block > 1:
            channels //= 2
            pieces = *_norm_relu_conv(2 * channels, channels, 1), nn.AvgPool2d(2, 2)
            net.add(f"transition{block - 1}", nn.Sequential(*pieces))
        for number in range(1, count + 1):
            net.add(f"block{block}_{number}", DenseLayer(channels))
            channels += _GROWTH
    last = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
    return net.add("last", last).averaged_scores(channels, 1000)


class UNet(nn.Module):
    """As `models.unet`. count: how many of its stages of two convolutions are done again, the largest first."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.depth, widths = len(_WIDTHS), (3, *_WIDTHS)
        self.down = nn.ModuleList(_two_convs(a, b) for a, b in pairwise(widths))
        pairs = list(pairwise(_WIDTHS))
        self.lift = nn.ModuleList(nn.Sequential(*_conv_norm_relu(b, a)) for a, b in pairs)
        self.up = nn.ModuleList(_two_convs(2 * a, a) for a, _ in pairs)
        self.pool, self.scores = nn.MaxPool2d(2, 2), nn.Conv2d(_WIDTHS[0], 5, 1)
        largest = [stage for pair in zip(self.down, [*self.up, None], strict=True) for stage in pair if stage]
        self._again = set(map(id, largest[:count]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, 3, h, w) -> (n, 5, h, w)."""
        skips = []
        for level, stage in enumerate(self.down, 1):
            x = self._stage(stage, x)
            if level < self.depth:
                skips.append(x)
                x = self.pool(x)
        for skip, lift, stage in zip(*map(reversed, (skips, self.lift, self.up)), strict=True):
            x = lift(nn.functional.interpolate(x, scale_factor=2))
            x = self._stage(stage, torch.cat([skip, x], 1))
        return self.scores(x)

    def _stage(self, stage: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(stage, x, use_reentrant=False) if id(stage) in self._again else stage(x)

    def by_our_names(self) -> Named:
        """All parameters: in the order of the modules, each convolution before its normalization."""
        upper = range(1, self.depth)
        stages = [*(f"down{level}" for level in upper), f"level{self.depth}", *(f"up{level}" for level in upper)]
        pairs = [f"{stage}_conv{number}" for stage in stages for number in (1, 2)]
        pairs[2 * self.depth : 2 * self.depth] = [f"up{level}_raise" for level in upper]
        names = [*(name for pair in pairs for name in (pair, f"{pair}_norm")), "scores"]
        found = [module for module in self.modules() if isinstance(module, (nn.Conv2d, nn.BatchNorm2d))]
        for name, module in zip(names, found, strict=True):
            yield from own_by_our_names(name, module)


def _conv_norm_relu(channels: int, kernels: int) -> Iterator[nn.Module]:
    yield nn.Conv2d(channels, kernels, 3, padding=1, bias=False)
    yield nn.BatchNorm2d(kernels)
    yield nn.ReLU(inplace=True)


def _two_convs(channels: int, kernels: int) -> nn.Module:
    return nn.Sequential(*_conv_norm_relu(channels, kernels), *_conv_norm_relu(kernels, kernels))


_CHAINS: dict[str, Callable[[], nn.Module]] = {**COMPARED, "densenet121": densenet121, "llama": llama}


def built(name: str, count: int) -> nn.Module:
    """The net of that name, to be trained. count: of segments, of stages for a U-Net; 0: nothing is done again."""
    net = UNet(count) if name == "unet" else Segments(_CHAINS[name](), count)
    return net.train()
