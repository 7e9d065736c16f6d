"""What the points of `gpu_checklist.py` work with: calls on a GPU beside NumPy's, nets that are captured, clocks."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cupy
import numpy as np

import gpu_plans
from nets import NETS, batch
from singa_lite import FeedForwardNet, device, optimizer, tensor
from singa_lite.device.trial import GpuTrial
from singa_lite.kernels.cuda_kernels import cudnn_library
from singa_lite.kernels.cuda_kernels.lt import Lt
from singa_lite.kernels.cuda_kernels.products import Products
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.numpy_kernels import NUMPY

TESTS = Path(__file__).resolve().parents[1] / "tests"

#: The tests that run under the sanitizer, and seconds that they may take.
SANITIZED = "test_results_are_those and gpu-own and small-float32"
SANITIZER_SECONDS = 600

Arrays = Sequence[np.ndarray[Any, Any] | None]


def against_numpy(on: Any, kernel: str, arrays: Arrays, settings: dict[str, Any], dtype: str = "float32") -> str:
    """The last array's largest difference from NumPy's in float64, relative to its largest element, eager, captured."""
    *before, result = arrays
    wanted = np.empty_like(result)
    exact = (*before, wanted)
    scratch = np.empty(NUMPY.scratch_bytes(kernel, exact, settings), np.uint8)
    NUMPY.prepare(kernel, exact, scratch, settings)()
    tensors = [None if a is None else tensor.from_numpy(a.astype(dtype), on) for a in arrays]
    on.run(kernel, *tensors, **settings)
    eager = np.max(np.abs(tensor.to_numpy(tensors[-1]) - wanted)) / np.max(np.abs(wanted))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with on.recording() as graph:
            on.run(kernel, *tensors, **settings)
        tensors[-1].copy_from_numpy(np.full(wanted.shape, np.nan, dtype))
        for _ in range(3):  # warm up, capture, launch
            graph.run()
        captured = np.max(np.abs(tensor.to_numpy(tensors[-1]) - wanted)) / np.max(np.abs(wanted))
    refused = f" ({'; '.join(str(one.message) for one in said)})" if said else ""
    return f"eager {eager:.1e}, captured {captured:.1e}{refused}"


def trained(gpu: int, name: str, n: int) -> tuple[FeedForwardNet, Any, Any]:
    """A net after five steps, so that its step is captured, and a batch on the GPU."""
    on = device.new_cuda(gpu)
    net = NETS[name].build(on)
    net.compile(optimizer.SGD(1e-3, momentum=0.9))
    x, y = (tensor.from_numpy(array, on) for array in batch(name, n))
    for _ in range(5):
        net.train_one_batch(x, y)
    return net, x, y


def microseconds(launch: Callable[[], Any], wait: Callable[[], None], count: int) -> float:
    """Of one call, the last one's end waited for."""
    launch()
    wait()
    start = time.perf_counter()
    for _ in range(count):
        launch()
    wait()
    return (time.perf_counter() - start) / count * 1e6


@contextmanager
def handle_of(gpu: int) -> Iterator[cudnn_library.Handle]:
    """cuDNN on a GPU."""
    on = device.cuda(gpu)
    with on.runtime.here():
        yield cudnn_library.Handle(on.runtime.stream.ptr)


def drawn_convolution(graph: Any) -> None:
    """One of ResNet-50's."""
    x, weight = (32, 64, 56, 56), (64, 64, 3, 3)
    image = graph.tensor(name="x", uid=1, dim=list(x), stride=gpu_plans.channels_last(x))
    filters = graph.tensor(name="w", uid=2, dim=list(weight), stride=gpu_plans.channels_last(weight))
    y = graph.conv_fprop(image=image, weight=filters, padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    y.set_uid(3).set_output(True).set_dim(list(x)).set_stride(gpu_plans.channels_last(x))


def planned(plan: Any) -> str:
    """What a plan is."""
    if plan is None:
        return "no plan"
    return f"a plan of {plan.candidates} engines, workspace {plan.workspace_bytes} bytes"


def tried(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or what the exception says."""
    try:
        return function(*arguments)
    except Exception as error:
        return f"refused: {type(error).__name__}: {error}"


def largest_difference(on: Any, ours: Any, theirs: Any, name: str, tensors: Arrays, settings: dict[str, Any]) -> float:
    """Between the kernel on the GPU and the one on the host, over all results; 0 for equal bits."""
    host = [None if t is None else t.copy() for t in tensors]
    theirs.prepare(name, tuple(host), np.empty(theirs.scratch_bytes(name, host, settings), np.uint8), settings)()
    with on.runtime.here():
        there = [None if t is None else cupy.asarray(t) for t in tensors]
        scratch = cupy.empty(ours.scratch_bytes(name, there, settings), np.uint8)
        ours.prepare(name, tuple(there), scratch, settings)()
        on.synchronize()
        pairs = [(h, t.get()) for h, t in zip(host, there, strict=True) if h is not None and t is not None]
    apart = [(h, t) for h, t in pairs if h.tobytes() != t.tobytes()]
    return max((float(np.max(np.abs(h.astype(np.float64) - t))) for h, t in apart), default=0.0)


def relu_keeps_nan(on: Any) -> bool:
    """Whether cuBLASLt's does, with a bias, in float32."""
    x, bias = (TensorSpec(shape, np.dtype(np.float32), steps) for shape, steps in (((3, 16), (64, 4)), ((16,), (4,))))
    with on.runtime.here():
        return Products(Lt(on.runtime.stream.ptr), trial=GpuTrial(on.runtime)).keeps_nan(x, bias, x)


def sanitizer(tool: str) -> str:
    """Each kernel of ours once, over small tensors, under compute-sanitizer, which makes a launch far slower."""
    command = shutil.which("compute-sanitizer")
    if command is None:
        return f"{tool}: no compute-sanitizer, a part of the CUDA toolkit"
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-k", SANITIZED, str(TESTS / "contract")]
    with tempfile.TemporaryDirectory() as folder:
        asked = [command, "--tool", tool, "--error-exitcode", "9", *tests]
        try:
            done = subprocess.run(
                asked, cwd=folder, capture_output=True, text=True, check=False, timeout=SANITIZER_SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"{tool}: not done after {SANITIZER_SECONDS} seconds"
    last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:]
    return f"{tool}: exit status {done.returncode}, {' '.join(last)}"
