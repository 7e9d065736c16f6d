"""StepDevice: what a recorded step needs of the device that it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from numpy.typing import DTypeLike

from singa_lite.common.array_types import DeviceArray
from singa_lite.kernels.kernel_set import KernelSet, Launch
from singa_lite.runtime.cuda_pool import MemoryPool
from singa_lite.runtime.runtime import Replay, Runtime
from singa_lite.tensor import Block


class StepDevice(Protocol):
    """Memory, kernels and a runtime; `device.Device`, which lies above, says what each does."""

    kernels: KernelSet
    pool: MemoryPool
    runtime: Runtime

    @property
    def graph(self) -> object | None: ...

    def new_block(self, nbytes: int) -> Block: ...

    def bind(self, block: Block) -> None: ...

    def view(
        self, block: Block, shape: Sequence[int], dtype: DTypeLike, strides: Sequence[int], offset: int
    ) -> DeviceArray: ...

    def replay(self, launches: Sequence[Launch], names: Sequence[str]) -> Replay: ...

    def synchronize(self) -> None: ...

    def check_bytes(self, doing: str) -> None: ...

    def check_guards(self, doing: str) -> None: ...
