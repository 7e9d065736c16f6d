"""docs/lineage.md: each row says where a feature is and which tests hold it, and these exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from every_row import over_rows
from package_source import module_files

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "lineage.md"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="this copy has no docs, the checkout has")

#: A row of the table: its number, the feature, where it is, and what holds it.
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.+?) \| ?(.*?) ?\|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
MODULE = re.compile(r"`([\w/]+)\.py`")


def rows() -> list[tuple[str, str, str, str]]:
    return ROW.findall(PAGE.read_text())


def check(feature: str, here: str, held: str) -> None:
    named = TEST.findall(held)
    assert bool(named) != here.startswith("*not here*"), "a feature that is here has a test, one that is not has none"
    assert TEST.sub("", held).strip(", ") == "", "only tests stand in the last column"
    for file, test in named:
        source = (TESTS / file).read_text()
        assert re.search(rf"^def {test}\(", source, re.MULTILINE), f"{file} has no {test}"
    modules = {name.removeprefix("singa_lite.") for name in module_files()}
    for path in MODULE.findall(here):
        assert path.replace("/", ".") in modules or (TESTS.parent / f"{path}.py").is_file(), f"there is no {path}.py"
    assert feature


def test_each_row_names_what_there_is():
    over_rows(check, ((f"{number} {feature}", (feature, here, held)) for number, feature, here, held in rows()))


def test_rows_are_numbered_and_none_is_left_out():
    numbers = [int(number) for number, *_ in rows()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 128
    tables = [
        line for line in PAGE.read_text().splitlines() if line.startswith("|") and not line.startswith(("| |", "|-"))
    ]
    assert len(tables) == len(numbers)
