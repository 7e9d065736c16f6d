"""What of `cublasLt.h` is used here: constants, structures and the C functions' arguments. Names as there."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Any, TypeAlias

#: A type of C, as ctypes has it; and a function, of whose result ctypes says nothing.
CType: TypeAlias = type[Any]
CFunction: TypeAlias = Callable[..., Any]

#: The major version whose C interface this file states.
MAJOR = 13

SUCCESS = 0
NOT_SUPPORTED = 15


class DataType(IntEnum):
    """CUDA_*, library_types.h."""

    R_32F = 0
    R_64F = 1
    R_16F = 2
    R_16BF = 14


class Compute(IntEnum):
    """CUBLAS_COMPUTE_*, cublas_api.h: how products are formed and summed."""

    COMPUTE_32F = 68
    COMPUTE_64F = 70
    COMPUTE_32F_FAST_TF32 = 77


class Epilogue(IntEnum):
    """CUBLASLT_EPILOGUE_*: what is done to op(A) @ op(B) before it is stored. Their bits say what they take."""

    DEFAULT = 1
    RELU = 2
    BIAS = 4
    RELU_BIAS = 6
    BGRADA = 256

    @property
    def adds_bias(self) -> bool:
        """Whether it reads a bias."""
        return bool(self & self.BIAS)

    @property
    def sums(self) -> bool:
        """Whether it writes the gradient of a bias."""
        return bool(self & self.BGRADA)

    @property
    def has_bias(self) -> bool:
        """Whether it reads a bias or writes the gradient of one."""
        return self.adds_bias or self.sums


class MatmulAttribute(Enum):
    """CUBLASLT_MATMUL_DESC_* and the type of its value."""

    TRANSA = 3, c.c_int32
    TRANSB = 4, c.c_int32
    EPILOGUE = 7, c.c_uint32
    BIAS_POINTER = 8, c.c_void_p


class LayoutAttribute(Enum):
    """CUBLASLT_MATRIX_LAYOUT_* and the type of its value."""

    BATCH_COUNT = 5, c.c_int32
    STRIDED_BATCH_OFFSET = 6, c.c_int64


class PreferenceAttribute(Enum):
    """CUBLASLT_MATMUL_PREF_* and the type of its value."""

    MAX_WORKSPACE_BYTES = 1, c.c_uint64
    REDUCTION_SCHEME_MASK = 3, c.c_uint32
    MIN_ALIGNMENT_A_BYTES = 5, c.c_uint32
    MIN_ALIGNMENT_B_BYTES = 6, c.c_uint32
    MIN_ALIGNMENT_C_BYTES = 7, c.c_uint32
    MIN_ALIGNMENT_D_BYTES = 8, c.c_uint32


class Reduction(IntEnum):
    """CUBLASLT_REDUCTION_SCHEME_*: in which type partial sums are kept, as bits of a mask."""

    COMPUTE_TYPE = 2
    MASK = 7


class Algorithm(c.Structure):
    """cublasLtMatmulAlgo_t."""

    _fields_ = (("data", c.c_uint64 * 8),)


class Heuristic(c.Structure):
    """cublasLtMatmulHeuristicResult_t: an algorithm and what it wants."""

    _fields_ = (
        ("algo", Algorithm),
        ("workspaceSize", c.c_size_t),
        ("state", c.c_int),
        ("wavesCount", c.c_float),
        ("reserved", c.c_int * 4),
    )


_OBJECT = c.c_void_p
_MADE = c.POINTER(c.c_void_p)
_SET: tuple[CType, ...] = (_OBJECT, c.c_int, c.c_void_p, c.c_size_t)
_GET: tuple[CType, ...] = (*_SET, c.POINTER(c.c_size_t))

#: The arguments of the functions that return a status, by their names less `cublasLt`.
FUNCTIONS: dict[str, tuple[CType, ...]] = {
    "Create": (_MADE,),
    "Destroy": (_OBJECT,),
    "MatmulDescCreate": (_MADE, c.c_int, c.c_int),
    "MatmulDescDestroy": (_OBJECT,),
    "MatmulDescSetAttribute": _SET,
    "MatmulDescGetAttribute": _GET,
    "MatrixLayoutCreate": (_MADE, c.c_int, c.c_uint64, c.c_uint64, c.c_int64),
    "MatrixLayoutDestroy": (_OBJECT,),
    "MatrixLayoutSetAttribute": _SET,
    "MatrixLayoutGetAttribute": _GET,
    "MatmulPreferenceCreate": (_MADE,),
    "MatmulPreferenceDestroy": (_OBJECT,),
    "MatmulPreferenceSetAttribute": _SET,
    "MatmulPreferenceGetAttribute": _GET,
    # handle, product, A, B, C, D, preference, most wanted, results, how many came
    "MatmulAlgoGetHeuristic": (*(_OBJECT,) * 7, c.c_int, c.POINTER(Heuristic), c.POINTER(c.c_int)),
    # handle, product, alpha, A and its layout, B, beta, C, D, algorithm, workspace and its bytes, stream
    "Matmul": (*(_OBJECT,) * 12, c.POINTER(Algorithm), c.c_void_p, c.c_size_t, c.c_void_p),
}
