"""The time of attention, forward and backward, at GPT-2's shapes: by the library that serves it, and by our own tiles
of three sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from math import prod
from unittest.mock import patch

from first_run.item import Context, Values, counted
from first_run.kernel_times import Timed, measured_row
from first_run.machine import Machine
from singa_lite import models, optimizer
from singa_lite.kernels.cuda_kernels import attention as tiled
from singa_lite.kernels.kernel_set import KernelSet, specs_of

#: Texts, positions, features, heads; small ones for the stand-in.
SHAPE, TINY_SHAPE = (8, 1024, 768, 12), (2, 9, 24, 3)
PRECISIONS = ("float32", "bfloat16")
#: MiB of a tile of scores.
TILES = (tiled.TILE_BYTES >> 20, 4, 64)


def attention(context: Context) -> Values:
    """Microseconds and TFLOP/s of each call. Causal: half of all products are counted."""
    machine, rows = context.machine, []
    for precision in PRECISIONS:
        for call in _calls(context, precision):
            named = {"kernel": call.kernel, "precision": precision}
            by = machine.served_by(machine.on.kernels, call.kernel, call.specs, call.settings)
            sides = [({"by": by}, machine, machine.on.kernels, TILES[0])] if by != "own" else []
            sides += [({"by": "own", "tile, MiB": tile}, machine, machine.own_set(), tile) for tile in TILES]
            varying = context.varying_machine
            if call.kernel == "attention_derivative" and by != "own":
                sides += [({"by": "what may vary from run to run"}, varying, varying.on.kernels, TILES[0])]
            for names, of, kernels, tile in sides:
                names = named | names
                rows.append(context.try_row(names, partial(_row, context, of, kernels, tile, call, names)))
    return counted(sum("us" not in row for row in rows), len(rows))


def _calls(context: Context, precision: str) -> Iterator[Timed]:
    """Those of a block."""
    n, time, features, heads = TINY_SHAPE if context.options.tiny else SHAPE
    net = models.gpt2(64, time, features, heads, 1, device=context.machine.on, seed=3)
    net.compile(optimizer.SGD(lr=0.01), precision=precision)
    for one in net.plan_batch(n).placed.planned.instructions:
        if one.kernel.startswith("attention"):
            yield Timed(one.kernel, specs_of(one.operands), one.settings, 1)


def _row(context: Context, machine: Machine, kernels: KernelSet, tile: int, call: Timed, names: Values) -> Values:
    n, time, features, _ = TINY_SHAPE if context.options.tiny else SHAPE
    with _tiles_of(tile << 20, kernels):
        row = measured_row(machine, kernels, call, 1.0)
    flops = prod((n, time, time, features)) * (5 if call.kernel.endswith("derivative") else 2)
    return names | {"us": row["us"], "TFLOP_s": flops / row["us"] / 1e6}


@contextmanager
def _tiles_of(nbytes: int, kernels: KernelSet) -> Iterator[None]:
    """Calls that are bound inside have tiles of so many bytes. Sizes of scratch that the set knows are forgotten."""
    kernels.forget()
    with patch.object(tiled, "TILE_BYTES", nbytes):
        yield
    kernels.forget()
