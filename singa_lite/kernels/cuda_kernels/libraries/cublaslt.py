"""The cuBLASLt library: where it is, which version, its C functions with their status checked, and its objects."""

from __future__ import annotations

import ctypes as c
from enum import Enum
from functools import cache
from importlib import import_module
from weakref import finalize

from singa_lite.kernels.cuda_kernels.libraries.cublaslt_header import (
    FUNCTIONS,
    MAJOR,
    NOT_SUPPORTED,
    SUCCESS,
    CFunction,
    CType,
)

SONAME = f"libcublasLt.so.{MAJOR}"


class CublasLtNotFoundError(OSError):
    """No libcublasLt.so, or none of the version that is wanted."""


class CublasLtError(RuntimeError):
    """A call of the library that failed, by name, with its status."""

    def __init__(self, function: str, status: int, name: str) -> None:
        super().__init__(f"cuBLASLt: {function}: status {status} ({name})")
        self.status = status

    @property
    def is_unsupported(self) -> bool:
        """Whether the library has no code for what it was asked for."""
        return self.status == NOT_SUPPORTED


class CublasLt:
    """A loaded libcublasLt.so.13: its functions by their names less `cublasLt`. Needs no GPU by itself.

    path: of the file; version: such as "13.1.0". CublasLtNotFoundError for a file that is no such library, or of
    another major version.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._library = c.CDLL(path)
        except OSError as error:
            raise CublasLtNotFoundError(f"cuBLASLt: wanted {SONAME}, received: {error}") from error
        self.version = self._version()
        self._status_name = self._function("GetStatusName", c.c_char_p, (c.c_int,))
        self._functions = {name: self._checked(name, arguments) for name, arguments in FUNCTIONS.items()}

    def __getitem__(self, name: str) -> CFunction:
        """A function that raises CublasLtError unless it succeeds."""
        return self._functions[name]

    def _version(self) -> str:
        number = self._function("GetVersion", c.c_size_t, ())()
        major, rest = divmod(number, 10000)
        version = f"{major}.{rest // 100}.{rest % 100}"
        if major != MAJOR:
            raise CublasLtNotFoundError(f"{self.path}: wanted cuBLASLt {MAJOR}, received version {version}")
        return version

    def _checked(self, name: str, arguments: tuple[CType, ...]) -> CFunction:
        def check(status: int, _function: object, _arguments: object) -> None:
            if status != SUCCESS:
                raise CublasLtError(name, status, self._status_name(status).decode())

        return self._function(name, c.c_int, arguments, check)

    def _function(
        self, name: str, result: CType, arguments: tuple[CType, ...], check: CFunction | None = None
    ) -> CFunction:
        try:
            function = self._library[f"cublasLt{name}"]
        except AttributeError as error:
            message = f"{self.path}: wanted cuBLASLt {MAJOR}, received a library without cublasLt{name}"
            raise CublasLtNotFoundError(message) from error
        function.restype, function.argtypes = result, arguments
        if check is not None:
            function.errcheck = check
        return function


class Object:
    """An object of the library, which ends with this one.

    kind: of its functions, such as "MatrixLayout", "" for the handle; arguments: of its creation.
    """

    def __init__(self, library: CublasLt, kind: str, *arguments: int) -> None:
        made = c.c_void_p()
        library[f"{kind}Create"](c.byref(made), *arguments)
        self._library, self._kind = library, kind
        self._as_parameter_ = made  # what ctypes passes for it
        finalize(self, library[f"{kind}Destroy"], made).atexit = False  # the process takes them along

    def set(self, attribute: Enum, value: int) -> None:
        """Set an attribute of its header's enumeration."""
        number, kind = attribute.value
        held = kind(value)
        self._library[f"{self._kind}SetAttribute"](self, number, c.byref(held), c.sizeof(held))

    def get(self, attribute: Enum) -> int:
        """An attribute's value; 0 for a null pointer."""
        number, kind = attribute.value
        held, written = kind(), c.c_size_t()
        self._library[f"{self._kind}GetAttribute"](self, number, c.byref(held), c.sizeof(held), c.byref(written))
        return int(held.value or 0)


@cache
def load() -> CublasLt:
    """The library, loaded once: the one that CuPy uses, else where the system looks."""
    return CublasLt(_path())


def _path() -> str:
    try:
        finder = import_module("cuda.pathfinder")  # comes with CuPy; knows wheels, conda and CUDA_PATH
    except ImportError:
        return SONAME
    try:
        return str(finder.load_nvidia_dynamic_lib("cublasLt").abs_path or SONAME)
    except finder.DynamicLibNotFoundError:
        return SONAME
