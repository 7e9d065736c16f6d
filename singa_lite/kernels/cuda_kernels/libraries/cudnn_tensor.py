"""A tensor as cuDNN is told it: its number, extents, strides and type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import Graph, frontend
from singa_lite.kernels.kernel_set import TensorSpec

#: Types of the library by NumPy's names: of tensors, and of the arithmetic.
DTYPES = {
    "float16": ("HALF", "FLOAT"),
    "bfloat16": ("BFLOAT16", "FLOAT"),
    "float32": ("FLOAT", "FLOAT"),
    "float64": ("DOUBLE", "DOUBLE"),
}


class GraphTensor(NamedTuple):
    """A tensor as a graph is told it. strides: in elements; dtype: NumPy's name of it."""

    uid: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def read(self, graph: Graph) -> Graph:
        """Make it an input."""
        dim, stride = list(self.extents), list(self.strides)
        return graph.tensor(name=f"in{self.uid}", uid=self.uid, dim=dim, stride=stride, data_type=self._type)

    def write(self, result: Graph) -> None:
        """Make it a result of the graph: nothing of it is left to the library's own rules."""
        result.set_uid(self.uid).set_output(True).set_dim(list(self.extents)).set_stride(list(self.strides))
        result.set_data_type(self._type)

    @property
    def _type(self) -> object:
        return getattr(frontend().data_type, DTYPES[self.dtype][0])


def strides_in(spec: TensorSpec, order: Sequence[int]) -> tuple[int, ...] | None:
    """Strides in elements, with axes in this order, outermost first, and gaps but between innermost neighbours; else
    None.

    Axes of one element, whose strides say nothing, get those that fit into the order: engines go by them.
    """
    found, least = [0] * spec.ndim, 1
    for axis in reversed(order):
        step, rest = divmod(spec.strides[axis], spec.dtype.itemsize) if spec.shape[axis] > 1 else (least, 0)
        if rest or step < least or (axis == order[-1] and step != 1):
            return None
        found[axis], least = step, step * spec.shape[axis]
    return tuple(found)
