"""What only a GPU can answer: nine questions, each a function that tries and tells, for `gpu.py --checklist`.

Each is asked in a process of its own, for so long and no longer; what they tell goes to one report, whatever fails.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cupy
import numpy as np

import gpu_plans
from gpu_means import (
    SANITIZER_SECONDS,
    TESTS,
    Arrays,
    against_numpy,
    drawn_convolution,
    handle_of,
    largest_difference,
    microseconds,
    planned,
    relu_keeps_nan,
    sanitizer,
    trained,
    tried,
)
from singa_lite import device, tensor
from singa_lite.kernels.cuda_kernels import cuda as cuda_kernels
from singa_lite.kernels.cuda_kernels import cudnn_library
from singa_lite.kernels.cuda_kernels.cudnn_plan import Knobs, Planner
from singa_lite.kernels.cuda_kernels.loader import CudaLoader
from singa_lite.kernels.interface.window import Window

CONVOLUTION = {"window": Window((3, 3), (2, 1), (1, 1, 1, 1)), "groups": 1}


def properties(gpu: int) -> str:
    """1: The GPU as cuDNN describes it, to a file: plans are then built for it where it is not."""
    path = Path(f"gpu_properties_{cupy.cuda.runtime.getDeviceProperties(gpu)['name'].decode().replace(' ', '_')}.json")
    path.write_text(json.dumps(json.loads(cudnn_library.properties_of(gpu)), indent=1))
    return f"written to {path}"


def convolutions(gpu: int) -> str:
    """2: Convolutions in three directions against NumPy in float64, eager and captured, by type."""
    random = np.random.default_rng(7)
    x, weight, dy = (random.standard_normal(shape) for shape in ((8, 16, 29, 31), (24, 16, 3, 3), (8, 24, 15, 31)))
    directions = {
        "conv2d": [x, weight, None, np.empty_like(dy)],
        "conv2d_derivative": [dy, weight, np.empty_like(x)],
        "conv2d_gradient": [x, dy, np.empty_like(weight)],
    }
    told = []
    for label, dtype, tf32 in (("float32", "float32", False), ("TF32", "float32", True), ("float64", "float64", False)):
        on = device.new_cuda(gpu, allow_tf32=tf32)
        told += [
            f"{label} {name}: {against_numpy(on, name, arrays, CONVOLUTION, dtype)}"
            for name, arrays in directions.items()
        ]
    with handle_of(gpu) as handle:
        for dtype in ("float16", "bfloat16"):
            plan = Planner(handle.target, handle, Knobs()).plan(drawn_convolution, dtype)
            told.append(f"{dtype}: {planned(plan)}")
    return "\n".join(told)


def products(gpu: int) -> str:
    """3: Products of cuBLASLt with bias and ReLU, a bias gradient, eager and captured; whether its ReLU keeps NaN."""
    random = np.random.default_rng(7)
    x, weight, bias = (random.standard_normal(shape) for shape in ((130, 67), (67, 259), (259,)))
    calls: list[tuple[str, Arrays, dict[str, Any]]] = [
        ("linear", [x, weight, bias, np.empty((130, 259))], {}),
        ("linear_activation", [x, weight, bias, np.empty((130, 259))], {"activation": "relu"}),
        ("bias_gradient", [x, np.empty(67)], {"axis": 1}),
    ]
    on = device.new_cuda(gpu)
    told = [f"{name}: {against_numpy(on, name, arrays, settings)}" for name, arrays, settings in calls]
    return "\n".join([*told, f"ReLU keeps NaN: {relu_keeps_nan(on)}"])


def allocations(gpu: int) -> str:
    """4: 100 replays with allocators that raise, and what the driver and the pool hold before and after."""
    net, x, y = trained(gpu, "resnet18_32", 8)
    pool = net.device.pool
    net.device.synchronize()
    before = pool.used, pool.total, cupy.cuda.runtime.memGetInfo()[0]

    def refuse(nbytes: int) -> Any:
        raise AssertionError(f"{nbytes} bytes were asked for in a replay")

    with cupy.cuda.using_allocator(refuse), patch.object(pool, "take", refuse):
        for _ in range(100):
            net.training_graph.run()
    net.device.synchronize()
    after = pool.used, pool.total, cupy.cuda.runtime.memGetInfo()[0]
    for _ in range(100):
        net.train_one_batch(x, y)
    net.device.synchronize()
    fed = pool.used, pool.total, cupy.cuda.runtime.memGetInfo()[0]
    return f"(pool used, pool total, driver free): {before}, after 100 replays {after}, after 100 batches {fed}"


def host_costs(gpu: int) -> str:
    """5: What a call of cuDNN costs the host, and a replay."""
    on = device.new_cuda(gpu)
    arrays = [
        np.ones((1, 8, 6, 6), np.float32),
        np.ones((8, 8, 3, 3), np.float32),
        None,
        np.ones((1, 8, 6, 6), np.float32),
    ]
    shown = [None if a is None else on.array(tensor.from_numpy(a, on)) for a in arrays]
    settings = {"window": Window((3, 3), pad=(1, 1, 1, 1)), "groups": 1}
    scratch = cupy.empty(on.kernels.scratch_bytes("conv2d", shown, settings), np.uint8)
    with on.runtime.here():
        launch = on.kernels.prepare("conv2d", tuple(shown), scratch, settings)
        cost = microseconds(launch, on.synchronize, 1000)
    net, x, y = trained(gpu, "lenet", 64)
    replay = microseconds(net.training_graph.run, net.device.synchronize, 1000)
    step = microseconds(lambda: net.train_one_batch(x, y), net.device.synchronize, 1000)
    return f"a convolution: {cost:.1f} us of the host; LeNet, batch 64: a replay {replay:.1f} us, a step {step:.1f} us"


def further_plans(gpu: int) -> str:
    """6: Plans of cuDNN for batch and layer normalization and attention in the benchmarks' shapes."""
    cudnn = cudnn_library.frontend()
    graphs: dict[str, Callable[[Any, Any], None]] = {
        **{f"batch norm {shape}": partial(gpu_plans.batch_norm, shape=shape) for shape in gpu_plans.IMAGES},
        f"layer norm {gpu_plans.ROWS}": gpu_plans.layer_norm,
        f"attention {gpu_plans.HEADS}": gpu_plans.attention,
    }
    told = []
    with handle_of(gpu) as handle:
        for name, draw in graphs.items():
            for dtype in ("float32", "bfloat16"):
                # Sums of normalizations are no products: tensor cores stay allowed, so that all plans are seen.
                plan = tried(Planner(handle.target, handle, Knobs(allow_tf32=True)).plan, partial(draw, cudnn), dtype)
                told.append(f"{name} {dtype}: {plan if isinstance(plan, str) else planned(plan)}")
    return "\n".join(told)


