"""Keras's mnist_convnet on scikit-learn's handwritten digits: two convolutions, poolings and a dropout.

    pip install ".[examples,onednn]" && python examples/gallery/mnist_convnet.py

15 epochs give 97 % or more of a held-out fifth.

Porting: the imports, and images that are (channels, height, width). `net.predict` gives probabilities, as there.
"""

from bundled import digits, planned_kib, show

import singa_lite as keras
from singa_lite import layers, optimizer


def main(epochs: int = 15) -> dict[str, float]:
    """Train, and evaluate on what was held out."""
    x, x_test, y, y_test = digits()
    model = keras.Sequential(
        [
            keras.Input(shape=(1, 8, 8)),
            layers.Conv2D(32, kernel_size=3, padding="same", activation="relu"),
            layers.MaxPooling2D(pool_size=2),
            layers.Conv2D(64, kernel_size=3, padding="same", activation="relu"),
            layers.MaxPooling2D(pool_size=2),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    adam = optimizer.Adam(learning_rate=3e-3)
    model.compile(optimizer=adam, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x, y, batch_size=32, epochs=epochs, validation_split=0.1, verbose=0)
    loss, accuracy = model.evaluate(x_test, y_test, verbose=0)
    return {"loss": loss, "accuracy": accuracy, "planned KiB": planned_kib(model)}


if __name__ == "__main__":
    show(main())
