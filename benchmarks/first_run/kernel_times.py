"""The time of our own kernels at the shapes of nets, and of an embedding's gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from first_run.item import Context, Values, counted
from first_run.machine import Machine, here
from first_run.prepared import built
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import KernelSet, TensorSpec, specs_of

#: Nets whose kernels are timed, at these batches.
NETS = {"resnet50": 32, "mobilenet_v2": 32, "gpt_11m": 8, "llama": 8, "lstm": 32}
TINY_NETS = {"digits_cnn": 5, "lstm": 3}
#: Bytes that timed calls go over before they come to the same ones again: more than the second-level cache holds.
ROTATED = 128 << 20
#: Most copies of a call's tensors, launches between two events, and shapes of one kernel.
MOST_COPIES, LAUNCHES, MOST_SHAPES = 8, 24, 12

Specs = tuple[TensorSpec | None, ...]
Draw = Callable[[tuple[int, ...]], Any]
_BITS: Draw = partial(np.random.default_rng(7).integers, 0, 2)


class Timed(NamedTuple):
    """A call that is timed. count: how often a step does it."""

    kernel: str
    specs: Specs
    settings: Mapping[str, Any]
    count: int

    @property
    def moved(self) -> int:
        """Bytes that it reads and writes, each tensor once for each."""
        width = len(SIGNATURES[self.kernel.split("*")[0]].roles)
        roles = [SIGNATURES[self.kernel.split("*")[0]].roles[at % width] for at in range(len(self.specs))]
        return sum(
            prod(spec.shape) * spec.dtype.itemsize * (2 if role == "Update" else 1)
            for spec, role in zip(self.specs, roles, strict=True)
            if spec is not None
        )


def of_net(context: Context, name: str, n: int) -> Values:
    """Each kernel of ours in a step of a net, by shape: microseconds, GB/s, share of the bandwidth of a copy."""
    machine = context.machine
    bandwidth = machine.copy_bandwidth()
    found = sorted(_calls(machine, name, n), key=lambda one: -one.moved * one.count)
    shapes: Counter[str] = Counter()
    rows = []
    for call in found:
        shapes[call.kernel] += 1
        wanted = context.options.kernel in ("", call.kernel)
        if wanted and shapes[call.kernel] <= MOST_SHAPES:
            made = partial(measured_row, machine, machine.own_set(), call, bandwidth)
            rows.append(context.try_row({"kernel": call.kernel, "shapes": _shapes(call)}, made))
    taken = [row["us"] * row["count"] for row in rows if "us" in row]
    return counted(len(rows) - len(taken), len(rows), copy_GB_s=bandwidth, step_ms=sum(taken) / 1e3)


def _calls(machine: Machine, name: str, n: int) -> list[Timed]:
    """The different calls of a step that kernels of ours do."""
    plan = built(name, machine.on).plan_batch(n)
    counts: Counter[Any] = Counter()
    calls: dict[Any, Timed] = {}
    for one in plan.placed.planned.instructions:
        specs = specs_of(one.operands)
        if machine.served_by(machine.on.kernels, one.kernel, specs, one.settings) == "own":
            key = one.kernel, tuple(None if s is None else s.key for s in specs), str(one.settings)
            counts[key] += 1
            calls[key] = Timed(one.kernel, specs, one.settings, 1)
    return [call._replace(count=counts[key]) for key, call in calls.items()]


def measured_row(machine: Machine, kernels: KernelSet, call: Timed, bandwidth: float) -> Values:
    """A call's time by these kernels. bandwidth: of a copy, GB/s."""
    with prepared_launch(machine, kernels, call) as launch, machine.profiled():
        taken = machine.captured_microseconds(launch, LAUNCHES)
    speed = call.moved / taken / 1e3
    dtype = next(spec.dtype.name for spec in call.specs if spec is not None)
    return {
        "kernel": call.kernel,
        "shapes": _shapes(call),
        "dtype": dtype,
        "count": call.count,
        "us": taken,
        "GB_s": speed,
        "share": speed / bandwidth,
    }


