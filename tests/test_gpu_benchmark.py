"""benchmarks/gpu.py as far as it goes without a GPU: its table and goals, what it says and returns, PyTorch's side."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import skips
from benchmark_modules import FOLDER, benchmark_modules

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="this copy has no benchmarks, the checkout has")

MIB = 2**20


@pytest.fixture(scope="module")
def load() -> Iterator[Any]:
    """Imports a module of the folder by name, and forgets all of them in the end."""
    with benchmark_modules() as importer:
        yield importer


def run(milliseconds: float, mib: float = 1, loss: float = 2.5) -> dict[str, Any]:
    """What a measured process prints."""
    seconds = [milliseconds / 1e3] * 3
    return {"seconds": seconds, "peak": mib * MIB, "losses": [loss, 1.0], "versions": {"torch": "9.9"}}


def result(net: str, **changed: Any) -> dict[str, Any]:
    """A net with eager PyTorch, a faster way, and one that is not there."""
    peers = {"torch": [run(3, 100)], "torch-channels-last": [run(1.5, 120)], "torch-compile": "no C compiler"}
    return {"net": net, "batch": 16, "tf32": False, "ours": [run(1.2, 70)], "peers": peers | changed}


# ---- goals and the table


def said(load, net, **changed):
    """The goals as they are printed, by peer."""
    made = result(net, **changed)
    found = load("gpu_report").goals(net, made["ours"], made["peers"])
    return {peer: [str(goal) for goal in goals] for peer, goals in found.items()}


def test_small_nets_are_held_to_eager_speed_and_memory(load):
    assert said(load, "lenet") == {
        "torch": ["memory at most 0.75: 0.70, met", "speed at least 2: 2.50, met"],
        "torch-channels-last": [],
    }
    missed = said(load, "mlp", torch=[run(2.3, 90)])["torch"]
    assert missed == ["memory at most 0.75: 0.78, **missed**", "speed at least 2: 1.92, **missed**"]


def test_resnet_is_held_to_the_fastest(load):
    assert said(load, "resnet50")["torch-channels-last"] == ["speed at least 1 of the fastest: 1.25, met"]
    fastest = said(load, "resnet50", **{"torch-compile": [run(0.9)]})
    assert fastest["torch-compile"] == ["speed at least 1 of the fastest: 0.75, **missed**"]
    assert fastest["torch-channels-last"] == []


def test_other_nets_are_held_to_memory(load):
    assert said(load, "vgg16") == {"torch": ["memory at most 0.75: 0.70, met"], "torch-channels-last": []}
    assert said(load, "vgg16", torch="failed: no memory") == {"torch-channels-last": []}


def test_a_row_tells_both_sides(load):
    report = load("gpu_report")
    eager, _, compiled = (line.strip("| ").split(" | ") for line in report.rows(result("vgg16")))
    assert eager[:4] == ["vgg16, 16, true float32", "torch", "1.200", "3.000"]
    assert eager[4:8] == ["2.50 (2.50..2.50)", "70", "100", "0.70"]
    assert eager[8:] == ["2.500000", "2.500000", "memory at most 0.75: 0.70, met"]
    assert compiled[1:5] == ["torch-compile", "1.200", "", "no C compiler"]


def test_rows_are_as_wide_as_their_heading(load):
    report = load("gpu_report")
    lines = [*report.heading().splitlines(), *report.rows(result("resnet50"))]
    assert len({line.count("|") for line in lines}) == 1


def test_a_net_without_peers_has_a_row(load):
    (line,) = load("gpu_report").rows({**result("mlp"), "peers": {}})
    assert "| mlp, 16, true float32 |  | 1.200 |" in line


@pytest.mark.parametrize(
    ("loss", "tf32", "differs"),
    [(2.5001, False, False), (2.501, False, True), (2.501, True, False), (2.6, True, True), (float("nan"), True, True)],
)
def test_first_losses_are_compared(load, loss, tf32, differs):
    report = load("gpu_report")
    assert report.losses_differ([run(1)], [run(1, loss=loss)], tf32) == differs
    assert not report.losses_differ([run(1)], "not installed", tf32)
    lines = report.rows({**result("mlp", torch=[run(1, loss=loss)]), "tf32": tf32})
    assert (f"**{loss:.6f}**" in lines[0]) == differs


def test_the_page_says_where_when_and_how(load):
    where = {"gpu": "NVIDIA X, 80 GiB", "driver": "580.1", "date": "2026-11-21", "versions": {"torch": "9.9"}}
    options = {"optimizer": "momentum", "rounds": 3, "warmup": 10, "steps": 50}
    rounding = {**result("vgg16"), "tf32": True}
    lines = load("gpu_report").markdown(where, options, [result("mlp"), rounding]).splitlines()
    assert lines[0].startswith(
        "2026-11-21, NVIDIA X, 80 GiB, driver 580.1. true float32: every factor has 24 bits, on both sides; TF32: "
    )
    assert "momentum, medians of 3 rounds" in lines[0]
    assert [line.split(" | ")[0] for line in lines if line.startswith(("| mlp", "| vgg16"))] == [
        *["| mlp, 16, true float32"] * 3,
        *["| vgg16, 16, TF32"] * 3,
    ]
    assert "torch 9.9" in lines
    assert len([line for line in lines if line.startswith("|")]) == 2 + 6


def test_versions_of_both_sides_are_named(load):
    made = result("mlp", **{"torch-compile": [{**run(1), "versions": {"cudnn": 9}}]})
    assert load("gpu").versions([made]) == {"torch": "9.9", "cudnn": 9}


# ---- running it


def test_where_there_is_no_gpu_it_says_so(load):
    if not load("gpu").no_gpu():
        pytest.skip("this machine has a GPU")
    for option in ([], ["--checklist"]):
        done = subprocess.run([sys.executable, str(FOLDER / "gpu.py"), *option], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (3, "")
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("gpu.py: nothing was measured: device.cuda(0): wanted")


def test_the_exit_status_is_documented(load):
    assert f"{load('gpu').NO_GPU} where there is no GPU" in load("gpu").__doc__


def test_arguments(load):
    gpu = load("gpu")
    plain = gpu.arguments([])
    assert (plain.peer, plain.precision, plain.net, plain.batch) == (list(gpu.PEERS), ["float32", "tf32"], None, None)
    few = gpu.arguments(["--net", "mlp", "--batch", "7", "--peer", "torch", "--precision", "tf32"])
    assert (few.peer, few.precision, few.net, few.batch) == (["torch"], ["tf32"], ["mlp"], [7])
    assert list(gpu.cases(few)) == [("mlp", 7, "tf32")]
    assert [case[2] for case in gpu.cases(gpu.arguments(["--net", "mlp", "--batch", "7"]))] == ["float32", "tf32"]
    assert gpu.BATCHES["resnet50"] == (16, 32, 128)
    assert set(gpu.BATCHES) <= set(load("compare").RATES)


def test_a_task_crosses_processes(load):
    module = load("peers.gpu_task")
    task = module.GpuTask("torch", "mlp", 7, gpu=1, tf32=True)
    assert module.GpuTask.from_json(task.to_json()) == task


def test_steps_are_timed_between_events(load):
    """Losses are asked for in the warm-up alone: later they would be waited for."""
    module = load("peers.gpu_task")
    done: list[str] = []
    times = iter(range(0, 100, 10))

    def step() -> int:
        done.append("step")
        return len(done)

    def loss(result: int) -> float:
        done.append("loss")
        return 0.5 * result

    task = module.GpuTask("torch", "mlp", 7, warmup=2, steps=3)
    measured = module.measured(task, step, loss, lambda: next(times), lambda a, b: float(b - a))
    assert done == ["step", "loss"] * 2 + ["step"] * 3 + ["loss"]
    assert measured == {"losses": [0.5, 1.5], "seconds": [0.01, 0.01, 0.01]}


def test_a_failing_peer_is_named(load):
    gpu, module = load("gpu"), load("peers.gpu_task")
    runs = load("peers.turns").one_more([], module.GpuTask("torch", "no such net", 5), gpu.in_process)
    assert isinstance(runs, str)
    assert runs.startswith("failed: torch:")


def test_a_peer_that_is_not_there_is_said_so(load, monkeypatch):
    gpu = load("gpu")
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None)
    assert gpu.obstacle("torch") == "not installed"


@pytest.mark.peer
@pytest.mark.parametrize("way", ["torch", "torch-channels-last"])
def test_pytorch_starts_from_our_weights(load, tmp_path, way):
    """Its step, on the CPU for want of a GPU, has the loss of ours."""
    skips.library("torch")
    module, singa_side = load("peers.gpu_task"), load("peers.singa_side")
    task = module.GpuTask(way, "lenet", 5, lr=1e-3, warmup=2, steps=1, folder=str(tmp_path))
    singa_side.write(task)
    ours = singa_side.run(task)["losses"]
    step = load("peers.torch_gpu").stepper(task, "cpu")
    assert [step().item() for _ in ours] == pytest.approx(ours, rel=1e-4)


# ---- the checklist


@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="wants CuPy, pip install cupy-cuda13x")
def test_the_checklist_has_nine_numbered_points(load):
    points = load("gpu_checklist").POINTS
    assert [point.__doc__.split(":")[0] for point in points] == [str(number) for number in range(1, 10)]


@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="wants CuPy, pip install cupy-cuda13x")
def test_a_point_that_fails_is_told_and_the_others_are_asked(load, monkeypatch, capsys, tmp_path):
    checklist = load("gpu_checklist")

    def first(gpu: int) -> str:
        """1: First."""

    def second(gpu: int) -> str:
        """2: Second."""

    def answer(number: int, gpu: int, limit: float) -> tuple[bool, str]:
        assert limit == {1: 300, 2: 9}[number]
        return number == 2, f"{'FAILED: no such thing' if number == 1 else f'all well{chr(10)}on {gpu}'}"

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checklist, "POINTS", (first, second))
    monkeypatch.setattr(checklist, "LIMITS", {2: 9})
    monkeypatch.setattr(checklist, "answer", answer)
    assert checklist.main(4) == 1
    told = "1: First.\n   FAILED: no such thing\n2: Second.\n   all well\n   on 4\n"
    assert capsys.readouterr().out == told
    assert (tmp_path / "gpu_checklist.txt").read_text() == told
    monkeypatch.setattr(checklist, "answer", lambda *_: (True, "well"))
    assert checklist.main(4) == 0


POINT = """
import subprocess, sys, time
number = int(sys.argv[1])
print("begins", flush=True)
if number == 2:
    raise ValueError("no such thing")
