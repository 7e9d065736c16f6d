"""What .ci/run takes from the project's own words: README's commands, and the extras that files name together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from package_source import script

ROOT = Path(__file__).resolve().parents[1]
CI = ROOT / ".ci"

pytestmark = pytest.mark.skipif(not CI.is_dir(), reason="this copy has no .ci, the checkout has")


def test_the_project_names_extras_that_it_has():
    resolve = script(CI / "resolve.py")
    extras = set(re.findall(r'^        "(\w+)": [\[A-Z]', (ROOT / "setup.py").read_text(), re.MULTILINE))
    named = set().union(*resolve.named_together())
    assert {"cudatest", "peer"} <= named <= extras


def test_readme_has_both_commands():
    lines = (ROOT / "README.md").read_text().splitlines()
    for word in ("&& python examples/", "&& pytest"):
        assert len([line for line in lines if line.startswith("pip install ") and word in line]) == 1
