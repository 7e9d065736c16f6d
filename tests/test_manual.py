"""The manual: no public name is missing, and what its tables promise exists."""

from __future__ import annotations

import importlib
import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import singa_lite
from every_row import over_rows
from package_source import module_files, script
from singa_lite import layers

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="this copy has no docs, the checkout has")


@cache
def site() -> ModuleType:
    """docs/site.py, which needs no mkdocs to be read."""
    return script(DOCS / "site.py")


def check_names(module: str) -> None:
    found = importlib.import_module(module)
    text = site().source(module).read_text(encoding="utf-8")
    handed_on = {name for name in re.findall(r"import \w+ as (\w+)", text) if not name.startswith("_")}
    own = {name for name, value in vars(found).items() if getattr(value, "__module__", "") == found.__name__}
    public = {
        name
        for name in handed_on | {name for name in own if callable(getattr(found, name)) and not name.startswith("_")}
        if not isinstance(getattr(found, name), ModuleType)
    }
    assert list(site().names(module)) == sorted(public)


def test_the_reference_has_every_public_name():
    over_rows(check_names, ((module, (module,)) for module in site().MODULES))


def test_the_reference_has_a_page_for_each_public_module():
    """By the name that is promised, wherever the module lies now."""
    named = [f"singa_lite.{name}" for name in (*singa_lite.__all__, *singa_lite._LATER, *singa_lite._BY_NAME)]
    found = {name for name in named if name.islower() and importlib.util.find_spec(name)}
    assert set(site().MODULES) == {"singa_lite", *found}
    assert {"singa_lite.errors", "singa_lite.schedule"} <= found
    assert {name for module in site().MODULES for name in site().names(module)} >= site().WHOLE


#: Parts of the manual that are no guides: their pages may be long.
NO_GUIDES = {"Internals"}
MOST_LINES = 120


def parts_of_manual() -> dict[str, list[str]]:
    """The pages of docs/ below each heading of the outline, without those that docs/site.py adds."""
    outline = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1]
    added = set(site().OUTSIDE.values())
    return {
        heading: [page for page in re.findall(r"^ {6,}- .+: (\S+\.md)$", pages, re.MULTILINE) if page not in added]
        for heading, pages in re.findall(r"^  - ([^:\n]+):\n((?:      .+\n)+)", outline, re.MULTILINE)
    }


def test_each_page_is_in_the_outline_once():
    listed = [page for pages in parts_of_manual().values() for page in pages]
    assert sorted(listed) == sorted(path.name for path in DOCS.glob("*.md"))


def test_a_guide_is_at_most_so_long():
    guides = [page for heading, pages in parts_of_manual().items() if heading not in NO_GUIDES for page in pages]
    lines = {page: (DOCS / page).read_text(encoding="utf-8").count("\n") for page in guides}
    assert len(guides) > 30 and {page: count for page, count in lines.items() if count > MOST_LINES} == {}


FOLDERS = ("singa_lite", "layers", "snapshots", "tests", "benchmarks", "examples", "docs")


def check_named_files(page: str, files: set[str]) -> None:
    text = re.sub(r"^```.*?^```", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"`([\w/]+\.py)`", text)
    assert {name for name in named if not any(file.endswith(f"/{name}") for file in files)} == set()


def test_files_that_the_manual_names_exist():
    files = {f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    over_rows(check_named_files, ((path.name, (path.name, files)) for path in DOCS.glob("*.md")))


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


@pytest.mark.parametrize(("page", "heading"), [("from_keras.md", "## What differs"), ("from_pytorch.md", "## Names")])
def test_the_right_hand_names_exist(page, heading):
    names = [re.findall(r"`([\w.]+)`", row[1]) for row in rows(page, heading)]
    assert len(names) > 25 and all(len(found) == 1 for found in names)
    others = [name for row in rows(page, heading) for name in re.findall(r"`((?:layers|loss)\.\w+)`", row[2])]
    for name in [found[0] for found in names] + others:
        resolved(name)


@pytest.mark.parametrize("page", ["keras_words.md", "from_pytorch.md"])
def test_the_refused_keywords_name_ours(page):
    table = rows(page, "## Keywords that are refused")
    assert len(table) >= 8
    for written, says, *_ in table:
        with pytest.raises(TypeError, match=re.escape(says.strip("`"))):
            eval(written.strip("`"), dict(vars(layers)))


def test_what_the_lineage_names_exists():
    """Modules, and the tests that hold a feature."""
    page = (DOCS / "lineage.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| (\d+) \| .+? \| (.+?) \| ?(.*?) ?\|$", page, re.MULTILINE)
    assert [int(number) for number, *_ in found] == list(range(1, len(found) + 1)) and len(found) >= 128
    modules = {name.removeprefix("singa_lite.").replace(".", "/") for name in module_files()}
    missing = []
    for _, here, held in found:
        assert bool(held) != here.startswith("*not here*"), here
        for file, test in re.findall(r"`([\w/]+\.py)::(test_\w+)`", held):
            path = ROOT / "tests" / file
            if not path.is_file() or f"def {test}(" not in path.read_text(encoding="utf-8"):
                missing.append(f"{file}::{test}")
        for name in re.findall(r"`([\w/]+)\.py`", here):
            if name not in modules and not (ROOT / f"{name}.py").is_file():
                missing.append(name)
    assert not missing
