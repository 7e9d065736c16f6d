"""NVIDIA's libraries for a GPU device: which are there, and the kernels that they bring."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypedDict

import numpy as np

from singa_lite.common.array_types import Array, DeviceRegion
from singa_lite.common.notice import warn
from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.cuda_kernels.libraries import cublaslt, cudnn_library
from singa_lite.kernels.cuda_kernels.libraries.cublaslt import CublasLtError, CublasLtNotFoundError
from singa_lite.kernels.cuda_kernels.libraries.cudnn_attention import Attention
from singa_lite.kernels.cuda_kernels.libraries.cudnn_convolution import Convolutions
from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import CudnnNotFoundError, Handle
from singa_lite.kernels.cuda_kernels.libraries.cudnn_plan import Knobs, Planner
from singa_lite.kernels.cuda_kernels.libraries.lt import Lt
from singa_lite.kernels.cuda_kernels.libraries.nan_probe import Trial, Values
from singa_lite.kernels.cuda_kernels.libraries.products import Products
from singa_lite.kernels.cuda_kernels.pointwise import PointwiseConvolutions
from singa_lite.kernels.cuda_kernels.routine import Routine
from singa_lite.kernels.kernel_set import DeviceArray, TensorSpec
from singa_lite.runtime.cuda import Cuda
from singa_lite.runtime.cupy_types import Cupy

INSTALL = "pip install 'singa-lite[cuda13,cudnn13]'"
WITHOUT_CUBLASLT = "products, attention and recurrent layers are done on the host, and no step is a CUDA graph"
WITHOUT_CUDNN = "convolutions are done on the host, outside any CUDA graph; attention in 16 bits is slower"


#: Bytes that a convolution may want of workspace by default, and a product, of whose algorithms none gains by more.
WORKSPACE_LIMIT, LT_LIMIT = 1 << 30, 64 << 20


class Options(NamedTuple):
    """The options of a GPU device. allow_tf32: round float32 factors of products and convolutions to 10 bits, faster.

    workspace_limit: bytes of scratch that a call of a library may want, at most; what a convolution gets, the plan of
    memory says. deterministic: equal bits each time.
    channels_last: how images lie in memory, else in C order.
    """

    allow_tf32: bool = False
    workspace_limit: int = WORKSPACE_LIMIT
    deterministic: bool = True
    channels_last: bool = True


class Library(NamedTuple):
    """Builders by kernel, and what they do in one go, as in `KernelSet.fusions`."""

    builders: Mapping[str, CallBuilder[Routine]]
    fusions: Collection[tuple[str, str]]


def libraries(stream: int, options: Options, trial: Trial | None = None) -> Iterator[Library]:
    """Those that are found and begin, for the current GPU; a warning, once, says what a missing one costs.

    stream: pointer of the stream that their calls go to. trial: runs what is asked of them beforehand, see `NanProbe`.
    """
    try:
        lt = Lt(stream, min(options.workspace_limit, LT_LIMIT))
        products = Products(lt, options.allow_tf32, trial)
        yield Library(products.builders, products.FUSIONS)
        pixels = PointwiseConvolutions(products)
        yield Library(pixels.builders, pixels.FUSIONS)
    except (CublasLtNotFoundError, CublasLtError) as error:
        _warn(str(error), WITHOUT_CUBLASLT)
    try:
        handle = Handle(stream)
        knobs = Knobs(options.workspace_limit, options.allow_tf32, options.deterministic)
        planner = Planner(handle.target, handle, knobs)
        convolutions = Convolutions(planner, trial)
        yield Library(convolutions.builders, convolutions.FUSIONS)
        yield Library(Attention(planner, options.deterministic).builders, ())
    except CudnnNotFoundError as error:
        _warn(str(error), WITHOUT_CUDNN)


@cache
def _warn(why: str, cost: str) -> None:
    warn(f"{why}; without it: {cost}")


def library_rows() -> Iterator[tuple[str, str]]:
    """(library, its version and path, or what is missing and what that costs), for `python -m singa_lite info`."""
    cupy = _cupy()
    if isinstance(cupy, str):
        yield "CuPy", f"none: {cupy}; without it: no GPU, {INSTALL}"
        return
    yield "CuPy", f"{cupy.__version__}, for CUDA {_dotted(cupy.cuda.get_local_runtime_version())}"
    yield "GPU", _gpus(cupy)
    yield "NVRTC", _nvrtc(cupy)
    yield "cuBLASLt", _or_cost(lambda: f"{cublaslt.load().version}, {cublaslt.load().path}", WITHOUT_CUBLASLT)
    yield "cuDNN", _or_cost(cudnn_library.version, WITHOUT_CUDNN)


def _cupy() -> Cupy | str:
    """The module, or why it cannot be imported."""
    try:
        import cupy
    except ImportError as error:
        return str(error)
    return cupy


class GpuProperties(TypedDict):
    """The properties of a GPU that are read of CUDA's."""

    name: bytes | str
    major: int
    minor: int
    totalGlobalMem: int


