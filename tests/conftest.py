"""One BLAS thread for all tests: theirs are small matrices, for which threads that wait for each other cost more
than they do, many times so where other processes want the cores. CuPy keeps its files in a folder of the tests' own."""

import os
import tempfile

# Before NumPy is imported, which reads them once; scripts that tests start inherit them.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
user = getattr(os, "getuid", int)()
os.environ.setdefault("CUPY_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"singa_lite_cupy_{user}"))


def pytest_make_parametrize_id(val):
    """A function's own name: with its address, as pytest has it, no two processes would have the same tests."""
    return getattr(val, "__name__", None) if callable(val) else None
