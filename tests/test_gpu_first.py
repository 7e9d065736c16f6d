"""benchmarks/gpu_first.py over stand-ins for a GPU: its parts, planted faults, its errors, what it asks of CuPy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import host_loader
import skips
from benchmark_modules import FOLDER, benchmark_modules
from late_gpu import late_gpu
from package_source import script

SCRIPT = FOLDER / "gpu_first.py"
PLANTS = Path(__file__).resolve().parent / "cuda_host" / "planted_faults.py"
MISSING = host_loader.missing_to_run()

pytestmark = [
    pytest.mark.skipif(not FOLDER.is_dir(), reason="this copy has no benchmarks, the checkout has"),
    pytest.mark.skipif(bool(MISSING), reason=f"CUDA kernels cannot run on the host without {MISSING}"),
]

#: The script imports the checkout that it lies in, where the loops in C may not be compiled: no test uses them.
BARE = {"SINGA_LITE_LOOPS": "off"}

#: A tool of NVIDIA's that drops its own options and runs the command behind them.
TOOL = """#!/bin/sh
echo "$@" >> "$TOLD"
while [ "$1" != {python} ]; do shift; done
exec "$@"
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    path = tmp_path_factory.mktemp("prepared") / "prepared.gz"
    command = [sys.executable, SCRIPT, "--prepare", path, "--tiny"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **BARE}, check=False)
    assert done.returncode == 0, done.stderr
    return path


