"""The training loop by hand: forward, loss, and backward as a generator that an optimizer drains.

    pip install ".[examples]" && python examples/digits_mlp.py

What `train_one_batch` does, line by line, on scikit-learn's handwritten digits; and what the generator saves: the
same steps with all gradients collected first need more memory, by all layers' gradients but the largest one's.
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, tensor

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--epochs", type=int, default=15)
options = arguments.parse_args()

pictures, digits = load_digits(return_X_y=True)
pictures = (pictures / 16 - 0.5).astype(np.float32)
x, x_test, y, y_test = train_test_split(pictures, digits, test_size=0.2, stratify=digits, random_state=0)


def build(cpu: device.Device) -> FeedForwardNet:
    """Four Dense layers, the same initial values each time."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), cpu, seed=0)
    net.add(layers.Dense("hidden1", 512, weight_init="he_normal", input_sample_shape=(64,)))
    net.add(layers.Activation("relu1"))
    net.add(layers.Dense("hidden2", 512, weight_init="he_normal"))
    net.add(layers.Activation("relu2"))
    net.add(layers.Dense("hidden3", 512, weight_init="he_normal"))
    net.add(layers.Activation("relu3"))
    net.add(layers.Dense("scores", 10))
    return net


cpu = device.new_cpu()  # a device with a pool of its own, to read its numbers
net = build(cpu)
sgd = optimizer.SGD(lr=0.05, momentum=0.9)
random = np.random.default_rng(0)

for epoch in range(options.epochs):
    order = random.permutation(len(x))
    total = 0.0
    for start in range(0, len(x), 32):
        batch = order[start : start + 32]
        target = tensor.from_numpy(y[batch], cpu)

        # 1. Forward. Each activation is freed at its last use, unless backward will need it.
        scores = net.forward(True, x[batch])

        # 2. The loss: one value a sample, and the derivative of their mean by the scores.
        losses = net.loss.forward(True, scores, target)
        derivative = net.loss.backward()
        total += float(tensor.to_numpy(losses).sum())

        # 3. Backward, last layer first. Each turn brings one layer's gradients; the layer's parameters may be
        #    changed at once, since the derivative through the layer is computed already. When the loop asks for
        #    the next layer, the memory of these gradients is given back and used again.
        for names, values, gradients, _ in net.backward(derivative):
            for name, value, gradient in zip(names, values, gradients, strict=True):
                sgd.update(name, value, gradient)
    print(f"epoch {epoch + 1:2}: loss {total / len(x):.4f}")

predicted = np.asarray(net.predict(x_test)).argmax(axis=1)
print(f"held-out fifth: {np.mean(predicted == y_test):.2%} right")


def high_water(step) -> int:
    """Most bytes of the pool given out while `step(net, sgd)` runs, on a net that has trained once before."""
    cpu = device.new_cpu()
    net, sgd = build(cpu), optimizer.SGD(lr=0.05, momentum=0.9)
    generated(net, sgd)
    cpu.pool.reset_high_water()
    step(net, sgd)
    return cpu.pool.high_water


def generated(net: FeedForwardNet, sgd: optimizer.Optimizer) -> None:
    """One step as above: each layer's gradients are used and dropped."""
    net.compile(sgd, graph=False)  # each operation at once, as in the loop above
    net.train_one_batch(x[:32], y[:32])


def collected(net: FeedForwardNet, sgd: optimizer.Optimizer) -> None:
    """One step the usual way: all gradients first, then all updates."""
    gradients = net.gradients(x[:32], y[:32])
    for name, value in net.parameters().items():
        sgd.update(name, value, gradients[name])


one_at_a_time, all_at_once = high_water(generated), high_water(collected)
print(f"most memory in a step: {one_at_a_time / 2**20:.2f} MiB layer by layer, {all_at_once / 2**20:.2f} MiB collected")
