"""A denoising autoencoder: pictures with half of their pixels missing in, whole ones out.

    pip install ".[examples,onednn]" && python examples/gallery/denoising_autoencoder.py

40 epochs take away 72 % or more of the squared error that the missing pixels make in pictures not seen before.

Porting: Keras's UpSampling2D is Upsampling2D; MeanSquaredError has the same formula ("mse"), SquaredError is half of
it. A sigmoid at the end fits "mse"; with SigmoidCrossEntropy leave it out, as that takes raw scores.
"""

import numpy as np
from bundled import digits, planned_kib, show

from singa_lite import FeedForwardNet, layers, optimizer


def build() -> FeedForwardNet:
    """Down to 16 x 4 x 4 numbers and up again."""
    net = FeedForwardNet("mse", seed=0)
    net.add(layers.Conv2D(32, 3, input_sample_shape=(1, 8, 8)))
    net.add(layers.Activation(mode="relu"))
    net.add(layers.MaxPooling2D(2, 2, "valid"))
    net.add(layers.Conv2D(16, 3))
    net.add(layers.Activation(mode="relu"))
    net.add(layers.Upsampling2D())
    net.add(layers.Conv2D(32, 3))
    net.add(layers.Activation(mode="relu"))
    net.add(layers.Conv2D(1, 3))
    net.add(layers.Activation(mode="sigmoid"))
    return net


def main(epochs: int = 40) -> dict[str, float]:
    """Train from spoilt pictures to whole ones."""
    x, x_test, _, _ = digits()
    random = np.random.default_rng(0)
    spoilt, spoilt_test = (pictures * (random.random(pictures.shape) < 0.5) for pictures in (x, x_test))
    net = build()
    net.compile(optimizer.Adam(lr=3e-3))
    net.fit(spoilt, x, batch_size=32, epochs=epochs, validation_data=(spoilt_test, x_test), verbose=False)
    before = np.square(spoilt_test - x_test).mean()
    after = np.square(np.asarray(net.predict(spoilt_test)) - x_test).mean()
    return {"error taken away": 1 - after / before, "planned KiB": planned_kib(net)}


if __name__ == "__main__":
    show(main())
