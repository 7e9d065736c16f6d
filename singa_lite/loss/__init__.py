"""Losses: values a sample, the mean over them, and its exact gradient. `get` finds one by its name."""

from typing import TYPE_CHECKING

from singa_lite.common.keywords import class_lookup
from singa_lite.loss.base import Loss as Loss
from singa_lite.loss.cross_entropy import SigmoidCrossEntropy as SigmoidCrossEntropy
from singa_lite.loss.cross_entropy import SoftmaxCrossEntropy as SoftmaxCrossEntropy
from singa_lite.loss.distances import CosineSimilarity as CosineSimilarity
from singa_lite.loss.distances import Hinge as Hinge
from singa_lite.loss.distances import Huber as Huber
from singa_lite.loss.distances import KLDivergence as KLDivergence
from singa_lite.loss.distances import MeanAbsoluteError as MeanAbsoluteError
from singa_lite.loss.distances import MeanSquaredError as MeanSquaredError
from singa_lite.loss.distances import SquaredError as SquaredError
from singa_lite.loss.named import get as get

if not TYPE_CHECKING:  # where it would let any name pass
    __getattr__ = class_lookup(__name__)
