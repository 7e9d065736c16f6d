"""A loss and a metric of your own: expressions of autograd, recorded and planned with the step.

python examples/recipes/own_loss_and_metric.py
"""

import numpy as np

from singa_lite import FeedForwardNet, autograd, layers, loss, metric, optimizer


class LogCosh(loss.Loss):
    """log(cosh(x - y)), one value an element, as r + softplus(-2 r) - log 2."""

    def compute(self, x, target):
        difference = x - target
        return difference + autograd.softplus(-2.0 * difference) - float(np.log(2))


class Largest(metric.EpochMetric):
    """The largest error of an epoch."""

    def statistics(self, scores, target):
        return np.array([np.abs(scores - target).max()], np.float64)

    def joined(self, before, more):
        return np.maximum(before, more)

    def result(self, statistics):
        return float(statistics[0])


random = np.random.default_rng(0)
x = random.normal(size=(128, 3)).astype(np.float32)
y = (x @ np.array([[1.0], [-2.0], [0.5]])).astype(np.float32)
net = FeedForwardNet(LogCosh(), Largest(), seed=1)
net.add(layers.Dense(1, input_sample_shape=(3,)))
net.compile(optimizer.Adam(0.1))
net.fit(x, y, epochs=20, verbose=False)
value, largest = net.evaluate(x, y)
difference = np.asarray(net.predict(x), np.float64) - y
print(f"loss {value:.6f}, by NumPy {np.log(np.cosh(difference)).mean():.6f}")
print(f"largest error {largest:.6f}, by NumPy {np.abs(difference).max():.6f}")
