"""Keras's mnist_mlp with callbacks: training stops by itself, lowers its rate by itself, and writes a log.

    pip install ".[examples,onednn]" && python examples/gallery/mlp_callbacks.py

It stops long before 200 epochs, with the best epoch's weights and 96 % or more of a held-out fifth.

Porting: validation_split takes the last samples, as Keras does. Monitors have Keras's names (val_loss, val_accuracy),
and restore_best_weights is restore_best. The history is a History: history["val_loss"] is a list.
"""

import csv
import tempfile
from pathlib import Path

from bundled import digits, planned_kib, show

from singa_lite import FeedForwardNet, callbacks, layers, optimizer


def main(epochs: int = 200, patience: int = 12) -> dict[str, float]:
    """Train until the validation gets no better."""
    x, x_test, y, y_test = digits()
    net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=0)
    net.add(layers.Flatten(input_sample_shape=(1, 8, 8)))
    for _ in range(2):
        net.add(layers.Dense(128))
        net.add(layers.Activation(mode="relu"))
        net.add(layers.Dropout(p=0.2))
    net.add(layers.Dense(10))
    net.compile(optimizer.RMSProp(lr=2e-3))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.csv"
        net.fit(
            x,
            y,
            batch_size=64,
            epochs=epochs,
            validation_split=0.2,
            verbose=False,
            callbacks=[
                callbacks.EarlyStopping("val_loss", patience=patience, restore_best=True),
                callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=patience // 3),
                callbacks.CSVLogger(log),
            ],
        )
        with log.open(newline="") as file:
            lines = list(csv.DictReader(file))
    _, accuracy = net.evaluate(x_test, y_test)
    best = min(float(line["val_loss"]) for line in lines)
    return {
        "accuracy": accuracy,
        "epochs": len(lines),
        "best val_loss": best,
        "last rate": net.optimizer.lr,
        "planned KiB": planned_kib(net, 64),
    }


if __name__ == "__main__":
    show(main())
