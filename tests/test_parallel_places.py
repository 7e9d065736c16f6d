"""Where ranks train: each on a GPU of its own, or all on CPUs; what is missing is told before the first step."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from threading import Event
from types import SimpleNamespace

import pytest

from late_cupy import LateCupy
from singa_lite.errors import ParallelError
from singa_lite.kernels.collective import CollectiveKind
from singa_lite.parallel import nccl
from singa_lite.parallel.gpus import Place, _check
from singa_lite.parallel.nccl import Nccl, Numbers


@pytest.mark.parametrize(
    ("places", "says"),
    [
        ([Place("cpu"), Place("cuda:0", "a, 1", 2)], "rank 0 on cpu and rank 1 on cuda:0"),
        ([Place("cuda:0", "a, 1", 2), Place("cpu")], "received rank 0 on cuda:0 and rank 1 on cpu"),
        ([Place("cuda:0", f"a, {n}", 2) for n in (1, 2, 1)], r"received ranks 0 and 2 on one \(a, 1\); .*cuda\(\)"),
        ([Place("cuda:0", "a, 1", 2), Place("cuda:0", "b, 1", 3)], "received 2 on rank 0 and 3 on rank 1"),
    ],
    ids=["a gpu late", "a cpu late", "one gpu twice", "versions"],
)
def test_ranks_that_may_not_train_together_are_named(places, says):
    with pytest.raises(ParallelError, match=says):
        _check(places)
    _check([Place("cuda:0", "a, 1", 2), Place("cuda:0", "b, 1", 2)])  # of two machines, with one address


class Ranks:
    """Rank 1 of 3. waited: what it was asked to wait for."""

    rank, size = 1, 3

    def gathered(self, value, doing):
        return [b"id", value, value]

    def wait(self, pending, doing):
        """For a tenth of a second."""
        end = time.monotonic() + 0.1
        while not pending.poll():
            if time.monotonic() > end:
                raise ParallelError(f"{doing} nobody comes but {pending.late_ranks()}")
            time.sleep(0.001)


class Comm:
    """Notes what is asked."""

    def __init__(self, *made):
        self.asked = [("made", *made)]
        self.error = None

    def check_async_error(self):
        if self.error:
            raise self.error

    def __getattr__(self, name):
        return lambda *arguments: self.asked.append((name, *arguments))


class NcclError(RuntimeError):
    """CuPy's."""


def connected(make, here=nullcontext):
    """The ranks' GPUs, NCCL's own object made so."""
    return Nccl(SimpleNamespace(get_unique_id=lambda: b"id", NcclCommunicator=make), Ranks(), here)


def test_ranks_that_do_not_find_each_other_are_an_error_at_the_time_limit():
    never = Event()
    with pytest.raises(ParallelError, match=r"\[0, 2\]"):
        connected(lambda *_: never.wait())
    never.set()


def test_nccl_begins_where_the_gpu_is_the_current_one():
    inside = ContextVar("inside", default=False)

    @contextmanager
    def here():
        token = inside.set(True)
        yield
        inside.reset(token)

    found = []
    connected(lambda *_: found.append(inside.get()), here)
    assert found == [True]


@pytest.fixture
def made():
    """(the ranks' GPUs, what is asked of NCCL)."""
    comms = []
    names = {f"NCCL_{name}": name for name in ("SUM", "FLOAT16", "FLOAT32", "FLOAT64")}
    module = SimpleNamespace(
        **names,
        NcclError=NcclError,
        get_unique_id=lambda: b"id",
        groupStart=lambda: comms[0].asked.append(("groupStart",)),
        groupEnd=lambda: comms[0].asked.append(("groupEnd",)),
        NcclCommunicator=lambda *arguments: comms.append(Comm(*arguments)) or comms[-1],
    )
    return Nccl(module, Ranks(), nullcontext), comms[0]


@pytest.mark.parametrize(
    ("way", "numbers", "asked"),
    [
        (CollectiveKind.SUM, Numbers(1000, 7, "float32"), [("allReduce", 1000, 1000, 7, "FLOAT32", "SUM", 5)]),
        (
            CollectiveKind.OWN_PART,
            Numbers(1000, 12, "float64"),
            [("reduceScatter", 1000, 1032, 4, "FLOAT64", "SUM", 5)],
        ),
        (CollectiveKind.ALL_PARTS, Numbers(1000, 12, "float16"), [("allGather", 1008, 1000, 4, "FLOAT16", 5)]),
        (
            CollectiveKind.OWN_PART,
            Numbers(1000, 4, "float32"),
            [
                ("groupStart",),
                ("reduce", 1000, 1000, 2, "FLOAT32", "SUM", 0, 5),
                ("reduce", 1008, 1008, 2, "FLOAT32", "SUM", 1, 5),
                ("groupEnd",),
            ],
        ),
        (CollectiveKind.SUM, Numbers(1000, 0, "float32"), []),
    ],
    ids=["sum", "part", "parts", "unequal", "none"],
)
def test_what_is_asked_worked_out_by_hand(made, way, numbers, asked):
    found, comm = made
    found.ask(way, numbers, 5)
    assert comm.asked == [("made", 3, b"id", 1), *asked]


def test_a_wait_that_fails_ends_what_is_under_way_once(made):
    found, comm = made
    stream = LateCupy(0).cuda.Stream(non_blocking=True)
    stream.submit(lambda: None, lambda: False)
    with pytest.raises(ParallelError, match=r"nobody comes but \[0, 2\]"):
        found.wait(stream)
    found.wait(stream)
    found.abort()
    assert comm.asked[1:] == [("abort",)]


def test_an_end_of_nccl_that_never_comes_holds_nobody_up(made, monkeypatch):
    found, comm = made
    never = Event()
    comm.abort = never.wait
    monkeypatch.setattr(nccl, "TO_END", 0.05)
    stream = LateCupy(0).cuda.Stream(non_blocking=True)
    stream.submit(lambda: None, lambda: False)
    with pytest.raises(ParallelError, match=r"nobody comes but \[0, 2\]"):
        found.wait(stream)
    never.set()


def test_an_error_of_nccl_ends_a_wait(made):
    found, comm = made
    comm.error = NcclError("unhandled system error")
    stream = LateCupy(0).cuda.Stream(non_blocking=True)
    stream.submit(lambda: None, lambda: False)
    with pytest.raises(ParallelError, match=r"rank 1: .*unhandled system error"):
        found.wait(stream)
    assert comm.asked[1:] == [("abort",)]


def test_a_cupy_without_nccl_says_what_brings_it(monkeypatch):
    monkeypatch.setattr(nccl, "import_module", lambda name: SimpleNamespace(available=False))
    assert nccl.missing(SimpleNamespace(__name__="cupy")).endswith("pip install 'singa-lite[nccl13]' brings it")
    monkeypatch.setattr(nccl, "import_module", lambda name: SimpleNamespace(available=True))
    assert nccl.missing(SimpleNamespace(__name__="cupy")) == ""
