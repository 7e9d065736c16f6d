"""The part of oneDNN's C interface that is used here (oneapi/dnnl/dnnl.h and dnnl_types.h, version 3)."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable
from typing import Any, TypeAlias

#: A type of C, as ctypes has it; and a function, of whose result ctypes says nothing.
CType: TypeAlias = type[Any]
CFunction: TypeAlias = Callable[..., Any]

#: One letter for each type of argument: o a new object, p an object or memory, d extents of axes.
TYPES: dict[str, CType] = {
    "o": c.POINTER(c.c_void_p),
    "p": c.c_void_p,
    "d": c.POINTER(c.c_int64),
    "i": c.c_int,
    "z": c.c_size_t,
    "f": c.c_float,
}

#: Functions that return a status, without the prefix `dnnl_`, and the letters of their arguments.
FUNCTIONS = {
    "set_primitive_cache_capacity": "i",
    "engine_create": "oiz",
    "stream_create": "opi",
    "memory_desc_create_with_strides": "oidid",
    "memory_desc_create_with_tag": "oidii",
    "memory_desc_clone": "op",
    "memory_desc_destroy": "p",
    "memory_create": "oppp",
    "memory_set_data_handle": "pp",
    "memory_destroy": "p",
    "post_ops_create": "o",
    "post_ops_append_eltwise": "piff",
    "post_ops_append_sum": "pfii",
    "post_ops_append_prelu": "pi",
    "post_ops_destroy": "p",
    "primitive_attr_create": "o",
    "primitive_attr_set_scratchpad_mode": "pi",
    "primitive_attr_set_post_ops": "pp",
    "primitive_attr_destroy": "p",
    "primitive_create": "op",
    "primitive_get_primitive_desc": "po",
    "primitive_destroy": "p",
    "primitive_desc_destroy": "p",
    "primitive_execute": "ppip",
    "binary_primitive_desc_create": "opipppp",
    "reorder_primitive_desc_create": "oppppp",
    "matmul_primitive_desc_create": "opppppp",
    "inner_product_forward_primitive_desc_create": "opippppp",
    "convolution_forward_primitive_desc_create": "opiippppddddp",
    "convolution_backward_data_primitive_desc_create": "opipppddddpp",
    "convolution_backward_weights_primitive_desc_create": "opippppddddpp",
    "pooling_forward_primitive_desc_create": "opiippdddddp",
    "pooling_backward_primitive_desc_create": "opippdddddpp",
}

# dnnl_prop_kind_t
FORWARD_TRAINING, FORWARD_INFERENCE = 64, 96

# Arguments of an execution, DNNL_ARG_*
SRC, SRC_1, DST, WEIGHTS, BIAS = 1, 2, 17, 33, 41
WORKSPACE, SCRATCHPAD = 64, 80
DIFF_SRC, DIFF_DST, DIFF_WEIGHTS = 129, 145, 161


def slope(index: int) -> int:
    """What the prelu post-op of this index multiplies negative numbers by, DNNL_ARG_ATTR_MULTIPLE_POST_OP | WEIGHTS."""
    return 32768 * (index + 1) | WEIGHTS


# dnnl_query_t
IMPLEMENTATION, ARGUMENT_DESC, SCRATCHPAD_DESC = 8, 255, 136

# dnnl_data_type_t
DATA_TYPES = {"bfloat16": 2, "float32": 3, "int32": 4, "uint8": 6}

# dnnl_format_tag_t: as the primitive likes it best
ANY = 1
