"""ResNet-50 trains within 1 GiB that the operating system enforces; PyTorch's usual loop dies of it.

    pip install ".[examples,onednn]" && python examples/fits_in_1_gib.py

About a minute on two cores with oneDNN; nothing is downloaded. A batch is 16 pictures of 224 x 224 that the script
makes. The plan says what training takes before the first step. The limit is set after the imports, and counts from what
the process has then. With PyTorch installed, its usual loop over the same net gets the same limit in another process.
"""

import argparse
import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from singa_lite import device, models, optimizer

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--steps", type=int, help="12 unless given, and 2 with NumPy's kernels")
arguments.add_argument("--batch", type=int, default=16)
arguments.add_argument("--image", type=int, default=224, help="height and width of a picture")
arguments.add_argument("--limit", type=int, default=1024, help="MiB above what the process has after its imports")
arguments.add_argument("--usual-loop", action="store_true", help="only PyTorch's loop, within the limit")
options = arguments.parse_args()
MIB, CLASSES, RATE = 2**20, 4, {"lr": 0.003, "momentum": 0.9}
#: MiB that the plan leaves to Python's objects, the kernels' code and buffers, and the stacks of at most four threads.
ROOM = 200
THREADS = min(4, device.threads())
for name, least in {"steps": 1, "batch": 1, "image": 1, "limit": ROOM + 1}.items():
    if (given := getattr(options, name)) is not None and given < least:
        arguments.error(f"--{name}: wanted at least {least}, received {given}")


def status(name: str) -> int:
    """Returns bytes of this process by Linux's name for them: VmRSS, VmHWM, VmData."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def set_limit(nbytes: int) -> None:
    """Limits the data of this process, and checks that the system refuses more."""
    import mmap
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most != resource.RLIM_INFINITY and most < nbytes:
        raise SystemExit(f"wanted a limit of {nbytes:,} bytes, received a process that may have {most:,} (ulimit -d)")
    resource.setrlimit(resource.RLIMIT_DATA, (nbytes, most))
    try:
        mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        return
    raise SystemExit(f"this system takes a limit of {nbytes:,} bytes and does not enforce it")


def pictures(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns a batch and its classes. A class says which half of the picture is bright, and in which colour."""
    random = np.random.default_rng(step)
    x = random.standard_normal((options.batch, 3, options.image, options.image), dtype=np.float32) * 0.3
    y = random.permutation(np.arange(options.batch) % CLASSES)
    half = options.image // 2
    for picture, label in zip(x, y, strict=True):
        picture[label // 2, slice(0, half) if label % 2 else slice(half, None)] += 1
    return x, y


def usual_loop() -> None:
    """Trains the same net by PyTorch's usual loop, within the limit."""
    import torch
    from torch import nn

    torch.set_num_threads(THREADS)
    set_limit(status("VmData") + options.limit * MIB)  # what the imports took is not counted

    class Bottleneck(nn.Module):
        def __init__(self, channels: int, width: int, stride: int, differs: bool) -> None:
            super().__init__()
            steps, inputs = [], channels
            for kernels, kernel, by in ((width, 1, 1), (width, 3, stride), (4 * width, 1, 1)):
                steps.append(nn.Conv2d(inputs, kernels, kernel, by, kernel // 2, bias=False))
                steps += [nn.BatchNorm2d(kernels), nn.ReLU(inplace=True)]
                inputs = kernels
            self.steps = nn.Sequential(*steps[:-1])
            shortcut = nn.Conv2d(channels, inputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(inputs)) if differs else nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu_(self.steps(x) + self.shortcut(x))

    blocks = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for number in range(count):
            blocks.append(Bottleneck(channels, 64 * 2**stage, 2 if stage and not number else 1, not number))
            channels = 256 * 2**stage
    net = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))
    rule = torch.optim.SGD(net.parameters(), **RATE)
    for step in range(2):
        x, y = map(torch.from_numpy, pictures(step))
        rule.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        rule.step()
    print(f"it took two steps, the last loss is {float(loss):.3f}")


if options.usual_loop:
    usual_loop()
    raise SystemExit

has_limits = sys.platform == "linux"
resident, data = (status("VmRSS"), status("VmData")) if has_limits else (0, 0)
device.set_threads(THREADS)
net = models.resnet50(CLASSES, shape=(3, options.image, options.image), seed=0)
net.compile(optimizer.SGD(**RATE))
free = net.plan_batch(options.batch)
net.compile(optimizer.SGD(**RATE), memory_budget=(options.limit - ROOM) * MIB)
plan = net.plan_batch(options.batch)
limit, kernels = plan.total_bytes + ROOM * MIB, net.device.kernels.name
steps = options.steps or (12 if kernels == "onednn" else 2)

print(f"ResNet-50, batch {options.batch}, SGD with momentum, {kernels} kernels. In MiB:")
print(f"{(free.total_bytes - free.arena_bytes + free.eager_bytes) / MIB:6.0f}  freed at the last use, without a plan")
print(f"{free.total_bytes / MIB:6.0f}  the free plan, without a budget")
print(f"{plan.total_bytes / MIB:6.0f}  the plan within the budget, estimated {plan.estimated_slowdown:+.1%} time")
if has_limits:
    set_limit(data + limit)
    print(f"{limit / MIB:6.0f}  allowed from now on: the plan, and {ROOM} for what else the process needs")
else:
    print("        no limit: only Linux has one of a process's data (RLIMIT_DATA) and says what it takes (/proc)")

for step in range(steps):
    begin = time.perf_counter()
    value, _ = net.train_one_batch(*pictures(step))
    print(f"step {step + 1:2}: loss {float(value):.3f}, {time.perf_counter() - begin:.2f} s", flush=True)

print(f"{net.device.pool.high_water / MIB:6.0f}  taken by the net at most; {plan.total_bytes / MIB:.0f} were planned")
if has_limits:
    taken = status("VmHWM") - resident
    print(f"{taken / MIB:6.0f}  taken by the process at most, over its imports; {limit / MIB:.0f} were allowed")
    if importlib.util.find_spec("torch") is None:
        print("With PyTorch (pip install torch) its usual loop runs here, within the same limit.")
        raise SystemExit
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (resource.getrlimit(resource.RLIMIT_DATA)[1],) * 2)  # for the import
    sizes = [f"--{name}={getattr(options, name)}" for name in ("batch", "image", "limit")]
    done = subprocess.run([sys.executable, __file__, "--usual-loop", *sizes], capture_output=True, text=True)
    *_, last = ["", *(done.stderr or done.stdout).strip().splitlines()]
    print(f"PyTorch's usual loop, the same limit over its imports: {'died' if done.returncode else 'lived'}\n{last}")
