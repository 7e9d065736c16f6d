"""A run that was killed and goes on ends as the run that was not: parameters, state, losses, history, bit for bit."""

from __future__ import annotations

import json
import signal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import resume_run
import warm
from resume_run import NETS, STEPS, Kill, Killed, fit, outcome
from singa_lite.snapshots import Checkpoint


@cache
def uninterrupted(kind: str, compiled: str) -> dict[str, Any]:
    net = NETS[kind](compiled)
    return outcome(net, fit(net, kind))


def resumed(folder: Path, kind: str, compiled: str, *kills: int, every: int, **options: Any) -> dict[str, Any]:
    """What comes of a run that is killed at these steps; each process' net is a new one. Batches are taken ahead."""
    for step in kills:
        checkpoint = Checkpoint(folder, every_steps=every, **options)
        with pytest.raises(Killed):
            fit(NETS[kind](compiled), kind, checkpoint, Kill(step), resume="auto", prefetch=3)
    net = NETS[kind](compiled)
    return outcome(net, fit(net, kind, Checkpoint(folder, every_steps=every, **options), resume="auto", prefetch=2))


@pytest.mark.parametrize("step", [1, 5, 15])
def test_killed_at_any_step(tmp_path, step):
    """At the first, the last, and around an epoch's end, which is every fifth."""
    assert 1 <= step <= STEPS == 15
    assert resumed(tmp_path, "images", "Adam", step, every=1) == uninterrupted("images", "Adam")


@pytest.mark.parametrize(
    ("kind", "compiled"), [("images", "Adam"), ("doubles", "SGD with momentum"), ("two outputs", "Nesterov")]
)
def test_killed_three_times_between_checkpoints(tmp_path, kind, compiled):
    """Before the first checkpoint, within an epoch, and after one's last batch."""
    found = resumed(tmp_path, kind, compiled, 1, 8, 11, every=3, background=compiled.startswith("Adam"), keep=2)
    assert found == uninterrupted(kind, compiled)


@pytest.mark.parametrize("options", [{}, {"monitor": "val_loss"}, {"every_minutes": 1e-9}], ids=str)
def test_killed_with_checkpoints_at_other_times(tmp_path, options):
    with pytest.raises(Killed):
        fit(NETS["images"]("SGD"), "images", Checkpoint(tmp_path, **options), Kill(12))
    net = NETS["images"]("SGD")
    assert outcome(net, fit(net, "images", Checkpoint(tmp_path), resume="auto")) == uninterrupted("images", "SGD")


def test_without_shuffling_and_with_more_epochs(tmp_path):
    whole, parts = NETS["images"]("SGD"), NETS["images"]("SGD")
    wanted = outcome(whole, fit(whole, "images", shuffle=False, epochs=4))
    fit(parts, "images", Checkpoint(tmp_path), shuffle=False, epochs=2)
    again = NETS["images"]("SGD")
    assert outcome(again, fit(again, "images", Checkpoint(tmp_path), shuffle=False, epochs=4, resume="auto")) == wanted


def test_a_run_that_is_done_only_tells_its_history(tmp_path):
    first, second = NETS["images"]("Adam"), NETS["images"]("Adam")
    told = fit(first, "images", Checkpoint(tmp_path))
    assert fit(second, "images", Checkpoint(tmp_path), resume="auto").history == told.history
    assert outcome(second, told) == outcome(first, told)


# --- processes ----------------------------------------------------------------------------------------------


def process(folder: Path, *arguments: object) -> Any:
    """The script of `resume_run`, begun."""
    return warm.start(resume_run.__file__, folder, folder / "result.json", *arguments)


def check_end(folder: Path) -> None:
    """Let a last process end the run; compare."""
    done = process(folder)
    _, errors = done.communicate(timeout=60)
    assert done.returncode == 0, errors
    found = json.loads((folder / "result.json").read_text())
    assert found == {name: str(value) for name, value in uninterrupted("images", "Adam").items()}


def test_killed_processes(tmp_path):
    """By SIGKILL, while a thread writes, and again; with what they leave."""
    for step in (3, 8):
        killed = process(tmp_path, int(signal.SIGKILL), step)
        assert killed.communicate(timeout=60)[0] == "" and killed.returncode == -signal.SIGKILL
    check_end(tmp_path)


def test_asked_to_leave_within_a_step(tmp_path):
    """The step is finished and written."""
    asked = process(tmp_path, int(signal.SIGTERM), 7)
    _, errors = asked.communicate(timeout=60)
    assert asked.returncode == 143, errors
    assert (tmp_path / f"checkpoint-{8:010}.h5").exists()
    check_end(tmp_path)
