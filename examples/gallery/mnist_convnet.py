"""Keras's mnist_convnet on scikit-learn's handwritten digits: two convolutions, poolings and a dropout.

    pip install ".[examples,onednn]" && python examples/gallery/mnist_convnet.py

15 epochs give 98 % or more of a held-out fifth.

Porting: images are (channels, height, width). The last Dense gives raw scores, and SoftmaxCrossEntropy takes the
softmax itself, so there is no softmax layer. Labels are the digits as they are, no one-hot rows.
"""

from bundled import digits, planned_kib, show

from singa_lite import FeedForwardNet, layers, optimizer


def main(epochs: int = 15) -> dict[str, float]:
    """Train, and evaluate on what was held out."""
    x, x_test, y, y_test = digits()
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=0)
    net.add(layers.Conv2D(32, 3, input_sample_shape=(1, 8, 8)))
    net.add(layers.Activation(mode="relu"))
    net.add(layers.MaxPooling2D(2, 2, "valid"))
    net.add(layers.Conv2D(64, 3))
    net.add(layers.Activation(mode="relu"))
    net.add(layers.MaxPooling2D(2, 2, "valid"))
    net.add(layers.Flatten())
    net.add(layers.Dropout(p=0.5))
    net.add(layers.Dense(10))
    net.compile(optimizer.Adam(lr=3e-3))
    net.fit(x, y, batch_size=32, epochs=epochs, validation_split=0.1, verbose=False)
    loss, accuracy = net.evaluate(x_test, y_test)
    return {"loss": loss, "accuracy": accuracy, "planned KiB": planned_kib(net)}


if __name__ == "__main__":
    show(main())
