"""What the tests of the kernel sets share."""

from __future__ import annotations

import pytest

from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.numpy_kernels import NUMPY
from singa_lite.kernels.onednn_kernels import onednn as onednn_over


@pytest.fixture(scope="session")
def onednn() -> KernelSet:
    """The oneDNN set. Tests that ask for it are skipped where there is no library, and say where it was looked for."""
    try:
        return onednn_over(NUMPY)
    except OSError as error:
        pytest.skip(str(error))
