"""Transfer learning from weights in PyTorch's layout, without PyTorch: a new head on layers that stay as they are.

pip install ".[examples]" safetensors && python examples/recipes/transfer_from_pytorch.py
"""

import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from singa_lite import FeedForwardNet, layers, optimizer

random = np.random.default_rng(0)
# What save_file(module.state_dict(), path) writes in PyTorch, for Linear(6, 16), ReLU() and Linear(16, 5) in sequence.
weights = {"0.weight": (16, 6), "0.bias": (16,), "2.weight": (5, 16), "2.bias": (5,)}
weights = {name: random.normal(size=shape).astype(np.float32) for name, shape in weights.items()}

net = FeedForwardNet("softmax_cross_entropy", "accuracy", seed=1)
net.add(layers.Dense("features", 16, input_sample_shape=(6,)))
net.add(layers.Activation("relu"))
net.add(layers.Dense("head", 3))  # another number of classes
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "torch.safetensors"
    save_file(weights, path)
    left_out = net.load(path, layers=["features"], names={"features": "0"})
print("left out:", left_out)

x = random.normal(size=(240, 6)).astype(np.float32)
hidden = np.maximum(x @ weights["0.weight"].T + weights["0.bias"], 0)
y = (hidden @ random.normal(size=(16, 3))).argmax(1)
net.compile(optimizer.Adam(0.05), freeze="head")  # what lies before it stays
net.fit(x, y, epochs=30, verbose=False)
stays = np.array_equal(np.asarray(net.parameters()["features/weight"]).T, weights["0.weight"])
value, accuracy = net.evaluate(x, y)
print(f"features as PyTorch had them: {stays}; accuracy {accuracy:.2f}")
