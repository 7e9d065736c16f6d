"""An operation of your own: forward and backward written by hand, out of kernels that every device has.

python examples/recipes/own_operation.py
"""

import numpy as np

from singa_lite import FeedForwardNet, autograd, layers, optimizer


class ReverseGradient(autograd.Op):
    """y = x forward; dx = -strength dy back (Ganin and Lempitsky, arXiv 1409.7495)."""

    def __init__(self, strength):
        self.strength = strength

    def forward(self, x):
        return autograd.scale(x, 1.0)

    def backward(self, index, dy):
        return autograd.scale(dy, -self.strength)


def build(function):
    """A net with the function between two layers."""
    net = FeedForwardNet("mse", dtype="float64", seed=1)
    net.add(layers.Dense("in", 4, input_sample_shape=(3,)))
    net.add(layers.Lambda("between", function))
    net.add(layers.Dense("out", 2))
    return net


random = np.random.default_rng(0)
x, y = random.normal(size=(5, 3)), random.normal(size=(5, 2))
plain = build(lambda values: autograd.scale(values, 1.0)).gradients(x, y)
net = build(lambda values: ReverseGradient(0.5)(values))
net.compile(optimizer.SGD(0.1))
reversed_ = net.gradients(x, y)
for name in ("in/weight", "out/weight"):
    ratio = np.asarray(reversed_[name]) / np.asarray(plain[name])
    print(f"{name}: {ratio.mean():.3f} times the plain gradient")
net.train_one_batch(x, y)
