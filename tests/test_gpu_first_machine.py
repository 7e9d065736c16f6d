"""What benchmarks/gpu_first.py asks of CuPy, over streams that do their work late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmark_modules import FOLDER, benchmark_modules

import host_loader
from late_gpu import late_gpu

MISSING = host_loader.missing()
pytestmark = [
    pytest.mark.skipif(not FOLDER.is_dir(), reason="this copy has no benchmarks, the checkout has"),
    pytest.mark.skipif(bool(MISSING), reason=f"CUDA kernels cannot run on the host without {MISSING}"),
]


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


def test_a_process_is_poisoned_where_kernels_stop_to_run(gpu, first_run, monkeypatch):
    assert gpu.is_alive()
    monkeypatch.setattr(gpu.on, "run", lambda *given, **settings: 1 / 0)
    assert not gpu.is_alive()
    monkeypatch.setattr(first_run("machine").device, "cuda", lambda index: 1 / 0)
    assert not first_run("machine").Gpu().is_alive()


def test_what_is_measured_and_compiled_leaves_nothing_behind(gpu):
    """Also after an error: a profiler is stopped."""
    assert gpu.copy_bandwidth() == pytest.approx(2 * (1 << 12) / 100 / 1e3)  # ten copies a millisecond
    gpu.compile("elementwise.cu", (("T", "float32"),))
    assert gpu.versions()["NumPy"] == np.__version__
    with pytest.raises(ValueError), gpu.profiled():
        raise ValueError
    assert gpu.late.profiled == ["start", "stop"]
    assert gpu.on.pool.used == 0


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
