"""Keras's functional API: two inputs, a branch for each, and two outputs with a loss each.

    pip install ".[examples,onednn]" && python examples/gallery/two_in_two_out.py

The upper and the lower half of a digit go in; its class and its ink come out. 20 epochs name 96 % of the held-out
digits, and explain 70 % of the variance of the ink.

Porting: where Keras calls layers on tensors, add(layer, src=) names the layers that it takes; a layer with src=[] is
an input. Inputs, targets, losses, metrics and results are dicts by layer.
"""

from bundled import digits, planned_kib, show

from singa_lite import FeedForwardNet, layers, optimizer


def build() -> FeedForwardNet:
    """Two branches, joined; two heads."""
    net = FeedForwardNet(
        {"digit": "softmax_cross_entropy", "ink": "mse"}, {"digit": "accuracy", "ink": ["r2", "mae"]}, seed=0
    )
    ends = []
    for half in ("upper", "lower"):
        net.add(layers.Conv2D(half, 16, 3, input_sample_shape=(1, 4, 8)), src=[])
        net.add(layers.Activation(mode="relu"))
        ends.append(net.add(layers.Flatten()))
    net.add(layers.Concat("both", axis=1), src=ends)
    net.add(layers.Dense(64))
    joined = net.add(layers.Activation(mode="relu"))
    net.add(layers.Dense("digit", 10), src=joined)
    net.add(layers.Dense("ink", 1), src=joined)
    return net


def main(epochs: int = 20) -> dict[str, float]:
    """Train both heads at once."""
    x, x_test, y, y_test = digits()
    halves, halves_test = ({"upper": each[:, :, :4], "lower": each[:, :, 4:]} for each in (x, x_test))
    ink, ink_test = (each.mean(axis=(2, 3)) for each in (x, x_test))
    net = build()
    net.compile(optimizer.Adam(lr=2e-3), loss_weights={"ink": 100.0})
    net.fit(halves, {"digit": y, "ink": ink}, batch_size=32, epochs=epochs, verbose=False)
    loss, found = net.evaluate(halves_test, {"digit": y_test, "ink": ink_test})
    return {
        "loss": loss,
        "accuracy": found["digit"],
        "R2": found["ink_r2"],
        "mean error": found["ink_mean_absolute_error"],
        "planned KiB": planned_kib(net),
    }


if __name__ == "__main__":
    show(main())
