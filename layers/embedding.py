"""Embedding: a row of a table for each id."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.autograd.ops.shape import piece
from singa_lite.common.errors import ShapeError
from singa_lite.layer import initializer
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import flag, init, is_int, label, one_input, positive_int
from .padding_mask import padding_mask


class Embedding(Layer):
    """y = weight[x], one row for each id.

    Input samples of ids, integers from 0 to num_embeddings - 1, of any integer dtype and any shape, as (time,); output
    samples (..., dim). Parameter: weight (num_embeddings, dim).

    Gradients by rows that occur: SGD without momentum, weight decay, regularizer and constraint touches no other row,
    and no gradient of the table's size exists (kernel `sgd_rows` in the plan). All other optimizers move each row at
    each step, as their momentum or decay does without a gradient too: dense, in recorded steps of a large table some
    rows at a time. Nothing is handed back to what gave the ids.

    mask_zero: the output has a mask (n, time) of 0 where the id is 0, else 1, which goes with it through layers that
    `passes_mask`, to those that look at other positions (see docs/sequences.md); of samples (time,) alone.
    padding_idx: an id whose row begins as 0 and gets no gradient; None: none, as -1 is no id. weight_init: an
    Initializer, its name, or a number.
    """

    features_last = True

    positionwise = True
    any_length = True

    def __init__(
        self,
        name: str,
        num_embeddings: int,
        dim: int,
        padding_idx: int | None = None,
        *,
        mask_zero: bool = False,
        weight_init: initializer.Spec = "uniform",
        input_sample_shape: InputShape | None = None,
    ) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
        self.num_embeddings = positive_int(self, "num_embeddings", num_embeddings)
        self.dim = positive_int(self, "dim", dim)
        self.input_ids = self.num_embeddings
        if padding_idx is not None and not (is_int(padding_idx) and 0 <= padding_idx < self.num_embeddings):
            raise ValueError(
                f"{label(self)}: wanted padding_idx to be an id from 0 to {self.num_embeddings - 1} or None, received "
                f"{padding_idx!r}"
            )
        self.padding_idx = None if padding_idx is None else int(padding_idx)
        self.mask_zero = flag(self, "mask_zero", mask_zero)
        self.weight_init = init(self, "weight_init", weight_init)

    def setup(self, *shapes: Shape) -> Shape:
        """(...) -> (..., dim)."""
        shape = one_input(self, shapes)
        if self.mask_zero and len(shape) != 1:
            raise ShapeError(f"{label(self)}: wanted input samples (time,) with mask_zero=True, received {shape}")
        weight = self.add_parameter(
            "weight", (self.num_embeddings, self.dim), self.weight_init, (self.num_embeddings, self.dim)
        )
        if self.padding_idx is not None and self.shared_with is None:
            weight.device.run("fill", piece(weight, 0, self.padding_idx, self.padding_idx + 1), value=0.0)
        return (*shape, self.dim)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) of ids -> (n, ..., dim). TypeError for what are no integers, as another layer's outputs."""
        y = autograd.embedding(x, self.parameters["weight"], self.padding_idx)
        if self.mask_zero:
            y.mask = padding_mask(x, 0, self.dtype)
        return y
