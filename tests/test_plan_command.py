"""`python -m singa_lite plan`: nets by module and by script, options, what it prints, and its exit status."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from in_process import start
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite import __main__ as program
from singa_lite.commands.plan_command import OPTIMIZERS, PlanRequest, planned

SCRIPT = """
from beside import SIZE
from singa_lite import FeedForwardNet, layers, loss, optimizer, device

def build(shape=(30,)):
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=1)
    net.add(layers.Dense("first", SIZE, input_sample_shape=shape))
    net.add(layers.Activation("act"))
    net.add(layers.Dense("second", SIZE))
    net.add(layers.Dense("scores", 5))
    return net

def compiled():
    net = build()
    net.compile(optimizer.SGD(momentum=0.9), accumulate=3, clip_global_norm=1.0)
    return net

def without_loss():
    net = build()
    net.loss = None
    return net

def elsewhere():
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu())
    net.add(layers.Dense("a", 3, input_sample_shape=(2,)))
    net.compile(optimizer.SGD())
    return net

def nothing():
    return 3

def leaves():
    raise SystemExit(0)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A script, and a module beside it that it imports."""
    (tmp_path / "nets_of_mine.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("SIZE = 400\n")
    yield str(tmp_path / "nets_of_mine.py")
    for name in ("nets_of_mine", "beside"):
        sys.modules.pop(name, None)


def real(batch: int, kernels: str = "numpy", **options: object) -> tuple[FeedForwardNet, str]:
    """The net of the script on a device with bytes, and its plan."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels=kernels), seed=1)
    net.add(layers.Dense("first", 400, input_sample_shape=(30,)))
    net.add(layers.Activation("act"))
    net.add(layers.Dense("second", 400))
    net.add(layers.Dense("scores", 5))
    net.compile(options.pop("optimizer", optimizer.AdamW()), **options)
    return net, net.plan_batch(batch)


def test_a_script_in_a_process_of_its_own(script):
    done = start(
        "-m", "singa_lite", "plan", f"{script}:build", "--batch", "7", "--optimizer", "adamw", "--device", "numpy"
    )
    assert (done.returncode, done.stderr) == (0, "")
    _, plan = real(7)
    lines = done.stdout.splitlines()
    assert lines[0].endswith(
        f":build: {30 * 400 + 400 + 400 * 401 + 400 * 5 + 5:,} parameters of float32, {lines[0].rpartition(', ')[2]}"
    )
    assert lines[1] == "training by AdamW, batch 7, abstract numpy, any number of bytes"
    assert plan.summary() in done.stdout
    assert lines[-1] == f"in all     {plan.total_bytes:,} bytes ({plan.total_bytes / 2**30:.2f} GiB)"


def told(function: str, **options: object) -> list[str]:
    return list(planned(PlanRequest(function, **{"batch": 7, "device": "numpy", **options})))


def total(lines: list[str]) -> int:
    (found,) = (re.match(r"in all +([0-9,]+) bytes", line) for line in lines if line.startswith("in all"))
    assert found
    return int(found[1].replace(",", ""))


def test_options_reach_the_plan(script):
    build = f"{script}:build"
    for name, make in OPTIMIZERS.items():
        assert total(told(build, optimizer=name)) == real(7, optimizer=make())[1].total_bytes
    assert total(told(build, optimizer="adam", accumulate=4)) == real(7, accumulate=4)[1].total_bytes
    assert total(told(build, optimizer="adam", micro_batches=2)) == real(7, micro_batches=2)[1].total_bytes
    assert total(told(build, optimizer="adam", state_dtype="int8")) == real(7, state_dtype="int8")[1].total_bytes
    stored = {"parameter_dtype": "bfloat16", "rounding": "compensated"}
    lines = told(build, optimizer="adam", **stored)
    assert total(lines) == real(7, **stored)[1].total_bytes and "parameters of bfloat16 and float32" in lines[0]
    assert total(told(build, optimizer="adam", loss="softmax_cross_entropy")) == real(7)[1].total_bytes
    wide = told(build, optimizer="adam", input_shape="60")
    assert f"{60 * 400 + 400 + 400 * 401 + 400 * 5 + 5:,} parameters" in wide[0]
    prediction = told(build, prediction=True)
    assert total(prediction) == real(7)[0].plan_batch(7, training=False).total_bytes
    assert "a prediction, batch 7" in prediction[1]


def test_a_net_that_is_compiled_stays_so(script):
    compiled = f"{script}:compiled"
    options = {"accumulate": 3, "clip_global_norm": 1.0}
    assert total(told(compiled)) == real(7, optimizer=optimizer.SGD(momentum=0.9), **options)[1].total_bytes
    assert total(told(compiled, optimizer="adam")) == real(7, **options)[1].total_bytes
    mine = {**options, "accumulate": 2}
    assert total(told(compiled, accumulate=2)) == real(7, optimizer=optimizer.SGD(momentum=0.9), **mine)[1].total_bytes


