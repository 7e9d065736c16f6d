"""Metric learning: one net looks at both pictures of a pair, and equal digits are to be near each other.

    pip install ".[examples,onednn]" && python examples/gallery/siamese.py

Trained on pairs of the digits 0 to 6 alone; the nearest of five pictures a class then names 7, 8 and 9, which it has
never seen, in 84 % of the cases.

Porting: a model that is called twice is layers.Net(name, net) twice, the second with share_parameters(first). It is
the net itself afterwards, so that `encoder` predicts alone. Lambda takes functions of autograd, of several inputs
too.
"""

import numpy as np
from bundled import digits, planned_kib, show

from singa_lite import FeedForwardNet, autograd, layers, optimizer, tensor


def encoders() -> FeedForwardNet:
    """A picture to a point on a sphere of 16 dimensions."""
    net = FeedForwardNet(seed=0)
    net.add(layers.Conv2D(24, 3, input_sample_shape=(1, 8, 8)))
    net.add(layers.Activation(mode="relu"))
    net.add(layers.MaxPooling2D(2, 2, "valid"))
    net.add(layers.Flatten())
    net.add(layers.Dense(16))
    net.add(layers.L2Norm())
    return net


def pairs(encoder: FeedForwardNet) -> FeedForwardNet:
    """Two pictures to one score: how alike they are."""
    net = FeedForwardNet("sigmoid_cross_entropy", "binary_accuracy", seed=1)
    left = net.add(layers.Net("left", encoder), src=[])
    right = net.add(layers.Net("right", encoder).share_parameters(left), src=[])
    net.add(layers.Lambda(None, alike), src=[left, right])
    return net


def alike(a: tensor.Tensor, b: tensor.Tensor) -> tensor.Tensor:
    """10 times how much the cosine is above 1/2."""
    return 10.0 * (autograd.reduce_sum(a * b, 1, keepdims=True) - 0.5)


def main(epochs: int = 8, count: int = 4000, shots: int = 5) -> dict[str, float]:
    """Train on pairs, then name unseen classes by their neighbours."""
    x, _, y, _ = digits()
    random, old = np.random.default_rng(0), np.flatnonzero(y < 7)
    first = random.choice(old, count)
    second = np.where(
        random.random(count) < 0.5, random.choice(old, count), [random.choice(old[y[old] == y[each]]) for each in first]
    )
    encoder = encoders()
    net = pairs(encoder)
    net.compile(optimizer.Adam(lr=2e-3))
    same = (y[first] == y[second])[:, None]
    net.fit({"left": x[first], "right": x[second]}, same, batch_size=64, epochs=epochs, verbose=False)
    known = np.concatenate([np.flatnonzero(y == digit)[:shots] for digit in (7, 8, 9)])
    asked = np.setdiff1d(np.flatnonzero(y >= 7), known)
    near = np.asarray(encoder.predict(x[asked])) @ np.asarray(encoder.predict(x[known])).T
    right = y[known][near.argmax(axis=1)] == y[asked]
    return {
        "unseen digits": right.mean(),
        "shared parameters": len(net.parameters()),
        "planned KiB": planned_kib(net, 64),
    }


if __name__ == "__main__":
    show(main())
