"""The kernel sets that tests run over, as parameters: those of a GPU are marked."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_sets import WITHOUT_CUDNN, cuda_sets, sets_of_a_chain
from singa_lite.kernels.kernel_set import KernelSet

CHAIN = sets_of_a_chain()
#: Without oneDNN, whose own kernels are convolutions, products and pooling: its other calls are those of the loops.
ON_CPU = [kernels for kernels in CHAIN if kernels.name != "onednn"]
ALL = [*ON_CPU, *cuda_sets()]
#: Without those that only put a library's kernels before the kernels of another one here.
WITHOUT_LIBRARIES = [kernels for kernels in ALL if kernels.name not in ("cuda-libraries", "gpu")]


def parameter(kernels: KernelSet, *values: Any, label: str = "") -> Any:
    """The set and further values as one parameter."""
    name = kernels.name + (f"-{label}" if label else "")
    return pytest.param(kernels, *values, id=name, marks=[pytest.mark.gpu] if kernels.name.startswith("gpu") else [])


#: For products.
every_multiplying_set = pytest.mark.parametrize("kernels", [parameter(kernels) for kernels in [*CHAIN, *cuda_sets()]])
#: For convolutions that only libraries have.
every_convolving_set = pytest.mark.parametrize(
    "kernels", [parameter(kernels) for kernels in [*CHAIN, *cuda_sets()] if kernels.name not in WITHOUT_CUDNN]
)
#: For what holds of every kernel set.
every_set = pytest.mark.parametrize("kernels", [parameter(kernels) for kernels in ALL])
#: The same over many calls, for kernels that no library has.
every_own_set = pytest.mark.parametrize("kernels", [parameter(kernels) for kernels in WITHOUT_LIBRARIES])
#: For pooling, which oneDNN has too.
every_library_set = pytest.mark.parametrize(
    "kernels", [parameter(kernels) for kernels in dict.fromkeys((*CHAIN, *WITHOUT_LIBRARIES))]
)