def _gpus(cupy: Cupy) -> str:
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        return f"none: {error}"
    return "; ".join(_gpu(runtime.getDeviceProperties(index)) for index in range(count)) or "none"


def _gpu(properties: GpuProperties) -> str:
    name = properties["name"]
    capability = f"{properties['major']}.{properties['minor']}"
    text = name.decode() if isinstance(name, bytes) else name
    return f"{text}, compute capability {capability}, {properties['totalGlobalMem'] / 2**30:.1f} GiB"


def _nvrtc(cupy: Cupy) -> str:
    try:
        major, minor = cupy.cuda.nvrtc.getVersion()
    except Exception as error:  # CuPy's own class for it changes between releases
        return f"none: {error}; without it: no kernel can be compiled, so no GPU; {INSTALL}"
    return f"{major}.{minor}"


def _or_cost(text: Callable[[], str], cost: str) -> str:
    try:
        return text()
    except OSError as error:
        return f"none: {error}; without it: {cost}"


def _dotted(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


class GpuTrial:
    """See `nan_probe.Trial`. The bytes are the pool's, and given back. No trial while the stream is being captured."""

    def __init__(self, runtime: Cuda) -> None:
        self._runtime = runtime

    def __call__(self, routine: Routine, specs: Sequence[TensorSpec | None], values: Sequence[Values]) -> Values:
        """None, too, where the pool has no bytes for it or the library fails."""
        if self._runtime.stream.is_capturing():
            return None
        regions: list[DeviceRegion] = []
        try:
            with self._runtime.here():
                return self._done(routine, tuple(specs), values, regions)
        except (MemoryError, RuntimeError):
            return None
        finally:
            for region in regions:
                self._runtime.pool.give(region)

    def _done(
        self,
        routine: Routine,
        specs: tuple[TensorSpec | None, ...],
        values: Sequence[Values],
        regions: list[DeviceRegion],
    ) -> Values:
        arrays = tuple(
            None if spec is None or value is None else self._filled(spec, value, regions)
            for spec, value in zip(specs, values, strict=True)
        )
        nbytes = routine.scratch_bytes
        scratch = None
        if nbytes:
            scratch = self._array(TensorSpec((nbytes,), np.dtype(np.uint8), (1,)), nbytes, regions)
        routine.bind(specs, arrays, scratch)()
        return self._runtime.read(arrays[-1])

    def _filled(self, spec: TensorSpec, value: Array, regions: list[DeviceRegion]) -> DeviceArray:
        made = self._array(spec, value.nbytes, regions)
        self._runtime.write(made, value)
        return made

    def _array(self, spec: TensorSpec, nbytes: int, regions: list[DeviceRegion]) -> DeviceArray:
        regions.append(self._runtime.pool.take(nbytes))
        return self._runtime.view(regions[-1].memory, spec.shape, spec.dtype, spec.strides, 0)
