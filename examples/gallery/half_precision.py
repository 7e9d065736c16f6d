"""Mixed precision: activations in bfloat16 or float16, parameters and sums in float32.

    pip install ".[examples,onednn]" && python examples/gallery/half_precision.py

The same net in three precisions: 97 % or more of a held-out fifth each. Where the processor has no products in 16 bits,
a net as small as this takes more bytes with them, not fewer; docs/precision.md has nets that take fewer.

Porting: keras.mixed_precision.set_global_policy("mixed_float16") is compile(precision="float16"), with the loss
scaled as it goes; no layer is told its dtype. PyTorch's autocast and GradScaler are both in it.
"""

import warnings

from bundled import digits, planned_kib, show

from singa_lite import FeedForwardNet, layers, optimizer


def build() -> FeedForwardNet:
    """Equal initial values each time."""
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=0)
    net.add(layers.Conv2D(32, 3, input_sample_shape=(1, 8, 8)))
    net.add(layers.BatchNormalization())
    net.add(layers.Activation(mode="relu"))
    net.add(layers.MaxPooling2D(2, 2, "valid"))
    net.add(layers.Conv2D(32, 3))
    net.add(layers.BatchNormalization())
    net.add(layers.Activation(mode="relu"))
    net.add(layers.Flatten())
    net.add(layers.Dense(10))
    return net


def main(epochs: int = 6) -> dict[str, float]:
    """Train three times."""
    x, x_test, y, y_test = digits()
    results = {}
    warnings.filterwarnings("ignore", "compile precision.*no products in")  # older processors: bytes, not time
    for precision in ("float32", "bfloat16", "float16"):
        net = build()
        net.compile(optimizer.SGD(lr=0.05, momentum=0.9), precision=precision)
        net.fit(x, y, batch_size=64, epochs=epochs, verbose=False)
        results[precision] = net.evaluate(x_test, y_test)[1]
        results[f"planned KiB, {precision}"] = planned_kib(net, 64)
    return results


if __name__ == "__main__":
    show(main())
