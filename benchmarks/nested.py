"""What it saves that a block's layers hand out their gradients one by one: peak bytes of a step, and of its plan.

    python benchmarks/nested.py

The same net twice: blocks that are one layer each, with all parameters of their own, and blocks of layers.
"""

from __future__ import annotations

import argparse

import numpy as np

from singa_lite import FeedForwardNet, Layer, Tensor, autograd, device, layers, loss, optimizer
from tiny import parsed, size

WIDTH, HIDDEN, BLOCKS, PARTS, BATCH = size((256, 1024, 4, 3, 64), (8, 16, 2, 2, 4))


class Whole(Layer):
    """A block as one layer: x + gelu(x @ w) @ v, several times."""

    def setup(self, *shapes: tuple[int, ...]) -> tuple[int, ...]:
        """The shape is kept."""
        for part in range(PARTS):
            self.add_parameter(f"w{part}", (WIDTH, HIDDEN), "glorot_uniform", (WIDTH, HIDDEN))
            self.add_parameter(f"v{part}", (HIDDEN, WIDTH), "glorot_uniform", (HIDDEN, WIDTH))
        return shapes[0]

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, WIDTH) -> the same shape."""
        for part in range(PARTS):
            hidden = autograd.gelu_tanh(autograd.matmul(x, self.parameters[f"w{part}"]))
            x = autograd.add(x, autograd.matmul(hidden, self.parameters[f"v{part}"]))
        return x


def nested(name: str) -> Layer:
    """The same of layers."""
    return layers.Sequential(name, [layers.Residual(f"part{part}", _part()) for part in range(PARTS)])


def _part() -> list[Layer]:
    wide, narrow = layers.Dense("w", HIDDEN, use_bias=False), layers.Dense("v", WIDTH, use_bias=False)
    return [wide, layers.Activation("act", "gelu_tanh"), narrow]


def net_of(kind: str, graph: bool) -> FeedForwardNet:
    """A compiled net of such blocks."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), seed=1)
    net.add(layers.Dummy("x", (WIDTH,)))
    for block in range(BLOCKS):
        net.add(nested(f"block{block}") if kind == "nested" else Whole(f"block{block}"))
    net.add(layers.Dense("scores", 10))
    net.compile(optimizer.SGD(0.1, momentum=0.9), graph=graph)
    return net


def peak_of_a_step(net: FeedForwardNet) -> int:
    """Bytes beyond those that are held between steps, with each operation done at once."""
    x, y = np.random.default_rng(0).standard_normal((BATCH, WIDTH)).astype(np.float32), np.zeros(BATCH, int)
    net.train_one_batch(x, y)
    held = net.device.pool.used
    net.device.pool.reset_high_water()
    net.train_one_batch(x, y)
    return net.device.pool.high_water - held


def main() -> None:
    """Print both."""
    parsed(argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter))
    for kind in ("whole", "nested"):
        peak, arena = peak_of_a_step(net_of(kind, False)), net_of(kind, True).plan_batch(BATCH).arena_bytes
        print(f"{kind}: a step done at once takes {peak / 2**20:.2f} MiB, planned {arena / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
