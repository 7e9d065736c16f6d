"""What callbacks of `net.fit` are made of, under the name that the documents promise: `singa_lite.fit.Callback`."""

from singa_lite.training.fit import Callback as Callback
from singa_lite.training.fit import History as History
from singa_lite.training.fit import StopTraining as StopTraining
from singa_lite.training.fit import Training as Training
