"""GPU devices."""

from __future__ import annotations

import os
from functools import cache
from itertools import count
from threading import RLock
from typing import TYPE_CHECKING

from singa_lite.common.checks import flag, integer, is_int
from singa_lite.common.errors import DeviceError
from singa_lite.device.base import Device
from singa_lite.device.host_fallback import by_way_of_host
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.runtime.cuda import Cuda
from singa_lite.runtime.cupy_types import Cupy

if TYPE_CHECKING:
    from singa_lite.device.cuda_libraries import Options

_one_at_a_time = RLock()
_further = count(1)


def cuda(index: int = 0) -> Device:
    """Returns the device of NVIDIA GPU number `index`, the same each time. DeviceError says what is missing for it.

    For a limit, TF32 or other workspaces make a device of its own: `new_cuda`.

    >>> try:
    ...     gpu = device.cuda(0)
    ... except DeviceError as error:
    ...     gpu = device.cpu()  # the error says what is missing
    """
    index = _number("device.cuda", index)
    with _one_at_a_time:
        return _cuda(index)


@cache
def _cuda(index: int) -> Device:
    return _new_cuda(f"cuda:{index}", index)


def new_cuda(
    index: int = 0,
    limit: int | None = None,
    *,
    allow_tf32: bool = False,
    workspace_limit: int = 1 << 30,
    deterministic: bool = True,
    channels_last: bool = True,
) -> Device:
    """Returns a further device on that GPU, with a pool and a stream of its own. DeviceError says what is missing for
    it.

    limit: bytes that its pool may hold. allow_tf32: products and convolutions may round float32 factors to 10 bits,
    which is faster; `compile(precision="tf32")` says it for one net. workspace_limit: bytes of scratch that a call of
    cuBLASLt (64 MiB at most) or cuDNN may want; they count in the plan, which gives a convolution what one engine after
    the other wants, as far as there is room (docs/gpu.md). deterministic: equal bits each time. channels_last: how
    images lie in memory, else in C order, for which cuDNN has more engines in true float32; values and shapes are the
    same.

    >>> try:
    ...     gpu = device.new_cuda(0, limit=2 * 1024**3, allow_tf32=True)
    ... except DeviceError as error:
    ...     gpu = device.new_cpu(limit=2 * 1024**3)
    """
    from singa_lite.device.cuda_libraries import Options

    index = _number("new_cuda", index)
    limit = None if limit is None else integer("new_cuda limit", limit, 0)
    options = Options(
        flag("new_cuda allow_tf32", allow_tf32),
        integer("new_cuda workspace_limit", workspace_limit, 0),
        flag("new_cuda deterministic", deterministic),
        flag("new_cuda channels_last", channels_last),
    )
    return _new_cuda(f"cuda:{index}#{next(_further)}", index, limit, options)


def _new_cuda(name: str, index: int, limit: int | None = None, options: Options | None = None) -> Device:
    cupy = _cupy(index)
    from singa_lite.device.cuda_libraries import GpuTrial, Options, libraries
    from singa_lite.kernels.cuda_kernels import cuda as cuda_kernels
    from singa_lite.kernels.cuda_kernels.loader import CudaLoader

    runtime = Cuda(cupy, index, limit)
    runtime.pool.checked = os.environ.get("SINGA_LITE_CHECKED", "") == "1"
    options = options or Options()
    loader, below = CudaLoader(cupy, runtime.stream.ptr), by_way_of_host(NUMPY, runtime)

    def kernel_set(options: Options) -> KernelSet:
        with runtime.here():
            found = list(libraries(runtime.stream.ptr, options, GpuTrial(runtime)))
        builders = [library.builders for library in found]
        fusions = [fusion for library in found for fusion in library.fusions]
        return cuda_kernels(loader, below, builders, fusions, options.channels_last)

    kernels = kernel_set(options)
    if kernels.has_levels:
        kernels.in_tf32 = cache(lambda: kernel_set(options._replace(allow_tf32=True)))
    return Device(name, kernels, runtime.pool, runtime)


def _number(where: str, index: int) -> int:
    """A GPU's number as an int, whether there is such a GPU or not. TypeError for what is no integer."""
    if not is_int(index):
        raise TypeError(f"{where} index: wanted a whole number, received {index!r}")
    return int(index)


def _cupy(index: int) -> Cupy:
    """CuPy, with GPU number `index` in reach."""
    wanted = f"device.cuda({index})"
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(f"{wanted}: wanted CuPy, pip install 'singa-lite[cuda13,cudnn13]'; {error}") from error
    try:
        found = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise DeviceError(f"{wanted}: wanted an NVIDIA GPU and its driver, but CUDA says {error}") from error
    if not 0 <= index < found:
        raise DeviceError(f"{wanted}: wanted a number from 0 to {found - 1}, as there are {found} GPUs")
    return cupy
