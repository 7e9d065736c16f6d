"""What callbacks of `net.fit` are made of, by the name that the docs promise: `singa_lite.fit.Callback` and others."""

from singa_lite.training.fit import Callback as Callback
from singa_lite.training.fit import History as History
from singa_lite.training.fit import StopTraining as StopTraining
from singa_lite.training.fit import Training as Training
from singa_lite.training.fit import enters as enters
