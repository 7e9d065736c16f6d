"""Saving and loading a net against a plain copy of the same bytes, safetensors and torch.save.

    pip install . safetensors torch && python benchmarks/snapshots.py

The net has 12 x Dense(WIDTH) without biases, float32. Each way runs in turn, ROUNDS times; medians, as seconds and as
multiples of the plain copy: all bytes from memory to a new file with fsync and a rename, or from a file to memory
that is there. All ways of saving end with an fsync, which safetensors and torch.save leave to callers. Files are in
the system's cache when they are loaded. PyTorch's and safetensors' rows are left out, and said so, where not installed.
The table is not printed where the machine was busy, and the exit status is 4, unless --anyway is given (quiet.py).
"""

import argparse
import importlib.util
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

import quiet
from singa_lite import FeedForwardNet, layers
from tiny import parsed

DEPTH = 12


def make_net(width: int, seed: int) -> FeedForwardNet:
    """The net, not compiled."""
    net = FeedForwardNet(seed=seed)
    for number in range(DEPTH):
        net.add(layers.Dense(f"dense{number}", width, use_bias=False, input_sample_shape=None if number else (width,)))
    return net


def synced(path: str) -> None:
    """What makes a file survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def plain_ways(arrays: dict[str, np.ndarray]) -> tuple[Callable[[str], None], Callable[[str], None]]:
    """The plain copy: write, read."""
    memory = {name: np.empty_like(array) for name, array in arrays.items()}

    def write(path: str) -> None:
        with open(path + ".new", "wb", buffering=0) as file:
            for array in arrays.values():
                left = memoryview(array.reshape(-1).view(np.uint8))
                while left:
                    left = left[file.write(left) :]
            os.fsync(file.fileno())
        os.replace(path + ".new", path)

    def read(path: str) -> None:
        with open(path, "rb", buffering=0) as file:
            for array in memory.values():
                left = memoryview(array.reshape(-1).view(np.uint8))
                while left:
                    left = left[file.readinto(left) :]

    return write, read


def ways_of(width: int) -> dict[str, tuple[Callable[[str], None], Callable[[str], None]]]:
    """By a file's name: how it is written and read."""
    net, other = make_net(width, 1), make_net(width, 2)
    arrays = {name: np.array(value) for name, value in net.parameters().items()}
    ways = {"plain.bin": plain_ways(arrays)}
    ways |= {f"ours{suffix}": (net.save, other.load) for suffix in (".h5", ".npz")}
    if importlib.util.find_spec("safetensors"):
        from safetensors.numpy import load_file, save_file

        ways["ours.safetensors"] = net.save, other.load
        ways["library.safetensors"] = (lambda path: (save_file(arrays, path), synced(path)), load_file)
    if importlib.util.find_spec("torch"):
        import torch

        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        ways["torch.pt"] = (lambda path: (torch.save(tensors, path), synced(path)), torch.load)
    return ways


def measured(ways: dict, folder: str, rounds: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of each save and each load, one way after the other."""
    saves: dict[str, list[float]] = {name: [] for name in ways}
    loads: dict[str, list[float]] = {name: [] for name in ways}
    order = list(ways)
    for _ in range(rounds + 1):  # the first one warms up
        order = order[1:] + order[:1]  # what a way leaves for the disk to do hits another one each time
        for name in order:
            pair = ways[name]
            for act, seconds in zip(pair, (saves, loads), strict=True):
                start = time.perf_counter()
                act(os.path.join(folder, name))
                seconds[name].append(time.perf_counter() - start)
    return {n: s[1:] for n, s in saves.items()}, {n: s[1:] for n, s in loads.items()}


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="on the disk that is measured")
    quiet.add_option(parser)
    given = parsed(parser, width=16, rounds=1)
    watch = quiet.Watch(given.anyway)
    ways = ways_of(given.width)
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        saves, loads = measured(ways, folder, given.rounds)
    why = watch.trouble()  # a disk's times differ by themselves, so that medians of rounds are given
    print(f"{DEPTH * given.width**2 * 4 / 1e6:.0f} MB in {DEPTH} arrays, median of {given.rounds}")
    print(f"{'':22}{'save, s':>10}{'x copy':>8}{'load, s':>10}{'x copy':>8}")
    for name in ways:
        save, load = statistics.median(saves[name]), statistics.median(loads[name])
        base = statistics.median(saves["plain.bin"]), statistics.median(loads["plain.bin"])
        watch.write(f"{name:22}{save:10.3f}{save / base[0]:8.2f}{load:10.3f}{load / base[1]:8.2f}", why)
    for library in ("safetensors", "torch"):
        if library not in str(list(ways)):
            print(f"{library} is not installed")
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
