"""A rule of your own: three operations of a layer become one, proved equal, in the net's recorded steps.

    pip install ".[examples]" && python examples/rewriting.py

The layer computes mish, x * tanh(softplus(x)) (Misra, arXiv 1908.08681), in operations that there are, each of which
keeps its result for the way back. The rule puts an operation of its own in their place, which keeps x alone.
"""

import numpy as np

from singa_lite import FeedForwardNet, Layer, autograd, layers, optimizer
from singa_lite.autograd import Output, Scratch
from singa_lite.rewriting import Rule, RuleError


def mish(x):
    """As the layer writes it."""
    return x * autograd.tanh(autograd.softplus(x))


class Mish(autograd.Function):
    """The same in one operation: it keeps x, and makes the rest again on the way back."""

    def makes(self, x):
        return {"y": Output(x.shape), "log": Scratch(x.shape), "t": Scratch(x.shape)}

    def forward(self, x, y, log):
        np.logaddexp(0, x, out=log)
        np.tanh(log, out=log)
        np.multiply(x, log, out=y)

    def derivative_x(self, x, dy, dx, log, t):
        """dy * t + dy * x * (1 - t * t) * sigmoid(x), where t = tanh(log) and sigmoid(x) = 1 - e**-log."""
        np.logaddexp(0, x, out=log)
        np.tanh(log, out=t)
        np.multiply(dy, x, out=dx)
        np.negative(log, out=log)
        np.expm1(log, out=log)
        dx *= log
        np.multiply(t, t, out=log)
        log -= 1
        dx *= log
        t *= dy
        dx += t


class MishLayer(Layer):
    """A layer of the user's own."""

    def setup(self, shape):
        """The output has the input's sample shape."""
        return shape

    def forward(self, training, x):
        """Elementwise."""
        return mish(x)


# The rule is proved here: on random inputs of one to four axes, in float32 and float64, with zeros of both signs,
# infinities and NaN, the way there and the way back.
rule = Rule("mish", mish, lambda x: Mish()(x), tolerance=1e-5)
try:
    Rule("nearly mish", mish, autograd.silu, tolerance=1e-5)
except RuleError as error:
    print(f"refused: {error}")


def trained(rules):
    """A net, its losses and its plan, with and without the rule."""
    net = FeedForwardNet("mse", seed=1)
    net.add(layers.Dense("in", 256, input_sample_shape=(8,)))
    for index in range(4):
        net.add(MishLayer(f"mish{index}"))
        net.add(layers.Dense(f"dense{index}", 256))
    net.add(layers.Dense("out", 1))
    net.compile(optimizer.Adam(0.001), rules=rules)
    random = np.random.default_rng(0)
    inputs = random.uniform(-1, 1, (512, 8)).astype(np.float32)
    targets = inputs[:, :1] * inputs[:, 1:2]
    history = net.fit(inputs, targets, batch_size=256, epochs=5, verbose=False)
    return history["loss"], net.memory_plan


(plain, before), (ruled, after) = trained(None), trained([rule])
print(f"applied {after.rewrites['mish']} times; operations: {before.operations} before, {after.operations} after")
print(f"arena: {before.arena_bytes / 2**20:.2f} MiB before, {after.arena_bytes / 2**20:.2f} MiB after")
print(f"loss of the last epoch: {plain[-1]:.6f} before, {ruled[-1]:.6f} after")
