"""A variational autoencoder on scikit-learn's handwritten digits, by a training step of one's own.

    pip install ".[examples]" && python examples/gallery/vae.py

The encoder gives mean and log variance of a code, a code is drawn, the decoder gives the pictures back, and both nets
are updated by one walk back from the negative evidence lower bound (Kingma and Welling, arXiv 1312.6114). After 60
epochs, a quarter of a minute on two cores, a code of eight numbers gives back 75 % of the variance of pictures that it
has not seen, and normal numbers as a code give new digits.
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from singa_lite import FeedForwardNet, autograd, device, layers, optimizer

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--epochs", type=int, default=60)
options = arguments.parse_args()
BATCH, CODE, PIXELS, DEVIATION = 32, 8, 64, 0.2

pictures = (load_digits().data / 16).astype(np.float32)
x, x_test = train_test_split(pictures, test_size=0.2, random_state=0)


def build(sizes: tuple[int, int], outputs: dict[str, int]) -> FeedForwardNet:
    """A net of one hidden layer, with so many numbers of each output."""
    net = FeedForwardNet()
    net.add(layers.Dense("hidden", sizes[1], input_sample_shape=(sizes[0],)))
    net.add(layers.Activation("bend", "silu"))
    for name, count in outputs.items():
        net.add(layers.Dense(name, count), "bend")
    return net


def step(net, call):
    """How badly the pixels are given back, and how far the code is from normal numbers, both in nats of a picture."""
    out = net.forward(call.training, call.x)
    mean, log_variance = out["mean"], out["log_variance"]
    code = mean + autograd.exp(0.5 * log_variance) * call.normal(mean.shape)
    missed = decoder.forward(call.training, code) - call.x
    pixels = autograd.reduce_sum(missed * missed) / (2 * DEVIATION**2 * call.size)
    kl = -0.5 * autograd.reduce_sum(1.0 + log_variance - mean * mean - autograd.exp(log_variance)) / call.size
    call.update(pixels + kl)
    return {"loss": pixels + kl, "kl": kl}


device.default().set_random_seed(0)
encoder, decoder = build((PIXELS, 128), {"mean": CODE, "log_variance": CODE}), build((CODE, 128), {"pixels": PIXELS})
decoder.compile(optimizer.Adam(2e-3))
encoder.compile(optimizer.Adam(2e-3), step=step, nets={"decoder": decoder})
encoder.fit(x, batch_size=BATCH, epochs=options.epochs, validation_data=(x_test, None), verbose=0)
bound, parts = encoder.evaluate(x_test)
back = np.asarray(decoder.predict(encoder.predict(x_test)["mean"]))
given = 1 - np.square(back - x_test).sum() / np.square(x_test - x.mean(0)).sum()
print(f"{encoder.plan_batch(BATCH).arena_bytes / 1024:.0f} KiB for a step of {BATCH} pictures")
print(f"given back of the variance: {given:.0%}")
print(f"a test picture costs {bound:.1f} nats, {parts['kl']:.1f} of them its code")
drawn = np.asarray(decoder.predict(np.random.default_rng(1).standard_normal((7, CODE), np.float32))).clip(0, 1)
for row in range(8):
    print("  ".join("".join(" .:*#"[int(4.99 * v)] * 2 for v in one.reshape(8, 8)[row]) for one in drawn))