def _shapes(call: Timed) -> str:
    return str([None if spec is None else list(spec.shape) for spec in call.specs[:6]])


@contextmanager
def prepared_launch(machine: Machine, kernels: KernelSet, call: Timed, ids: Draw | None = None) -> Iterator[Any]:
    """Launches of a call over random numbers, each time over other memory, so that no cache holds it.

    ids: draws integers of a shape, by default 0 and 1.
    """
    on, regions = machine.on, []
    copies = max(1, min(MOST_COPIES, ROTATED // max(call.moved, 1)))

    def array(nbytes: int, shape: Sequence[int], dtype: Any, strides: Sequence[int]) -> Any:
        regions.append(on.pool.take(max(nbytes, 1)))
        return on.runtime.view(regions[-1].memory, shape, dtype, strides, 0)

    try:
        with here(on):
            launches = [_bound(on, kernels, call, array, ids or _BITS) for _ in range(copies)]
            turn = iter(range(1 << 62))
            yield lambda: launches[next(turn) % copies]()
            on.synchronize()
    finally:
        for region in regions:
            on.pool.give(region)


def _bound(on: Any, kernels: KernelSet, call: Timed, array: Any, ids: Draw) -> Any:
    arrays = []
    for position, spec in enumerate(call.specs):
        if spec is None:
            arrays.append(None)
            continue
        span = sum((extent - 1) * stride for extent, stride in zip(spec.shape, spec.strides, strict=True))
        made = array(span + spec.dtype.itemsize, spec.shape, spec.dtype, spec.strides)
        on.runtime.write(made, _values(spec, position, ids))
        arrays.append(made)
    of_call = call.kernel, call.specs, call.settings
    nbytes = max([kernels.scratch_bytes(*of_call), *kernels.scratch_levels(*of_call)])
    scratch = array(nbytes, (nbytes,), np.dtype(np.uint8), (1,)) if nbytes else None
    return kernels.prepare(call.kernel, tuple(arrays), scratch, call.settings)


def _values(spec: TensorSpec, seed: int, ids: Draw) -> Any:
    """Numbers from 0.5 to 1.5, ids for integers."""
    if spec.dtype.kind in "iub":
        return ids(spec.shape).astype(spec.dtype)
    random = np.random.default_rng(seed)
    return (random.random(spec.shape, np.float32) + 0.5).astype(spec.dtype)


def dtypes(kernel: str, shapes: Sequence[Any]) -> list[np.dtype[Any]]:
    """float32; ids are int64."""
    ids = {"in_top_k": 1, "embedding_gradient": 0}
    return [np.dtype(np.int64 if at == ids.get(kernel) else np.float32) for at in range(len(shapes))]


def plain(dtype: np.dtype[Any], shape: tuple[int, ...]) -> TensorSpec:
    """In C order."""
    strides = [dtype.itemsize * prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return TensorSpec(shape, dtype, tuple(strides))


def embedding_gradient(context: Context) -> Values:
    """64 texts of 1,024 ids into a table of GPT-2, with ids drawn evenly, and one of them everywhere."""
    places, rows, features = (300, 50, 7) if context.options.tiny else (64 * 1024, 50257, 768)
    shapes = (places,), (places, features), (rows, features)
    specs = tuple(map(plain, dtypes("embedding_gradient", shapes), shapes))
    call = Timed("embedding_gradient", specs, {"first": 0, "padding": -1}, 1)
    machine, values = context.machine, {}
    for label, most in (("evenly drawn", rows), ("one id", 1)):
        ids = partial(np.random.default_rng(7).integers, 0, most)
        with prepared_launch(machine, machine.own_set(), call, ids) as launch:
            values[f"us, {label}"] = machine.captured_microseconds(launch, 4)
        context.row(dict(values))
    return values
