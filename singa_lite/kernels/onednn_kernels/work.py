"""Work of a known size: where it is small the caller's thread does it alone. Its steps can take parts of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from singa_lite.kernels.kernel_set import Form, Forms
from singa_lite.kernels.onednn_kernels import alone
from singa_lite.kernels.onednn_kernels.forms import FLOAT
from singa_lite.kernels.onednn_kernels.primitive import Launch, PostOp, Primitive
from singa_lite.kernels.onednn_kernels.routine import Operand, Routine, Temporary
from singa_lite.strides import ordered_strides


class Work(Routine):
    """A routine over `size` elements; up to `alone.SMALL` are done by one thread."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self._parts: list[tuple[Form, Form, int]] = []

    def make(
        self, function: str, *arguments: Any, forward: Primitive | None = None, post_ops: Sequence[PostOp] = ()
    ) -> Primitive:
        """A primitive for as many threads as will run it."""
        with alone.making() if self._is_small else nullcontext():
            return Primitive(function, *arguments, forward=forward, post_ops=post_ops)

    def part(self, tensor: Operand, start: int, count: int) -> Operand:
        """An operand: elements of a tensor without gaps, in the order of memory; of a temporary as float32."""
        if isinstance(tensor, Temporary):
            return Temporary(tensor.offset + start * FLOAT.itemsize, (count,), str(FLOAT))
        made = Form((count,), tensor.dtype, (tensor.dtype.itemsize,))
        self._parts.append((made, tensor, start))
        return made

    def bind(self, forms: Forms, arrays: tuple[Any, ...], scratch: Any) -> Launch:
        """The steps over these arrays. forms: those that the routine was built with."""
        place = {id(form): array for form, array in zip(forms, arrays, strict=True) if form is not None}
        given = tuple(made for made, _, _ in self._parts)
        parts = tuple(_flat(place[id(tensor)])[start : start + made.size] for made, tensor, start in self._parts)
        launch = super().bind((*forms, *given), (*arrays, *parts), scratch)
        return alone.running(launch) if self._is_small else launch

    @property
    def _is_small(self) -> bool:
        return self.size <= alone.SMALL


def lies(tensor: Form, axes: Sequence[int]) -> bool:
    """Whether the elements lie without gaps, the axes in this order, outermost first. Extents of 1 fit any order."""
    wanted = ordered_strides(tensor.shape, axes, tensor.dtype.itemsize)
    return all(e == 1 or a == b for e, a, b in zip(tensor.shape, tensor.strides, wanted, strict=True))


def _flat(array: Any) -> Any:
    """The elements of an array without gaps in the order of memory."""
    return np.lib.stride_tricks.as_strided(array, (array.size,), (array.itemsize,))
