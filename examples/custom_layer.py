"""A layer of one's own is one class that composes operations; its backward comes from the tape.

    pip install ".[examples]" && python examples/custom_layer.py

The layer here is a gated linear unit, y = (x A + a) * sigmoid(x B + b) (Dauphin, arXiv 1612.08083). Its gradients
are checked against central differences, then it learns a function that needs its product.
"""

import numpy as np

from singa_lite import FeedForwardNet, Layer, autograd, layers, loss, optimizer
from singa_lite.tensor import Tensor


class GatedLinearUnit(Layer):
    """y = (x A + a) * sigmoid(x B + b). Input sample (in,), output sample (num_output,)."""

    def __init__(self, name: str, num_output: int, *, input_sample_shape: tuple[int, ...] | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.num_output = num_output

    def setup(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Make the parameters for samples of this shape; returns the output's sample shape."""
        fans = (shape[0], self.num_output)
        for part in ("linear", "gate"):
            self.add_parameter(f"{part}_weight", fans, "glorot_uniform", fans)
            self.add_parameter(f"{part}_bias", (self.num_output,), 0.0)
        return (self.num_output,)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x: (n, in); result (n, num_output)."""
        own = self.parameters
        linear = autograd.linear(x, own["linear_weight"], own["linear_bias"])
        gate = autograd.sigmoid(autograd.linear(x, own["gate_weight"], own["gate_bias"]))
        return linear * gate


def build(dtype: str) -> FeedForwardNet:
    """A gated layer and a Dense one."""
    net = FeedForwardNet(loss.SquaredError(), dtype=dtype, seed=1)
    net.add(GatedLinearUnit("gated", 24, input_sample_shape=(3,)))
    net.add(layers.Dense("out", 1))
    return net


random = np.random.default_rng(0)
x = random.uniform(-1, 1, (512, 3))
y = x[:, :1] * x[:, 1:2] + 0.5 * x[:, 2:]  # a product of inputs: no linear layer can do it

# The tape's gradient of one weight against central differences, in float64.
net = build("float64")
gradient = np.asarray(net.gradients(x, y)["gated/gate_weight"])
weight = net.parameters()["gated/gate_weight"]
before, losses = np.asarray(weight), []
for step in (1e-5, -1e-5):
    changed = before.copy()
    changed[2, 5] += step
    weight.copy_from_numpy(changed)
    losses.append(net.evaluate(x, y, batch_size=len(x))[0])
numeric = (losses[0] - losses[1]) / 2e-5
print(f"gradient of gate_weight[2, 5]: tape {gradient[2, 5]:.9f}, central difference {numeric:.9f}")

net = build("float32")
net.compile(optimizer.Adam(lr=0.01))
history = net.fit(x.astype(np.float32), y.astype(np.float32), batch_size=32, epochs=60, verbose=False)
print(f"squared error: first epoch {history['loss'][0]:.5f}, last epoch {history['loss'][-1]:.6f}")
