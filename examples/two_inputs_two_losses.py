"""A net with two inputs and two outputs, each with its own loss: by hand, and by name.

    pip install ".[examples]" && python examples/two_inputs_two_losses.py

Each of scikit-learn's digits is cut into its upper and its lower half. Two branches look at one half each; their
features meet, and from there one output names the digit while the other counts its ink.
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from singa_lite import FeedForwardNet, layers, loss, metric, optimizer, tensor

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--epochs", type=int, default=15)
arguments.add_argument("--steps", type=int, default=200, help="by hand")
options = arguments.parse_args()

pictures, digits = load_digits(return_X_y=True)
pictures = (pictures / 16).astype(np.float32)
split = train_test_split(pictures, digits, test_size=0.2, stratify=digits, random_state=0)
x, x_test, y, y_test = split


def halves(pictures: np.ndarray) -> dict[str, np.ndarray]:
    """The inputs by the names of the layers that take them."""
    return {"upper": pictures[:, :32], "lower": pictures[:, 32:]}


def targets(pictures: np.ndarray, digits: np.ndarray) -> dict[str, np.ndarray]:
    """The targets by the names of the layers that give the outputs."""
    return {"digit": digits, "ink": pictures.mean(axis=1, keepdims=True)}


def build() -> FeedForwardNet:
    """Two branches, joined; two heads."""
    net = FeedForwardNet(
        {"digit": loss.SoftmaxCrossEntropy(), "ink": loss.SquaredError()}, {"digit": metric.Accuracy()}, seed=0
    )
    for half in ("upper", "lower"):
        net.add(layers.Dense(half, 64, input_sample_shape=(32,)), src=[])  # no source: an input of the net
        net.add(layers.Activation(f"{half}_relu"))
    net.add(layers.Concat("both", axis=1), src=["upper_relu", "lower_relu"])
    net.add(layers.Dense("joined", 64))
    relu = net.add(layers.Activation("joined_relu"))
    net.add(layers.Dense("digit", 10), src=relu)
    net.add(layers.Dense("ink", 1), src=relu)  # the second layer that `relu` feeds: derivatives are summed
    return net


# By hand: forward gives a dict of outputs, backward takes a dict of derivatives.
net, adam = build(), optimizer.Adam(lr=1e-3)
classify, measure = loss.SoftmaxCrossEntropy(), loss.SquaredError()
wanted = targets(x, y)
for _ in range(options.steps):
    out = net.forward(True, halves(x))
    classify.forward(True, out["digit"], tensor.from_numpy(wanted["digit"]))
    measure.forward(True, out["ink"], tensor.from_numpy(wanted["ink"]))
    derivatives = {"digit": classify.backward(), "ink": measure.backward()}
    for names, values, gradients, _ in net.backward(derivatives):
        for name, value, gradient in zip(names, values, gradients, strict=True):
            adam.update(name, value, gradient)
out = net.predict(halves(x_test))
right = np.mean(np.asarray(out["digit"]).argmax(axis=1) == y_test)
error = np.abs(np.asarray(out["ink"])[:, 0] - x_test.mean(axis=1)).mean()
print(f"by hand: {right:.2%} of the held-out digits right, ink off by {error:.4f} on average")

# By name: the net sums the two losses.
net = build()
net.compile(optimizer.Adam(lr=1e-3))
net.fit(halves(x), wanted, batch_size=32, epochs=options.epochs, verbose=False)
total, metrics = net.evaluate(halves(x_test), targets(x_test, y_test))
print(f"by name: {metrics['digit']:.2%} of the held-out digits right, sum of losses {total:.4f}")
