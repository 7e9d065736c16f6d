"""Calls that a kernel set can do in several ways, of a net's training step or of well-known nets, and their times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.strides import laid_out, span
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.time_model import multiply_adds
from singa_lite.kernels.built import BuiltKernel
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import KernelSet, Launch, Settings, TensorSpec, TensorSpecs, specs_of
from singa_lite.kernels.variants import AnyVariants

_FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Call:
    """A call, and how often it is done in a step. layer: the first that does it."""

    variants: AnyVariants
    specs: TensorSpecs
    settings: Settings
    layer: str
    count: int = 1

    @property
    def name(self) -> str:
        """By which tables of choices know it."""
        return self.variants.call_name(self.specs, self.settings)

    @property
    def flops(self) -> int:
        """Two for each multiply-add."""
        return 2 * multiply_adds(self.variants.kernel, self.specs, self.settings)

    @property
    def shapes(self) -> str:
        """Of its tensors, short."""
        return " ".join("x".join(map(str, spec.shape)) for spec in self.specs if spec is not None)


def variants_of(kernels: KernelSet) -> dict[str, AnyVariants]:
    """{kernel: its variants}, of those that have several."""
    found: dict[str, AnyVariants] = {}
    for name, kernel in kernels.kernels.items():
        if isinstance(kernel, BuiltKernel) and kernel.variants is not None:
            found[name] = kernel.variants
    return found


def of_step(kernels: KernelSet, instructions: Iterable[Instruction]) -> list[Call]:
    """The calls of a planned step, each different one once."""
    known = variants_of(kernels)
    return counted(
        Call(known[i.kernel], _as_done(kernels, i), i.settings, i.layer) for i in instructions if i.kernel in known
    )


def _as_done(kernels: KernelSet, instruction: Instruction) -> TensorSpecs:
    """The specs by which the set itself does the call: float32 ones, where it is widened first."""
    specs = specs_of(instruction.operands)
    own = kernels.kernels[instruction.kernel]
    if kernels.choose(instruction.kernel, specs, instruction.settings) is own:
        return specs
    return tuple(None if spec is None else spec.without_gaps(_FLOAT32) for spec in specs)


def counted(calls: Iterable[Call]) -> list[Call]:
    """Equal ones as one, in the order of the first ones."""
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.name, []).append(call)
    return [replace(group[0], count=sum(call.count for call in group)) for group in groups.values()]


def images(shape: Sequence[int], axes: Sequence[int]) -> TensorSpec:
    """The spec of a float32 tensor without gaps, its axes in this order from the outermost."""
    return TensorSpec(tuple(shape), _FLOAT32, laid_out(shape, axes, _FLOAT32.itemsize))


KERNEL = "conv2d_gradient"


class Convolution(NamedTuple):
    """channels, extent: of the images, which are as high as wide; filters: how many; kernel: extent of each."""

    layer: str
    channels: int
    extent: int
    filters: int
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def window(self) -> Window:
        """Padded so that a stride of 1 keeps the extent."""
        return Window((self.kernel,) * 2, (self.stride,) * 2, (self.kernel // 2,) * 4)


def resnet50() -> Iterator[Convolution]:
    """He and others, arXiv 1512.03385, with the stride on the 3 x 3."""
    yield Convolution("stem", 3, 224, 64, 7, 2)
    channels, extent = 64, 56
    for stage, blocks in enumerate((3, 4, 6, 3), 1):
        width = 32 * 2**stage
        for block in range(1, blocks + 1):
            name, stride = f"stage{stage}_{block}", 2 if stage > 1 and block == 1 else 1
            yield Convolution(f"{name}_conv1", channels, extent, width, 1)
            yield Convolution(f"{name}_conv2", width, extent, width, 3, stride)
            if block == 1:
                yield Convolution(f"{name}_shortcut", channels, extent, 4 * width, 1, stride)
            extent //= stride
            yield Convolution(f"{name}_conv3", width, extent, 4 * width, 1)
            channels = 4 * width


def vgg16() -> Iterator[Convolution]:
    """Simonyan and Zisserman, arXiv 1409.1556, configuration D."""
    channels, extent = 3, 224
    for stage, (layers, width) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), 1):
        for layer in range(1, layers + 1):
            yield Convolution(f"conv{stage}_{layer}", channels, extent, width, 3)
            channels = width
        extent //= 2


def mobilenet_v2() -> Iterator[Convolution]:
    """Sandler and others, arXiv 1801.04381, table 2."""
    yield Convolution("stem", 3, 224, 32, 3, 2)
    channels, extent = 32, 112
    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for stage, (factor, width, blocks, first) in enumerate(stages, 1):
        for block in range(1, blocks + 1):
            name, stride, wide = f"stage{stage}_{block}", first if block == 1 else 1, factor * channels
            if factor > 1:
                yield Convolution(f"{name}_expand", channels, extent, wide, 1)
            yield Convolution(f"{name}_depthwise", wide, extent, wide, 3, stride, wide)
            extent //= stride
            yield Convolution(f"{name}_project", wide, extent, width, 1)
            channels = width
    yield Convolution("head", channels, extent, 1280, 1)


NETS: dict[str, Callable[[], Iterator[Convolution]]] = {
    "resnet50": resnet50,
    "vgg16": vgg16,
    "mobilenet_v2": mobilenet_v2,
}


def calls_of_net(net: str, batch: int, kernels: KernelSet) -> list[Call]:
    """The gradients by the filters of a net of that name, for so many images, each different one once."""
    return counted(_call(one, batch, kernels) for one in NETS[net]())


def _call(one: Convolution, batch: int, kernels: KernelSet) -> Call:
    extents = one.window.positions(one.layer, (one.extent, one.extent))
    image, filters = kernels.layouts["image"], kernels.layouts["filters"]
    specs = (
        images((batch, one.channels, one.extent, one.extent), image),
        images((batch, one.filters, *extents), image),
        images((one.filters, one.channels // one.groups, one.kernel, one.kernel), filters),
    )
    settings = {"window": one.window, "groups": one.groups}
    return Call(variants_of(kernels)[KERNEL], specs, settings, one.layer)


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
    ways = call.variants.routines(call.specs, call.settings)
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
