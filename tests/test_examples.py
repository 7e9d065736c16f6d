"""The example scripts run, and reach what they claim."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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
