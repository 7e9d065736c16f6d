"""The example scripts run, and reach what they claim."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections import Counter
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="this copy has no examples, the checkout has")


def run(name: str, folder: Path, *options: str) -> str:
    """What the script prints, run in an empty folder."""
    environment = {**os.environ, "MPLCONFIGDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *options],
        cwd=folder,
        env=environment,
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


def test_digits_cnn_is_right_on_98_percent_of_the_held_out_fifth(tmp_path):
    text = run("digits_cnn.py", tmp_path)
    assert number(r"accuracy ([\d.]+)%", text) >= 98
    assert (tmp_path / "digits_cnn.h5").stat().st_size > 100_000
    assert (tmp_path / "digits_cnn.png").read_bytes().startswith(b"\x89PNG")


def test_digits_mlp_learns_and_saves_memory(tmp_path):
    text = run("digits_mlp.py", tmp_path)
    assert number(r"held-out fifth: ([\d.]+)%", text) >= 96
    assert number(r"([\d.]+) MiB layer by layer", text) < 0.9 * number(r"([\d.]+) MiB collected", text)


def test_two_inputs_two_losses_learns_both_ways(tmp_path):
    text = run("two_inputs_two_losses.py", tmp_path)
    assert number(r"by hand: ([\d.]+)%", text) >= 94
    assert number(r"by name: ([\d.]+)%", text) >= 94


def test_custom_layer_has_right_gradients_and_learns(tmp_path):
    text = run("custom_layer.py", tmp_path)
    tape, numeric = number(r"tape ([-\d.]+)", text), number(r"central difference ([-\d.]+)", text)
    assert abs(tape - numeric) < 1e-8
    assert number(r"last epoch ([\d.]+)", text) < number(r"first epoch ([\d.]+)", text) / 50


def test_a_recorded_expression_runs_a_thousand_times_and_learns(tmp_path):
    text = run("recorded_expression.py", tmp_path)
    assert number(r"recorded: (\d+) operations", text) > 20
    assert number(r"run 1000: loss ([\d.]+)", text) < number(r"run 1: loss ([\d.]+)", text) / 10
    assert number(r"run 1000: .* ([\d.]+)% right", text) > 95
    assert number(r": (\d+) bytes in one arena", text) < number(r"arena, (\d+) unshared", text) / 2


def test_own_operation_has_right_gradients_and_learns_within_the_plan(tmp_path):
    text = run("own_operation.py", tmp_path)
    assert number(r"within ([-\de.]+) of central", text) < 1e-8
    assert number(r"last epoch ([\d.]+)", text) < number(r"first epoch ([\d.]+)", text) / 10
    assert number(r"scratch of LogSquare.forward: (\d+) bytes", text) == 64 * 32 * 4


def test_a_rule_of_the_users_own_saves_memory_and_changes_no_loss(tmp_path):
    text = run("rewriting.py", tmp_path)
    assert "refused: rule 'nearly mish': wanted both sides equal within 1e-05" in text
    assert number(r"applied (\d+) times", text) == 4
    assert number(r"MiB before, ([\d.]+) MiB after", text) < 0.75 * number(r"arena: ([\d.]+)", text)
    before, after = number(r"epoch: ([\d.]+)", text), number(r"epoch: [\d.]+ before, ([\d.]+) after", text)
    assert abs(before - after) < 1e-4


def test_a_run_that_was_killed_ends_with_equal_bits(tmp_path):
    text = run("killed_and_resumed.py", tmp_path)
    assert 400 <= number(r"killed behind step (\d+)", text) < 1140
    assert "equal to the last bit" in text


def test_half_the_memory_gives_equal_losses_in_a_half_and_in_a_third(tmp_path):
    text = run("half_the_memory.py", tmp_path, "--epochs", "1")
    assert "all losses equal to the last bit" in text
    whole, half, third = (number(rf"{name} +([\d.]+)", text) for name in ("free", "half", "a third"))
    assert half <= whole / 2 + 0.1 and third <= whole / 3 + 0.1
    assert (tmp_path / "half_the_memory.png").read_bytes().startswith(b"\x89PNG")


def test_char_lstm_learns_and_writes(tmp_path):
    text = run("char_lstm.py", tmp_path, "--steps", "36", "--hidden", "48", "--characters", "20000")
    first, last = (number(rf"step +{step}: ([\d.]+)", text) for step in (3, 36))
    assert last < first
    assert number(r"held-out modules: ([\d.]+)", text) < log2(97)
    assert "--- a sample\ndef read_lines(path):\n" in text
    assert (tmp_path / "char_lstm.npz").stat().st_size > 10_000


def test_char_gpt_learns_and_writes_within_its_plan(tmp_path):
    text = run("char_gpt.py", tmp_path, "--steps", "30", "--characters", "20000")
    assert number(r"held-out modules: ([\d.]+)", text) < 4.6
    assert number(r"gave out ([\d.]+) MiB", text) <= number(r"takes ([\d.]+) MiB", text)
    assert text.count("--- a sample\n    def ") == 3
    assert (tmp_path / "char_gpt.png").read_bytes().startswith(b"\x89PNG")
    assert b"<html" in (tmp_path / "char_gpt.html").read_bytes()[:2000]
    assert (tmp_path / "char_gpt.safetensors").stat().st_size > 1_000_000


def test_the_autoencoder_learns_within_kibibytes(tmp_path):
    text = run("gallery/autoencoder.py", tmp_path, "--epochs", "4")
    assert number(r"([\d.]+) KiB for a step", text) < 2048
    assert number(r"of the variance: ([\d.]+)%", text) >= 20
    assert number(r"principal components ([\d.]+)%", text) == 66


def test_the_variational_autoencoder_gives_pictures_back(tmp_path):
    text = run("gallery/vae.py", tmp_path, "--epochs", "4")
    assert number(r"of the variance: ([\d.]+)%", text) >= 40
    assert number(r"([\d.]+) KiB for a step", text) < 200
    assert number(r"([\d.]+) of them its code", text) > 3


def test_the_adversarial_pair_comes_to_draw_what_it_is_asked_for(tmp_path):
    text = run("gallery/gan.py", tmp_path, "--epochs", "16")
    assert number(r"read as asked: ([\d.]+)%", text) >= 30  # 10 by chance
    assert number(r"([\d.]+) KiB for a step", text) < 300


def test_recipe_callbacks(tmp_path):
    assert 5 < number(r"(\d+) epochs of 60", run("recipes/callbacks.py", tmp_path)) < 60


def test_recipe_freeze_and_register(tmp_path):
    text = run("recipes/freeze_and_register.py", tmp_path)
    assert re.findall(r"(\w+)/\w+ (\w+)", text) == [
        *[("first", "stays")] * 2,
        *[("second", "moved")] * 2,
        *[("scores", "moved")] * 2,
    ]


def test_recipe_own_loss_and_metric(tmp_path):
    text = run("recipes/own_loss_and_metric.py", tmp_path)
    for name in ("loss", "largest error"):
        ours, numpys = number(rf"{name} ([\d.]+)", text), number(rf"{name} [\d.]+, by NumPy ([\d.]+)", text)
        assert ours == pytest.approx(numpys, abs=2e-6)


def test_recipe_own_operation(tmp_path):
    text = run("recipes/own_operation.py", tmp_path)
    assert number(r"in/weight: ([-\d.]+)", text) == -0.5 and number(r"out/weight: ([-\d.]+)", text) == 1


def test_recipe_data_from_disk(tmp_path):
    assert number(r"accuracy ([\d.]+)", run("recipes/data_from_disk.py", tmp_path)) >= 0.95


def test_recipe_transfer_from_pytorch(tmp_path):
    text = run("recipes/transfer_from_pytorch.py", tmp_path)
    assert "had them: True" in text and number(r"accuracy ([\d.]+)", text) >= 0.9


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """examples/python_text.py."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module("python_text")
    sys.modules.pop("python_text")


