"""The sides of a comparison in turn, A B A B, each run in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from .process import Task

Run = dict[str, Any]
OneTask = TypeVar("OneTask", bound=Task)


def in_turn(
    task: OneTask, obstacles: dict[str, str], rounds: int, run: Callable[[OneTask], Run]
) -> tuple[list[Run], dict[str, list[Run] | str]]:
    """(our runs, {peer: its runs, or why there are none}). RuntimeError if ours fails.

    obstacles: {peer: why it cannot run here, "" if it can}; run: does a task in a process of its own.
    """
    theirs: dict[str, list[Run] | str] = {peer: why or [] for peer, why in obstacles.items()}
    ours: list[Run] = []
    for _ in range(rounds):
        ours.append(run(replace(task, way="singa_lite")))
        for peer, runs in theirs.items():
            if isinstance(runs, list):
                theirs[peer] = one_more(runs, replace(task, way=peer), run)
    return ours, theirs


def one_more(runs: list[Run], task: OneTask, run: Callable[[OneTask], Run]) -> list[Run] | str:
    """The runs and another one, or why it failed."""
    try:
        return [*runs, run(task)]
    except RuntimeError as error:
        return f"failed: {error}"
