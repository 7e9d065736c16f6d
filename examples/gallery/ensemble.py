"""An ensemble: five nets of one shape and five seeds, saved, opened again without their script, and asked together.

    pip install ".[examples,onednn]" && python examples/gallery/ensemble.py

The five are wrong less often together than on average by themselves.

Porting: keras.models.load_model is singa_lite.load; the file has the layers, the loss, the optimizer and its state.
Other random numbers are FeedForwardNet(seed=), nothing global is set.
"""

import tempfile
from pathlib import Path

import numpy as np
from bundled import digits, perceptron, planned_kib, show

import singa_lite
from singa_lite import optimizer


def main(epochs: int = 12, members: int = 5) -> dict[str, float]:
    """Train, save, open, and add up the probabilities."""
    x, x_test, y, y_test = digits()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(members):
            net = perceptron(16, seed)
            net.compile(optimizer.Adam(lr=3e-3))
            net.fit(x, y, batch_size=32, epochs=epochs, verbose=False)
            net.save(Path(folder) / f"{seed}.h5")
        nets = [singa_lite.load(path) for path in sorted(Path(folder).glob("*.h5"))]
    scores = [np.asarray(net.predict(x_test)) for net in nets]
    powers = [np.exp(each - each.max(axis=1, keepdims=True)) for each in scores]
    together = sum(each / each.sum(axis=1, keepdims=True) for each in powers)
    alone = [np.mean(each.argmax(axis=1) == y_test) for each in scores]
    return {
        "together": np.mean(together.argmax(axis=1) == y_test),
        "alone, mean": np.mean(alone),
        "alone, best": max(alone),
        "planned KiB": planned_kib(nets[0]),
    }


if __name__ == "__main__":
    show(main())
