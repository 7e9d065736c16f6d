"""Each benchmark runs at its smallest sizes and prints its table; its nets are as large as published."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import skips

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="this copy has no benchmarks, the checkout has")


def run(*arguments: str, **variables: str) -> str:
    """What Python prints in the folder of the benchmarks, of which `nets` is one package and the tests' another."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=FOLDER, env=os.environ | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


#: (program, further arguments, what stands at the head of its table, libraries that it needs). FILE and DIR are paths.
ROWS = [
    ("attention.py", "", "length   s: ours  torch", "torch"),
    ("branches.py", "", "| net | batch | all cores, ms |", ""),
    ("budget.py", "--write FILE", "| net, batch | system | setting | planned MiB |", "scipy"),
    ("budget.py", "--prepare FILE", "", "scipy"),
    ("budget.py", "--check 4", "| budget MiB | planned MiB |", ""),
    ("budget.py", "--check 20 --net lenet --batch 16", "| budget MiB | planned MiB |", ""),
    ("checkpoints.py", "", "stands still", ""),
    ("clipping.py", "--write FILE", "| net, optimizer | batch | MiB | clipped |", ""),
    ("compare.py", "--write FILE", "| net, batch | peer | ms, fastest step: ours |", "torch"),
    ("data_loading.py", "", "shuffled: an epoch reads", ""),
    ("generation.py", "", "texts   ms an id: ours  torch", "torch"),
    ("head_to_head.py", "--write FILE", "| net, side | budgets | MiB, free |", ""),
    ("host_cost.py", "", "fastest  median", "cupy"),
    ("kernels.py", "", "| kernel, shape | ours, ms | PyTorch, ms |", "torch"),
    ("full_training.py", "--write FILE", "| side | MiB | planned MiB |", "torch transformers"),
    ("full_training.py", "--shapes Llama-3.2-1B --write FILE", "| options | MiB | over the import |", ""),
    ("language_plans.py", "--write FILE", "| what trains | weights, GiB |", ""),
    ("language_models.py", "--write FILE", "| tokens | side | MiB | planned MiB |", "torch transformers peft"),
    ("library_best.py", "", "| call | in a step | ours, ms |", "onednn"),
    ("library_best.py", "--peaks", "| kernel | calls | ms | of the step |", "onednn"),
    ("long_chains.py", "", "free: arena", ""),
    ("long_chains.py", "--operations 50", "dependencies", ""),
    ("nested.py", "", "nested: a step done at once takes", ""),
    ("parallel.py", "", "| net | batch | ours, ms | one process, ms | DDP, ms |", "torch mpi4py"),
    ("pages.py", "", "", ""),
    ("peak_memory.py", "--write FILE", "| peak memory in P (seconds a step) |", ""),
    ("placement.py", "", "problem", ""),
    ("plan_picture.py", "lenet 2 FILE", "lenet at batch 2", "matplotlib"),
    ("planning.py", "", "lenet, 16: free", ""),
    ("plans.py", "--write FILE", "| net, batch | operations | blocks |", ""),
    ("precision.py", "--write FILE", "| net, batch | system | ms a step: fastest |", ""),
    ("predicted_memory.py", "--write FILE", "| net, batch | kernels | predicted MiB |", ""),
    ("predicted_memory.py", "--budgets --write FILE", "| net, batch, budget | kernels | budget, MiB |", ""),
    ("quantized.py", "", "| format | million numbers a second |", "onednn"),
    ("recurrent.py", "", "side              seconds   peak MiB", "torch"),
    ("replay.py", "", "fastest  median", ""),
    ("sgemm.py", "", "GFLOP/s  singa_lite", ""),
    ("snapshots.py", "", "save, s  x copy", ""),
    ("accuracy.py", "", "held-out accuracy in per cent", "sklearn"),
    ("stored_weights.py", "--write FILE", "| net, weights | losses | mean |", "sklearn"),
    ("filter_gradients.py", "", "SGEMM peak", "onednn"),
    ("sequences.py", "--write FILE", "| net, batch | peer | ms, fastest step: ours |", "torch"),
    ("walk.py", "", "call              files   most", ""),
]
#: They take long also with few samples: large nets, or several processes of PyTorch.
LONG = (
    "accuracy.py",
    "compare.py",
    "filter_gradients.py",
    "language_models.py",
    "parallel.py",
    "peak_memory.py",
    "plans.py",
    "recurrent.py",
    "sequences.py",
)
#: What no user runs by itself, or what another test runs.
OTHERS = {
    "agreement",
    "bound",
    "figure_file",
    "flops",
    "kernel_table",
    "quiet",
    "report",
    "tiny",
    "memcheck",
    "gpu_first",
    "gpu_figures",
}