if number == 3:
    subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"])
"""


@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="wants CuPy, pip install cupy-cuda13x")
def test_a_point_has_a_process_and_a_limit_of_its_own(load, monkeypatch, tmp_path):
    checklist = load("gpu_checklist")
    (tmp_path / "point.py").write_text(POINT)
    monkeypatch.setattr(checklist, "__file__", str(tmp_path / "point.py"))
    assert checklist.answer(1, 0, 60) == (True, "begins")
    assert checklist.answer(2, 0, 60) == (False, "begins\nFAILED: ValueError: no such thing")
    assert checklist.answer(3, 0, 2) == (False, "begins\nFAILED: not done after 2 seconds")


@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="wants CuPy, pip install cupy-cuda13x")
def test_the_sanitizer_runs_a_chosen_few_and_not_for_ever(load, monkeypatch):
    means, asked = load("gpu_means"), []

    def run(command: list[str], timeout: float, **_: Any) -> Any:
        asked.append((command, timeout))
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(means.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(means.subprocess, "run", run)
    assert means.sanitizer("racecheck") == "racecheck: not done after 600 seconds"
    ((command, timeout),) = asked
    assert (command[0], timeout) == ("/bin/compute-sanitizer", 600)
    assert command[command.index("-k") + 1] == "test_results_are_those and gpu-own and small-float32"


@pytest.mark.parametrize("name", ["batch_norm", "layer_norm", "attention"])
@pytest.mark.parametrize("dtype", ["FLOAT", "BFLOAT16"])
def test_graphs_of_the_checklist_are_right(load, name, dtype):
    """cuDNN takes them; whether it has a plan shows on a GPU alone."""
    from singa_lite.kernels.cuda_kernels.cudnn_library import frontend

    try:
        cudnn = frontend()
    except OSError as error:
        pytest.skip(str(error))
    types = cudnn.data_type
    graph = cudnn.pygraph(
        io_data_type=getattr(types, dtype),
        intermediate_data_type=types.FLOAT,
        compute_data_type=types.FLOAT,
        sm_version=900,
        sm_count=132,
    )
    getattr(load("gpu_plans"), name)(cudnn, graph)
    graph.validate()
