"""Several processes train on GPUs, over NCCL, as on CPUs: over streams that do their work late, in any legal order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import host_loader
import rank_cases
import rank_programs

pytestmark = pytest.mark.skipif(
    bool(host_loader.missing_to_run()),
    reason=f"CUDA kernels cannot run on the host without {host_loader.missing_to_run()}",
)

#: Cases, and how far results may lie from one process's.
CASES = {"recorded": 3e-6, "idle": 3e-6, "sharded": 3e-6, "dropped": None}
COUNT = 2


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Of each rank {"case/name": array}, and which collectives NCCL was asked for."""
    folder = tmp_path_factory.mktemp("gpus")
    script = str(Path(rank_programs.TESTS, "gpu_rank_cases.py"))
    status, out = rank_programs.start(COUNT, script, str(folder), *CASES, seconds=240)
    assert status == 0, out
    ranks = [dict(np.load(folder / f"{rank}.npz")) for rank in range(COUNT)]
    return ranks, set(np.load(folder / "asked0.npz")["names"])


def of(case, values):
    return {name.partition("/")[2]: array for name, array in values.items() if name.startswith(f"{case}/")}


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_have_the_same_bits(found, case):
    first, other = (of(case, values) for values in found[0])
    names = [name for name in first if name != "state"]
    assert names
    assert all(np.array_equal(first[name], other[name]) for name in names)


@pytest.mark.parametrize("case", [case for case, limit in CASES.items() if limit])
def test_it_is_what_one_process_finds_on_a_cpu(found, case):
    alone, one = rank_cases.CASES[case](None, COUNT), of(case, found[0][0])
    for name in alone.keys() - {"state"}:
        np.testing.assert_allclose(one[name], alone[name], rtol=CASES[case], atol=CASES[case])


def test_each_rank_drops_others(found):
    first, second = of("dropped", found[0][0])["kept"]
    assert not np.array_equal(first, second)
    assert np.array_equal(first, rank_cases.CASES["dropped"](None, COUNT)["kept"][0])


def test_state_of_parts_is_summed_and_gathered_by_parts(found):
    assert found[1] == {"allReduce", "reduceScatter", "allGather", "reduce", "broadcast"}