def run(prepared: Path, out: Path, *arguments: str, script: Path = SCRIPT, **environment: str) -> tuple[int, str]:
    """The exit status, and what was printed."""
    command = [sys.executable, script, "--stand-in", "--tiny", f"--out={out}", f"--expected={prepared}", *arguments]
    environment = {**os.environ, **BARE, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout + done.stderr


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def statuses(out: Path) -> dict[str, str]:
    """{item: its status}."""
    return {line["item"]: line["status"] for line in lines(out) if "status" in line}


def test_items_of_the_first_part_are_answered(prepared, tmp_path):
    status, printed = run(prepared, tmp_path, "--only=contract/re*")
    assert status == 0, printed
    assert len(statuses(tmp_path)) > 5 and set(statuses(tmp_path).values()) == {"ok"}


@pytest.mark.nightly
def test_the_first_part_answers_everything(prepared, tmp_path):
    skips.library("torch")
    status, printed = run(prepared, tmp_path, "--deadline=400", f"--cache={tmp_path / 'cache.tar.gz'}")
    found = statuses(tmp_path)
    assert status == 0, printed
    assert {name: one for name, one in found.items() if one != "ok"} == {"all_reduce": "skipped"}
    values = {line["item"]: line["values"] for line in lines(tmp_path) if "values" in line}
    contract = [one for name, one in values.items() if name.startswith("contract/")]
    assert len(contract) > 200
    assert all(one["own"]["equal_bits"] for one in contract if "own" in one)  # the stand-in is the host build
    assert all(values[f"losses/{net}/captured"]["largest_difference"] < 1e-3 for net in ("lenet", "gpt_11m", "lstm"))
    step = values["step/digits_cnn/float32"]
    assert 0 < step["planned_bytes"] <= step["high_water_bytes"]
    assert step["calls"]["own"] > 0
    assert step["calls"]["library"] > 0
    assert {path.name for path in tmp_path.iterdir()} == {"results.jsonl", "summary.txt", "worker.log", "cache.tar.gz"}
    assert f"contract: {len(contract)} cases" in printed


@pytest.mark.nightly
def test_the_second_part_looks_at_what_failed_and_times_kernels(prepared, tmp_path):
    failed = [{"item": f"contract/{kernel}", "status": "wrong"} for kernel in ("relu", "uniform")]
    (tmp_path / "first.jsonl").write_text("\n".join(map(json.dumps, failed)))
    out = tmp_path / "out"
    status, printed = run(prepared, out, "--part=2", f"--again={tmp_path / 'first.jsonl'}")
    assert status == 0, printed
    assert statuses(out)["again/relu"] == statuses(out)["again/uniform"] == "ok"
    again = [str(line["row"]) for line in lines(out) if line["item"].startswith("again/") and "row" in line]
    assert again and not any("elements differ" in row for row in again)
    rows = [line["row"] for line in lines(out) if line["item"] == "kernels/digits_cnn" and "row" in line]
    assert {"kernel", "us", "GB_s", "share", "count"} <= rows[0].keys()
    attended = [line["row"] for line in lines(out) if line["item"] == "attention" and "row" in line]
    calls = {(row["kernel"], row["precision"]) for row in attended if row["us"] > 0}
    assert calls == set(product(("attention", "attention_derivative"), ("float32", "bfloat16")))
    both = [line["row"] for line in lines(out) if line["item"] == "thresholds" and "row" in line]
    assert all(len([name for name in row if name.startswith("us at ")]) == 2 for row in both)


@pytest.mark.nightly
def test_the_third_part_starts_the_tools_and_measures_the_table(prepared, tmp_path):
    skips.library("torch")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("compute-sanitizer", "ncu"):
        (tools / name).write_text(TOOL.format(python=sys.executable))
        (tools / name).chmod(0o755)
    row = {"kernel": "relu", "us": 5.0, "count": 2, "share": 0.5}
    (tmp_path / "second.jsonl").write_text(json.dumps({"item": "kernels/digits_cnn", "row": row}) + "\n")
    out, told = tmp_path / "out", tmp_path / "told"
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    given = "--part=3", f"--again={tmp_path / 'second.jsonl'}"
    status, printed = run(prepared, out, *given, PATH=path, TOLD=str(told))
    assert status == 0, printed
    assert set(statuses(out).values()) == {"ok"}
    calls = told.read_text()
    assert calls.count("--tool memcheck") == calls.count("--tool racecheck") == 4
    assert "contract/" in calls
    assert "--kernel=relu" in calls
    assert {"table/1/lenet/bfloat16", "table/2/lenet/torch-tf32"} <= statuses(out).keys()


@pytest.mark.nightly
def test_the_fourth_part_measures_a_gpt_beside_pytorch(prepared, tmp_path):
    skips.library("torch")
    status, printed = run(prepared, tmp_path, "--part=4")
    assert status == 0, printed
    assert set(statuses(tmp_path).values()) == {"ok"}
    values = {line["item"]: line["values"] for line in lines(tmp_path) if "values" in line}
    ours, theirs = values["gpt/2/ours"], values["gpt/2/torch-bfloat16"]
    assert ours["warnings"] == []
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=0.02)  # of ids that both guess at
    assert values["gpt/1/ours-budget"]["high_water_bytes"] <= ours["high_water_bytes"]


