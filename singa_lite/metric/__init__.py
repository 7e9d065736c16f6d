"""Metrics: one value a sample and the mean over the batch, or one value of all samples. `get` finds one by its name."""

from typing import TYPE_CHECKING

from singa_lite.common.keywords import class_lookup
from singa_lite.metric.accuracies import Accuracy as Accuracy
from singa_lite.metric.accuracies import BinaryAccuracy as BinaryAccuracy
from singa_lite.metric.accuracies import Precision as Precision
from singa_lite.metric.accuracies import Recall as Recall
from singa_lite.metric.accuracies import TopKAccuracy as TopKAccuracy
from singa_lite.metric.base import Metric as Metric
from singa_lite.metric.counts import AUC as AUC
from singa_lite.metric.counts import F1 as F1
from singa_lite.metric.counts import BinaryPrecision as BinaryPrecision
from singa_lite.metric.counts import BinaryRecall as BinaryRecall
from singa_lite.metric.counts import ConfusionMatrix as ConfusionMatrix
from singa_lite.metric.epoch import EpochMetric as EpochMetric
from singa_lite.metric.errors import R2 as R2
from singa_lite.metric.errors import MeanAbsoluteError as MeanAbsoluteError
from singa_lite.metric.errors import MeanSquaredError as MeanSquaredError
from singa_lite.metric.named import get as get
from singa_lite.metric.perplexity import Perplexity as Perplexity

if not TYPE_CHECKING:  # where it would let any name pass
    __getattr__ = class_lookup(__name__)
