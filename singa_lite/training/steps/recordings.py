"""Recordings: how often forms of batch were recorded, and which parts of a step cannot be."""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import Any

from singa_lite.common.described import Described
from singa_lite.common.errors import GraphError
from singa_lite.common.notice import warn
from singa_lite.training.settings import BEFORE_COMPILE, Settings
from singa_lite.training.steps.step_functions import StepFunction

#: A warning is given for so many recordings of one form within so many steps.
MOST_RECORDINGS, STEP_WINDOW = 3, 100
#: In checked mode one of so many repeated steps is done eagerly as well.
CHECK_INTERVAL = 10


class Recordings:
    """Counts steps, and notes at which of them a form of batch was recorded. steps: how many were done."""

    def __init__(self) -> None:
        self.steps = 0
        self._at: dict[Hashable, list[int]] = {}
        self._has_warned = False
        self._repeats = 0

    def is_check_due(self) -> bool:
        """Whether the next repeat is to be compared with an eager step: every tenth one in checked mode."""
        if os.environ.get("SINGA_LITE_CHECKED", "") != "1":
            return False
        self._repeats += 1
        return self._repeats % CHECK_INTERVAL == 0

    def note(self, key: Hashable, changed: str) -> None:
        """A form is recorded. changed: the option that was set since the last time, "" where none was.

        Warns once, at the third recording of a form within a hundred steps for such a cause.
        """
        first = self.steps - STEP_WINDOW + 1
        self._at = {other: [step for step in at if step >= first] for other, at in self._at.items() if at[-1] >= first}
        recent = self._at.get(key, [])
        if changed or not recent:
            recent = self._at[key] = [*recent, self.steps]
        if changed and len(recent) >= MOST_RECORDINGS and not self._has_warned:
            self._has_warned = True
            warn(
                f"a step was recorded {len(recent)} times within {STEP_WINDOW} steps, as {changed} was set again; "
                "recording takes much longer than a step: keep what changes often in a tensor, or in an attribute that "
                "is no option"
            )


def refused_part(step: StepFunction[Any]) -> Described | None:
    """A part of the step whose class says that it is not recordable; None: there is none."""
    return next((part for part in step.parts if not part.recordable), None)


def check_recordable(where: str, step: StepFunction[Any]) -> None:
    """GraphError for a step that is not recorded, and so cannot be planned."""
    part = refused_part(step)
    if part is not None:
        name = getattr(part, "path", "")
        raise GraphError(
            f"{where}: wanted a step that can be recorded, received {name and f'layer {name!r} of '}class "
            f"{type(part).__name__}, which says recordable = False"
        )


def is_recorded(step: StepFunction[Any], how: Settings) -> bool:
    """Whether the step is recorded and replayed. GraphError where its options want that, and a part refuses it."""
    graph = how.graph or (how is BEFORE_COMPILE and step.recorded_before_compile)
    if not graph or refused_part(step) is None:
        return graph
    for name in how.of_records:
        check_recordable(f"compile {name}", step)
    return False
