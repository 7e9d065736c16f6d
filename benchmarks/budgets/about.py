"""Where, when and with what a run was made."""

from __future__ import annotations

import argparse
from typing import Any

from figure_file import Origin, machine, versions


def about(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the machine and the date, the options and the versions of a run."""
    return {"machine": machine(), "options": vars(options), "versions": versions()}


def origin(told: dict[str, Any], program: str) -> Origin:
    """Returns the origin of figures for their file. told: see `about`; program: that made them."""
    machine = told["machine"]
    place = f"{told['options']['threads']} of {machine['cores']} cores of an {machine['cpu']}"
    return Origin(f"python benchmarks/{program}", place, told["versions"], machine["date"])


def where(told: dict[str, Any]) -> str:
    """Returns the machine and the versions in a line."""
    machine, used = told["machine"], told["versions"]
    with_ = ", ".join(f"{name} {number}" for name, number in used.items())
    return f"{machine['cpu']}, {told['options']['threads']} of {machine['cores']} cores; {with_}; {machine['date']}"
