"""Where, when and with what a run was made."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
from typing import Any

import singa_lite
from compare import machine


def about(options: argparse.Namespace) -> dict[str, Any]:
    """Where, when, and with what options."""
    return {"machine": machine(), "options": vars(options), "versions": versions()}


def versions() -> dict[str, str]:
    """Of what is compared."""
    others = [name for name in ("torch", "numpy") if importlib.util.find_spec(name) is not None]
    return {"singa_lite": singa_lite.__version__, **{name: importlib.metadata.version(name) for name in others}}


def where(told: dict[str, Any]) -> str:
    """The machine and the versions in a line."""
    machine, used = told["machine"], told["versions"]
    with_ = ", ".join(f"{name} {number}" for name, number in used.items())
    return f"{machine['cpu']}, {told['options']['threads']} of {machine['cores']} cores; {with_}; {machine['date']}"
