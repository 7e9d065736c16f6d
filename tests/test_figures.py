"""Figures of the manual: pages show what the files of figures have, plans are as the files say, drawings are fresh."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmark_modules import benchmark_modules
from kernel_sets import kernel_sets

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FIGURES = DOCS / "figures"
#: All tables of these pages come from files of figures.
MEASURED = ("benchmarks.md", "measured_files.md", "measurements.md", "memory.md", "plans.md")

pytestmark = pytest.mark.skipif(not FIGURES.is_dir(), reason="this copy has no docs, the checkout has")


@pytest.fixture(scope="module")
def pages() -> Iterator[Any]:
    """benchmarks/pages.py."""
    with benchmark_modules() as module:
        yield module("pages")


@pytest.fixture(scope="module")
def figure_file() -> Iterator[Any]:
    """benchmarks/figure_file.py."""
    with benchmark_modules() as module:
        yield module("figure_file")


# ---- pages and files


def test_pages_show_what_the_files_have(pages):
    stale = [page.name for page in pages.pages() if pages.filled(text := page.read_text(encoding="utf-8")) != text]
    assert not stale, f"python benchmarks/pages.py puts the figures into {', '.join(stale)}"


def test_each_file_names_machine_versions_and_date(pages, figure_file):
    for path in FIGURES.glob("*.json"):
        origin = figure_file.read(path).origin
        assert re.search("core|NVIDIA", origin.machine) and origin.versions, path
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", origin.date), path
        program = re.search(r"benchmarks/\w+\.py", origin.command)
        assert (ROOT / program[0]).is_file() if program else not origin.command, path


def test_a_page_with_a_table_names_its_origin(pages):
    for page in pages.pages():
        text = page.read_text(encoding="utf-8")
        used = re.findall(r"<!-- (?:table|worst) ([^:>]+?)(?:: [^>]*)? -->", text)
        files = {path.split("/")[0] for path in used}  # of several, `worst` names the newest first
        named = set(re.findall(r"<!-- origin ([\w-]+) -->", text))
        assert files <= named, page.name


@pytest.mark.parametrize("name", MEASURED)
def test_no_table_of_numbers_is_written_by_hand(pages, name):
    text = pages.BLOCK.sub("", (DOCS / name).read_text(encoding="utf-8"))
    assert [line for line in text.splitlines() if line.startswith("|") and re.search(r"\d", line)] == []


@pytest.fixture
def folder(tmp_path, figure_file) -> Path:
    """A folder with two small files of figures, `fast` and `slow`."""
    columns = [("net", ""), ("ours / PyTorch's", ".2f"), ("MiB", ",.1f"), ("order", "")]
    for name, ratio, extra in (
        ("fast", 0.5, ["**lenet**", 0.25, 1234.5, "least"]),
        ("slow", 0.75, ["vgg", 0.9, 2.0, ""]),
    ):
        rows = [["mlp", ratio, 1.0, "recorded"], extra]
        origin = figure_file.Origin("", f"2 cores of an {name}", {"NumPy": "2"}, "2026-01-02", "quiet")
        figure_file.write(tmp_path / f"{name}.json", origin, {"steps": figure_file.Table(columns, rows)})
    return tmp_path


def test_a_page_is_filled(pages, folder):
    text = (
        "a\n<!-- table fast/steps: net | MiB -->\nold\n<!-- end -->\n"
        "<!-- worst fast/steps slow/steps: net | ours / PyTorch's -->\n<!-- end -->\n"
        "<!-- origin slow -->\n<!-- end -->\n"
        "takes **9,999**<!-- figure fast/steps/lenet/MiB --> MiB, "
        "0.1<!-- figure slow/steps/mlp/ours / PyTorch's --> of the time\n"
    )
    filled = pages.filled(text, folder)
    assert "\n\n| net | MiB |\n|---|---|\n| mlp | 1.0 |\n| **lenet** | 1,234.5 |\n\n<!-- end -->" in filled
    assert "| mlp | 0.75 | slow |\n| **lenet** | 0.25 | fast |\n| vgg | 0.90 | slow |" in filled
    assert "Measured by hand: 2 cores of an slow, NumPy 2, 2026-01-02; quiet." in filled
    assert "takes **1,234**<!-- figure" in filled and "0.8<!-- figure slow" in filled and "old" not in filled
    assert pages.filled(filled, folder) == filled


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("<!-- table fast/steps -->\nno end", "end"),
        ("words<!-- figure fast/steps/mlp/MiB -->", "figure"),
        ("<!-- table none/steps -->\n<!-- end -->", "none"),
        ("<!-- table fast/none -->\n<!-- end -->", "none"),
        ("<!-- table fast/steps: net | speed -->\n<!-- end -->", "speed"),
        ("<!-- worst fast/steps: net -->\n<!-- end -->", "ours / PyTorch's"),
        ("<!-- origin none -->\n<!-- end -->", "none"),
        ("1<!-- figure fast/steps/vgg/MiB -->", "vgg"),
        ("1<!-- figure fast/steps/mlp/GiB -->", "GiB"),
        ("1<!-- figure fast/steps -->", "fast/steps"),
    ],
)
def test_a_wrong_mark_is_refused(pages, folder, text, culprit):
    with pytest.raises(ValueError, match=re.escape(culprit)):
        pages.filled(text, folder)


def test_a_file_comes_back(figure_file, tmp_path):
    table = figure_file.of_lines(["net", "ms"], ["| lenet | 1.5 |", "words", "| mlp |  |"])
    assert table.rows == [["lenet", "1.5"], ["mlp", ""]]
    made = figure_file.origin("python benchmarks/plans.py", ("NumPy",), "busy")
    assert "NumPy" in made.versions and "PyTorch" not in made.versions
    figure_file.write(tmp_path / "a.json", made, {"steps": table})
    found = figure_file.read(tmp_path / "a.json")
    assert found.origin == made and found.tables["steps"].markdown() == table.markdown()
    for damage in ("[]", "{", json.dumps({"tables": {}})):
        (tmp_path / "a.json").write_text(damage)
        with pytest.raises(ValueError, match=r"a\.json"):
            figure_file.read(tmp_path / "a.json")


# ---- plans and drawings are of this code


def planned(tmp_path: Path, kernels: str, *nets: str) -> dict[str, Any]:
    """The tables that benchmarks/plans.py makes of these nets, as on a processor without AVX-512."""
    path = tmp_path / "plans.json"
    command = [sys.executable, "plans.py", "--anyway", "--kernels", kernels, "--write", str(path), *nets]
    variables = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(command, cwd=ROOT / "benchmarks", env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(path.read_text())["tables"]


#: (kernel set, nets); those that take long, and oneDNN's, whose bytes its version changes, at night.
PLANS = [
    ("numpy", ("digits_cnn", "lenet", "resnet50", "unet")),
    pytest.param("numpy", ("vgg16", "mobilenet_v2", "densenet121", "chain"), marks=pytest.mark.nightly),
    pytest.param("onednn", ("lenet", "resnet50", "mobilenet_v2", "unet"), marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("kernels", "nets"), PLANS)
def test_plans_are_as_published(tmp_path, kernels, nets):
    """ONEDNN_MAX_CPU_ISA=AVX2 python benchmarks/plans.py --anyway --write docs/figures/plans.json writes them anew."""
    if kernels not in [one.name for one in kernel_sets()]:
        pytest.skip("there is no oneDNN: pip install '.[onednn]' brings it")
    published = json.loads((FIGURES / "plans.json").read_text())["tables"]
    varying = {"unshared"} if kernels == "onednn" else set()  # by the processor, as the library's scratch is
    for name, table in planned(tmp_path, kernels, *nets).items():
        rows = [row for row in published[name]["rows"] if row[0].split(",")[0] in nets]
        columns = [column for column, _ in table["columns"]]
        wanted = [
            [pytest.approx(v, rel=1e-4) if column in varying else v for column, v in zip(columns, row, strict=True)]
            for row in rows
        ]
        assert table["rows"] == wanted, name


def test_drawings_are_fresh():
    command = [sys.executable, str(DOCS / "write_drawings.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_drawings_are_shown_and_can_be_read():
    manual = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *DOCS.glob("*.md")))
    for path in DOCS.glob("*.svg"):
        root = ET.fromstring(path.read_text(encoding="utf-8"))
        assert f"]({path.name})" in manual or f"](docs/{path.name})" in manual, path.name
        assert [child.tag.split("}")[1] for child in root][:3] == ["title", "desc", "style"], path.name
        assert float(root.attrib["viewBox"].split()[2]) <= 440, "too wide for a phone"


@pytest.mark.parametrize(
    ("labels", "culprit"),
    [
        ([(10, 20, "first"), (20, 24, "second")], "'second' and 'first'"),
        ([(420, 20, "outside")], "leaves the page"),
        ([(90, 60, "across")], "crosses the edge"),
    ],
)
def test_a_drawing_whose_labels_touch_is_refused(monkeypatch, labels, culprit):
    monkeypatch.syspath_prepend(str(DOCS))
    from drawings.svg import Drawing

    made = Drawing("a drawing", "of labels", 200)
    made.frame(100, 40, 60, 40)
    for left, base, words in labels:
        made.label(left, base, words)
    with pytest.raises(ValueError, match=culprit):
        made.text()
