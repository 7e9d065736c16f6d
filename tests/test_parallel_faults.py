"""What goes wrong in a job of several processes is one clear error, and no rank hangs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import rank_faults
from rank_programs import TESTS, start
from singa_lite import FeedForwardNet, device, layers, loss, optimizer, parallel, regularizer
from singa_lite.errors import GraphError, ParallelError
from singa_lite.kernels.choice import find_onednn
from singa_lite.parallel import DataParallel
from singa_lite.parallel.communicator import SingleProcess
from singa_lite.parallel.gradients.buckets import Buckets
from singa_lite.snapshots import sharded_state as apart
from singa_lite.tensor import from_numpy
from singa_lite.training.loop.rank_batches import joined_places, own_place

SCRIPT = str(Path(TESTS, "rank_faults.py"))


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """{case: what each of three ranks is told}."""
    folder = tmp_path_factory.mktemp("faults")
    cases = [case.__name__ for case in rank_faults.SURVIVED]
    status, out = start(3, SCRIPT, str(folder), *cases)
    assert status == 0, out
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(3)]
    return {case: [each[case] for each in found] for case in cases}


@pytest.mark.parametrize(
    ("case", "wanted"),
    [
        ("differing", r"ParallelError: step 0: .*'b/weight' on rank 1"),
        ("differing_later", r"ParallelError: step 2: .*'a/bias'.* on rank 1"),
        ("other_net", r"ParallelError: .*rank 1"),
        ("two_nets", r"GraphError: compile parallel: "),
        ("copied", r"GraphError: compile parallel: "),
    ],
)
def test_all_ranks_are_told(told, case, wanted):
    for message in told[case]:
        assert re.match(wanted, message), message


def test_an_option_that_differs_is_named(told):
    """Before the first step, where sums alone would not show it."""
    wanted = [
        ("schedule Constant(value=0.2)", "Constant(value=0.3)"),
        ("clip_global_norm None", "1.0"),
        ("accumulate None", "2"),
        ("check_every of parallel.mpi 100", "3"),
        ("rounding ['stochastic', 3]", "['stochastic', 4]"),
    ]
    for messages in told["other_settings"]:
        for (first, second), message in zip(wanted, messages.split("\n"), strict=True):
            assert "ParallelError: " in message
            assert f"{first} on rank 0 and {second} on rank 1" in message, message


def test_a_batch_that_does_not_fit_one_rank_changes_nothing(told):
    first, second, third = told["refused_batch"]
    assert re.match(r"ShapeError: .*\(4, 21\)", second)
    assert all(re.match(r"ParallelError: step 0: .* rank 1 ShapeError: ", message) for message in (first, third))
    assert all(message.endswith("| unchanged True, step 1") for message in told["refused_batch"])


def test_a_program_that_ends_early_on_one_rank_ends_the_job(tmp_path):
    status, out = start(2, SCRIPT, str(tmp_path), "leaves", seconds=50)
    assert status != 0 and "rank 0: wanted" in out and "within 3 s, received nothing from rank 1" in out
    assert not list(tmp_path.iterdir())


# ---- one process


def net(opt=None, **options):
    made = FeedForwardNet(loss.SoftmaxCrossEntropy())
    made.add(layers.Dense("dense", 3, input_sample_shape=(4,)))
    made.compile(opt or optimizer.SGD(0.1), **options)
    return made


def test_without_mpiexec_one_process_is_alone(monkeypatch):
    for name in ("PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", None)  # it is not wanted
    ranks = parallel.mpi()
    assert (ranks.rank, ranks.size) == (0, 1)
    assert ranks.gathered("x") == ["x"]
    assert net(parallel=ranks).parallel is ranks
    with pytest.raises(TypeError, match="compile parallel"):
        net(parallel=4)
    assert parallel.mpi(in_flight_bytes="1 MB").bucket_bytes == 500_000  # of 4 MB


def test_under_mpiexec_mpi4py_is_wanted(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setitem(__import__("sys").modules, "mpi4py", None)
    with pytest.raises(ParallelError, match=r'pip install "\.\[mpi\]"'):
        parallel.mpi()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"timeout": 0}, ValueError, "timeout"),
        ({"bucket_bytes": "much"}, ValueError, "bucket_bytes"),
        ({"bucket_bytes": 0}, ValueError, "bucket_bytes"),
        ({"in_flight_bytes": None}, TypeError, "in_flight_bytes"),
        ({"check_every": 0}, ValueError, "check_every"),
        ({"compress": "bfloat16"}, TypeError, "mpi compress: wanted gradients in float32.*deleted"),
        ({"shards": "state"}, TypeError, "perhaps shard"),
    ],
)
def test_options_that_are_none(options, error, message):
    with pytest.raises(error, match=message):
        parallel.mpi(**options)


class Two(SingleProcess):
    """Stands for the first of two processes."""

    size = 2


def two(shard=None, sync=False, bucket_bytes=1000):
    return DataParallel(Two(), bucket_bytes, 100_000, shard, sync, 100)


@pytest.mark.parametrize(
    ("ranks", "options", "error", "message"),
    [
        ({}, {"step": lambda net, call: None}, ValueError, "step"),
        ({}, {"order": "dependencies"}, ValueError, "order"),
        ({}, {"offload": "host", "memory_budget": "1 GiB"}, ValueError, "offload"),
        ({"shard": "state"}, {"state_dtype": "bfloat16"}, ValueError, "state_dtype"),
        (
            {"shard": "state"},
            {"parameter_dtype": "bfloat16"},
            ValueError,
            "parameter_dtype='bfloat16': wanted whole",
        ),
        ({"shard": "state"}, {"constraint": regularizer.NormConstraint(1.0)}, ValueError, "constraints"),
        ({"sync": True}, {"precision": "bfloat16"}, ValueError, "precision"),
        (
            {},
            {"loss": {"one": loss.SoftmaxCrossEntropy(ignore_index=0), "two": loss.SquaredError()}},
            GraphError,
            "'one'",
        ),
    ],
)
def test_what_several_processes_cannot_do_is_refused(ranks, options, error, message):
    options = dict(options)
    constraint = options.pop("constraint", None)
    made = FeedForwardNet(None if "step" in options else loss.SoftmaxCrossEntropy())
    made.add(layers.Dense("dense", 3, input_sample_shape=(4,)))
    made.add(layers.Dense("one", 3), "dense")
    if "loss" in options:
        made.add(layers.Dense("two", 3), "dense")
    with pytest.raises(error, match=message):
        made.compile(optimizer.SGD(0.1, momentum=0.5, constraint=constraint), parallel=two(**ranks), **options)
    assert made.optimizer is None


def test_places_of_loaders_want_as_many_ranks_again():
    """All else of a checkpoint is read by any number."""
    kept = joined_places([{"epoch": 1}, {"epoch": 2}, None])
    for ranks, place in ((two(), kept), (None, kept), (two(), {"epoch": 1})):
        with pytest.raises(ValueError, match="loader"):
            own_place(ranks, place)


def test_state_that_lies_otherwise_is_refused():
    """Whole state cannot be updated in parts, nor parts whole."""
    opt = optimizer.SGD(0.1, momentum=0.5)
    made = net(opt)
    made.train_one_batch(np.ones((2, 4), np.float32), np.zeros(2, np.int64))
    with pytest.raises(GraphError, match="whole"):
        made.compile(opt, parallel=two("state"))
    made.compile(opt)  # as it was
    other = optimizer.SGD(0.1, momentum=0.5)
    made.compile(other, parallel=two("state"))
    (part,) = (value for name, value in apart.own_values(made).items() if name == "dense/weight")
    other.state_for("dense/weight", part)
    with pytest.raises(GraphError, match="parts"):
        made.compile(other)
    with pytest.raises(GraphError, match="other parts"):
        made.compile(other, parallel=two("state", bucket_bytes=1))
    made.compile(other, parallel=two("state"))


def test_ranks_that_lay_parameters_otherwise_are_refused(told):
    for rank, message in enumerate(told["lies_otherwise"]):
        if isinstance(find_onednn(), str):  # both have NumPy's, then
            assert not message
        else:
            wanted = "ParallelError: step 0: .* 'conv/weight' in another order in memory on rank 1 than on rank 0"
            assert re.match(wanted, message), (rank, message)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda net: setattr(net.optimizer, "constraint", regularizer.NormConstraint(1.0)), ValueError, "constraints"),
        (lambda net: net.optimizer.keep_state_as("bfloat16"), ValueError, "state_dtype"),
        (lambda net: setattr(net, "loss", OfTheBatch()), GraphError, "OfTheBatch"),
    ],
    ids=["constraint", "state", "loss"],
)
def test_what_is_set_later_is_refused_as_by_compile(change, error, message):
    net = rank_faults.mlp()
    net.compile(optimizer.SGD(0.1, momentum=0.9), parallel=two(shard="state"))
    change(net)
    with pytest.raises(error, match=message):
        net.train_one_batch(np.ones((4, 20), np.float32), np.zeros(4, np.int64))


class OfTheBatch(loss.SoftmaxCrossEntropy):
    """A loss that is no mean over samples."""

    of_whole_batch, is_counted = True, False


def test_values_of_several_dtypes_are_summed_apart():
    """Running statistics of a layer of one's own may be of any."""
    on, sums = device.new_cpu(), []
    values = [from_numpy(np.arange(n, dtype=dtype), on) for n, dtype in ((3, "f4"), (4, "f8"), (5, "f4"))]
    ranks = SimpleNamespace(bucket_bytes=1 << 20, add_up=lambda given, turn: sums.append(np.array(given)))
    taken = {}
    turn = from_numpy(np.float64(0), on)
    buckets = Buckets(ranks, turn, values, lambda name, value, total: taken.setdefault(name, np.array(total)))
    for number, value in enumerate(values):
        buckets.take(str(number), value, value)
    buckets.end()
    assert [(each.dtype.name, each.size) for each in sums] == [("float32", 3), ("float64", 4), ("float32", 5)]
    assert [taken[name].tolist() for name in "012"] == [np.array(value).tolist() for value in values]
