"""singa_lite: trains neural nets layer by layer, in little memory.

The modules, in the order of a batch: net, layer, autograd, ops, device, graph, tensor, kernels, memory; beside them
loss, metric, initializer, optimizer, schedule, regularizer and data. Layers are in `singa_lite.layers`, file formats
in `singa_lite.snapshots`; both, and `callbacks`, `models`, `parallel`, `sklearn` and `testing`, are imported when asked
for. Examples in docstrings come behind `from singa_lite import *`, and `np` is NumPy there.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from singa_lite import autograd as autograd
from singa_lite import data as data
from singa_lite import device as device
from singa_lite import loss as loss
from singa_lite import metric as metric
from singa_lite import optimizer as optimizer
from singa_lite import tensor as tensor
from singa_lite.common import old_paths, words
from singa_lite.common.errors import DeviceError as DeviceError
from singa_lite.common.errors import GraphError as GraphError
from singa_lite.common.errors import ShapeError as ShapeError
from singa_lite.common.errors import SnapshotError as SnapshotError
from singa_lite.compiler.placement.problem import PlanError as PlanError
from singa_lite.layer import initializer as initializer
from singa_lite.layer.layer import Layer as Layer
from singa_lite.layer.run import LayerGradients as LayerGradients
from singa_lite.net.feed_forward_net import FeedForwardNet as FeedForwardNet
from singa_lite.net.open_net import load as load
from singa_lite.net.sequential import Sequential as Sequential
from singa_lite.optimizer import regularizer as regularizer
from singa_lite.optimizer import schedule as schedule
from singa_lite.runtime.pool import OutOfMemoryError as OutOfMemoryError
from singa_lite.tensor import Tensor as Tensor

old_paths.install()

__version__ = "0.2.0"

#: Modules that stand above the net: imported by `from singa_lite import layers`, or at the first `singa_lite.layers`.
_LATER = ("callbacks", "layers", "models", "parallel", "sklearn", "snapshots", "testing")

#: Further public modules, imported by their own names, which `common/old_paths.py` keeps. These, `_LATER` and `__all__`
#: are what the site has pages of.
_BY_NAME = ("data.transforms", "errors", "reports", "rewriting")

#: What `from singa_lite import *` brings: what a script uses, scikit-learn's part aside, which wants that package.
__all__ = [
    "DeviceError",
    "FeedForwardNet",
    "GraphError",
    "Layer",
    "LayerGradients",
    "OutOfMemoryError",
    "PlanError",
    "Sequential",
    "ShapeError",
    "SnapshotError",
    "Tensor",
    "autograd",
    "callbacks",
    "data",
    "device",
    "initializer",
    "layers",
    "load",
    "loss",
    "metric",
    "models",
    "optimizer",
    "parallel",
    "regularizer",
    "schedule",
    "snapshots",
    "tensor",
    "testing",
]

if not TYPE_CHECKING:  # where it would let any name pass

    def __getattr__(name):
        if name in _LATER:
            return import_module(f"{__name__}.{name}")
        if name == "Input":
            return import_module(f"{__name__}.layers").Input
        if name in words.MODULES:
            return globals()[words.MODULES[name]]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
