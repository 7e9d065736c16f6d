"""Freezing, and rules for parameters by the pattern of their names.

python examples/recipes/freeze_and_register.py
"""

import numpy as np

from singa_lite import FeedForwardNet, layers, optimizer, regularizer

random = np.random.default_rng(0)
x = random.normal(size=(64, 6)).astype(np.float32)
y = random.integers(0, 3, 64)

net = FeedForwardNet("softmax_cross_entropy", seed=1)
net.add(layers.Dense("first", 8, input_sample_shape=(6,)))
net.add(layers.Activation("relu"))
net.add(layers.Dense("second", 8))
net.add(layers.Activation(mode="tanh"))
net.add(layers.Dense("scores", 3))

rule = optimizer.SGD(0.1)
rule.register("*/bias", lr_mult=2.0)  # the last pattern that matches a name holds
rule.register("scores/weight", regularizer=regularizer.L2Regularizer(0.001))
net.compile(rule, freeze="second")  # what lies before the layer "second"
before = {name: np.array(value) for name, value in net.parameters().items()}
net.train_one_batch(x, y)
for name, value in net.parameters().items():
    print(name, "moved" if np.any(np.asarray(value) != before[name]) else "stays")
