"""Where a step's time goes, beside what the library itself does best: its convolutions and products, one kernel a run.

    pip install ".[onednn]" ml_dtypes
    python benchmarks/library_best.py --net resnet50 --batch 16 [--precision bfloat16]

For each different convolution and product of the planned step: milliseconds within our step, by `graph.profile()`, and
the least that oneDNN takes for the same shapes and types by one primitive alone, in the fastest of the layouts that it
has (blocked as it chooses, channels last), nothing converted, no bias, the same buffers each time. Below them all else
of the step, and what its bytes take at the rate of a copy that no cache holds. So `bound` is about the step that this
library could not beat on this machine, and --goal milliseconds is told beside it. Ours is the median of --runs, the
library's the least of as many, as other work on the machine would make a bound of it too large.

--peaks: instead, all kernels of the step beside both peaks of the machine: time, share of a copy's bandwidth, share of
the arithmetic of a float32 product, and the limit: the longer one of what each call's bytes and its arithmetic take at
the peaks. A kernel whose tensors lie in a cache may take less than its limit.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from nets import batch, entry
from singa_lite import device, optimizer
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.time_model import flops
from singa_lite.compiler.report.profile import Cost, Profile
from singa_lite.kernels.interface.signature import SIGNATURES
from singa_lite.kernels.kernel_set import TensorSpec, specs_of
from singa_lite.kernels.onednn_kernels.convolution import DIRECT, chosen_filters, geometry
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.library import OneDNNError
from tiny import parsed

#: Four bytes of 0.0115 as float32, two of it as bfloat16.
FILLING = 0x3C
ARGUMENTS = (f.SRC, f.WEIGHTS, f.DST, f.DIFF_SRC, f.DIFF_WEIGHTS, f.DIFF_DST)


class Row(NamedTuple):
    """A call, how often it is done in a step; seconds of all of them, ours and the library's best."""

    name: str
    count: int
    flops: int
    ours: float
    best: float


def named(instruction: Instruction) -> dict[str, TensorSpec]:
    """{name in the kernel's signature: its tensor}."""
    specs = zip(SIGNATURES[instruction.kernel].tensors, specs_of(instruction.operands), strict=True)
    return {name: spec for name, spec in specs if spec is not None}


def primitives(instruction: Instruction) -> Iterator[p.Primitive]:
    """Each way in which the library does the call by one primitive."""
    tensors = named(instruction)
    ways = _convolutions if "window" in instruction.settings else _products
    for made in ways(tensors, instruction):
        try:
            yield made()
        except OneDNNError:  # it has none for such layouts
            continue


def _convolutions(tensors: dict[str, TensorSpec], instruction: Instruction) -> Iterator[Callable[[], p.Primitive]]:
    groups, window = instruction.settings["groups"], geometry(instruction.settings["window"])
    image = tensors["dx"] if "dx" in tensors else tensors["x"]
    result = tensors["dy"] if "dy" in tensors else tensors["y"]
    weight = tensors["dweight"] if "dweight" in tensors else tensors["weight"]
    dtype = layouts.factors_of(image, result)
    filters, gradient = chosen_filters(weight, groups, dtype), chosen_filters(weight, groups)
    for axes in (None, layouts.CHANNELS_LAST):
        x, y = (_desc(spec.shape, dtype, axes) for spec in (image, result))
        forward = ("convolution_forward", f.FORWARD_TRAINING, DIRECT, x, filters, None, y, *window)
        if "y" in tensors:
            yield lambda given=forward: p.Primitive(*given)
        elif "dx" in tensors:
            given = ("convolution_backward_data", DIRECT, x, filters, y, *window)
            yield lambda given=given, hint=forward: p.Primitive(*given, forward=p.Primitive(*hint))
        else:
            given = ("convolution_backward_weights", DIRECT, x, gradient, None, y, *window)
            yield lambda given=given, hint=forward: p.Primitive(*given, forward=p.Primitive(*hint))


