"""The manual's snippets: the python blocks of a page run as they stand, in their order, in one process.

A block behind the line `<!-- needs NAME -->` wants a library, a GPU or several processes. It runs where there is such
a library, and is only compiled elsewhere.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"

pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="this copy has no docs, the checkout has")

BLOCK = re.compile(r"(?:^<!-- needs ([\w ]+) -->\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Needs that no library satisfies, and Keras, whose import takes longer than all pages.
NEVER = {"a GPU", "several processes", "Keras"}


def blocks(text: str) -> list[tuple[str, str]]:
    """Each python block of a page, behind as many empty lines as precede it, and what it needs ("" if nothing)."""
    return [("\n" * text.count("\n", 0, match.start(2)) + match[2], match[1] or "") for match in BLOCK.finditer(text)]


def is_there(needed: str) -> bool:
    """True if a block that needs this can run here."""
    return not needed or (needed not in NEVER and importlib.util.find_spec(needed) is not None)


def run(page: str, text: str) -> dict[str, Any]:
    """Runs the blocks of a page, and returns the names that they made."""
    names: dict[str, Any] = {"__name__": "manual"}
    for code, needed in blocks(text):
        compiled = compile(code, page, "exec", dont_inherit=True)
        if is_there(needed):
            exec(compiled, names)
    return names


PAGES = sorted(path.name for path in DOCS.glob("*.md") if blocks(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page, (DOCS / page).read_text(encoding="utf-8"))


def test_blocks_are_run_in_order_and_errors_have_the_line_of_the_page(tmp_path):
    page = "text\n\n```python\na = 1\n```\n\n```python\nb = a + 1\n```\n```text\nno python\n```\n"
    assert run("page.md", page)["b"] == 2
    with pytest.raises(ZeroDivisionError) as caught:
        run("page.md", page + "```python\nc = b\n1 / 0\n```\n")
    assert caught.traceback[-1].lineno + 1 == 15


def test_a_block_that_needs_what_is_missing_is_only_compiled():
    block = "<!-- needs {} -->\n```python\nraise LookupError\n```\n"
    for needed in ("no_such_library", *NEVER):
        run("page.md", block.format(needed))
    with pytest.raises(LookupError):
        run("page.md", block.format("json"))
    with pytest.raises(SyntaxError):
        run("page.md", "<!-- needs a GPU -->\n```python\nraise raise\n```\n")
