"""`fit` and `evaluate` by several processes: what one process would do, with files, prints and decisions once."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fit_cases
from data_nets import X, Y
from rank_programs import TESTS, start
from singa_lite.snapshots import formats, latest

#: How far results may lie from one process's: float32's rounding, which some steps of training magnify.
NEAR = 2e-5


def run(ranks: int, folder: Path, *cases: str) -> list[dict[str, Any]]:
    """What cases of `fit_cases.py` found on each rank."""
    status, out = start(ranks, str(Path(TESTS, "fit_cases.py")), str(folder), *cases)
    assert status == 0, out
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(ranks)]


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: Any) -> list[dict[str, Any]]:
    return run(3, tmp_path_factory.mktemp("three"), *fit_cases.CASES, *fit_cases.ERRORS)


@pytest.fixture(scope="module")
def of_one(tmp_path_factory: Any) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("one")
    return {name: case(None, folder) for name, case in fit_cases.CASES.items() if name != "own_loaders"}


def under(made: dict[str, Any], start: str) -> dict[str, Any]:
    """Entries whose names begin so, by the rest of their names."""
    return {name.removeprefix(start): value for name, value in made.items() if name.startswith(start)}


def near(found: Any, wanted: Any) -> None:
    assert found.keys() == wanted.keys() and wanted
    for name, value in wanted.items():
        np.testing.assert_allclose(np.asarray(found[name], float), np.asarray(value, float), NEAR, NEAR, err_msg=name)


def same(found: Any, wanted: Any) -> None:
    assert found.keys() == wanted.keys() and wanted
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("case", ["arrays", "weights", "buckets", "transformed", "logarithms"])
def test_fit_is_that_of_one_process_and_the_same_on_all_ranks(case: str, of_three: Any, of_one: Any):
    metrics = [each[case].pop("metrics", None) for each in of_three]
    wanted = {name: value for name, value in of_one[case].items() if name != "metrics"}
    near(of_three[0][case], wanted)
    for each in of_three[1:]:
        same(each[case], of_three[0][case])
    for found in metrics if metrics[0] is not None else []:
        near(found, of_one[case]["metrics"])


def test_own_loaders_of_unequal_lengths_are_all_gone_through(of_three: Any):
    """The samples of a batch come in another order, so that the sums are others, and nothing else."""
    alone = fit_cases.own_loaders(None, Path())
    for each in of_three:
        near(each["own_loaders"], alone)


def test_a_run_goes_on_to_the_same_bits_and_one_rank_writes(of_three: Any, of_one: Any):
    for each in of_three:
        made = each["resumed"]
        same(under(made, "resumed/"), under(made, "whole/"))
        assert len(made["order behind"]) > 60 and made["order"][-60:] == made["order behind"][-60:]
    assert [each["resumed"]["writes"] > 0 for each in of_three] == [True, False, False]
    assert of_three[0]["resumed"]["order"] == of_one["resumed"]["order"]


def test_another_number_of_ranks_goes_on_in_the_same_order(of_one: Any, of_two: Any):
    """The checkpoint within the second epoch was written by one process, and two go on from it."""
    alone = of_one["resumed"]
    for each in of_two:
        order = each["gone_on"]["order behind"]
        assert len(order) > 30 and order == alone["order"][-len(order) :]
        np.testing.assert_allclose(each["gone_on"]["loss"], alone["whole/history/loss"], NEAR)


def test_places_of_loaders_are_kept_by_rank(of_three: Any):
    for each in of_three:
        same(under(each["stateful"], "resumed/"), under(each["stateful"], "whole/"))


def test_callbacks_decide_alike_and_files_are_written_once(of_three: Any, of_one: Any):
    for each in of_three:
        found = each["ended_alike"]
        assert len(found["history/loss"]) == len(of_one["ended_alike"]["history/loss"]) == 2
        # its first batch, by the others' clocks
        assert found["limited"] == of_one["ended_alike"]["limited"] - 9 * 5 + 1
        assert found["files"] in (["of_0.h5"], [])
    assert of_three[0]["ended_alike"]["files"] == ["of_0.h5"]


def test_a_callback_that_ends_it_on_some_ranks_is_an_error_on_all(of_three: Any):
    for each in of_three:
        assert (
            "wanted the same calls" in each["one_stops"]["error"] or "do something else" in each["one_stops"]["error"]
        )


def test_other_calls_of_fit_on_other_ranks_are_an_error_on_all(of_three: Any):
    for each in of_three:
        epochs, samples, classes, evaluated = each["called_otherwise"]["errors"]
        assert epochs.endswith("epochs 2 on rank 0 and 3 on rank 1")
        assert "samples" in samples and samples.endswith("on rank 2")
        assert "class_weight" in classes and classes.endswith("on rank 1")
        assert evaluated.endswith("samples 20 on rank 0 and 21 on rank 1")


@pytest.mark.parametrize("kind", fit_cases.PARTED)
def test_what_ranks_have_apart_goes_on_to_the_same_bits(kind: str, of_three: Any):
    """Parts of the optimizer's state, and sums of a group of batches."""
    for each in of_three:
        whole, resumed = (under(each["parted"], f"{kind}/{run}/") for run in ("whole", "resumed"))
        same(resumed, whole)


