"""PaddingMask: which positions of a text are no padding."""

from __future__ import annotations

from singa_lite.common.array_types import DType
from singa_lite.device import device_of
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import is_int, label, one_input


class PaddingMask(Layer):
    """y = 1 where an id is not padding_idx, else 0: what attention takes as its mask.

    Input samples of ids, integers of any dtype and shape, as (time,); output samples of that shape, in the net's dtype.
    No derivative passes.

    padding_idx: the id of padding, at least 0.
    """

    input_ids = 2**63

    positionwise = True
    any_length = True

    def __init__(self, name: str, padding_idx: int = 0, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        if not is_int(padding_idx) or not 0 <= padding_idx < 2**63:
            raise ValueError(f"{label(self)}: wanted padding_idx to be an id, at least 0, received {padding_idx!r}")
        self.padding_idx = int(padding_idx)

    def setup(self, *shapes: Shape) -> Shape:
        """The shape is kept."""
        return one_input(self, shapes)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) of ids -> the same shape. TypeError for what are no integers."""
        if x.dtype.kind not in "iu":
            raise TypeError(f"{label(self)}: wanted ids of an integer dtype, received {x.dtype}")
        return padding_mask(x, self.padding_idx, self.dtype)


def padding_mask(ids: Tensor, padding: int, dtype: DType) -> Tensor:
    """1 where an id is not the padding, else 0."""
    device = device_of(ids)
    y = device.empty(ids.shape, dtype)
    device.run("differs", ids, y, value=padding)
    return y
