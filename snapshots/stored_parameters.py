"""Parameters that are stored in bfloat16: files hold their bits, and nets are given numbers in float32.

In a tree they are uint16, the upper halves of float32, beside the attribute parameter_dtype: HDF5 and NumPy's archives
have no bfloat16. A safetensors file calls such arrays BF16, and a file of Keras's has them as Keras does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.checks import gradient_dtype, is_bfloat16
from singa_lite.common.errors import SnapshotError
from singa_lite.optimizer.stored_parameters import ERROR
from singa_lite.snapshots.manifest import Attribute
from singa_lite.snapshots.tree import ArraySpec, LazyArray, Tree
from singa_lite.tensor import Tensor, to_numpy

#: The attribute of a tree that has such parameters.
PARAMETER_DTYPE = "parameter_dtype"
_BITS, _FLOAT = np.dtype(np.uint16), np.dtype(np.float32)


def attributes_of(tensors: Mapping[str, Tensor]) -> dict[str, Attribute]:
    """What a tree of these says of them."""
    return {PARAMETER_DTYPE: "bfloat16"} if any(map(is_bfloat16, map(attrgetter("dtype"), tensors.values()))) else {}


def check_rounding(contents: Tree, tensors: Mapping[str, Tensor], rounding: str | None) -> None:
    """SnapshotError unless a file's optimizer state is of parameters that are stored and rounded as these are."""
    has_errors = any(path.startswith("optimizer/") and path.endswith(f"/{ERROR}") for path in contents.arrays)
    found = _settings(contents.attributes, "compensated" if has_errors else "stochastic")
    wanted = _settings(attributes_of(tensors), rounding)
    if found != wanted:
        raise SnapshotError(
            f"{contents.path}: wanted optimizer state of compile({wanted}), received that of {found}; compile with the "
            "file's, or load(path, optimizer=False), which takes parameters and state only"
        )


def _settings(attributes: Mapping[str, Attribute], rounding: str | None) -> str:
    dtype = attributes.get(PARAMETER_DTYPE)
    return f"{PARAMETER_DTYPE}={dtype!r:.100}" + (f", rounding={rounding!r}" if dtype else "")


def lazy(tensor: Tensor) -> LazyArray:
    """A tensor as a tree has it."""
    if is_bfloat16(tensor.dtype):
        return LazyArray(tensor.shape, _BITS, lambda: to_numpy(tensor).view(_BITS))
    return LazyArray(tensor.shape, tensor.dtype, partial(to_numpy, tensor))


def spec(tensor: Tensor) -> ArraySpec:
    """What a tensor is to be given."""
    return ArraySpec(tensor.shape, gradient_dtype(tensor.dtype))


def is_bits(contents: Tree, path: str) -> bool:
    """Whether an array of a tree is bits of bfloat16."""
    is_parameter = path.startswith("parameters/") and PARAMETER_DTYPE in contents.attributes
    return is_parameter and contents.arrays[path].dtype == _BITS


def as_floats(contents: Tree) -> Tree:
    """The tree with numbers in float32 in the place of bits; the tree itself where there are none."""
    if PARAMETER_DTYPE not in contents.attributes:
        return contents
    arrays = {path: widened(one) if is_bits(contents, path) else one for path, one in contents.arrays.items()}
    return replace(contents, arrays=arrays)


def widened(bits: LazyArray) -> LazyArray:
    """Numbers in float32 in the place of bits; any other array as it is."""
    if bits.dtype != _BITS:
        return bits

    def fetch() -> Array:
        return (bits.fetch().astype(np.uint32) << 16).view(_FLOAT)

    return LazyArray(bits.shape, _FLOAT, fetch)
