"""A convolutional net on scikit-learn's handwritten digits: add, compile, fit, save, load, evaluate.

    pip install ".[examples]" && python examples/digits_cnn.py

About half a minute on two cores. Writes digits_cnn.h5 (the trained net) and digits_cnn.png (the loss curve) into
the folder named by --out, the present one by default.
"""

import argparse
from pathlib import Path

import matplotlib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, schedule

matplotlib.use("agg")  # draw into files; no screen is needed
import matplotlib.pyplot as plt

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--epochs", type=int, default=30)
arguments.add_argument("--out", type=Path, default=Path("."))
options = arguments.parse_args()
BATCH = 32

# 1,797 pictures of 8 x 8 pixels, 0 to 16. A fifth is held out; every class has its share in both parts.
pictures, digits = load_digits(return_X_y=True)
pictures = (pictures / 16 - 0.5).astype(np.float32).reshape(-1, 1, 8, 8)
x, x_test, y, y_test = train_test_split(pictures, digits, test_size=0.2, stratify=digits, random_state=0)


def build() -> FeedForwardNet:
    """The net, not yet trained."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy())
    net.add(layers.Conv2D("conv1", 32, 3, use_bias=False, input_sample_shape=(1, 8, 8)))
    net.add(layers.BatchNormalization("norm1"))
    net.add(layers.Activation("relu1"))
    net.add(layers.Conv2D("conv2", 32, 3, use_bias=False))
    net.add(layers.BatchNormalization("norm2"))
    net.add(layers.Activation("relu2"))
    net.add(layers.MaxPooling2D("pool", 2, 2, border_mode="valid"))
    net.add(layers.Conv2D("conv3", 64, 3, use_bias=False))
    net.add(layers.BatchNormalization("norm3"))
    net.add(layers.Activation("relu3"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dropout("drop", 0.5))
    net.add(layers.Dense("scores", 10))
    return net


device.default().set_random_seed(0)
net = build()
net.summary()

steps = options.epochs * -(-len(x) // BATCH)
rate = schedule.CosineWithWarmup(2e-3, total_steps=steps, warmup_steps=steps // 20)
net.compile(optimizer.AdamW(lr=rate, weight_decay=0.01))
history = net.fit(x, y, BATCH, options.epochs, validation_data=(x_test, y_test))

# Save, and load into a second net: it must give the same answers.
options.out.mkdir(parents=True, exist_ok=True)
net.save(options.out / "digits_cnn.h5")
restored = build()
restored.load(options.out / "digits_cnn.h5")
test_loss, accuracy = restored.evaluate(x_test, y_test)
print(f"held-out fifth: loss {test_loss:.4f}, accuracy {accuracy:.2%} of {len(x_test)} pictures")
print(f"most memory given out by the pool at any time: {net.device.pool.high_water / 2**20:.1f} MiB")

epochs = range(1, options.epochs + 1)
figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
axes.semilogy(epochs, history["loss"], label="training")
axes.semilogy(epochs, history["val_loss"], label="held-out fifth")
axes.set(
    xlabel="epoch", ylabel="cross entropy", title=f"Handwritten digits: {accuracy:.2%} right on the held-out fifth"
)
axes.grid(alpha=0.3)
axes.legend()
figure.savefig(options.out / "digits_cnn.png", dpi=120)
print(f"wrote {options.out / 'digits_cnn.h5'} and {options.out / 'digits_cnn.png'}")