def test_files_are_those_of_a_net_whose_state_is_whole(of_three: Any):
    folder = Path(of_three[0]["parted"]["folder"])
    with formats.opened(folder / "whole.h5") as whole, formats.opened(folder / "parts.h5") as parts:
        assert parts.specs == whole.specs
        assert any(path.startswith("optimizer/hidden/weight/") for path in parts.arrays)
        for path in whole.arrays:
            np.testing.assert_array_equal(parts.read(path), whole.read(path), err_msg=path)
        assert parts.attributes["step"] == whole.attributes["step"]
    for each in of_three:
        made = each["saved_in_parts"]
        values = [{n.partition("/")[2]: v for n, v in made.items() if n.startswith(k)} for k in ("whole/", "read/")]
        parameters = [{n.partition("/")[2]: v for n, v in one.items() if "/weight" in n} for one in values]
        assert parameters[0] and all(np.array_equal(parameters[0][n], parameters[1][n]) for n in parameters[0])


def test_one_process_reads_them_and_goes_on(of_three: Any):
    folder = Path(of_three[0]["parted"]["folder"])
    for kind in fit_cases.PARTED:
        net = fit_cases.of_parts(None, kind)
        with pytest.warns(UserWarning, match="processes was 3, is None"):
            history = net.fit(X, Y, 8, 3, verbose=False, resume=latest(folder / f"{kind} left"))
        np.testing.assert_allclose(history["loss"], of_three[0]["parted"][f"{kind}/loss"], 2e-2)
    whole, parts = fit_cases.of_parts(None, "shard"), fit_cases.of_parts(None, "shard")
    whole.load(folder / "whole.h5")
    parts.load(folder / "parts.h5")
    same(fit_cases.own(parts), fit_cases.own(whole))


def test_where_rank_0_cannot_write_all_are_told(of_three: Any):
    for rank, each in enumerate(of_three):
        path, elsewhere, pickled = each["unwritable"]["errors"]
        assert path.startswith("ParallelError: save: wanted rank 0 to write the file, received of it ") == (rank > 0)
        assert "no such folder" in path
        assert elsewhere.startswith("ParallelError: ") and "wanted the same calls" in elsewhere
        assert pickled.startswith("SnapshotError: pickle: wanted a net whose optimizer's state is on this process")
        assert each["unwritable"]["step"] == of_three[0]["unwritable"]["step"] > 0


@pytest.fixture(scope="module")
def of_two(of_three: Any, tmp_path_factory: Any) -> list[dict[str, Any]]:
    """They go on from what three ranks have left, and one process."""
    folder = tmp_path_factory.mktemp("two")
    for kind in fit_cases.PARTED:
        shutil.copytree(Path(of_three[0]["parted"]["folder"], f"{kind} left"), folder / kind)
    fit_cases.resumed(None, folder)
    for file in sorted((folder / "run").glob("checkpoint-*"))[1:]:
        file.unlink()
    return run(2, folder, "gone_on", "gone_on_parts")


@pytest.mark.parametrize("kind", fit_cases.PARTED)
def test_another_number_of_ranks_reads_what_each_had(kind: str, of_three: Any, of_two: Any):
    for each in of_two:
        made = each["gone_on_parts"][kind]
        np.testing.assert_allclose(made["loss"], of_three[0]["parted"][f"{kind}/loss"], 2e-2)
    assert any("processes was 3, is 2" in text for text in of_two[0]["gone_on_parts"][kind]["told"])
