"""Attention by cuDNN: graphs that the library itself takes for a described GPU, done by NumPy from what it was told.

With a driver that loads nothing, the library compiles its engines and says what workspace they want.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from kernel_cases_attention import KEY, reference

from host_kernels import OverNumPy
from host_libraries import attention, missing
from host_loader import HostLoader, missing_to_run
from kernel_case import garbage, run
from singa_lite.kernels.built import of_specs
from singa_lite.kernels.cuda_kernels.libraries.cudnn_attention import Attention
from singa_lite.kernels.cuda_kernels.routine import CudaKernel
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import specs_of

MISSING = missing() or missing_to_run()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"wants {MISSING}")

HALVES = [np.dtype(np.float16), np.dtype(import_module("ml_dtypes").bfloat16)]
#: (n, t, s, heads, kv_heads, size): one of each, more rows than keys and fewer, groups, one row, the largest size.
SIZES = [(2, 5, 7, 2, 2, 8), (3, 70, 50, 4, 2, 40), (1, 33, 33, 6, 1, 64), (2, 1, 9, 3, 3, 16), (2, 9, 4, 2, 1, 128)]
#: Bounds of what a rounding to 16 bits of each of the operands and of the results may add, as shares of the largest.
ROUNDING = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def kernels(made: Attention) -> OverNumPy:
    """The builders as a set without a fallback."""
    builders = {name: of_specs(name, build) for name, build in made.builders.items()}
    return OverNumPy("cudnn", {name: CudaKernel(build, HostLoader()) for name, build in builders.items()})


@pytest.fixture(scope="module")
def cudnn() -> OverNumPy:
    return kernels(attention())


class Problem:
    """Attention with 16-bit operands in the interface's order, and its results in float64 by the formula as it stands.

    Derivatives are those of sum(y * dy).
    """

    def __init__(self, sizes: tuple[int, ...], dtype: np.dtype, causal: bool) -> None:
        n, t, s, heads, kv_heads, size = sizes
        rng = np.random.default_rng(5)
        shapes = (n, t, heads, size), (n, s, kv_heads, size), (n, s, kv_heads, size), (n, t, heads, size)
        self.q, self.k, self.v, self.dy = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
        self.settings = {"causal": causal, "scale": 0.7 / np.sqrt(size)}
        wide = [a.astype(np.float64) for a in (self.q, self.k, self.v, self.dy)]
        self.exact = exact(*wide, causal, self.settings["scale"])

    def forward(self) -> list[Any]:
        n, t, heads, _ = self.q.shape
        results = [garbage(self.q.shape, self.q.dtype), garbage((n, heads, t), np.dtype(np.float32))]
        return [self.q, self.k, self.v, None, None, None, *results]

    def backward(self) -> list[Any]:
        y, lse = self.exact["y"].astype(self.q.dtype), self.exact["lse"].astype(np.float32)
        results = [garbage(a.shape, a.dtype) for a in (self.q, self.k, self.v)]
        return [self.dy, self.q, self.k, self.v, None, None, None, y, lse, *results]

    def check(self, cudnn: OverNumPy, name: str, operands: list[Any]) -> None:
        run(cudnn, name, operands, self.settings)
        signature = SIGNATURES[name]
        for tensor, role, got in zip(signature.tensors, signature.roles, operands, strict=True):
            if role == "Write":
                wanted = self.exact[tensor]
                bound = 4 * ROUNDING[self.q.dtype.name] * np.abs(wanted).max()
                np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=0, atol=bound, err_msg=tensor)


def exact(q: Any, k: Any, v: Any, dy: Any, causal: bool, scale: float) -> dict[str, np.ndarray]:
    """All results, with all probabilities at once."""
    y, lse = reference(q, k, v, None, causal, scale)
    group = q.shape[2] // k.shape[2]
    keys, values = (np.repeat(a, group, axis=2) for a in (k, v))
    p = np.exp(scale * np.einsum("nthd,nshd->nhts", q, keys) - lse[..., None])
    if causal:
        p = np.tril(p)
    dp = np.einsum("nthd,nshd->nhts", dy, values)
    ds = scale * p * (dp - np.einsum("nthd,nthd->nht", dy, y)[..., None])
    of_heads = np.einsum("nhts,nthd->nshd", ds, q), np.einsum("nhts,nthd->nshd", p, dy)
    dk, dv = (a.reshape(*k.shape[:3], group, -1).sum(3) for a in of_heads)
    return {"y": y, "lse": lse, "dq": np.einsum("nhts,nshd->nthd", ds, keys), "dk": dk, "dv": dv}


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_equals_the_formula(cudnn, dtype, causal):
    for sizes in SIZES:
        problem = Problem(sizes, dtype, causal)
        problem.check(cudnn, "attention", problem.forward())
        problem.check(cudnn, "attention_derivative", problem.backward())
