"""The environment that the last bit of a number may depend on: versions, kernels, threads."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from singa_lite.common import machine, threads
from singa_lite.kernels.onednn_kernels.library import library

#: Packages of a GPU's kernels.
_CUDA = ("cupy-cuda13x", "nvidia-cublas", "nvidia-cudnn-cu13")


@cache  # it takes a millisecond, during a training step
def environment(kernels: str) -> dict[str, str]:
    """Versions, processor and threads, as text. kernels: the set's name."""
    found = {name: _installed(name) for name in ("singa-lite", "h5py", *(_CUDA if kernels == "cuda" else ()))}
    found |= {"Python": platform.python_version(), "NumPy": np.__version__}
    if kernels == "onednn":
        found["oneDNN"] = library.load().version
    return found | {"kernels": kernels, "threads": str(threads.threads()), "processor": machine.processor()}


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
