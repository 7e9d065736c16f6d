"""Layers of ids: embeddings, the scores that use their table, and masks of padding."""

from __future__ import annotations

from typing import Any

from singa_lite import autograd
from singa_lite.autograd.ops.shape import piece
from singa_lite.common.array_types import DType
from singa_lite.common.errors import ShapeError
from singa_lite.device import device_of
from singa_lite.layer import initializer
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import features_of, flag, init, is_int, label, one_input, positive_int
from singa_lite.layers._quantized import FLOAT, add_quantized, checked_format
from singa_lite.tensor import Shape, Tensor


class PaddingMask(Layer):
    """Computes y = 1 where an id is not padding_idx, else 0: what attention takes as its mask.

    Input samples of ids, integers of any dtype and shape, as (time,); output samples of that shape, in the net's dtype.
    No derivative passes.

    padding_idx: the id of padding, at least 0.

    >>> net = Sequential([layers.Input((4,)), layers.PaddingMask("mask")])
    >>> print(net.predict(np.array([[7, 3, 0, 0]])))
    [[1. 1. 0. 0.]]
    """

    input_ids = 2**63

    positionwise = True
    any_length = True

    def __init__(self, name: str, padding_idx: int = 0, **options: Any) -> None:
        super().__init__(name, **options)
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


class Embedding(Layer):
    """Looks up a row of a table for each id: y = weight[x].

    Input samples of ids, integers from 0 to num_embeddings - 1, of any integer dtype and any shape, as (time,); output
    samples (..., dim). Parameter: weight (num_embeddings, dim).

    Gradients by rows that occur: SGD without momentum, weight decay, regularizer and constraint touches no other row,
    and no gradient of the table's size exists (kernel `sgd_rows` in the plan). All other optimizers move each row at
    each step, as their momentum or decay does without a gradient too: dense, in recorded steps of a large table some
    rows at a time. Nothing is handed back to what gave the ids.

    mask_zero: the output has a mask (n, time) of 0 where the id is 0, else 1, which goes with it through layers that
    `passes_mask`, to those that look at other positions (see docs/sequences.md); of samples (time,) alone.
    padding_idx: an id whose row begins as 0 and gets no gradient; None: none, as -1 is no id. weight_init: an
    Initializer, its name, or a number. weight_format: as of Dense: a quantised table is a frozen tensor, uint8
    (num_embeddings, bytes of a row), and no parameter; rows become numbers as they are looked up.

    >>> net = Sequential([layers.Input((6,)), layers.Embedding("words", 100, 8)])  # 6 ids below 100
    >>> net.predict(np.ones((2, 6), "int64")).shape
    (2, 6, 8)
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
        weight_format: str = FLOAT,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.weight_format = checked_format(self, weight_format)
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

    def summary_note(self) -> str:
        """How the table is quantised."""
        return self.weight_format.removeprefix(FLOAT)

    def setup(self, *shapes: Shape) -> Shape:
        """(...) -> (..., dim)."""
        shape = one_input(self, shapes)
        if self.mask_zero and len(shape) != 1:
            raise ShapeError(f"{label(self)}: wanted input samples (time,) with mask_zero=True, received {shape}")
        if self.weight_format != FLOAT:
            add_quantized(self, "weight", self.num_embeddings, self.dim, self.weight_format)
            return (*shape, self.dim)
        weight = self.add_parameter(
            "weight", (self.num_embeddings, self.dim), self.weight_init, (self.num_embeddings, self.dim)
        )
        if self.padding_idx is not None and self.shared_with is None:
            weight.device.run("fill", piece(weight, 0, self.padding_idx, self.padding_idx + 1), value=0.0)
        return (*shape, self.dim)

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ...) of ids -> (n, ..., dim). TypeError for what are no integers, as another layer's outputs."""
        y = self._rows(x)
        if self.mask_zero:
            y.mask = padding_mask(x, 0, self.dtype)
        return y

    def _rows(self, ids: Tensor) -> Tensor:
        if self.weight_format == FLOAT:
            return autograd.embedding(ids, self.parameters["weight"], self.padding_idx)
        table = self.frozen["weight"]
        return autograd.quantized_embedding(ids, table, format=self.weight_format, dtype=self.dtype)


class TiedDense(Layer):
    """Computes y = x @ weight^T over the last axis, the weight being the table of an `Embedding`: one score for each
    id.

    As the heads of GPT-2 and of Press and Wolf, "Using the output embedding to improve language models" (arXiv
    1608.05859); Keras calls the two a reversible embedding, Hugging Face ties their weights. Input samples
    (..., dim); output samples (..., num_embeddings). It has no parameter of its own and no bias: the table keeps the
    embedding's name, and its gradient is the sum over both and is yielded once.

    embedding: the layer, which must be in the net, or in the same outer layer, before this one.

    >>> words = layers.Embedding("words", 100, 8)
    >>> net = Sequential([layers.Input((6,)), words, layers.TiedDense("head", words)])
    >>> net.predict(np.ones((2, 6), "int64")).shape, sorted(net.parameters())
    ((2, 6, 100), ['words/weight'])
    """

    passes_mask = True
    positionwise = True
    any_length = True
    features_last = True

    def __init__(self, name: str, embedding: Embedding, **options: Any) -> None:
        super().__init__(name, **options)
        if not isinstance(embedding, Embedding):
            raise TypeError(f"{label(self)}: wanted embedding to be an Embedding, received {embedding!r}")
        self.share_parameters(embedding)

    @property
    def embedding(self) -> Layer | None:
        """The layer whose table it is."""
        return self.shared_with

    def setup(self, *shapes: Shape) -> Shape:
        """(..., dim) -> (..., num_embeddings). ShapeError for other features than the table has."""
        *beside, features = features_of(self, shapes)
        table = self._table_layer()
        rows = table.num_embeddings
        if table.weight_format == FLOAT:
            self.add_parameter("weight", (rows, features), 0.0)
        else:
            add_quantized(self, "weight", rows, features, table.weight_format)
        return (*beside, rows)

    def _table_layer(self) -> Embedding:
        if not isinstance(self.shared_with, Embedding):
            raise ValueError(f"{label(self)}: wanted the embedding whose table it uses")
        return self.shared_with

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ..., dim) -> (n, ..., num_embeddings)."""
        format = self._table_layer().weight_format
        if format == FLOAT:
            return autograd.linear(x, self.parameters["weight"], transposed=True)
        return autograd.quantized_linear(x, self.frozen["weight"], format=format)