def test_windows_score_each_character_once(model):
    x, y = model.windows(np.arange(12), 5, 2)
    assert x.tolist() == [[0, 1, 2, 3, 4], [3, 4, 5, 6, 7], [6, 7, 8, 9, 10]]
    assert y.tolist() == [[-1, -1, 3, 4, 5], [-1, -1, 6, 7, 8], [-1, -1, 9, 10, 11]]


def test_the_order_3_model_gives_what_its_formula_says(model):
    training = model.ids("abcabdabcabc\nabdbacbab")
    x, y = model.windows(model.ids("bcabdabacabxcab"), 7, 3)
    counts = Counter(tuple(training[at : at + size]) for size in range(1, 5) for at in range(len(training) - size + 1))
    bits = []
    for row, column in np.argwhere(y >= 0):
        p = 1 / len(model.CHARACTERS)
        for order in range(4):
            history = tuple(x[row, column - order + 1 : column + 1]) if order else ()
            follows = {key[-1]: count for key, count in counts.items() if key[:-1] == history}
            if follows:
                p = (follows.get(y[row, column], 0) + len(follows) * p) / (sum(follows.values()) + len(follows))
        bits.append(-log2(p))
    assert model.order3_bits(training, x, y) == pytest.approx(np.mean(bits))


def test_the_text_is_of_whole_modules_that_are_trained_on_or_held_out(model):
    training, held_out = model.read()
    assert len(training) > 2_000_000 and len(held_out) > 100_000
    assert training.min() >= 0 and training.max() < len(model.CHARACTERS)
