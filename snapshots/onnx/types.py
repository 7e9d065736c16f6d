"""Dtypes as ONNX numbers them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from singa_lite.common.array_types import DType
from singa_lite.common.checks import is_bfloat16
from singa_lite.common.errors import SnapshotError


def tensor_type(dtype: DType) -> int:
    """ONNX's number of a dtype. SnapshotError for one that it lacks."""
    try:
        return TensorProto.BFLOAT16 if is_bfloat16(dtype) else helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    except ValueError:
        raise SnapshotError(f"export: wanted a dtype that ONNX has, received {dtype}") from None
