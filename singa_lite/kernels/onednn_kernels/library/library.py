"""The oneDNN library: where it is, which version, and its C functions with their status checked."""

from __future__ import annotations

import ctypes as c
import os
import sys
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

from singa_lite.common.unique import Unique
from singa_lite.kernels.onednn_kernels.library.functions import FUNCTIONS, TYPES, CFunction, CType

#: What `SINGA_LITE_ONEDNN` may hold instead of a path: do without the library.
OFF = "off"
#: The major version whose C interface `functions.py` states.
MAJOR = 3

#: Primitives whose code the library keeps when the last launch with it has gone, some 60 KiB each. Launches keep theirs
#: themselves, so these serve only what is recorded again. The library's own number is 1,024.
CACHED = 64
#: By which a user sets another number.
_CACHE_VARIABLES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY")

_STATUS = {1: "out of memory", 2: "invalid arguments", 3: "unimplemented", 5: "runtime error"}


#: A bit of dnnl_cpu_isa_t.
_AVX512 = 0x20


class OneDNNError(RuntimeError):
    """A call of the library that failed, by name, with its status."""

    #: The status where the library has no code for the tensors it was asked for.
    UNIMPLEMENTED = 3

    def __init__(self, function: str, status: int) -> None:
        super().__init__(f"oneDNN: {function}: status {status} ({_STATUS.get(status, 'see dnnl_status_t')})")
        self.status = status


class _Version(c.Structure):
    _fields_ = [(name, c.c_int) for name in ("major", "minor", "patch")]


class Library(Unique):
    """A loaded libdnnl.so.3: its functions without the prefix `dnnl_`, the engine of the CPU and a stream.

    path: of the file; version: such as "3.2.0"; has_avx512: whether its code here is for AVX-512. OSError for a file
    that is no such library, or another major version.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = c.CDLL(path)
        self.version = self._version()
        for name, letters in FUNCTIONS.items():
            setattr(self, name, self._checked(name, letters))
        self.query_md = self._function("primitive_desc_query_md", c.c_void_p, "pii")
        self.query = self._function("primitive_desc_query", c.c_int, "piip")
        self.desc_bytes = self._function("memory_desc_get_size", c.c_size_t, "p")
        self.descs_equal = self._function("memory_desc_equal", c.c_int, "pp")
        #: As `memory_set_data_handle`, without asking for the status: it has none for an object of ours.
        self.point = self._function("memory_set_data_handle", c.c_int, "pp")
        self.cpu_isa = self._function("get_effective_cpu_isa", c.c_int, "")
        # One of each for the life of the process: a stream of the CPU runs its calls in the caller's thread.
        self.engine = self.make("engine_create", 1, 0)
        self.stream = self.make("stream_create", self.engine, 1)
        if not any(name in os.environ for name in _CACHE_VARIABLES):
            self.set_primitive_cache_capacity(CACHED)

    @cached_property
    def has_avx512(self) -> bool:
        """Asked when it is wanted, as `load` takes what has the stated functions for a library."""
        return bool(self.cpu_isa() & _AVX512)

    def __getattr__(self, name: str) -> CFunction:
        # Reached only for names that `functions.py` does not state; the functions are set when the library is loaded.
        raise AttributeError(f"oneDNN: wanted one of the stated functions, received {name!r}")

    def make(self, function: str, *arguments: object) -> c.c_void_p:
        """Call a function whose first argument is where to put a new object, and return the object."""
        out = c.c_void_p()
        getattr(self, function)(c.byref(out), *arguments)
        return out

    def _version(self) -> str:
        found = self._function("version", c.POINTER(_Version), "")().contents
        version = f"{found.major}.{found.minor}.{found.patch}"
        if found.major != MAJOR:
            raise OSError(f"{self.path}: wanted oneDNN {MAJOR}, received version {version}")
        return version

    def _checked(self, name: str, letters: str) -> CFunction:
        def check(status: int, _function: object, _arguments: object) -> None:
            if status:
                raise OneDNNError(name, status)

        return self._function(name, c.c_int, letters, check)

    def _function(self, name: str, result: CType, letters: str, check: CFunction | None = None) -> CFunction:
        try:
            function = self._library[f"dnnl_{name}"]
        except AttributeError as error:
            raise OSError(f"{self.path}: wanted oneDNN {MAJOR}, received a library without dnnl_{name}") from error
        function.restype, function.argtypes = result, tuple(TYPES[letter] for letter in letters)
        if check is not None:
            function.errcheck = check
        return function


def _candidates() -> Iterator[str]:
    """Where to look: SINGA_LITE_ONEDNN alone if it is set, else beside this Python, then where the system looks."""
    named = os.environ.get("SINGA_LITE_ONEDNN", "")
    if named:
        yield named
        return
    for folder in dict.fromkeys((sys.prefix, sys.base_prefix)):
        path = Path(folder) / "lib" / "libdnnl.so.3"
        if path.exists():
            yield str(path)
    yield "libdnnl.so.3"


@cache
def load() -> Library:
    """The library, loaded once. OSError says where it was looked for."""
    if os.environ.get("SINGA_LITE_ONEDNN", "") == OFF:
        raise OSError(f"oneDNN is switched off by SINGA_LITE_ONEDNN={OFF}")
    tried = []
    for path in _candidates():
        try:
            return Library(path)
        except OSError as error:
            tried.append(str(error))
    raise OSError("oneDNN: wanted a libdnnl.so.3, received: " + "; ".join(tried))
