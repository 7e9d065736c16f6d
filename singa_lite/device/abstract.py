"""Abstract devices: kernels, layouts and limits of a real one, and tensors of shapes and strides without bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn

from numpy.typing import DTypeLike

from singa_lite.common import threads
from singa_lite.common.array_types import Array, DeviceArray
from singa_lite.common.checks import flag, integer
from singa_lite.common.errors import DeviceError
from singa_lite.common.sizes import memory_size
from singa_lite.compiler.ir.operation import Operation
from singa_lite.device.base import Device
from singa_lite.device.host_fallback import by_way_of_host
from singa_lite.kernels.choice import cpu_kernels
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.runtime.pool_numbers import CountingPool
from singa_lite.runtime.without_bytes import AbstractCuda, AbstractHost, refuse
from singa_lite.tensor import Block, Tensor

KINDS = ("cpu", "onednn", "numpy", "cuda")
#: Bytes that a call of cuDNN may want on a GPU, as `new_cuda` has it.
WORKSPACE = 1 << 30

#: The devices for which first values are being made.
_first: ContextVar[frozenset[Device]] = ContextVar("first", default=frozenset())


class AbstractDevice(Device):
    """See `abstract`. Nothing is done on it: operations are recorded and planned, and first values are forgotten."""

    is_abstract = True

    def __init__(self, kind: str, kernels: KernelSet, runtime: AbstractHost | AbstractCuda, limit: int | None) -> None:
        super().__init__(f"abstract {kind}", kernels, CountingPool(runtime.alignment, limit), runtime)
        self._real = runtime.real

    def check_bytes(self, doing: str) -> NoReturn:
        """AbstractDeviceError."""
        refuse(doing, self.name, self._real)

    @contextmanager
    def first_values(self) -> Iterator[None]:
        """Inside, values that tensors are given are forgotten: a real device is given the same ones anew."""
        token = _first.set(_first.get() | {self})
        try:
            yield
        finally:
            _first.reset(token)

    def _execute(self, operation: Operation) -> None:
        if self not in _first.get():
            self.check_bytes(f"kernel {operation.kernel!r}")

    def copy_in(self, tensor: Tensor, array: Array) -> None:
        """First values are forgotten, all others an AbstractDeviceError."""
        if self not in _first.get():
            self.check_bytes("values for a tensor")
        self._bind_for_host(tensor)

    def view(
        self, block: Block, shape: Sequence[int], dtype: DTypeLike, strides: Sequence[int], offset: int
    ) -> DeviceArray:
        """AbstractDeviceError."""
        self.check_bytes(f"the values of a tensor of shape {tuple(shape)}")

    def feed(self, tensor: Tensor, given: object) -> None:
        """AbstractDeviceError."""
        self.check_bytes("a batch")


def abstract(
    kernels: str = "cpu",
    memory: int | str | None = None,
    *,
    workspace_limit: int = WORKSPACE,
    libraries: bool = True,
    channels_last: bool = True,
) -> Device:
    """Returns a new device whose tensors have shapes and strides but no bytes, for planning nets before there is a
    machine for them. Nets on it record and plan their steps as on the real one, to the byte; AbstractDeviceError for
    whatever wants values. `net.to_device(device.cpu())` makes such a net real.

    kernels: "onednn" or "numpy", "cpu" for what `device.cpu()` takes, or "cuda". memory: what the real device's pool
    may hold, bytes or text such as "24 GiB"; plans keep to it as to a device's limit, and say by how much they cannot.
    None: any number of bytes.

    A GPU need not be there, and so its libraries cannot be asked. workspace_limit: what a call of cuBLASLt (64 MiB at
    most) or cuDNN (a copy of its tensors at most) is taken to want, bytes; they may want less, never more where the
    device has the same limit. libraries: whether
    there are any. channels_last: as of `new_cuda`. DeviceError for another name, and for kernels that are not there;
    TypeError or ValueError for what is no size.

    >>> with device.as_default(device.abstract("cuda", memory="24 GiB")):
    ...     net = Sequential([layers.Dense(3, input_shape=(5,))])
    >>> net.compile("adam", "mse")
    >>> net.plan_batch(1000).arena_bytes < 24 * 1024**3
    True
    """
    if not isinstance(kernels, str) or kernels not in KINDS:
        raise DeviceError(f"abstract kernels: wanted one of {KINDS}, received {kernels!r:.100}")
    limit = None if memory is None else memory_size("abstract memory", memory)
    workspace = integer("abstract workspace_limit", workspace_limit, 0)
    with_libraries = flag("abstract libraries", libraries)
    images_last = flag("abstract channels_last", channels_last)
    if kernels == "cuda":
        return _gpu(limit, workspace if with_libraries else None, images_last)
    if (workspace, with_libraries, images_last) != (WORKSPACE, True, True):
        raise ValueError(
            f"abstract: wanted workspace_limit, libraries and channels_last with kernels='cuda' alone, received one of "
            f"them with {kernels!r}"
        )
    threads.start()
    found = cpu_kernels("auto" if kernels == "cpu" else kernels)
    runtime = AbstractHost(f"abstract {found.name}", "device.cpu()")
    return AbstractDevice(found.name, found, runtime, limit)


def _gpu(limit: int | None, workspace: int | None, channels_last: bool) -> Device:
    """workspace: of each call of the libraries, None for none of them."""
    from singa_lite.kernels.cuda_kernels import cuda
    from singa_lite.kernels.cuda_kernels.libraries.assumed import NoCompiler, assumed

    runtime = AbstractCuda("abstract cuda", "device.cuda(0)")
    builders, fusions = ([], ()) if workspace is None else assumed(workspace)
    made = cuda(NoCompiler(), by_way_of_host(NUMPY, runtime), builders, fusions, channels_last)
    if workspace is not None:
        made.in_tf32 = lambda: made  # of which nothing else is assumed
    return AbstractDevice("cuda", made, runtime, limit)
