"""Training on the GPU: losses against the CPU's in three modes, and steps that are measured."""

from __future__ import annotations

import gc
import time
import warnings
from collections import Counter
from contextlib import nullcontext
from itertools import pairwise
from statistics import median
from typing import Any
from unittest.mock import patch

from first_run.item import Context, Values, Wrong
from first_run.machine import here
from first_run.prepared import built, losses, weight_sum

#: What losses may differ by, relatively, step by step, and the last for all further ones: they part as steps go on. Two
#: right ways on the CPU differ by 9e-8, 4e-5, 3e-4, 1e-3 in resnet18_32, and algorithms of a GPU may round more.
LOSS = (1e-5, 1e-3, 1e-2, 3e-2)


def compare_losses(context: Context, name: str, mode: str) -> Values:
    """A net's first steps: "eager", "recorded" (launched one by one) or "captured" (as one CUDA graph)."""
    from singa_lite.runtime.capture import CapturedReplay

    wanted = context.prepared.trainings[name]
    net = built(name, context.machine.on, graph=mode != "eager")
    begins = weight_sum(net)
    uncaptured = patch.object(CapturedReplay, "_captured", lambda self: None)
    with uncaptured if mode == "recorded" else nullcontext(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = list(losses(net, name, wanted.batch, len(wanted.losses)))
    values: Values = {"losses": found, "wanted": wanted.losses, "warnings": [str(one.message) for one in said]}
    apart = [abs(a - b) / abs(b) for a, b in zip(found, wanted.losses, strict=True)]
    values |= {"differences": apart, "largest_difference": max(apart)}
    if abs(begins - wanted.begins) > 1e-5 * wanted.begins:
        raise Wrong(f"weights begin otherwise than on the CPU: their sum is {begins} for {wanted.begins}", values)
    if mode == "captured" and (why := [text for text in values["warnings"] if "one CUDA graph" in text]):
        raise Wrong(f"the step is not one launch: {why[0]}", values)
    for step, difference in enumerate(apart):
        if not difference <= LOSS[min(step, len(LOSS) - 1)]:
            raise Wrong(f"step {step + 1}: the loss differs by {difference:.2g} of itself", values)
    return values


def measure(
    context: Context,
    name: str,
    n: int,
    precision: str,
    steps: int,
    rule: str = "momentum",
    deterministic: bool = True,
    budget_share: float | None = None,
) -> Values:
    """Seconds to the first step, milliseconds a step by events, peak bytes beside the plan's, who does which calls.

    budget_share: the step has a memory_budget, this share of the bytes that are planned without one.
    """
    from nets import batch
    from singa_lite import tensor

    machine = context.machine if deterministic else context.varying_machine
    on, pool = machine.on, machine.on.pool
    options: Values = {"precision": precision}
    if budget_share is not None:
        free = built(name, on, rule, **options).plan_batch(n, samples=n).total_bytes
        options["memory_budget"] = int(budget_share * free)
    gc.collect()  # of the nets before
    context.machine.on.pool.release_free()
    pool.release_free()
    pool.reset_high_water()
    before = pool.used
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        start = time.perf_counter()
        net = built(name, on, rule, **options)
        x, y = (tensor.from_numpy(array, on) for array in batch(name, n))
        values: Values = {"loss": float(net.train_one_batch(x, y)[0])}
        values["seconds_to_first_step"] = time.perf_counter() - start
        context.row(dict(values))
        for _ in range(3):  # the second one is captured
            last = float(net.train_one_batch(x, y)[0])
        values["milliseconds"] = _milliseconds(machine, net, x, y, steps)
    plan = net.memory_plan
    values |= {"last_loss": last, "samples_a_second": n / median(values["milliseconds"]) * 1e3}
    values |= {"planned_bytes": plan.total_bytes, "arena_bytes": plan.arena_bytes, "floor_bytes": plan.floor_bytes}
    values |= {"high_water_bytes": pool.high_water - before, "held_bytes": pool.total, "bytes_before": before}
    values |= {"calls": calls(machine, net), "warnings": [str(one.message) for one in said]}
    return values


def _milliseconds(machine: Any, net: Any, x: Any, y: Any, steps: int) -> list[float]:
    """Of each step, nothing waited for in between."""
    events = [machine.mark()]
    for _ in range(steps):
        net.train_one_batch(x, y)
        events.append(machine.mark())
    return [machine.milliseconds(a, b) for a, b in pairwise(events)]


def calls(machine: Any, net: Any) -> Values:
    """How many calls of a step the libraries do, kernels of ours, and the host; of the host by kernel."""
    from library_calls import steps_of
    from singa_lite.device.host_fallback import HostFallback
    from singa_lite.kernels.composed import InnerCall
    from singa_lite.kernels.kernel_set import specs_of

    kernels, found = net.device.kernels, Counter()
    for call in net.memory_plan.placed.planned.instructions:
        specs = specs_of(call.operands)
        side = machine.served_by(kernels, call.kernel, specs, call.settings)
        with here(net.device):
            steps = [*steps_of(net.device, InnerCall(call.kernel, specs, call.settings))]
        on_the_host = any(isinstance(step, HostFallback) for step in steps)
        found[f"host: {call.kernel}" if on_the_host else side] += 1
    return dict(found)
