"""Passes of normalisations load several packs before they store the first: a load behind a store would wait for it."""

from __future__ import annotations

import re

import pytest

import launches
import nvrtc_compiler
import ptx_verdicts
from singa_lite.kernels.cuda_kernels import source

pytestmark = pytest.mark.skipif(bool(nvrtc_compiler.missing()), reason=f"wants {nvrtc_compiler.missing()}")

AT_ONCE = 4
PASSES = {
    "batch_norm.cu": {"batch_normalize", "batch_normalize_add", "batch_inference"},
    "batch_norm_derivative.cu": {"batch_derivative", "batch_derivative_add", "batch_derivative_masked"},
}
_KERNEL = re.compile(r"\.entry (\w+)\(.*?\{(.*?)\n\}", re.DOTALL)
#: What ends a row of stores: a load, a label, a branch.
_ENDS = re.compile(r"\bld\.global|^\s*\$\w+:|\bbra\b", re.MULTILINE)


def stores_in_a_row(program: str) -> dict[str, int]:
    """By kernel, the most packs of 16 bytes that it stores with no load and no branch in between."""
    text = ptx_verdicts.ptx(program).decode()
    return {
        kernel: max(part.count("st.global.v4.f32") for part in _ENDS.split(body))
        for kernel, body in _KERNEL.findall(text)
    }


@pytest.mark.parametrize("file", PASSES)
def test_packs_are_stored_behind_the_loads_of_all(file):
    found = stores_in_a_row(source.program(file, launches.types_of(file, "float32")[0]))
    assert {kernel for kernel, count in found.items() if count >= AT_ONCE} >= PASSES[file]


@pytest.mark.parametrize(("between", "wanted"), [("", 4), ("v[k] = x[k + 4];", 1)], ids=["loads first", "one by one"])
def test_a_load_behind_each_store_is_seen(between, wanted):
    body = "for (int k = 0; k < 4; ++k) { __BETWEEN__ y[k] = v[k]; }".replace("__BETWEEN__", between)
    text = f"""extern "C" __global__ void planted(const float4* x, float4* y) {{
        float4 v[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) v[k] = x[k];
        #pragma unroll
        {body}
    }}"""
    assert stores_in_a_row(text) == {"planted": wanted}
