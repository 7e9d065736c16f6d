"""Metrics by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from singa_lite.common.keywords import by_name
from singa_lite.metric.accuracies import Accuracy, BinaryAccuracy, TopKAccuracy
from singa_lite.metric.base import Metric
from singa_lite.metric.counts import AUC, F1, BinaryPrecision, BinaryRecall, ConfusionMatrix
from singa_lite.metric.errors import R2, MeanAbsoluteError, MeanSquaredError
from singa_lite.metric.perplexity import Perplexity

_KINDS: Mapping[str, Callable[[], Metric]] = {
    "accuracy": Accuracy,
    "acc": Accuracy,
    "categorical_accuracy": Accuracy,
    "sparse_categorical_accuracy": Accuracy,
    "top_5_accuracy": TopKAccuracy,
    "binary_accuracy": BinaryAccuracy,
    "binary_precision": BinaryPrecision,
    "binary_recall": BinaryRecall,
    "perplexity": Perplexity,
    "mean_squared_error": MeanSquaredError,
    "mse": MeanSquaredError,
    "mean_absolute_error": MeanAbsoluteError,
    "mae": MeanAbsoluteError,
    "r2": R2,
    "auc": AUC,
    "f1": F1,
    "confusion_matrix": ConfusionMatrix,
}

_OTHERS = {
    "top_k_categorical_accuracy": 'metric.TopKAccuracy(k), or "top_5_accuracy",',
    "sparse_top_k_categorical_accuracy": 'metric.TopKAccuracy(k), or "top_5_accuracy",',
    "f1_score": '"f1"',
    "r2_score": '"r2"',
    "roc_auc": '"auc"',
    "precision": '"binary_precision" for yes and no, metric.Precision(top_k) among classes,',
    "recall": '"binary_recall" for yes and no, metric.Recall(top_k) among classes,',
}


def get(name: str) -> Metric:
    """Returns a new metric with its usual options, by a name such as "accuracy".

    ValueError for a name that is none, which says what ours is called where it is one of Keras's or scikit-learn's.

    >>> metric.get("accuracy").name
    'accuracy'
    """
    return by_name("metric", name, _KINDS, _OTHERS)()
