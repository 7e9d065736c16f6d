"""PyTorch's steps on the same GPU, in its best ways: channels last, cudnn.benchmark, TF32 or bfloat16, compiled."""

from __future__ import annotations

import importlib.util
import time
from itertools import pairwise
from statistics import median
from typing import Any

from first_run.item import Context, Skipped, Values


def measure(context: Context, name: str, n: int, way: str, steps: int, rule: str = "momentum") -> Values:
    """A net's step. way: "tf32" or "bfloat16", behind it "", "-compile" (with CUDA graphs) or "-compile-default" (with
    none, in fewer bytes). rule: "momentum", or "adamw" in one kernel.
    """
    if importlib.util.find_spec("torch") is None:
        raise Skipped("no PyTorch")
    import torch

    place = "cpu" if context.options.stand_in else "cuda"
    if place == "cuda" and not torch.cuda.is_available():
        raise Skipped(f"PyTorch {torch.__version__} finds no GPU")
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    step = _step(name, n, way, place, rule)
    if place == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    values: Values = {"loss": float(step()), "seconds_to_first_step": time.perf_counter() - start}
    for _ in range(min(steps, 5)):
        last = float(step())
    times = _milliseconds(step, steps, place)
    values |= {"last_loss": last, "milliseconds": times, "samples_a_second": n / median(times) * 1e3}
    if place == "cuda":
        values |= {
            "high_water_bytes": torch.cuda.max_memory_allocated(),
            "held_bytes": torch.cuda.max_memory_reserved(),
        }
    return values | {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}


def _step(name: str, n: int, way: str, place: str, rule: str) -> Any:
    """A function that does a step and returns the loss."""
    import torch
    from torch.nn.functional import cross_entropy

    from nets import batch
    from peers.torch_side import OPTIMIZERS, built

    net = built(name)
    with torch.no_grad():
        for path, parameter in net.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.02)
            else:  # of a normalization 1 and 0: all of its results were 0 otherwise, which draws less power
                parameter.fill_(1.0 if path.endswith("weight") else 0.0)
    x, y = (torch.from_numpy(array).to(place) for array in batch(name, n))
    net = net.to(place)
    if x.ndim == 4:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)

    def forward() -> Any:
        return cross_entropy(net(x), y.flatten())

    mode = "default" if way.endswith("-default") else "reduce-overhead"
    loss = torch.compile(forward, mode=mode) if "-compile" in way else forward
    optimizer = OPTIMIZERS[rule](net.parameters(), 0.01 if rule == "momentum" else 1e-4)
    half = way.startswith("bfloat16")

    def step() -> Any:
        with torch.autocast(place, torch.bfloat16, enabled=half):
            found = loss()
        found.backward()
        optimizer.step()
        optimizer.zero_grad()
        return found.detach()

    return step


def _milliseconds(step: Any, steps: int, place: str) -> list[float]:
    """Of each step, by events; nothing is waited for in between."""
    import torch

    def mark() -> Any:
        if place == "cpu":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    events = [mark()]
    for _ in range(steps):
        step()
        events.append(mark())
    if place == "cpu":
        return [(b - a) * 1e3 for a, b in pairwise(events)]
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in pairwise(events)]
