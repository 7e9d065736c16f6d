"""The cuDNN library by its Python frontend: whether both are there, a handle on a GPU, a GPU by its description.

The frontend serves graphs without a GPU too: given a GPU's description, the library names its plans and what workspace
each wants. Only running one needs the device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias
from weakref import finalize

from singa_lite.kernels.kernel_set import Launch

#: The frontend's versions whose graphs `cudnn_plan.py` is written for; later ones depend on 191 MiB more.
FRONTEND = "1.28"
#: The library's major version.
MAJOR = 9
_HINT = "pip install 'nvidia-cudnn-frontend==1.28.*' 'nvidia-cudnn-cu13>=9.19,<9.25'"

#: A graph of cuDNN, or a tensor of one, by the frontend, which states no types.
Graph: TypeAlias = Any

#: What a graph is told about its GPU: arguments of the frontend's `pygraph`.
Target = Mapping[str, object]


class CudnnNotFoundError(OSError):
    """cuDNN or its frontend is not there, or in a version that is not wanted."""


@cache
def frontend() -> ModuleType:
    """The frontend's module, with the library loaded. CudnnNotFoundError says which of the two is missing."""
    try:
        module = import_module("cudnn")
    except (ImportError, OSError, AssertionError) as error:  # it loads the library, and asserts that it finds one
        raise CudnnNotFoundError(f"cuDNN: wanted its frontend {FRONTEND}, received: {error}; {_HINT}") from error
    found = str(getattr(module, "__version__", "unknown"))
    if not found.startswith(f"{FRONTEND}."):
        raise CudnnNotFoundError(f"cuDNN: wanted its frontend {FRONTEND}, received version {found}; {_HINT}")
    try:
        number = int(module.backend_version())
    except RuntimeError as error:
        raise CudnnNotFoundError(f"cuDNN: wanted libcudnn.so.{MAJOR}, received: {error}; {_HINT}") from error
    if number // 10000 != MAJOR:
        raise CudnnNotFoundError(f"cuDNN: wanted version {MAJOR}, received {_dotted(number)}; {_HINT}")
    return module


def version() -> str:
    """The library's, such as "9.19.0"."""
    return _dotted(int(frontend().backend_version()))


def described(properties: str) -> Target:
    """A GPU by the text of its properties, as `properties_of` gives it; needs no GPU."""
    fields = json.loads(properties)
    return {
        "device_property": frontend().create_device_properties(properties),
        "sm_version": fields["deviceVer"],
        "sm_count": fields["multiProcessorCount"],
    }


def properties_of(device: int) -> str:
    """The text for `described`, of a GPU of this machine."""
    return str(frontend().create_device_properties(device).serialize())


class Handle:
    """cuDNN on the current GPU, for one thread at a time. stream: a cudaStream_t, on which plans run.

    CudnnNotFoundError, too, where the library does not begin there.
    """

    def __init__(self, stream: int) -> None:
        self._cudnn = frontend()
        try:
            self._handle = self._cudnn.create_handle()
        except RuntimeError as error:
            raise CudnnNotFoundError(f"cuDNN: wanted a handle on this GPU, received: {error}") from error
        finalize(self, self._cudnn.destroy_handle, self._handle).atexit = False  # the process takes it along
        self._cudnn.set_stream(handle=self._handle, stream=stream)

    @property
    def target(self) -> Target:
        """The GPU, for graphs."""
        return {"handle": self._handle}

    def bind(self, graph: Graph, addresses: Mapping[int, int], workspace: int) -> Launch:
        """A run of a planned graph. addresses: of its tensors by uid; workspace: of its bytes, 0 for none."""
        return partial(self._execute, graph, dict(addresses), workspace)

    def _execute(self, graph: Graph, addresses: dict[int, int], workspace: int) -> None:
        """A method, so that runs keep the handle."""
        graph.execute(addresses, workspace, handle=self._handle)


def _dotted(number: int) -> str:
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
