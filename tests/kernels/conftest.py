"""What the tests of the kernel sets share."""

from __future__ import annotations

from typing import Any

import pytest

from host_loader import missing_to_run
from kernel_sets import WITHOUT_CUDNN, cuda_sets
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.loop_kernels import loops
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.kernels.onednn_kernels import onednn as onednn_over


@pytest.fixture(scope="session")
def onednn() -> KernelSet:
    """The oneDNN set above the loops. Tests that ask for it are skipped where there is no library, and say why."""
    try:
        return onednn_over(loops(NUMPY))
    except OSError as error:
        pytest.skip(f"{error}; pip install onednn-cpu-gomp")


def _own_cuda_kernels() -> list[Any]:
    """The sets of CUDA kernels of ours: on the host, and on a GPU where there is one."""
    found = [kernels for kernels in cuda_sets() if kernels.name in WITHOUT_CUDNN]
    marks = {"gpu-own": [pytest.mark.gpu]}
    params = [pytest.param(kernels, id=kernels.name, marks=marks.get(kernels.name, [])) for kernels in found]
    why = pytest.mark.skip(reason=f"the CUDA kernels on the host want {missing_to_run()}")
    return params or [pytest.param(None, id="cuda", marks=why)]


@pytest.fixture(scope="session", params=_own_cuda_kernels())
def cuda(request: pytest.FixtureRequest) -> KernelSet:
    """The CUDA kernels of ours."""
    return request.param