def test_memory_and_budgets(script):
    build = f"{script}:build"
    lines = told(build, optimizer="sgd", memory="1 GiB", memory_budget="8 MiB", curve=True)
    assert any(line.startswith("certified") for line in "\n".join(lines).splitlines())
    assert "memory of 1073741824 bytes (1024.0 MiB)" in lines[1]
    assert f"left       {2**23 - total(lines):,} bytes of the memory budget" in lines
    assert f"left       {2**30 - total(lines):,} bytes of the memory" in lines
    at = lines.index("budgets, and by how much each slows a step, as estimated:")
    assert re.fullmatch(r" +[0-9,]+ bytes +0\.0%", lines[at + 1])
    gpu = told(build, optimizer="sgd", device="cuda")
    assert "cuBLASLt and cuDNN is counted with all the workspace" in gpu[2]
    assert total(gpu) > 64 << 20


def test_what_does_not_fit_is_told(script, capsys):
    arguments = ["plan", f"{script}:build", "--batch", "7", "--device", "numpy", "--optimizer", "adamw"]
    assert program.main([*arguments, "--memory", "1 MiB"]) == 1
    told = capsys.readouterr().err
    assert "device abstract numpy, limit: 1048576 bytes (1.0 MiB)" in told
    assert "the least found is" in told
    assert program.main([*arguments, "--memory-budget", "1 MiB"]) == 1
    assert "memory_budget: wanted at most 1,048,576 bytes" in capsys.readouterr().err


#: (function of the script, options, what the error names)
REFUSED = [
    ("build", [], "--optimizer"),
    ("without_loss", ["--optimizer", "sgd"], "--loss"),
    ("build", ["--prediction", "--optimizer", "lamb", "--curve"], "--optimizer, --curve"),
    ("build", ["--optimizer", "lamb"], "'lamb'"),
    ("build", ["--optimizer", "sgd", "--loss", "nose"], "nose"),
    ("build", ["--optimizer", "sgd", "--device", "tpu"], "'tpu'"),
    ("build", ["--optimizer", "sgd", "--memory", "much"], "'much'"),
    ("build", ["--optimizer", "sgd", "--memory-budget", "0"], "at least 1 byte"),
    ("build", ["--optimizer", "sgd", "--batch", "0"], "batch"),
    ("build", ["--optimizer", "sgd", "--accumulate", "0"], "accumulate"),
    ("build", ["--optimizer", "sgd", "--precision", "float8"], "'float8'"),
    ("build", ["--optimizer", "sgd", "--input-shape", "3,a"], "'3,a'"),
    ("compiled", ["--input-shape", "3"], "compiled() failed"),
    ("elsewhere", [], "device"),
    ("nothing", [], "int"),
    ("leaves", [], "SystemExit"),
    ("absent", [], "'absent'"),
]


def test_what_cannot_be_planned(script, capsys, tmp_path):
    before = device.default()
    (tmp_path / "ends.py").write_text("import sys\nsys.exit(0)\n")
    rows = [(f"{script}:{function}", options, word) for function, options, word in REFUSED]
    for function, options, word in [*rows, (f"{tmp_path / 'ends.py'}:build", [], "cannot import")]:
        chosen = options if "--device" in options else [*options, "--device", "numpy"]
        assert program.main(["plan", function, *chosen]) == 2
        told = capsys.readouterr()
        assert told.err.startswith("python -m singa_lite plan: ") and told.err.count("\n") == 1
        assert word in told.err
        assert device.default() is before


@pytest.mark.parametrize("function", ["nose", ":build", "nose:", "no_such_module:build", "no/such.py:build"])
def test_functions_that_are_not_there(function, capsys):
    assert program.main(["plan", function, "--optimizer", "sgd"]) == 2
    told = capsys.readouterr().err
    assert function.partition(":")[0] in told
    assert "wanted MODULE:FUNCTION" in told or "cannot import" in told


def test_a_large_language_model_by_its_sizes_alone(tmp_path):
    """Llama-3.2-1B by hand: a table, and blocks of four products of attention, three of SwiGLU, two norms."""
    sizes = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
    sizes |= {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "rms_norm_eps": 1e-5}
    sizes |= {"max_position_embeddings": 2048, "tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    block = 2048 * 2048 * 2 + 2048 * 512 * 2 + 2048 * 8192 * 3 + 2048 * 2
    count = 128256 * 2048 + 16 * block + 2048
    given = {"batch": 1, "length": 512, "weights": "float32"}
    totals = {}
    for name in ("sgd", "adamw"):
        lines = told(str(tmp_path / "config.json"), optimizer=name, **given)
        assert f"{count:,} parameters of float32" in lines[0]
        totals[name] = total(lines)
    assert 4 * count < totals["sgd"] < 4 * count + 3 * 2**30
    assert totals["adamw"] - totals["sgd"] == pytest.approx(8 * count, rel=1e-2)
    stored = told(str(tmp_path / "config.json"), optimizer="sgd", **{**given, "weights": "bfloat16"})
    assert "parameters of bfloat16 and float32" in stored[0]
    assert totals["sgd"] - total(stored) == pytest.approx(2 * count, rel=1e-2)