def _products(tensors: dict[str, TensorSpec], instruction: Instruction) -> Iterator[Callable[[], p.Primitive]]:
    y = tensors["y"]
    left, right = (tensors[name] for name in (("a", "b") if "a" in tensors else ("x", "weight")))
    rows, columns = y.shape[-2:]
    inner = flops(instruction) // (2 * int(np.prod(y.shape)))
    dtype, parts = layouts.factors_of(left, right), y.shape[:-2]
    for axes in (None, range(len(y.shape))):
        a, b = _desc((*parts, rows, inner), dtype, axes), _desc((*parts, inner, columns), dtype, axes)
        given = ("matmul", a, b, None, _desc(y.shape, str(y.dtype), axes))
        yield lambda given=given: p.Primitive(*given)


def _desc(shape: tuple[int, ...], dtype: str, axes: object) -> p.MemoryDesc:
    return memory_descs.any_layout(shape, dtype) if axes is None else memory_descs.dense(shape, dtype, axes)


def fastest(primitive: p.Primitive, runs: int) -> float:
    """Seconds of the fastest run."""
    arrays = {}
    for argument in ARGUMENTS:
        nbytes = primitive.memory_desc(argument).nbytes
        if nbytes:
            arrays[argument] = np.full(nbytes, FILLING, np.uint8)
    scratch = np.empty(primitive.scratch_bytes, np.uint8)  # the launch has addresses alone
    launch = primitive.bind(arrays, scratch)
    times = []
    for _ in range(runs + 2):
        start = time.perf_counter()
        launch()
        times.append(time.perf_counter() - start)
    return min(times[2:])


def same(instruction: Instruction) -> Hashable:
    """Equal for calls that the library does alike."""
    settings = {name: value for name, value in instruction.settings.items() if name != "activation"}
    shapes = tuple((name, spec.shape, str(spec.dtype)) for name, spec in named(instruction).items() if name != "bias")
    return instruction.kernel, repr(settings), shapes


def text(instruction: Instruction) -> str:
    """Kernel and shapes."""
    shapes = ("x".join(map(str, spec.shape)) for name, spec in named(instruction).items() if name != "bias")
    return f"{instruction.kernel} {' '.join(shapes)}"


def rows(instructions: Sequence[Instruction], profile: Profile, runs: int) -> list[Row]:
    """Of the convolutions and products of a step, each different one once, those with most to gain first."""
    ours, counts, first = defaultdict[Hashable, float](float), Counter[Hashable](), dict[Hashable, Instruction]()
    for instruction, operation in zip(instructions, profile.operations, strict=True):
        if operation.flops:
            key = same(instruction)
            ours[key] += operation.seconds
            counts[key] += 1
            first.setdefault(key, instruction)
    found = []
    for key, instruction in first.items():
        best = min((fastest(made, runs) for made in primitives(instruction)), default=inf)
        count = counts[key]
        # what is done in several calls of ours, such as by batches of matrices, may have no primitive here
        seconds = min(best * count, ours[key]) if best < inf else ours[key]
        found.append(Row(text(instruction), count, flops(instruction) * count, ours[key], seconds))
    return sorted(found, key=lambda row: row.best - row.ours)


