"""PyTorch's steps on the same GPU, in its best ways: channels last, cudnn.benchmark, TF32 or bfloat16, compiled."""

from __future__ import annotations

import importlib.util
import time
from itertools import pairwise
from statistics import median
from typing import Any

from first_run.item import Context, Skipped, Values


def measure(context: Context, name: str, n: int, way: str, steps: int) -> Values:
    """A net's step. way: "tf32", "bfloat16", each with "-compile" behind it or not."""
    if importlib.util.find_spec("torch") is None:
        raise Skipped("no PyTorch")
    import torch

    place = "cpu" if context.options.stand_in else "cuda"
    if place == "cuda" and not torch.cuda.is_available():
        raise Skipped(f"PyTorch {torch.__version__} finds no GPU")
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    step = _step(name, n, way, place)
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


def _step(name: str, n: int, way: str, place: str) -> Any:
    """A function that does a step of SGD with momentum and returns the loss."""
    import torch
    from torch.nn.functional import cross_entropy

    from nets import batch
    from peers.torch_side import built

    net = built(name)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(0, 0.02) if parameter.ndim > 1 else parameter.zero_()
    x, y = (torch.from_numpy(array).to(place) for array in batch(name, n))
    net = net.to(place)
    if x.ndim == 4:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    forward = torch.compile(net, mode="reduce-overhead") if way.endswith("-compile") else net
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    half = way.startswith("bfloat16")

    def step() -> Any:
        with torch.autocast(place, torch.bfloat16, enabled=half):
            found = cross_entropy(forward(x), y.flatten())
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
