"""A static check of PTX for races: it finds planted ones, and none in our kernels, in whatever order threads run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

import ptx_launches
import ptx_verdicts
from ptx_verdicts import FOUND, NOT_SYNCHRONIZED, ONE_SIDED, RACE, RACE_FREE, SCHEMA, Verdict
from singa_lite.kernels.cuda_kernels import source
from singa_lite.kernels.cuda_kernels.routine import KernelLaunch

pytestmark = pytest.mark.skipif(bool(ptx_verdicts.missing()), reason=f"wants {ptx_verdicts.missing()}")

KERNELS = [(file, kernel) for file in source.files() for kernel in source.kernels(file)]
#: Addresses by which kernels choose between packs and single elements: it knows none.
ADDRESS = re.compile(r"reinterpret_cast<uint64>\([^()]*\)")
#: What a grid of one thread cannot do: race.
ALONE = Verdict(RACE_FREE, "one thread")
#: How often it says what of launches.
Said = Counter[Verdict]
#: Kernels of which it cannot tell, {name: its reason}: an index or an address that a tensor holds decides which
#: elements are touched, a search in a tensor, or threads that fill no warp.
_BY_INDEX, _BY_TABLE = "allocation_alias_relation_unknown", "dynamic_address_overlap_unresolved"
_SEARCH = "loop_control_not_classified"
UNDECIDED = {
    "in_top_k_of_rows": _BY_INDEX,
    "hits_at_k": _BY_INDEX,
    "sort_tiles": _BY_TABLE,
    "merge_runs": _SEARCH,
    "find_rows": _SEARCH,
    "begin_updates": "partial_warp_launch",
    "sgd_plain_of_several": _BY_TABLE,
    "sgd_momentum_of_several": _BY_TABLE,
    "rms_prop_of_several": _BY_TABLE,
    "ada_grad_of_several": _BY_TABLE,
    "adam_of_several": _BY_TABLE,
    "ams_grad_of_several": _BY_TABLE,
}
#: Kernels of which it cannot tell in some launches, and proves others.
PARTLY = {"cross_entropy_of_ids": _BY_INDEX}


def of_kernel(file: str, kernel: str) -> Said:
    """Of the launches that are chosen, tensors aligned and not."""
    return Counter(said for one in ptx_launches.chosen(file, kernel) for said in _of_launch(one))


def _of_launch(launch: KernelLaunch) -> Iterator[Verdict]:
    """Of it over tensors that are all aligned, then over such that are not."""
    for odd in (0, 1):
        program = ADDRESS.sub(f"uint64({odd})", source.program(launch.file, dict(launch.types)))
        code = ptx_verdicts.of_entry(program, launch.kernel)
        alone = ptx_launches.threads(launch) == 1
        yield ALONE if alone else ptx_verdicts.verdict(code, ptx_launches.settings_of(launch))


def is_found(said: Said) -> bool:
    """Whether a race, or a barrier that some threads do not reach, is among what it said."""
    return any(one.result in FOUND for one in said)


def complaint(kernel: str, said: Said) -> str:
    """What is wrong with what it said of a kernel; "" if nothing is."""
    if not said:
        return "no launch of the contract is small enough to ask about"
    if is_found(said):
        return "a race, or a barrier that some threads do not reach"
    reasons = {one.why for one in said if one.is_undecided}
    listed = UNDECIDED.get(kernel) or PARTLY.get(kernel)
    is_proved = any(not one.is_undecided for one in said)
    if reasons != ({listed} if listed else set()) or is_proved == (kernel in UNDECIDED):
        return f"undecided otherwise than listed, {listed or 'which it is not'}"
    return ""


# ---- the tests

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
    "by a value": ("held[i] = x[i]; __syncthreads(); if (x[i] > 0) y[i] = held[63 - i];", 1, ONE_SIDED),
    "no barrier, by a value": ("held[i] = x[i]; if (x[i] > 0) y[i] = held[63 - i];", 1, RACE),
    "a barrier for some": ("held[i] = x[i]; if (i < 40) __syncthreads(); y[i] = held[63 - i];", 1, NOT_SYNCHRONIZED),
}


def said_of(name):
    body, blocks, _ = PLANTED[name]
    count = {"parameter": "planted_param_2", "type": "u32", "value": 128}
    launch = {"grid_dim": [blocks, 1, 1], "block_dim": [64, 1, 1]}
    settings = {"schema": SCHEMA, "entry": "planted", "launch": launch, "arguments": [count]}
    return ptx_verdicts.verdict(ptx_verdicts.of_entry(KERNEL.format(body=body), "planted"), settings).result


def test_a_planted_race_is_found_and_a_right_kernel_passes():
    assert (said_of("no barrier"), said_of("right")) == (RACE, RACE_FREE)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found(name):
    assert said_of(name) == PLANTED[name][2]


@pytest.mark.nightly
@pytest.mark.parametrize(("file", "kernel"), KERNELS)
def test_no_kernel_of_ours_has_a_race(file, kernel):
    said = of_kernel(file, kernel)
    assert complaint(kernel, said) == "", said


def test_what_is_listed_as_undecided_exists():
    assert (UNDECIDED | PARTLY).keys() <= {kernel for _, kernel in KERNELS}
