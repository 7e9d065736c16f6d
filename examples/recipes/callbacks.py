"""Callbacks: stop early with the best weights, lower the rate, and one of your own.

python examples/recipes/callbacks.py
"""

import numpy as np

from singa_lite import FeedForwardNet, callbacks, layers, optimizer

random = np.random.default_rng(0)
x = random.normal(size=(300, 6)).astype(np.float32)
y = (x[:, 0] * x[:, 1] > 0).astype(np.int64)


class Gap(callbacks.Callback):
    """How far validation lies behind training, after each epoch."""

    def __init__(self):
        self.gaps = []

    def on_epoch(self, training):
        history = training.progress.history.history
        self.gaps.append(history["val_loss"][-1] - history["loss"][-1])


net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=1)
net.add(layers.Dense(32, input_sample_shape=(6,)))
net.add(layers.Activation("relu"))
net.add(layers.Dense(2))
net.compile(optimizer.Adam(0.01))
gap = Gap()
history = net.fit(
    x,
    y,
    epochs=60,
    validation_split=0.2,
    verbose=False,
    callbacks=[
        gap,
        callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=2),
        callbacks.EarlyStopping("val_accuracy", patience=5, restore_best=True),
    ],
)
print(f"{len(gap.gaps)} epochs of 60, best accuracy {max(history['val_accuracy']):.2f}")
