"""An adversarial pair on scikit-learn's handwritten digits, by a training step of one's own: two nets, two optimizers,
one arena.

    pip install ".[examples]" && python examples/gallery/gan.py

The generator draws the digit that it is asked for, the critic tells drawn digits from real ones (Goodfellow and others,
arXiv 1406.2661; asked for by a label, Mirza and Osindero, arXiv 1411.1784). The critic has the step, as the data are
its inputs. After 60 epochs, half a minute on two cores, a classifier of real digits reads 99 % of the drawn ones as
asked.
"""

import argparse

import numpy as np
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from singa_lite import FeedForwardNet, autograd, device, layers, optimizer

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--epochs", type=int, default=60)
options = arguments.parse_args()
BATCH, LATENT, PIXELS = 32, 16, 64

data = load_digits()
pictures = (data.data / 8 - 1).astype(np.float32)  # from -1 to 1, as tanh gives
labels = np.eye(10, dtype=np.float32)[data.target]


def build(first: tuple[str, int], hidden: str, outputs: int) -> FeedForwardNet:
    """A net of two inputs, of so many numbers and of a label, and two hidden layers."""
    net = FeedForwardNet()
    net.add(layers.Dense("given", 128, input_sample_shape=(first[1],)), [])
    net.add(layers.Dense("label", 128, input_sample_shape=(10,)), [])
    net.add(layers.Merge("both"), ["given", "label"])
    net.add(layers.Activation("bend1", hidden))
    net.add(layers.Dense("middle", 128))
    net.add(layers.Activation("bend2", hidden))
    net.add(layers.Dense("last", outputs))
    return net


def real(scores):
    """How far the critic is from calling these real: the mean of -log(sigmoid(scores))."""
    return autograd.reduce_mean(autograd.softplus(-scores))


def step(net, call):
    """First the critic, by real and by drawn digits, then the generator, by the critic as it is then."""
    train, label = call.training, call.x["label"]
    drawn = autograd.tanh(generator.forward(train, {"given": call.normal((call.size, LATENT)), "label": label}))
    right = net.forward(train, call.x)
    wrong = net.forward(train, {"given": drawn.detach(), "label": label})
    loss = real(right) + real(-wrong)
    call.update(loss, net)
    fooled = real(net.forward(train, {"given": drawn, "label": label}))
    call.update(fooled, generator)
    return {"loss": loss, "generator": fooled}


device.default().set_random_seed(0)
critic, generator = build(("given", PIXELS), "leaky_relu", 1), build(("given", LATENT), "relu", PIXELS)
generator.compile(optimizer.Adam(1e-3, beta_1=0.5))
critic.compile(optimizer.Adam(1e-3, beta_1=0.5), step=step, nets={"generator": generator})
history = critic.fit({"given": pictures, "label": labels}, batch_size=BATCH, epochs=options.epochs, verbose=0)
random = np.random.default_rng(1)
wanted = np.repeat(np.arange(10), 50)
asked = {"given": random.standard_normal((500, LATENT), np.float32), "label": np.eye(10, dtype=np.float32)[wanted]}
drawn = np.tanh(np.asarray(generator.predict(asked)))
read = SVC().fit(data.data / 8 - 1, data.target).predict(drawn)
print(f"{critic.plan_batch(BATCH).arena_bytes / 1024:.0f} KiB for a step of {BATCH} pictures through both nets")
print(f"read as asked: {np.mean(read == wanted):.0%}; losses {history['loss'][-1]:.2f}, {history['generator'][-1]:.2f}")
for row in range(8):
    print("  ".join("".join(" .:*#"[int(2.49 * (v + 1))] * 2 for v in one.reshape(8, 8)[row]) for one in drawn[::75]))