def same_bits_as_on_the_host(gpu: int) -> str:
    """7: Our kernels against their host build, call by call of the contract; then NVIDIA's compute-sanitizer."""
    sys.path[:0] = [str(TESTS), str(TESTS / "contract"), str(TESTS / "cuda_host")]
    from host_kernels import cuda_on_host
    from kernel_cases import CASES

    on = device.new_cuda(gpu)
    theirs, ours = cuda_on_host(), cuda_kernels(CudaLoader(cupy, on.runtime.stream.ptr))
    differing, count = [], 0
    for key, case in CASES.items():
        name = key.split(":")[0]
        if name in ours.kernels:
            tensors, settings = case.build(np.random.default_rng(7), np.dtype("float32"), False)
            difference = largest_difference(on, ours, theirs, name, tensors, settings)
            count += 1
            if difference:
                differing.append(f"{key} {difference:.1e}")
    told = f"{count - len(differing)} of {count} calls give equal bits; differ by: {', '.join(differing) or 'none'}"
    return "\n".join([told, *map(sanitizer, ("memcheck", "racecheck"))])


def all_reduce(gpu: int) -> str:
    """8: NCCL's sum over one rank, captured."""
    from cupy.cuda import nccl

    if not getattr(nccl, "available", False):
        return "no NCCL: pip install nvidia-nccl-cu13"
    on = device.new_cuda(gpu)
    with on.runtime.here():
        stream = on.runtime.stream
        communicator = nccl.NcclCommunicator(1, nccl.get_unique_id(), 0)
        x, y = cupy.arange(1000, dtype=np.float32), cupy.zeros(1000, np.float32)
        arguments = x.data.ptr, y.data.ptr, x.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr
        communicator.allReduce(*arguments)
        y[...] = 0
        stream.begin_capture()
        communicator.allReduce(*arguments)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
        return f"captured, sums right: {bool((x == y).all())}, NCCL {nccl.get_version()}"


def attention_in_float32(gpu: int) -> str:
    """9: Whether cuDNN has attention in float32, true and with TF32."""
    cudnn = cudnn_library.frontend()
    told = []
    with handle_of(gpu) as handle:
        for tf32 in (False, True):
            plan = tried(
                Planner(handle.target, handle, Knobs(allow_tf32=tf32)).plan,
                partial(gpu_plans.attention, cudnn),
                "float32",
            )
            told.append(f"{'TF32' if tf32 else 'true float32'}: {plan if isinstance(plan, str) else planned(plan)}")
    return "; ".join(told)


POINTS: tuple[Callable[[int], str], ...] = (
    properties,
    convolutions,
    products,
    allocations,
    host_costs,
    further_plans,
    same_bits_as_on_the_host,
    all_reduce,
    attention_in_float32,
)


#: Seconds that a point may take, and those that take longer: the seventh runs the sanitizer twice.
LIMIT = 300
LIMITS = {7: 2 * SANITIZER_SECONDS + LIMIT}
REPORT = Path("gpu_checklist.txt")


def answer(number: int, gpu: int, limit: float) -> tuple[bool, str]:
    """(whether there is one, the answer), from a process of its own: one that hangs or breaks the GPU ends alone."""
    command = [sys.executable, __file__, str(number), str(gpu)]
    asked = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        told, errors = asked.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(asked.pid, signal.SIGKILL)  # with whatever it started
        told, _ = asked.communicate()
        return False, f"{told}FAILED: not done after {limit:g} seconds"
    if asked.returncode:
        last = (errors.strip() or f"exit status {asked.returncode}").splitlines()[-1]
        return False, f"{told}FAILED: {last}"
    return True, told.rstrip()


def main(gpu: int) -> int:
    """Ask all, and write what they answer to REPORT as well, point by point; 1 if one could not be answered."""
    failed = False
    with REPORT.open("w") as report:
        for number, point in enumerate(POINTS, 1):
            answered, text = answer(number, gpu, LIMITS.get(number, LIMIT))
            failed |= not answered
            told = f"{point.__doc__}\n   " + text.replace("\n", "\n   ")
            print(told, flush=True)
            print(told, file=report, flush=True)
    return int(failed)


if __name__ == "__main__":
    print(POINTS[int(sys.argv[1]) - 1](int(sys.argv[2])))
