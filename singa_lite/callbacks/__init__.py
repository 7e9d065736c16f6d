"""Callbacks of `fit`: what is called on its way. A subclass of `Callback` is one of your own.

Give `Checkpoint` last: what stands before it is in its checkpoints, and goes on from them with `fit(resume=)`.
"""

from typing import TYPE_CHECKING

from singa_lite.callbacks.functions import LambdaCallback as LambdaCallback
from singa_lite.callbacks.functions import TerminateOnNaN as TerminateOnNaN
from singa_lite.callbacks.functions import TimeLimit as TimeLimit
from singa_lite.callbacks.loggers import CSVLogger as CSVLogger
from singa_lite.callbacks.loggers import TensorBoard as TensorBoard
from singa_lite.callbacks.watching import EarlyStopping as EarlyStopping
from singa_lite.callbacks.watching import ReduceLROnPlateau as ReduceLROnPlateau
from singa_lite.common.keywords import class_lookup
from singa_lite.snapshots import Checkpoint as Checkpoint
from singa_lite.training.fit import Callback as Callback
from singa_lite.training.fit import StopTraining as StopTraining
from singa_lite.training.fit import Training as Training

if not TYPE_CHECKING:  # where it would let any name pass
    __getattr__ = class_lookup(__name__)
