"""Losses by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from singa_lite.common.keywords import by_name
from singa_lite.loss.base import Loss
from singa_lite.loss.cross_entropy import SigmoidCrossEntropy, SoftmaxCrossEntropy
from singa_lite.loss.distances import (
    CosineSimilarity,
    Hinge,
    Huber,
    KLDivergence,
    MeanAbsoluteError,
    MeanSquaredError,
    SquaredError,
)

_KINDS: Mapping[str, Callable[[], Loss]] = {
    "softmax_cross_entropy": SoftmaxCrossEntropy,
    "sigmoid_cross_entropy": SigmoidCrossEntropy,
    "categorical_crossentropy": partial(SoftmaxCrossEntropy, from_logits=False),
    "sparse_categorical_crossentropy": partial(SoftmaxCrossEntropy, from_logits=False),
    "binary_crossentropy": partial(SigmoidCrossEntropy, from_logits=False),
    "squared_error": SquaredError,
    "mean_squared_error": MeanSquaredError,
    "mse": MeanSquaredError,
    "mean_absolute_error": MeanAbsoluteError,
    "mae": MeanAbsoluteError,
    "huber": Huber,
    "kl_divergence": KLDivergence,
    "hinge": Hinge,
    "cosine_similarity": CosineSimilarity,
}

_RAW = "on raw scores: leave a softmax or sigmoid before it out"
_OTHERS = {
    "cross_entropy": '"softmax_cross_entropy"',
    "bce_with_logits": '"sigmoid_cross_entropy"',
    "bce": '"binary_crossentropy" on probabilities, "sigmoid_cross_entropy" on raw scores,',
    "kld": f'"kl_divergence", {_RAW}',
    "kullback_leibler_divergence": f'"kl_divergence", {_RAW}',
    "smooth_l1": '"huber"',
    "l1": '"mean_absolute_error"',
    "cosine_embedding": '"cosine_similarity"',
    "nll": f'"softmax_cross_entropy", {_RAW}',
}


def get(name: str) -> Loss:
    """Returns a new loss with its usual options, by a name such as "softmax_cross_entropy"; Keras's crossentropies take
    probabilities.

    ValueError for a name that is none, which says what ours is called where it is one of Keras's or PyTorch's.

    >>> type(loss.get("mse")).__name__
    'MeanSquaredError'
    """
    return by_name("loss", name, _KINDS, _OTHERS)()
