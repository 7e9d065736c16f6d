"""A training run that is killed in the middle, is started again, and ends with the same bits.

    pip install ".[examples]" && python examples/killed_and_resumed.py

About six seconds on two cores. The script trains a net three times in processes of its own: once to the end; once
until it is killed (SIGKILL, as by a system that has run out of memory); and once more, which goes on from the last
checkpoint.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, schedule, snapshots, tensor


def train(folder: Path, epochs: int) -> None:
    """What a training script is like: started again after anything, it goes on from where it was."""
    pictures, digits = load_digits(return_X_y=True)
    x = (pictures / 16 - 0.5).astype(np.float32)

    device.default().set_random_seed(0)
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy())
    net.add(layers.Dense("hidden", 256, input_sample_shape=(64,)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("relu"))
    net.add(layers.Dropout("drop", 0.3))
    net.add(layers.Dense("scores", 10))
    net.compile(optimizer.Adam(schedule.CosineWithWarmup(1e-3, total_steps=1500)))

    checkpoint = snapshots.Checkpoint(folder, every_steps=50, background=True)
    history = net.fit(x, digits, 32, epochs=epochs, verbose=False, callbacks=[checkpoint], resume="auto")

    # All that training made: parameters, and the loss of every epoch.
    result = sha256()
    for value in net.parameters().values():
        result.update(tensor.to_numpy(value).tobytes())
    result.update(np.array(history["loss"]).tobytes())
    print(result.hexdigest())


def started(folder: Path, epochs: int) -> subprocess.Popen[str]:
    """This script again, training in a process of its own."""
    command = [sys.executable, __file__, f"--epochs={epochs}", f"--folder={folder}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def steps(folder: Path) -> int:
    """After how many steps the newest checkpoint was written; 0 if there is none."""
    newest = snapshots.latest(folder)
    return 0 if newest is None else int(newest.stem.partition("-")[2])


def main(epochs: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        whole, broken = Path(place, "whole"), Path(place, "broken")

        wanted = started(whole, epochs).communicate()[0]
        print(f"trained to the end:      {wanted[:16]}...")

        killed = started(broken, epochs)
        while steps(broken) < 20 * epochs and killed.poll() is None:
            time.sleep(0.01)
        killed.kill()
        killed.wait()
        print(f"killed behind step {steps(broken)} of {57 * epochs}")

        found = started(broken, epochs).communicate()[0]
        print(f"killed and gone on with: {found[:16]}...")
        print("equal to the last bit" if found == wanted else "NOT EQUAL")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--epochs", type=int, default=20)
    arguments.add_argument("--folder", type=Path, help="train, with checkpoints in it")
    options = arguments.parse_args()
    if options.folder:
        train(options.folder, options.epochs)
    else:
        main(options.epochs)
