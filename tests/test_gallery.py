"""The scripts of the gallery run small, in this process, and give results that training alone gives."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import skips

GALLERY = Path(__file__).resolve().parents[1] / "examples" / "gallery"

pytestmark = pytest.mark.skipif(not GALLERY.is_dir(), reason="this copy has no examples, the checkout has")

Results = dict[str, float]
#: What is given to each script's main here, and the least, or with "<" the largest, that its results may be.
SMALL: dict[str, tuple[dict[str, int], dict[str, float]]] = {
    "char_gpt_small": ({"steps": 12, "write": 8}, {"characters written": 8, "< bits a character": 5.2}),
    "denoising_autoencoder": ({"epochs": 3}, {"error taken away": 0.4}),
    "distillation": ({"epochs": 6}, {"teacher": 0.8, "student": 0.75}),
    "ensemble": ({"epochs": 4, "members": 2}, {"together": 0.8}),
    "gradient_norms": ({"epochs": 0}, {"< sigmoid: first over last": 1e-3, "relu: first over last": 0.1}),
    "half_precision": ({"epochs": 1}, {"float32": 0.8, "bfloat16": 0.8, "float16": 0.8}),
    "image_folder": ({"epochs": 1}, {"accuracy": 0.6, "files": 1797}),
    "imbalanced": ({"epochs": 8}, {"weighted: found 8s": 0.7, "weighted: auc": 0.85}),
    "k_fold": ({"epochs": 3, "folds": 2}, {"accuracy": 0.8}),
    "larger_than_memory": ({"epochs": 1, "copies": 6}, {"accuracy": 0.7, "KiB of samples": 500}),
    "mlp_callbacks": ({"epochs": 30, "patience": 2}, {"accuracy": 0.9, "< epochs": 29}),
    "mnist_convnet": ({"epochs": 2}, {"accuracy": 0.85}),
    "regression": ({"epochs": 20}, {"R2": 0.25}),
    "residual_half_memory": (
        {"epochs": 1, "count": 128, "batch_size": 32, "blocks": 2},
        {"< losses that differ": 0, "operations done again": 1, "< planned of free": 0.6},
    ),
    "schedules": ({"epochs": 2}, {"constant": 0.85, "own": 0.85, "< cosine: next rate": 0, "steps": 90}),
    "siamese": ({"epochs": 2, "count": 800}, {"unseen digits": 0.7}),
    "sklearn_search": ({"epochs": 3, "folds": 2}, {"accuracy": 0.85}),
    "super_resolution": ({"epochs": 2, "count": 80}, {"tiles": 80}),
    "text_classification": ({"epochs": 2, "count": 600}, {"conv1d": 0.8, "lstm": 0.6}),
    "time_series": ({"epochs": 3, "length": 1200}, {"R2": 0.4}),
    "train_on_several_processes": ({"epochs": 2}, {"accuracy": 0.8, "processes": 1, "< rank": 0}),
    "transfer_learning": ({"epochs": 5}, {"low digits": 0.9, "high digits": 0.35, "left out of the file": 2}),
    "two_in_two_out": ({"epochs": 3}, {"accuracy": 0.3, "R2": 0.5}),
    "unet": ({"epochs": 2, "count": 100}, {"pixels right": 0.75}),
}
#: What they need beside scikit-learn.
NEEDS = {"image_folder": "PIL", "super_resolution": "PIL"}
#: Scripts that are tested elsewhere, or are none.
OTHERS = {"bundled", "autoencoder", "gan", "vae"}


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
    if name in NEEDS:
        skips.library(NEEDS[name])
    options, bounds = SMALL[name]
    results = main(name)(**options)
    for wanted, bound in bounds.items():
        if wanted.startswith("< "):
            assert results[wanted[2:]] <= bound, (wanted, results)
        else:
            assert results[wanted] >= bound, (wanted, results)


def test_every_script_is_run_here_and_stands_in_the_table():
    scripts = {path.stem for path in GALLERY.glob("*.py")}
    assert scripts - OTHERS == set(SMALL)
    table = (GALLERY / "README.md").read_text(encoding="utf-8")
    assert [name for name in SMALL if f"[{name}.py]({name}.py)" not in table] == []


def test_results_are_lines_of_their_own(capsys, main):
    main("mnist_convnet")
    importlib.import_module("bundled").show({"accuracy": 0.98765, "planned KiB": 804.0})
    assert capsys.readouterr().out == "accuracy: 0.9877\nplanned KiB: 804\n"
