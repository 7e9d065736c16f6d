"""What benchmarks/gpu_first.py asks of CuPy, which only a GPU answers: over streams that are late, and by CuPy's own
signatures. And its supervisor and its files where something is broken."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmark_modules import FOLDER, benchmark_modules

import host_loader
from late_gpu import late_gpu
from singa_lite.errors import DeviceError

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="this copy has no benchmarks, the checkout has")
MISSING = host_loader.missing()
compiles = pytest.mark.skipif(bool(MISSING), reason=f"CUDA kernels cannot run on the host without {MISSING}")


@pytest.fixture
def first_run():
    """A function that imports a module of the benchmark."""
    with benchmark_modules() as module:
        yield lambda name: module(f"first_run.{name}")


@pytest.fixture
def gpu(first_run, monkeypatch):
    """The class for GPUs, over `LateCupy`, whose streams do their work when somebody waits."""
    module = first_run("machine")
    monkeypatch.setattr(module, "COPIED", 1 << 12)
    with late_gpu(1) as (machine, _, _):
        made = module.Gpu(own=True)
        made.late = machine
        yield made


def relu(first_run: Any, n: int) -> Any:
    times = first_run("kernel_times")
    shapes = ((n, 3),) * 2
    return times.Timed("relu", tuple(map(times.plain, times.dtypes("relu", shapes), shapes)), {}, 1)


@compiles
def test_times_of_launches_and_of_a_captured_graph(gpu, first_run):
    times, ran = first_run("kernel_times"), []
    with times.prepared_launch(gpu, gpu.own_set(), relu(first_run, 50)) as launch:

        def counted() -> None:
            ran.append(gpu.on.runtime.stream.is_capturing())
            launch()

        assert gpu.microseconds(counted, 4, repeats=3) == 1000 / 4  # each pair of events is a millisecond apart
        assert ran == [False] * 13
        ran.clear()
        assert gpu.captured_microseconds(counted, 4, repeats=3) == 1000 / 4
        assert ran == [False] + [True] * 4
    assert not gpu.late.capture
    assert gpu.on.pool.used == 0


@compiles
def test_a_launch_that_cannot_be_captured_leaves_no_capture_behind(gpu):
    def launch() -> None:
        if gpu.on.runtime.stream.is_capturing():
            raise DeviceError("not now")

    with pytest.raises(DeviceError, match="not now"):
        gpu.captured_microseconds(launch, 4)
    assert not gpu.on.runtime.stream.is_capturing()
    assert gpu.is_alive()


@compiles
def test_a_copy_is_done_on_the_device_and_its_memory_given_back(gpu):
    assert gpu.copy_bandwidth() == pytest.approx(2 * (1 << 12) / 100 / 1e3)  # ten copies a millisecond
    assert gpu.on.pool.used == 0


@compiles
def test_the_profiler_is_stopped_after_an_error_too(gpu):
    def fail() -> None:
        with gpu.profiled():
            raise ValueError("a kernel")

    with pytest.raises(ValueError, match="a kernel"):
        fail()
    assert gpu.late.profiled == ["start", "stop"]


@compiles
def test_a_process_is_poisoned_where_kernels_stop_to_run(gpu, first_run, monkeypatch):
    assert gpu.is_alive()
    monkeypatch.setattr(gpu.on, "run", lambda *given, **settings: 1 / 0)
    assert not gpu.is_alive()
    monkeypatch.setattr(first_run("machine").device, "cuda", lambda index: 1 / 0)
    assert not first_run("machine").Gpu().is_alive()


@compiles
def test_compiles_for_the_gpu(gpu):
    gpu.compile("elementwise.cu", (("T", "float32"),))


@compiles
def test_versions_tell_what_they_find(gpu, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    found = gpu.versions()  # this CuPy has no version
    assert "nvidia-smi" in found["nvidia-smi"]
    assert found["NumPy"] == np.__version__
    assert "AttributeError" in found["error"]


@compiles
def test_a_contract_case_on_the_gpu(gpu, first_run):
    """By the path that the script takes there: arrays copied to the GPU and back."""
    item, prepared = first_run("item"), first_run("prepared")
    x = np.linspace(-2, 2, 60, dtype=np.float32).reshape(4, 15)
    y, wanted = np.full_like(x, np.nan), {"y": np.maximum(x.astype(np.float64), 0)}
    call = prepared.PreparedCall("relu", [x, y], {}, wanted, {"y": np.maximum(x, 0)})
    options = SimpleNamespace(own=True)
    context = item.Context(options, lambda values: None)
    vars(context).update({"machine": gpu, "prepared": SimpleNamespace(calls={"relu": call})})
    assert first_run("contract").check(context, "relu") == {"own": {"error": 0.0, "equal_bits": True}}


def test_cupy_has_what_is_asked_of_it():
    cupy = pytest.importorskip("cupy", reason="CuPy, pip install cupy-cuda13x")
    event, stream, runtime = cupy.cuda.Event, cupy.cuda.Stream, cupy.cuda.runtime
    inspect.signature(event).bind()
    inspect.signature(event.record).bind(None, None)
    inspect.signature(event.synchronize).bind(None)
    inspect.signature(stream).bind(non_blocking=True)
    inspect.signature(stream.begin_capture).bind(None)
    inspect.signature(stream.end_capture).bind(None)
    wanted = {
        cupy.cuda.get_elapsed_time: "get_elapsed_time(start_event, end_event)",
        cupy.cuda.graph.Graph.launch: "Graph.launch(self, stream=None)",
        cupy.RawModule.compile: "RawModule.compile(self, log_stream=None)",
        runtime.profilerStart: "profilerStart()",
        runtime.profilerStop: "profilerStop()",
        runtime.memcpyAsync: "memcpyAsync(intptr_t dst, intptr_t src, size_t size, int kind, intptr_t stream)",
    }
    for function, signature in wanted.items():
        assert function.__doc__.splitlines()[0] == signature
    assert (runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost, runtime.memcpyDeviceToDevice) == (1, 2, 3)


# --- the supervisor and its files


@pytest.fixture
def supervised(first_run, tmp_path):
    """A function that runs named items by workers that answer as told: what was asked of them, and the results."""

    def run(names: list[str], answers: dict[str, str]) -> tuple[list[str], dict[str, str]]:
        module, item, asked = first_run("supervisor"), first_run("item"), []

        class Worker:
            side = "singa_lite"

            def __init__(self, *given: Any) -> None:
                self.answers = ["ready"]

            def ask(self, name: str) -> None:
                asked.append(name)
                self.answers.append(answers.get(name, "ok"))
                if self.answers[-1]:
                    first_run("worker").append(tmp_path, {"item": name, "status": self.answers[-1]})

            def answer(self, seconds: float) -> str:
                return self.answers.pop(0)

            def end(self) -> int:
                return -signal.SIGKILL

        options = SimpleNamespace(out=tmp_path)
        with pytest.MonkeyPatch.context() as patch, first_run("cache").CompileCache(None) as cache:
            patch.setattr(module, "Worker", Worker)
            results = module.Supervisor(options, 100, cache).run([item.Item(name, 0.1, dict) for name in names])
        return asked, {one["item"]: one["status"] for one in results}

    return run


def test_a_kind_of_items_that_costs_many_workers_comes_last(supervised):
    names = [f"contract/{n}" for n in range(9)] + ["losses", "step"]
    asked, statuses = supervised(names, {f"contract/{n}": "" if n % 2 else "poisoned" for n in range(5)})
    assert asked == [*names[:5], "losses", "step", *names[5:9]]
    assert list(statuses) == names
    assert [statuses[name] for name in ("contract/0", "contract/1", "contract/8", "step")] == [
        "poisoned",
        "died",
        "ok",
        "ok",
    ]


def test_lines_that_a_killed_worker_left_broken_are_passed_over(supervised, tmp_path):
    (tmp_path / "results.jsonl").write_text('{"item": "a", "status": "ok"}\n{"item": "b", "sta\n')
    _, statuses = supervised(["c"], {})
    assert statuses == {"c": "ok"}


def test_a_cache_that_cannot_be_read_or_written_stops_nothing(first_run, tmp_path):
    archive, cache = tmp_path / "cache.tar.gz", first_run("cache").CompileCache
    with cache(archive) as made:
        for broken in (b"no archive", b"\x1f\x8b\x08", b""):
            archive.write_bytes(broken)
            assert "cache: " in made.unpack()
        assert (made.save(), made.unpack()) == ("", "")
    with cache(tmp_path / "nowhere" / "cache.tar.gz") as made:
        assert made.unpack() == ""
        assert "cache: " in made.save()


def test_a_worker_that_does_not_go_is_left(first_run, tmp_path, monkeypatch):
    """As a driver holds one that waits for a kernel."""
    module = first_run("supervisor")
    options = SimpleNamespace(program="-c", arguments=["import time; time.sleep(60)"])
    worker = module.Worker(options, "singa_lite", tmp_path / "log", {})

    def wait(seconds: float | None = None) -> int:
        raise subprocess.TimeoutExpired(sys.executable, seconds or 0)

    gone = worker._process.wait
    monkeypatch.setattr(worker._process, "wait", wait)
    assert worker.end() == -signal.SIGKILL
    assert gone() == -signal.SIGKILL
