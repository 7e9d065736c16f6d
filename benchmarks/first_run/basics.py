"""Items that come before training: versions, compilation, one kernel, cuBLASLt, cuDNN, NCCL, a replay's memory."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from first_run.item import Context, Skipped, Values, Wrong
from first_run.machine import here

Arrays = Sequence[Any]
#: What a result may be off by, relative to its largest element: float32, and float32 factors with 11 bits.
EXACT, TF32 = 1e-5, 3e-3


def versions(context: Context) -> Values:
    """What the results depend on; cuDNN's description of the GPU goes to a file, for plans where there is none."""
    found = context.machine.versions()
    if not context.options.stand_in:
        from singa_lite.kernels.cuda_kernels.libraries import cudnn_library

        try:
            (context.out / "gpu_properties.json").write_text(cudnn_library.properties_of(0))
        except Exception as error:
            found["properties"] = f"{type(error).__name__}: {error}"
    return found


def one_kernel(context: Context) -> Values:
    """A sum of two tensors, and the time of a launch."""
    from singa_lite import tensor

    x = np.arange(1000, dtype=np.float32)
    shown = tensor.from_numpy(x, context.machine.on)
    result = tensor.to_numpy(shown + shown)
    if not np.array_equal(result, 2 * x):
        raise Wrong("x + x is not 2 x", {"found": result[:8].tolist()})
    return {"microseconds_at_once": context.machine.microseconds(lambda: shown + shown, 200)}


def compile_all(context: Context) -> Values:
    """All sources of the contract's calls, several at a time; what fails is told and does not stop the others."""

    def one(job: tuple[str, Any]) -> tuple[str, float, str]:
        start = time.perf_counter()
        try:
            context.machine.compile(*job)
        except Exception:
            return f"{job[0]} {dict(job[1])}", time.perf_counter() - start, traceback.format_exc(limit=-1)[-2000:]
        return job[0], time.perf_counter() - start, ""

    start = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(one, context.prepared.sources))
    slowest = sorted(done, key=lambda each: -each[1])[:5]
    values = {
        "programs": len(done),
        "seconds": round(time.perf_counter() - start, 2),
        "one_by_one": round(sum(seconds for _, seconds, _ in done), 2),
        "slowest": [f"{name} {seconds:.2f}" for name, seconds, _ in slowest],
    }
    failed = {name: why for name, _, why in done if why}
    if failed:
        raise Wrong(f"{len(failed)} programs do not compile: {', '.join(failed)}", values | {"failed": failed})
    return values


def against_numpy(on: Any, kernel: str, arrays: Arrays, settings: dict[str, Any], dtype: str, most: float) -> Values:
    """The last array's largest difference from NumPy's in float64, at once and captured, and seconds to prepare."""
    from singa_lite import tensor
    from singa_lite.kernels.numpy_kernels import NUMPY
    from singa_lite.testing.kernel_call import Call

    wanted = Call(NUMPY, kernel, list(arrays), settings).run().in_order[-1]
    tensors = [None if a is None else tensor.from_numpy(a.astype(dtype), on) for a in arrays]
    start = time.perf_counter()
    on.run(kernel, *tensors, **settings)
    on.synchronize()
    values: Values = {"seconds_first": time.perf_counter() - start}
    values["at_once"] = _difference(tensors[-1], wanted)
    with on.recording() as graph:
        on.run(kernel, *tensors, **settings)
    tensors[-1].copy_from_numpy(np.full(wanted.shape, np.nan, dtype))
    for _ in range(3):  # one by one, captured, launched
        graph.run()
    values["captured"] = _difference(tensors[-1], wanted)
    if not max(values["at_once"], values["captured"]) <= most:
        raise Wrong(f"{kernel} {dtype}: wanted a difference of at most {most}", values)
    return values


def _difference(found: Any, wanted: Any) -> float:
    from singa_lite import tensor

    return float(np.max(np.abs(tensor.to_numpy(found) - wanted)) / np.max(np.abs(wanted)))


def with_tf32(on: Any, kernel: str, arrays: Arrays, settings: dict[str, Any]) -> float:
    """The last array's largest difference from NumPy's in float64, where the libraries may round factors to TF32."""
    from gpu_kernels import OnGpu
    from singa_lite.kernels.kernel_set import tf32_of
    from singa_lite.kernels.numpy_kernels import NUMPY
    from singa_lite.testing.kernel_call import Call

    wanted = Call(NUMPY, kernel, list(arrays), settings).run().in_order[-1]
    short = [None if a is None else a.astype(np.float32) for a in arrays]
    found = Call(OnGpu("tf32", on, tf32_of(on.kernels)), kernel, short, settings).run().in_order[-1]
    apart = float(np.max(np.abs(found - wanted)) / np.max(np.abs(wanted)))
    if not apart <= TF32:
        raise Wrong(f"{kernel} with TF32: wanted a difference of at most {TF32}", {"tf32": apart})
    return apart


