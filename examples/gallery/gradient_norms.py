"""Looking at gradients: their norm by layer, as the walk back hands them out, one layer at a time.

    pip install ".[examples,onednn]" && python examples/gallery/gradient_norms.py

Behind ten sigmoids hardly anything reaches the first layer, behind ten ReLUs it does: the first layer's norm over the
last one's is 1e-5, and about 1.

Porting: GradientTape.gradient, or loss.backward() and p.grad, give all gradients at once; net.backward is a generator
that gives one layer's, last layer first, and takes their memory again when asked for the next. Copy what is to be
kept.
"""

import numpy as np
from bundled import digits, planned_kib, show

from singa_lite import FeedForwardNet, layers, optimizer, tensor


def build(mode: str, depth: int) -> FeedForwardNet:
    """A deep and narrow perceptron."""
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=0)
    net.add(layers.Flatten(input_sample_shape=(1, 8, 8)))
    for number in range(depth):
        net.add(layers.Dense(f"hidden{number}", 32, weight_init="he_normal"))
        net.add(layers.Activation(mode=mode))
    net.add(layers.Dense("scores", 10))
    net.compile(optimizer.SGD(lr=0.05))
    return net


def norms(net: FeedForwardNet, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The norm of the gradient of each weight, last layer first. Nothing is updated."""
    scores = net.forward(True, tensor.from_numpy(x))
    net.loss.forward(True, scores, tensor.from_numpy(y))
    found = {}
    for names, _, gradients, _ in net.backward(net.loss.backward()):
        for name, gradient in zip(names, gradients, strict=True):
            if name.endswith("weight"):
                found[name] = float(np.linalg.norm(tensor.to_numpy(gradient)))
    return found


def main(depth: int = 10, epochs: int = 5) -> dict[str, float]:
    """Norms at the beginning, and what training makes of them."""
    x, x_test, y, y_test = digits()
    results = {}
    for mode in ("sigmoid", "relu"):
        net = build(mode, depth)
        found = norms(net, x[:200], y[:200])
        results[f"{mode}: first over last"] = found["hidden0/weight"] / found["scores/weight"]
        net.fit(x, y, batch_size=32, epochs=epochs, verbose=False)
        results[f"{mode}: accuracy"] = net.evaluate(x_test, y_test)[1]
    return {**results, "layers seen": len(found), "planned KiB": planned_kib(net)}


if __name__ == "__main__":
    show(main())
