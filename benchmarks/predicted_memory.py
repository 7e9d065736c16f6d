"""Predicted against measured: what `plan_batch` says that `fit` takes, and what the process then really took.

    pip install . && python benchmarks/predicted_memory.py [NET BATCH]

Each net is fitted in a process of its own: two whole batches and a shorter one, shuffled, and a validation of one whole
batch and a shorter one. Predicted: `plan_batch(n).total_bytes`, known before the first step. Measured: VmHWM over what
was resident before the net was built, after a warm-up in which BLAS makes its own buffers; one batch that NumPy takes
from the data is in it. Both with the kernels of the default device, which each row names. Linux only; other work on
the machine changes no bytes.
"""

import argparse
import json
import subprocess
import sys

import numpy as np

from nets import NETS, batch
from singa_lite import device, optimizer

DEFAULT = (("vgg16", 8), ("resnet50", 16), ("mobilenet_v2", 32), ("densenet121", 16), ("unet", 8))


def resident(field: str) -> int:
    """VmRSS (resident now) or VmHWM (most so far) of this process in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def measure(name: str, size: int) -> dict:
    """Predict, train, and read off."""
    last = size // 3 + 1
    x, y = batch(name, 2 * size + last, 0)
    matrix = np.ones((2048, 2048), np.float32)
    np.matmul(matrix, matrix)
    del matrix
    level = resident("VmRSS")
    net = NETS[name].build(device.new_cpu())
    net.compile(optimizer.SGD(lr=0.001, momentum=0.9))
    predicted = net.plan_batch(size).total_bytes
    validation = x[: size + last], y[: size + last]
    net.fit(x, y, size, validation_data=validation, verbose=False)
    return {"predicted": predicted, "measured": resident("VmHWM") - level, "kernels": net.device.kernels.name}


def main() -> None:
    """All nets, each in a process of its own, as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", nargs="?", choices=list(NETS))
    parser.add_argument("batch", nargs="?", type=int)
    parser.add_argument("--one", action="store_true", help="in this process, as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.net, options.batch)))
        return
    print("| net, batch | kernels | predicted MiB | measured MiB | measured / predicted |\n|---|---|---|---|---|")
    for name, size in [(options.net, options.batch)] if options.net else DEFAULT:
        command = [sys.executable, __file__, name, str(size), "--one"]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        sizes = f"{row['predicted'] / 2**20:.1f} | {row['measured'] / 2**20:.1f}"
        print(f"| {name}, {size} | {row['kernels']} | {sizes} | {row['measured'] / row['predicted']:.3f} |", flush=True)


if __name__ == "__main__":
    main()