def products(context: Context) -> Values:
    """cuBLASLt: a product with bias, with TF32, with ReLU, a bias gradient; whether its ReLU keeps NaN."""
    random = np.random.default_rng(7)
    x, weight, bias = (random.standard_normal(shape) for shape in ((130, 67), (67, 259), (259,)))
    y, on = np.zeros((130, 259)), context.machine.on
    values: Values = {
        "linear": against_numpy(on, "linear", [x, weight, bias, y], {}, "float32", EXACT),
        "relu": against_numpy(on, "linear", [x, weight, bias, y], {"activation": "relu"}, "float32", EXACT),
        "bias_gradient": against_numpy(on, "bias_gradient", [x, np.zeros(67)], {"axis": 1}, "float32", EXACT),
    }
    if on.kernels.in_tf32 is not None:
        values["linear, tf32"] = with_tf32(on, "linear", [x, weight, bias, y], {})
    values["relu_in_the_product"] = not _own_launches(on, x, weight, bias, y)
    return values


def _own_launches(on: Any, *arrays: Any) -> list[str]:
    """Kernels of ours in a product with ReLU: one is there if the library's ReLU loses NaN, or has no such product."""
    from singa_lite.kernels.kernel_set import specs_of

    settings, specs = {"activation": "relu"}, specs_of(tuple(a.astype(np.float32) for a in arrays))
    kernel = on.kernels.choose("linear", specs, settings)
    with here(on):
        routine = kernel.attempt(specs, settings)
    return [] if routine is None else [step.kernel for step in routine.launches]


def convolutions(context: Context) -> Values:
    """cuDNN: three directions in float32 and with TF32, at once and captured, and the seconds that plans take."""
    from singa_lite.kernels.interface.window import Window

    random = np.random.default_rng(7)
    x, weight, dy = (random.standard_normal(shape) for shape in ((8, 16, 29, 31), (24, 16, 3, 3), (8, 24, 15, 31)))
    settings = {"window": Window((3, 3), (2, 1), (1, 1, 1, 1)), "groups": 1}
    directions = {
        "conv2d": [x, weight, None, np.zeros_like(dy)],
        "conv2d_derivative": [dy, weight, np.zeros_like(x)],
        "conv2d_gradient": [x, dy, np.zeros_like(weight)],
    }
    if not context.machine.on.kernels.has_levels:
        raise Skipped("no library: see versions")
    values: Values = {}
    for name, arrays in directions.items():
        values[name] = against_numpy(context.machine.on, name, arrays, settings, "float32", EXACT)
        context.row({name: values[name]})
        if context.machine.on.kernels.in_tf32 is not None:
            values[f"{name}, tf32"] = with_tf32(context.machine.on, name, arrays, settings)
    return values


def no_allocations(context: Context) -> Values:
    """Replays of a captured step: what the pool and the driver hold before and after."""
    from first_run.prepared import built
    from nets import batch

    replays, n = (4, 2) if context.options.tiny else (100, 64)
    on = context.machine.on
    net = built("lenet", on)
    x, y = batch("lenet", n)
    for _ in range(4):
        net.train_one_batch(x, y)
    on.synchronize()
    before = on.pool.used, on.pool.total
    for _ in range(replays):
        net.training_graph.run()
    on.synchronize()
    after = on.pool.used, on.pool.total
    if before != after:
        raise Wrong("replays changed what the pool holds", {"before": before, "after": after})
    return {"pool": after, "microseconds_a_replay": context.machine.microseconds(net.training_graph.run, replays)}


def all_reduce(context: Context) -> Values:
    """NCCL's sum over one rank, captured."""
    if context.options.stand_in:
        raise Skipped("the stand-in has no NCCL")
    from cupy.cuda import nccl

    if not getattr(nccl, "available", False):
        raise Skipped("no NCCL: pip install nvidia-nccl-cu13")
    on, given = context.machine.on, np.arange(1000, dtype=np.float32)
    stream, regions = on.runtime.stream, [on.pool.take(given.nbytes) for _ in range(2)]
    x, y = (on.runtime.view(region.memory, given.shape, given.dtype, given.strides, 0) for region in regions)
    on.runtime.write(x, given)
    with on.runtime.here():
        communicator = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
        arguments = x.data.ptr, y.data.ptr, x.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr
        communicator.allReduce(*arguments)
        on.runtime.write(y, np.zeros_like(given))
        stream.begin_capture()
        communicator.allReduce(*arguments)
        stream.end_capture().launch(stream)
        found = on.runtime.read(y)
    for region in regions:
        on.pool.give(region)
    if not np.array_equal(found, given):
        raise Wrong("a captured sum over one rank changed its values", {"found": found[:8].tolist()})
    return {"version": nccl.get_version()}
