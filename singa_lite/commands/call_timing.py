"""Measures each variant of a call: in turns, over memory of its own, the least time of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from singa_lite.commands.tuned_calls import Call
from singa_lite.common.array_types import Array
from singa_lite.common.strides import span
from singa_lite.kernels.kernel_set import Launch, TensorSpec

#: Turns of each way: at least, and at most where they take less than so many seconds together.
LEAST_TURNS, MOST_TURNS, SHORT = 4, 30, 0.4
#: A way is chosen in the place of the built-in rule's only where it takes less than this share of its time: turns of
#: one and the same call differ by some percent.
WORTH = 0.97
#: A multiple of what all kernels want addresses to be multiples of.
_ALIGNMENT = 64

Clock = Callable[[], float]


class Timing(NamedTuple):
    """Timing of a call. seconds, scratch: of each way that can do it; default: the rule's; chosen: the one to take."""

    call: Call
    seconds: Mapping[str, float]
    scratch: Mapping[str, int]
    default: str
    chosen: str

    @property
    def gain(self) -> float:
        """Seconds of a step by which the chosen way is faster than the rule's."""
        return self.call.count * (self.seconds[self.default] - self.seconds[self.chosen])


def measured(call: Call, more_scratch: int, clock: Clock = time.perf_counter) -> Timing | None:
    """The times of a call, None if there is but one way.

    more_scratch: bytes by which a way's scratch may be larger than the rule's for it to be chosen. clock: seconds.
    """
    routines = {name: build(*call.specs, **call.settings) for name, build in call.variants.builders.items()}
    ways = {name: routine for name, routine in routines.items() if routine is not None}
    if len(ways) < 2:
        return None
    scratch = {name: routine.scratch_bytes for name, routine in ways.items()}
    random = np.random.default_rng(call.flops)
    arrays = tuple(None if spec is None else _filled(spec, random) for spec in call.specs)
    room = _aligned(max(scratch.values()))
    launches = {name: routine.bind(call.specs, arrays, room) for name, routine in ways.items()}
    seconds = _least_times(launches, clock)
    default = call.variants.default(call.specs, call.settings)
    fits = {name: took for name, took in seconds.items() if scratch[name] <= scratch[default] + more_scratch}
    fastest = min(fits, key=fits.__getitem__)
    chosen = fastest if seconds[fastest] < WORTH * seconds[default] else default
    return Timing(call, seconds, scratch, default, chosen)


def _least_times(launches: Mapping[str, Launch], clock: Clock) -> dict[str, float]:
    """Of several turns, so that what disturbs one of them for a while disturbs all."""
    for launch in launches.values():
        launch()
    times: dict[str, list[float]] = {name: [] for name in launches}
    turns = 0
    while turns < LEAST_TURNS or (turns < MOST_TURNS and max(map(sum, times.values())) < SHORT):
        for name, launch in launches.items():
            start = clock()
            launch()
            times[name].append(clock() - start)
        turns += 1
    return {name: min(took) for name, took in times.items()}


def _filled(spec: TensorSpec, random: np.random.Generator) -> Array:
    """Random numbers that lie as the spec says."""
    extent = span(spec.shape, spec.strides, spec.dtype.itemsize)
    array: Array = np.ndarray(spec.shape, spec.dtype, _aligned(len(extent)), -extent.start, spec.strides)
    array[...] = random.standard_normal(spec.shape, np.float32)
    return array


def _aligned(nbytes: int) -> Array:
    memory = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + nbytes]
