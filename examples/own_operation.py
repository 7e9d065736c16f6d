"""An operation of your own, written in NumPy, that is planned, proved and replayed as the built-in ones are.

    pip install ".[examples]" && python examples/own_operation.py

The operation is y = log(1 + x^2) * scale with a scale for each column. A layer holds its parameter; its gradients are
checked; a net with it trains, and the plan shows where its scratch lies.
"""

import numpy as np

from singa_lite import FeedForwardNet, Layer, autograd, layers, optimizer, testing
from singa_lite.autograd import Output, Scratch


class LogSquare(autograd.Function):
    """y = scale log(1 + x^2). x (n, columns), scale (columns,)."""

    overwrites = (("y", "x"), ("dx", "dy"))  # each element is read before it is written

    def makes(self, x, scale):
        """What a call makes, by the shapes and dtypes of what it is given."""
        return {
            "y": Output(x.shape),
            "log": Scratch(x.shape, lifespan="backward"),  # forward writes it, derivatives read it
            "slope": Scratch(x.shape, lifespan="backward"),
            "square": Scratch(x.shape),  # for one function, while it runs
        }

    def forward(self, x, scale, y, log, slope, square):
        """NumPy arrays; write into what makes() named."""
        np.multiply(x, x, out=square)
        np.log1p(square, out=log)
        square += 1
        np.divide(x, square, out=slope)
        slope *= 2
        np.multiply(log, scale, out=y)

    def derivative_x(self, dy, slope, scale, dx):
        """What it names it is given: the derivative by y, what was kept, an input."""
        np.multiply(dy, slope, out=dx)
        dx *= scale

    def derivative_scale(self, dy, log, square, dscale):
        """Parameters have derivatives like anything else."""
        np.multiply(dy, log, out=square)
        np.sum(square, axis=0, out=dscale)


class LogSquareLayer(Layer):
    """The operation with a scale that trains."""

    def setup(self, shape):
        """Samples of one axis; returns the output's sample shape."""
        self.add_parameter("scale", shape, 1.0)
        self.operation = LogSquare()
        return shape

    def forward(self, training, x):
        """x: (n, columns)."""
        return self.operation(x, self.parameters["scale"])


random = np.random.default_rng(0)
x = random.uniform(-2, 2, (5, 7))
found = testing.check_function(LogSquare(), x, random.uniform(0.5, 1.5, 7), allowed_bytes=16_000)
print(f"gradients within {max(one.error for one in found.gradients):.1e} of central differences")
testing.check_gradients(LogSquareLayer("by layer"), x)

net = FeedForwardNet("mse", seed=1)
net.add(layers.Dense("in", 32, input_sample_shape=(8,)))
net.add(LogSquareLayer("log_square"))
net.add(layers.Dense("out", 1))
net.compile(optimizer.Adam(0.01))
inputs = random.uniform(-1, 1, (512, 8)).astype(np.float32)
targets = (inputs[:, :1] * inputs[:, 1:2]).astype(np.float32)
history = net.fit(inputs, targets, batch_size=64, epochs=40, verbose=False)
print(f"squared error: first epoch {history['loss'][0]:.4f}, last epoch {history['loss'][-1]:.5f}")
for row in net.memory_plan.rows:
    if "LogSquare.forward" in row.name:
        print(f"{row.name}: {row.nbytes} bytes, from step {row.lower} to {row.upper}, at {row.offset} in the arena")
