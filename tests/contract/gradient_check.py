"""Gradients by the tape against central differences, in float64: those of `singa_lite.testing`, as tests call them."""

from __future__ import annotations

from singa_lite.testing.gradients import LEAST as LEAST
from singa_lite.testing.gradients import STEP as STEP
from singa_lite.testing.gradients import TOLERANCE as TOLERANCE
from singa_lite.testing.gradients import by_differences as by_differences
from singa_lite.testing.gradients import by_tape as by_tape
from singa_lite.testing.gradients import compare as check_gradients
from singa_lite.testing.gradients import outputs_of as outputs_of
from singa_lite.testing.gradients import projections as projections
from singa_lite.testing.gradients import relative_error as relative_error
from singa_lite.testing.gradients import spread as spread

__all__ = [
    "LEAST",
    "STEP",
    "TOLERANCE",
    "by_differences",
    "by_tape",
    "check_gradients",
    "outputs_of",
    "projections",
    "relative_error",
    "spread",
]
