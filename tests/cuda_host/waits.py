"""Where the runtime's streams and events wait or are recorded, and whether a scenario shows that one is missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from unittest.mock import patch

import singa_lite.runtime
from late_cupy import LateCupy

FOLDER = Path(singa_lite.runtime.__file__).parent
CALL = re.compile(r"\.(wait_event|record|synchronize)\(")

Site = tuple[str, int]
#: What happens on late streams in the order of a seed: AssertionError where values are wrong or nothing can go on, a
#: UserWarning, which tests turn into an error, where a step cannot be captured any more.
Scenario = Callable[[int], object]


def sites(*files: str) -> list[str]:
    """ "file:line" of each call in these modules of the runtime."""
    return [
        f"{file}:{number}"
        for file in files
        for number, line in enumerate((FOLDER / file).read_text(encoding="utf-8").splitlines(), 1)
        if CALL.search(line)
    ]


def shows(site: str, scenarios: Iterable[Scenario], seeds: Iterable[int]) -> bool:
    """Whether one of the scenarios fails for one of the seeds with that call left out."""
    file, line = site.split(":")
    with patch.object(LateCupy, "without", (file, int(line))):
        return any(fails(scenario, seed) for scenario in scenarios for seed in seeds)


def fails(scenario: Scenario, seed: int) -> bool:
    try:
        scenario(seed)
    except (AssertionError, UserWarning):
        return True
    return False
