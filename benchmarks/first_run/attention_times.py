"""The time of attention, forward and backward, at GPT-2's shapes: by what serves it, and by our own tiles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod
from typing import Any

from first_run.item import Context, Values, counted
from first_run.kernel_times import Timed, measured_row
from singa_lite import models, optimizer
from singa_lite.kernels.kernel_set import specs_of

#: Texts, positions, features, heads; small ones for the stand-in.
SHAPE, TINY_SHAPE = (8, 1024, 768, 12), (2, 9, 24, 3)
PRECISIONS = ("float32", "bfloat16")


def attention(context: Context) -> Values:
    """Microseconds and TFLOP/s of each call. Causal: half of all products are counted."""
    machine, rows = context.machine, []
    for precision in PRECISIONS:
        for call in _calls(context, precision):
            by = machine.served_by(machine.on.kernels, call.kernel, call.specs, call.settings)
            for side, kernels in {by: machine.on.kernels, "own": machine.own_set()}.items():
                names = {"kernel": call.kernel, "precision": precision, "by": side}
                rows.append(context.try_row(names, partial(_row, context, kernels, call, names)))
    return counted(sum("us" not in row for row in rows), len(rows))


def _calls(context: Context, precision: str) -> Iterator[Timed]:
    """Those of a block."""
    n, time, features, heads = TINY_SHAPE if context.options.tiny else SHAPE
    net = models.gpt2(64, time, features, heads, 1, device=context.machine.on, seed=3)
    net.compile(optimizer.SGD(lr=0.01), precision=precision)
    for one in net.plan_batch(n).placed.planned.instructions:
        if one.kernel.startswith("attention"):
            yield Timed(one.kernel, specs_of(one.operands), one.settings, 1)


def _row(context: Context, kernels: Any, call: Timed, names: Values) -> Values:
    n, time, features, _ = TINY_SHAPE if context.options.tiny else SHAPE
    row = measured_row(context.machine, kernels, call, 1.0)
    flops = prod((n, time, time, features)) * (5 if call.kernel.endswith("derivative") else 2)
    return names | {"us": row["us"], "TFLOP_s": flops / row["us"] / 1e6}
