"""A test that is skipped says what is missing and what brings it, or it fails."""

from __future__ import annotations

import pytest

import skips


@pytest.mark.parametrize(
    ("reason", "helps"),
    [
        ("wants torch, pip install torch", True),
        ("this system has no fork", True),
        ("device.cuda(0): wanted an NVIDIA GPU and its driver", True),
        ("could not import 'torch': No module named 'torch'", False),
        ("", False),
    ],
)
def test_a_reason_names_what_is_missing(reason, helps):
    assert (skips.complaint(reason) == "") == helps