def test_tables_show_the_least_of_all_rounds(tmp_path):
    mib = 1 << 20
    found = {
        "gpt/1/ours": {"milliseconds": [9.0, 8.0, 7.0], "high_water_bytes": 30 * mib},
        "gpt/2/ours": {"milliseconds": [6.0, 5.0, 60.0], "high_water_bytes": 40 * mib},
        "gpt/1/torch-bfloat16": {"milliseconds": [4.0, 5.0, 3.0], "high_water_bytes": 60 * mib, "torch": "2.11"},
        "gpt/2/torch-bfloat16-compile": {"milliseconds": [7.0], "high_water_bytes": 80 * mib},
        "table/1/lenet/float32": {"milliseconds": [1.0], "high_water_bytes": mib},
        "versions": dict.fromkeys(("Python", "CuPy", "cuBLASLt", "cuDNN", "GPU"), "1.2"),
    }
    written = [{"item": name, "status": "ok", "values": values} for name, values in found.items()]
    written += [{"item": "gpt/3/ours", "status": "hung", "error": "no answer"}, {"item": "gpt/1/ours", "row": {}}]
    written += [{"item": "contract/relu", "status": "wrong"}, {"item": "contract/add", "status": "ok"}]
    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, written)))
    command = [sys.executable, FOLDER / "gpu_figures.py", tmp_path / "results.jsonl", "--write", tmp_path / "gpu.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| gpt2_small_1024, ours | 6.00 | 4.00 | torch-bfloat16 | 1.50 | 30 | 60 | 0.50 |" in done.stdout
    assert "| contract | 2 | 1 |" in done.stdout and "lenet" not in done.stdout
    written = json.loads((tmp_path / "gpu.json").read_text())
    assert written["versions"]["PyTorch"] == "2.11"


def test_tables_want_the_versions(tmp_path):
    (tmp_path / "results.jsonl").write_text("")
    command = [sys.executable, FOLDER / "gpu_figures.py", tmp_path / "results.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "versions" in done.stderr


@pytest.mark.nightly
def test_planted_faults_are_told_as_what_they_are(prepared, tmp_path):
    planted = "sigmoid=wrong sgd_plain=sticky softmax_short_rows=hang squared_error=crash"
    given = "--only=contract/s*", "--deadline=60"
    status, printed = run(prepared, tmp_path, *given, script=PLANTS, PLANTED=planted)
    assert status == 1, printed
    found = statuses(tmp_path)
    assert {name.removeprefix("contract/"): one for name, one in found.items() if one != "ok"} == {
        "sigmoid": "wrong",
        "softmax:last": "hung",
        "squared_error": "died",
        "sgd:plain": "poisoned",
    }
    assert found["contract/smooth_labels_derivative"] == "ok"  # the last one, behind all of them


@pytest.mark.nightly
def test_what_the_deadline_stops_is_cut_off(prepared, tmp_path):
    given = "--only=contract/softmax*", "--deadline=4"
    status, _ = run(prepared, tmp_path, *given, script=PLANTS, PLANTED="softmax_short_rows=hang softmax_columns=hang")
    found = list(statuses(tmp_path).values())
    assert status == 1
    assert "cut off" in found
    assert len(found) > 5


@pytest.mark.nightly
def test_a_worker_that_does_not_start_ends_nothing_silently(prepared, tmp_path):
    (tmp_path / "broken.py").write_text(
        f"import sys; sys.path.insert(0, {str(FOLDER)!r})\nimport gpu_first\n"
        "if any(a.startswith('--worker') for a in sys.argv): raise ImportError('no such thing')\n"
        "sys.exit(gpu_first.main(program=__file__))\n"
    )
    status, _ = run(prepared, tmp_path / "out", "--only=contract/s*", script=tmp_path / "broken.py")
    assert status == 1
    assert set(statuses(tmp_path / "out").values()) == {"died"}
    assert all("no such thing" in line["error"] for line in lines(tmp_path / "out"))


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [([], 2, "--out"), (["--out=x", "--expected=nothing"], 2, "nothing"), (["--part=5"], 2, "part")],
)
def test_wrong_arguments(arguments, status, word):
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert word in done.stderr


# --- what it asks of CuPy, over streams that do their work late


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


@pytest.mark.parametrize("name", ["batch_norm", "layer_norm", "attention"])
@pytest.mark.parametrize("dtype", ["FLOAT", "BFLOAT16"])
def test_cudnn_takes_the_graphs_that_part_2_times(name, dtype):
    """Whether it has a plan shows on a GPU alone."""
    from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import frontend

    try:
        cudnn = frontend()
    except OSError as error:
        pytest.skip(str(error))
    graphs = script(FOLDER / "first_run" / "cudnn_graphs.py")
    types = cudnn.data_type
    graph = cudnn.pygraph(
        io_data_type=getattr(types, dtype),
        intermediate_data_type=types.FLOAT,
        compute_data_type=types.FLOAT,
        sm_version=900,
        sm_count=132,
    )
    getattr(graphs, name)(cudnn, graph)
    graph.validate()
