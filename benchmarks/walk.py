"""How many files and functions of the package a call passes through, on a small convolutional net.

    python benchmarks/walk.py

A reader who follows a call must open these files. The most that each call may take stands beside what was found;
the exit status is 1 where more are passed. A first batch is counted without the library's own code, and a second
save, as the first one imports the modules of files.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np

import singa_lite
from singa_lite import FeedForwardNet, device, layers, loss, optimizer

HOME = str(Path(singa_lite.__file__).parents[1]) + os.sep
PACKAGES = HOME + "singa_lite" + os.sep
#: {call: the most files and functions}
MOST = {
    "add": (48, 200),
    "compile": (34, 146),
    "plan_batch": (150, 990),
    "first batch": (169, 1175),
    "repeated batch": (43, 138),
    "save": (44, 234),
}


def passed(call: Callable[[], object]) -> tuple[int, int]:
    """Files and functions of the package that the call passes through."""
    seen: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGES):
            seen.add((code.co_filename, code.co_qualname))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len({file for file, _ in seen}), len(seen)


def main() -> int:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels="numpy"))
    net.add(layers.Conv2D("conv", 4, 3, input_sample_shape=(1, 8, 8)))
    net.add(layers.Activation("relu"))
    net.add(layers.Flatten("flat"))
    x, y = np.ones((6, 1, 8, 8), "f"), np.arange(6) % 3
    found = {"add": passed(lambda: net.add(layers.Dense("dense", 3)))}
    found["compile"] = passed(lambda: net.compile(optimizer.SGD(lr=0.1, momentum=0.9)))
    found["plan_batch"] = passed(lambda: net.plan_batch(5))
    found["first batch"] = passed(lambda: net.train_one_batch(x, y))
    net.train_one_batch(x, y)
    found["repeated batch"] = passed(lambda: net.train_one_batch(x, y))
    with tempfile.TemporaryDirectory() as folder:
        net.save(f"{folder}/net.h5")
        found["save"] = passed(lambda: net.save(f"{folder}/net.h5"))
    print(f"{'call':16}{'files':>7}{'most':>7}{'functions':>12}{'most':>7}")
    for name, (files, functions) in found.items():
        print(f"{name:16}{files:7}{MOST[name][0]:7}{functions:12}{MOST[name][1]:7}")
    return int(any(count > most for name in found for count, most in zip(found[name], MOST[name], strict=True)))


if __name__ == "__main__":
    sys.exit(main())
