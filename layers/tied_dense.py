"""TiedDense: the scores of all ids, by the table that embeds them."""

from __future__ import annotations

from singa_lite import autograd
from singa_lite.layer.layer import InputShape, Layer
from singa_lite.tensor import Shape, Tensor

from ._checks import features_of, label
from .embedding import Embedding


class TiedDense(Layer):
    """y = x @ weight^T over the last axis, the weight being the table of an `Embedding`: one score for each id.

    As the heads of GPT-2 and of Press and Wolf, "Using the output embedding to improve language models" (arXiv
    1608.05859); Keras calls the two a reversible embedding, Hugging Face ties their weights. Input samples
    (..., dim); output samples (..., num_embeddings). It has no parameter of its own and no bias: the table keeps the
    embedding's name, and its gradient is the sum over both and is yielded once.

    embedding: the layer, which must be in the net, or in the same outer layer, before this one.
    """

    passes_mask = True

    positionwise = True
    any_length = True

    features_last = True
    positionwise = True
    any_length = True

    def __init__(self, name: str, embedding: Embedding, *, input_sample_shape: InputShape | None = None) -> None:
        super().__init__(name, input_sample_shape=input_sample_shape)
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
        table = self._placed_table()
        self.add_parameter("weight", (table[0], features), 0.0)
        return (*beside, table[0])

    def _placed_table(self) -> Shape:
        if self.shared_with is None:
            raise ValueError(f"{label(self)}: wanted the embedding whose table it uses")
        return self.shared_with.parameters["weight"].shape

    def forward(self, training: bool, x: Tensor) -> Tensor:
        """x (n, ..., dim) -> (n, ..., num_embeddings)."""
        return autograd.linear(x, self.parameters["weight"], transposed=True)
