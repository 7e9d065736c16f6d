"""README: its code runs as it stands, in order; its length; its links; and the picture that its table is drawn as."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import skips

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"

pytestmark = pytest.mark.skipif(not README.is_file(), reason="this copy has no README, the checkout has")


def text() -> str:
    return README.read_text(encoding="utf-8")


def test_the_code_runs_in_order_in_one_process(tmp_path, monkeypatch, capsys):
    skips.library("safetensors")
    monkeypatch.chdir(tmp_path)
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text(), re.MULTILINE | re.DOTALL))
    names: dict[str, object] = {}
    for block in blocks:
        line = text()[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], str(README), "exec"), names)
    assert len(blocks) >= 3
    free, plan = names["free"], names["plan"]
    assert plan.total_bytes <= 280 * 2**20 < free.total_bytes < 500 * 2**20
    assert names["history"]["loss"][0] > 0
    assert f"{plan.recomputed} operations are done twice" in capsys.readouterr().out


def test_it_is_one_short_page():
    assert len(text().splitlines()) <= 175
    written = re.sub(
        r"<!-- origin .*?<!-- end -->|<!--.*?-->", "", text(), flags=re.DOTALL
    )  # the rest comes from files
    assert [line for line in written.splitlines() if len(line) > 160] == []


def test_its_links_lead_to_files():
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text())
    assert len(links) > 30
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="this copy has no docs, the checkout has")
def test_the_picture_has_the_rows_of_the_table(monkeypatch):
    """And their numbers: tests/test_figures.py draws it again."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from drawings.three_budgets import cases

    assert [case.name.split(",")[0] for case in cases(text())] == ["singa_lite"] * 3 + ["PyTorch"] * 2
