"""Modules that have moved can still be imported by the paths that scripts, pickles and the docs name."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType

PACKAGE = "singa_lite"
#: The path that is promised, and the path of the module now; what lies in a folder moves with it.
MOVED = {
    "callbacks.csv_logger": "callbacks.loggers",
    "callbacks.early_stopping": "callbacks.watching",
    "callbacks.limits": "callbacks.functions",
    "callbacks.plateau": "callbacks.watching",
    "callbacks.tensorboard": "callbacks.loggers",
    "described": "common.described",
    "errors": "common.errors",
    "fit": "training.fit",
    "initializer": "layer.initializer",
    "layer.positions": "layers.positions",
    "loss.margins": "loss.distances",
    "memory": "compiler.placement",
    "metric.determination": "metric.errors",
    "metric.ranking": "metric.counts",
    "ops": "autograd.ops",
    "optimizer.gathering": "optimizer.gradient_accumulation",
    "parallel.simulate": "commands.simulate",
    "regularizer": "optimizer.regularizer",
    "reports": "compiler.report",
    "rewriting": "autograd.rewriting",
    "schedule": "optimizer.schedule",
    "sklearn.classifier": "sklearn.estimators",
    "sklearn.regressor": "sklearn.estimators",
    "snapshots.whole_net": "net.open_net",
}
#: {module: classes of layers that had a file of their own}, in one folder at first; pickles of layers name them.
_LAYERS = {
    "activation": "prelu softmax",
    "convolution.convolution": "conv1d conv2d depthwise_conv2d",
    "convolution.margins": "cropping2d upsampling2d zero_padding2d",
    "convolution.separable_conv2d": "separable_conv2d",
    "convolution.transposed_convolution": "conv1d_transpose conv2d_transpose",
    "dense": "swiglu",
    "dropout": "gaussian_noise spatial_dropout1d spatial_dropout2d",
    "elementwise": "dummy rescaling",
    "embedding": "padding_mask tied_dense",
    "merge": "concat multiply slice split",
    "normalization.channels": "batch_normalization group_normalization lrn",
    "normalization.layer_normalization": "l2_norm layer_normalization rms_normalization",
    "pooling.global_pooling": "global_avg_pooling1d global_avg_pooling2d global_max_pooling1d global_max_pooling2d",
    "pooling.pooling": "avg_pooling1d avg_pooling2d max_pooling1d max_pooling2d",
    "positions": "learned_positions sinusoidal_positions",
    "recurrent.cells": "gru lstm simple_rnn",
    "recurrent.wrappers": "bidirectional time_distributed",
    "reshape": "flatten permute",
    "sequential": "residual",
}
MOVED |= {
    f"layers.{folder}{file}": f"layers.{module}"
    for module, files in _LAYERS.items()
    for file in files.split()
    for folder in {"", module.rpartition(".")[0] + "."} - {"."}
    if folder + file != module
}


def present_path(name: str) -> str | None:
    """The full name of the module that an old full name means; None for any other name."""
    package, _, path = name.partition(".")
    parts = path.split(".") if package == PACKAGE else []
    for count in range(1, len(parts) + 1):
        new = MOVED.get(".".join(parts[:count]))
        if new is not None:
            return ".".join([PACKAGE, new, *parts[count:]])
    return None


class OldPaths(MetaPathFinder, InspectLoader):
    """Finds a moved module by its old name. Both names mean one module object."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for old names alone."""
        new = present_path(fullname)
        found = None if new is None else find_spec(new)
        if found is None:
            return None
        return ModuleSpec(fullname, self, is_package=found.submodule_search_locations is not None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself, imported by its present name."""
        module = import_module(str(present_path(spec.name)))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has run already; Python's import has put the old name's spec into it."""
        module.__spec__ = None if module.__spec__ is None else module.__spec__.loader_state

    def get_code(self, fullname: str) -> CodeType | None:
        """For `python -m` with an old name."""
        found = find_spec(str(present_path(fullname)))
        loader = None if found is None else found.loader
        return loader.get_code(found.name) if found is not None and isinstance(loader, InspectLoader) else None

    def get_source(self, fullname: str) -> None:
        """Source is shown by the present name."""


def install() -> None:
    """Make old paths importable. They come first: a moved folder would load its files a second time."""
    sys.meta_path.insert(0, OldPaths())
