"""Peak memory of training 8 x Dense(4096, relu), batch 64, float32: layer by layer against the usual ways.

    pip install . torch && python benchmarks/peak_memory.py [--write FILE]

Each row is a process of its own: six steps after the import, then VmHWM (the most resident memory, from the kernel)
over the level after the import, in units of P, the bytes of the parameters (512 MiB). The least possible is 1 P for
SGD, 2 P with momentum, 3 P for Adam. Linux only. PyTorch rows are left out, and said so, where it is not installed.
Kernels of singa_lite: those of the default device, which the first line names. A row whose times were taken beside
other work is not printed, unless --anyway is given (quiet.py). Other work changes no peak: --write puts all of them
into a file of figures.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import time

import numpy as np

import quiet
from figure_file import Table, add_option, line, origin, write
from tiny import parsed, size

WIDTH, DEPTH, BATCH, STEPS = size((4096, 8, 64, 6), (64, 2, 4, 3))
OPTIMIZERS = size(("SGD", "momentum", "Adam"), ("Adam",))
WAYS = {
    "singa_lite": "singa_lite, layer by layer",
    "singa_lite_collected": "singa_lite, gradients collected",
    "torch": "PyTorch, usual loop",
    "torch_hook": "PyTorch, optimizer in backward hooks",
}


def high_water() -> int:
    """VmHWM of this process in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def data() -> tuple[np.ndarray, np.ndarray]:
    """One batch, inputs and targets."""
    random = np.random.default_rng(0)
    return tuple(random.standard_normal((BATCH, WIDTH), dtype=np.float32) for _ in range(2))


def train_singa_lite(kind: str, collected: bool) -> dict:
    """Six steps of singa_lite."""
    from singa_lite import FeedForwardNet, layers, loss, optimizer

    x, y = data()
    level = high_water()
    net = FeedForwardNet(loss.SquaredError())
    for i in range(DEPTH):
        net.add(layers.Dense(f"dense{i}", WIDTH, use_bias=False, input_sample_shape=(WIDTH,) if i == 0 else None))
        net.add(layers.Activation(f"activation{i}"))
    chosen = {
        "SGD": lambda: optimizer.SGD(lr=0.01),
        "momentum": lambda: optimizer.SGD(lr=0.01, momentum=0.9),
        "Adam": lambda: optimizer.Adam(lr=1e-3),
    }[kind]()
    net.compile(chosen)

    def step() -> None:
        if not collected:
            net.train_one_batch(x, y)
            return
        gradients = net.gradients(x, y)
        for name, value in net.parameters().items():
            chosen.update(name, value, gradients[name])

    return measured(step, level, sum(value.nbytes for value in net.param_values()))


def train_torch(kind: str, hook: bool) -> dict:
    """Six steps of PyTorch; with hook, the optimizer steps inside backward, as its tutorial does."""
    import torch

    x, y = (torch.from_numpy(array) for array in data())
    torch.nn.Linear(2, 2)(torch.zeros(1, 2)).sum().backward()  # what loads at first use belongs to the import
    level = high_water()
    members = [[torch.nn.Linear(WIDTH, WIDTH, bias=False), torch.nn.ReLU()] for _ in range(DEPTH)]
    net = torch.nn.Sequential(*(member for pair in members for member in pair))
    make = {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.01, foreach=False),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, foreach=False),
        "Adam": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=False),
    }[kind]
    whole = None if hook else make(net.parameters())
    each = {p: make([p]) for p in net.parameters()} if hook else {}

    def update(parameter) -> None:
        each[parameter].step()
        each[parameter].zero_grad()

    for parameter in each:
        parameter.register_post_accumulate_grad_hook(update)

    def step() -> None:
        (0.5 * torch.nn.functional.mse_loss(net(x), y)).backward()
        if whole is not None:
            whole.step()
            whole.zero_grad()

    return measured(step, level, sum(p.numel() * 4 for p in net.parameters()))


def measured(step, level: int, parameters: int) -> dict:
    """Run the steps; peak over `level` in units of the parameters, and the median step after the first two."""
    seconds = []
    for _ in range(STEPS):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return {"peak": (high_water() - level) / parameters, "seconds": float(np.median(seconds[2:]))}


def one(way: str, kind: str) -> dict:
    """One row, in this process."""
    if way.startswith("torch"):
        return train_torch(kind, hook=way == "torch_hook")
    return train_singa_lite(kind, collected=way == "singa_lite_collected")


def kernels() -> str:
    """The kernel set of the default device, asked in a process of its own: this one's memory stays as it is."""
    command = [sys.executable, "-c", "from singa_lite import device; print(device.default().kernels.name)"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    """All rows, each in a process of its own, as one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=2, metavar=("WAY", "OPTIMIZER"), help="one row in this process, as JSON")
    quiet.add_option(parser)
    add_option(parser)
    options = parsed(parser)
    if options.one:
        print(json.dumps(one(*options.one)))
        return 0
    watch = quiet.Watch(options.anyway)
    print(f"singa_lite with the kernels of {kernels()}\n")
    table = Table([("peak memory in P", ""), *((kind, ".2f") for kind in OPTIMIZERS)], [])
    print(f"{line(['peak memory in P (seconds a step)', *OPTIMIZERS])}\n|---|{'---|' * len(OPTIMIZERS)}")
    for way, title in WAYS.items():
        if way.startswith("torch") and importlib.util.find_spec("torch") is None:
            print(f"| {title} | not installed | | |")
            continue
        cells, peaks = [], []
        for kind in OPTIMIZERS:
            command = [sys.executable, __file__, "--one", way, kind]
            row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            cells.append(f"{row['peak']:.2f} P ({row['seconds']:.2f})")
            peaks.append(round(row["peak"], 2))
        watch.row(line([title, *cells]))
        table.rows.append([title, *peaks])
    if options.write:
        write(options.write, origin("python benchmarks/peak_memory.py"), {"peaks": table})
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
