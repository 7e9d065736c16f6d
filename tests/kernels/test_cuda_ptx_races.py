"""A static check of PTX for races: it finds planted ones, and none in our kernels, in whatever order threads run.

SINGA_LITE_TEST_PTX=all looks at every kernel, and at the kernels less each of their barriers (hours), else at a few.
"""

from __future__ import annotations

import os

import pytest

import barriers
import ptx_races
from ptx_races import NOT_SYNCHRONIZED, ONE_SIDED, RACE, RACE_FREE
from singa_lite.kernels.cuda_kernels import source

pytestmark = pytest.mark.skipif(bool(ptx_races.missing()), reason=f"wants {ptx_races.missing()}")

ASKED_FOR_ALL = os.environ.get("SINGA_LITE_TEST_PTX") == "all"
#: Kernels and a barrier that are looked at in any case.
FEW = (("rms_norm.cu", "rms_norm_gradient"), ("update.cu", "sgd_plain"))
ONE_BARRIER = ("rms_norm.cu:47",)

KERNEL = """
extern "C" __global__ void planted(const float* x, float* y, int n) {{
    __shared__ float held[64];
    const int i = threadIdx.x, block = blockIdx.x * 64;
    {body}
}}
"""
#: What one block of 64 threads does, or two blocks, and what is to be said of it.
PLANTED = {
    "right": ("held[i] = x[i]; __syncthreads(); y[i] = held[63 - i];", 1, RACE_FREE),
    "no barrier": ("held[i] = x[i]; y[i] = held[63 - i];", 1, RACE),
    "one warp of each": ("held[i] = x[i]; __syncwarp(); y[i] = held[i ^ 1];", 1, RACE_FREE),
    "another warp's": ("held[i] = x[i]; __syncwarp(); y[i] = held[i ^ 32];", 1, RACE),
    "a wrong index": ("held[i / 2] = x[i]; __syncthreads(); y[i] = held[i / 2];", 1, RACE),
    "a turn too early": (
        "for (int k = 0; k < n; k += 64) { held[i] = x[k + i]; __syncthreads(); y[k + i] = held[63 - i]; }",
        1,
        RACE,
    ),
    "two blocks": ("y[block + i] = x[block + i];", 2, RACE_FREE),
    "two blocks in one place": ("y[i] = x[block + i];", 2, RACE),
    "a barrier for some": ("held[i] = x[i]; if (i < 40) __syncthreads(); y[i] = held[63 - i];", 1, NOT_SYNCHRONIZED),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name):
    body, blocks, wanted = PLANTED[name]
    count = {"parameter": "planted_param_2", "type": "u32", "value": 128}
    launch = {"grid_dim": [blocks, 1, 1], "block_dim": [64, 1, 1]}
    settings = {"schema": ptx_races.SCHEMA, "entry": "planted", "launch": launch, "arguments": [count]}
    assert ptx_races.verdict(KERNEL.format(body=body), settings).result == wanted


@pytest.mark.parametrize(
    ("file", "kernel"), [(f, k) for f in source.files() for k in source.kernels(f)] if ASKED_FOR_ALL else FEW
)
def test_no_kernel_of_ours_has_a_race(file, kernel):
    said = ptx_races.of_kernel(file, kernel)
    assert said is None or said.result in (RACE_FREE, ONE_SIDED) or said.why in ptx_races.UNTOLD, said


@pytest.mark.parametrize(
    "name", [f"{file}:{line}" for file, line in barriers.barriers()] if ASKED_FOR_ALL else ONE_BARRIER
)
def test_a_barrier_that_is_left_out_is_missed(name):
    file, line = name.split(":")
    assert ptx_races.is_missed((file, int(line)))