def marked(row: tuple[str, str, str, str]) -> Any:
    marks = [pytest.mark.nightly] * (row[0] in LONG) + [pytest.mark.peer] * ("torch" in row[3])
    return pytest.param(*row, marks=marks, id=f"{row[0]} {row[1]}".strip())


@pytest.mark.parametrize(("program", "arguments", "head", "libraries"), [marked(row) for row in ROWS])
def test_a_benchmark_runs_small(program, arguments, head, libraries, tmp_path):
    for library in libraries.split():
        if library == "onednn":
            _wants_onednn()
        else:
            skips.library(library)
    given = arguments.replace("FILE", str(tmp_path / "made.png")).replace("DIR", str(tmp_path)).split()
    assert head in run(program, "--tiny", *given)
    assert "FILE" not in arguments or (tmp_path / "made.png").stat().st_size > 100


def _wants_onednn() -> None:
    from singa_lite import device

    try:
        device.new_cpu(kernels="onednn")
    except device.DeviceError as error:
        pytest.skip(str(error))


def test_every_benchmark_is_run():
    programs = {path.stem for path in FOLDER.glob("*.py")}
    assert programs - OTHERS == {row[0].removesuffix(".py") for row in ROWS}


# ---- the nets


def dense(*widths: int) -> int:
    """Parameters of Dense layers with biases."""
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))


def conv_norm(*channels: int) -> int:
    """Parameters of convolutions of 3 x 3 without bias, each with a batch normalization."""
    return sum((9 * inputs + 2) * outputs for inputs, outputs in pairwise(channels))


UNET_DOWN = conv_norm(3, 32, 32, 64, 64, 128, 128, 256, 256)
UNET_UP = sum(conv_norm(2 * width, width) + conv_norm(2 * width, width, width) for width in (128, 64, 32))
#: {net: (parameters, where a sample of the last maps is known: layer, shape)}. Those with separators of thousands are
#: from torchvision's documentation; its ResNet-18 has a stem of 7 x 7 and 1000 classes.
PUBLISHED: dict[str, tuple[int, str, tuple[int, ...]]] = {
    "digits_cnn": (conv_norm(1, 32, 32, 64) + dense(64 * 4 * 4, 10), "scores", (10,)),
    "lenet": ((25 + 1) * 6 + (6 * 25 + 1) * 16 + dense(16 * 5 * 5, 120, 84, 10), "scores", (10,)),
    "mlp": (dense(784, 2048, 2048, 2048, 10), "scores", (10,)),
    "vgg16": (138_357_544, "stage5_pool", (512, 7, 7)),
    "resnet50": (25_557_032, "stage4_3_relu", (2048, 7, 7)),
    "resnet18_32": (11_689_512 - (49 - 9) * 3 * 64 - dense(512, 1000 - 10), "stage4_2_relu", (512, 4, 4)),
    "mobilenet_v2": (3_504_872, "last_relu6", (1280, 7, 7)),
    "densenet121": (7_978_856, "last_relu", (1024, 7, 7)),
    "unet": (UNET_DOWN + UNET_UP + dense(32, 5), "level4_conv1", (256, 16, 20)),
    "chain": (dense(8, *[16] * 1000, 4), "scores", (4,)),
}
SIZES = """
import sys
from nets import NETS, parameter_count
from singa_lite import device
layers = eval(sys.argv[1])
on = device.abstract("numpy")
print({name: (parameter_count(net := made.build(on, init=0.0)), net.layers[layers[name]].get_output_sample_shape())
       for name, made in NETS.items()})
"""


def test_nets_are_as_large_as_published():
    layers = {name: layer for name, (_, layer, _) in PUBLISHED.items()}
    found = eval(run("-c", SIZES, repr(layers)))
    assert found == {name: (count, shape) for name, (count, _, shape) in PUBLISHED.items()}


SAME = """
import torch
from math import prod
from nets import NETS, entry
from peers import torch_nets
from peers.torch_segments import built
for name, build in torch_nets.NETS.items():
    with torch.device("meta"):
        named = torch_nets.parameters_by_our_names(build())
    theirs = {n: tuple(p.T.shape if turned else p.shape) for n, p, turned in named}
    assert theirs == {n: tuple(v.shape) for n, v in NETS[name].build(init=0.0).parameters().items()}, name
for name in ("resnet50", "unet", "llama"):
    theirs = {n: tuple(p.T.shape if turned else p.shape) for n, p, turned in built(name, 2).by_our_names()}
    assert theirs == {n: tuple(v.shape) for n, v in entry(name).build().parameters().items()}, name
ours = sum(prod(value.shape) for value in NETS["densenet121"].build(init=0.0).param_values())
assert ours == sum(p.numel() for p in built("densenet121", 2).parameters())
"""


@pytest.mark.peer
@pytest.mark.nightly
def test_the_peers_nets_have_the_same_parameters():
    skips.library("torch")
    run("-c", SAME)