def report(found: Sequence[Row], profile: Profile, step: float, options: argparse.Namespace) -> None:
    """Print the table, the sums and the bound."""
    print("| call | in a step | ours, ms | GFLOP/s | the library's best, ms | GFLOP/s |\n|---|---|---|---|---|---|")
    for row in found[: options.rows]:
        print(_line(row.name, row))
    for kernel in dict.fromkeys(row.name.split()[0] for row in found):
        print(_line(f"all {kernel}", _sum([row for row in found if row.name.split()[0] == kernel])))
    every = _sum(found)
    print(_line("all convolutions and products", every))
    others = [operation for operation in profile.operations if not operation.flops]
    nbytes = sum(one.bytes_read + one.bytes_written for one in others)
    rate = profile.peaks.nbytes if profile.peaks else inf
    rest = sum(one.seconds for one in others)
    print(
        f"| all else, {nbytes / 2**20:.0f} MiB at {rate / 1e9:.1f} GB/s | {len(others)} | {1e3 * rest:.1f} | | ", end=""
    )
    print(f"{1e3 * nbytes / rate:.1f} | |\n")
    print(f"{options.net}, {options.batch}, {options.precision}, {device.threads()} threads: ", end="")
    print(f"a step {1e3 * step:.1f} ms, its operations {1e3 * profile.seconds:.1f}; ", end="")
    print(f"bound {1e3 * (every.best + nbytes / rate):.1f}", end="")
    print(f"; wanted {options.goal:.1f}" if options.goal else "")


def report_peaks(profile: Profile) -> None:
    """Print each kernel's time beside what its bytes and its arithmetic take at the peaks, the slowest first."""
    peaks = profile.peaks
    if peaks is None:
        raise ValueError("--peaks: wanted memory for a product and a copy beside the step, received less")
    limits = defaultdict[str, float](float)
    for call in profile.operations:
        least = max((call.bytes_read + call.bytes_written) / peaks.nbytes, call.flops / peaks.flops)
        limits[call.kernel] += least
        limits["all"] += least
    print(
        "| kernel | calls | ms | of the step | of the copy's GB/s | of the product's GFLOP/s | limit, ms | ms / limit |"
    )
    print("|---|---|---|---|---|---|---|---|")
    kernels = profile.by_kernel()
    sums = zip(*(kernel[1:] for kernel in kernels), strict=True)
    for kernel in (*kernels, Cost("all", *map(sum, sums))):
        limit, seconds = limits[kernel.name], kernel.seconds
        moved = (kernel.bytes_read + kernel.bytes_written) / seconds / peaks.nbytes
        computed = f"{kernel.flops / seconds / peaks.flops:.0%}" if kernel.flops else ""
        time_of = f"{kernel.name} | {kernel.operations} | {1e3 * seconds:.2f} | {seconds / profile.seconds:.1%}"
        print(f"| {time_of} | {moved:.0%} | {computed} | {1e3 * limit:.2f} | {seconds / limit:.2f} |")
    print(f"\npeaks: {peaks.nbytes / 1e9:.1f} GB/s of a copy, read and written, {peaks.flops / 1e9:.0f} GFLOP/s")


def _sum(found: Sequence[Row]) -> Row:
    return Row("", *(sum(column) for column in list(zip(*found, strict=True))[1:]))


def _line(name: str, row: Row) -> str:
    ours, best = (row.flops / seconds / 1e9 for seconds in (row.ours, row.best))
    return f"| {name} | {row.count} | {1e3 * row.ours:.1f} | {ours:.0f} | {1e3 * row.best:.1f} | {best:.0f} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="resnet50")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--goal", type=float, help="milliseconds that are wanted of the step")
    parser.add_argument("--rows", type=int, default=12, help="calls that are listed, those with most to gain first")
    parser.add_argument(
        "--peaks", action="store_true", help="all kernels beside the machine's peaks, and no other table"
    )
    options = parsed(parser, net="lenet", batch=2, runs=1)
    net = entry(options.net).build(device.new_cpu(kernels="onednn"))
    net.compile(optimizer.SGD(0.001, momentum=0.9), precision=options.precision)
    x, y = batch(options.net, options.batch)
    steps = []
    for _ in range(options.runs + 3):
        start = time.perf_counter()
        float(net.train_one_batch(x, y)[0])
        steps.append(time.perf_counter() - start)
    profile = net.training_graph.profile(options.runs)
    if options.peaks:
        report_peaks(profile)
        return
    found = rows(net.memory_plan.placed.planned.instructions, profile, options.runs)
    report(found, profile, min(steps[3:]), options)


if __name__ == "__main__":
    main()
