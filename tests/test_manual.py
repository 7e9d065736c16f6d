"""The manual: no public name is missing, and what its tables promise exists."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import singa_lite
from singa_lite import layers

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="this copy has no docs, the checkout has")


def site() -> ModuleType:
    """docs/site.py, which needs no mkdocs to be read."""
    spec = importlib.util.spec_from_file_location("manual_site", DOCS / "site.py")
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("module", site().MODULES if DOCS.is_dir() else ())
def test_the_reference_has_every_public_name_of_a_module(module):
    found = importlib.import_module(module)
    text = site().source(module).read_text(encoding="utf-8")
    handed_on = {name for name in re.findall(r"import \w+ as (\w+)", text) if not name.startswith("_")}
    own = {name for name, value in vars(found).items() if getattr(value, "__module__", "") == module}
    public = {
        name
        for name in handed_on | {name for name in own if callable(getattr(found, name)) and not name.startswith("_")}
        if not isinstance(getattr(found, name), ModuleType)
    }
    assert list(site().names(module)) == sorted(public)


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table behind a heading."""
    text = (DOCS / page).read_text(encoding="utf-8").split(heading, 1)[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def resolved(name: str) -> Any:
    """What the name stands for: of singa_lite, or of one of its modules."""
    first, *rest = name.split(".")
    if not hasattr(singa_lite, first):
        importlib.import_module(f"singa_lite.{first}")
    found: Any = singa_lite
    for part in (first, *rest):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("page", ["from_keras.md", "from_pytorch.md"])
def test_the_right_hand_names_exist(page):
    names = [re.findall(r"`([\w.]+)`", row[1]) for row in rows(page, "# Coming")]
    assert len(names) > 25 and all(len(found) == 1 for found in names)
    others = [name for row in rows(page, "# Coming") for name in re.findall(r"`((?:layers|loss)\.\w+)`", row[2])]
    for name in [found[0] for found in names] + others:
        resolved(name)


@pytest.mark.parametrize("page", ["from_keras.md", "from_pytorch.md"])
def test_the_refused_keywords_name_ours(page):
    table = rows(page, "## Keywords that are refused")
    assert len(table) >= 8
    for written, says, *_ in table:
        with pytest.raises(TypeError, match=re.escape(says.strip("`"))):
            eval(written.strip("`"), dict(vars(layers)))
