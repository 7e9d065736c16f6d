"""Fine-tunes MobileNetV2, ResNet-50 or DenseNet-121 from a weight file by torchvision's names, within a budget.

    pip install ".[examples,onednn]" && python examples/fine_tune.py

A weight file of torchvision is made once, where PyTorch and torchvision are installed:

    from safetensors.torch import save_file
    save_file(torchvision.models.mobilenet_v2(weights="DEFAULT").state_dict(), "mobilenet_v2.safetensors")

and given as --weights mobilenet_v2.safetensors. Without one the script learns the handwritten digits 0 to 4 first, and
saves a file with the same names. Then it learns 5 to 9: the trunk is loaded and frozen but for its end, the scores are
new. Half a minute on two cores.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from singa_lite import FeedForwardNet, device, metric, models, optimizer, snapshots

#: The layer of each net before which nothing is trained.
NETS = {"mobilenet_v2": "stage4_1_expand", "resnet50": "stage3_1_conv1", "densenet121": "block4_1_conv1_norm"}
arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--net", choices=NETS, default="mobilenet_v2")
arguments.add_argument("--weights", type=Path, help="a .safetensors file of torchvision's names")
arguments.add_argument("--budget", default="28 MiB", help="bytes that fine-tuning may take in all")
arguments.add_argument("--epochs", type=int, default=8, help="of each of the two trainings")
options = arguments.parse_args()
BATCH, SIDE, MIB = 32, 32, 2**20

# Digits of 8 x 8 pixels as pictures (3, 32, 32) of mean 0 and deviation 1, as torchvision's nets want them.
pictures, digits = load_digits(return_X_y=True)
pictures = (pictures.reshape(-1, 1, 8, 8) - pictures.mean()) / pictures.std()
pictures = pictures.astype(np.float32).repeat(3, axis=1).repeat(SIDE // 8, axis=2).repeat(SIDE // 8, axis=3)
x, x_test, y, y_test = train_test_split(pictures, digits, test_size=0.3, stratify=digits, random_state=0)


def build() -> FeedForwardNet:
    """Returns the net for five classes, not compiled, on a device of its own, whose pool says what the net takes."""
    return getattr(models, options.net)(5, shape=(3, SIDE, SIDE), device=device.new_cpu(), seed=0)


def names(net: FeedForwardNet) -> dict[str, str]:
    """Returns torchvision's module for each of our layers."""
    return getattr(snapshots.maps, options.net)(net)


def write_weights(path: Path) -> None:
    """Learns the low digits, and saves what was learned."""
    net, low = build(), y < 5
    net.compile(optimizer.SGD(lr=0.03, momentum=0.9), metric=metric.Accuracy())
    net.fit(x[low], y[low], batch_size=BATCH, epochs=options.epochs, verbose=False)
    net.save(path, names=names(net), weights_only=True)
    print(f"learned 0 to 4: {net.evaluate(x_test[y_test < 5], y_test[y_test < 5])[1]:.1%} of unseen ones right")


net = build()
with tempfile.TemporaryDirectory() as folder:
    path = options.weights or Path(folder) / f"{options.net}.safetensors"
    if options.weights is None:
        write_weights(path)
    trunk = [name for name in names(net) if name != "scores"]
    net.load(path, layers=trunk, names=names(net))
print(f"{len(trunk)} layers are those of {path.name}; the scores are new")

rule, end = optimizer.SGD(lr=0.03, momentum=0.9), NETS[options.net]
net.compile(rule, metric=metric.Accuracy())
whole = net.plan_batch(BATCH).total_bytes
net.compile(rule, metric=metric.Accuracy(), freeze=end)  # all before `end`: no gradients, no state, no statistics
part = net.plan_batch(BATCH).total_bytes
net.compile(rule, metric=metric.Accuracy(), freeze=end, memory_budget=options.budget)
plan = net.plan_batch(BATCH)
print(
    f"MiB planned: {whole / MIB:.1f} for all layers, {part / MIB:.1f} from {end} on, {plan.total_bytes / MIB:.1f} "
    f"within the budget, for {plan.estimated_slowdown:.0%} more time"
)

high, high_test = y > 4, y_test > 4
net.fit(x[high], y[high] - 5, batch_size=BATCH, epochs=options.epochs, verbose=False)
accuracy = net.evaluate(x_test[high_test], y_test[high_test] - 5)[1]
print(f"fine-tuned on 5 to 9: {accuracy:.1%} of {high_test.sum()} unseen ones right")
print(f"{options.budget} were allowed, the net took {net.device.pool.high_water / MIB:.1f} MiB at most")
