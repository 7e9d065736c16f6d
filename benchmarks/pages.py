"""Puts the figures of docs/figures/*.json into the pages of the manual and into README.md.

    python benchmarks/pages.py            # rewrites what differs
    python benchmarks/pages.py --check    # names the pages that differ; exit status 1 if there is one

Comments in a page, which no reader sees, name a table (all columns, or those behind the colon), the rows of several
tables (of a net in more than one, the row of the processor that is worse), the origin of a file, or one number:

    <!-- table plans/onednn training: net, batch | arena -->
    <!-- end -->
    <!-- worst speed_zen5/steps speed_xeon/steps: net, batch | ours / PyTorch's -->
    <!-- end -->
    <!-- origin plans -->
    <!-- end -->
    917<!-- figure plans/onednn training/resnet50, 16/arena --> MiB

Lines up to the end are replaced. A number keeps the decimals that the page gives it.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import figure_file
from tiny import parsed

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "figures"
BLOCK = re.compile(r"(<!-- (table|worst|origin) ([^>]+?) -->\n).*?(<!-- end -->)", re.DOTALL)
NUMBER = re.compile(r"(?P<number>\d[\d,]*(?:\.\d+)?)(?P<mark>\**<!-- figure (?P<path>[^>]+?) -->)")
#: Our time by the peer's: where it is larger, the processor is worse for us.
RATIO = "ours / PyTorch's"
MARKS = re.compile(r"<!-- (table|worst|origin|figure|end)\b")


def pages(root: Path = ROOT) -> list[Path]:
    """Returns README.md and the pages of the manual."""
    return [path for path in (root / "README.md", *sorted((root / "docs").glob("*.md"))) if path.is_file()]


def filled(text: str, folder: Path = FIGURES) -> str:
    """Returns a page with its figures as the files of the folder have them.

    ValueError for a comment that is not understood, or that names what no file has.
    """
    blocks, numbers = list(BLOCK.finditer(text)), list(NUMBER.finditer(text))
    wanted = [kind for block in blocks for kind in (block[2], "end")] + ["figure"] * len(numbers)
    found = MARKS.findall(text)
    if sorted(found) != sorted(wanted):
        raise ValueError(f"wanted each table and origin to have an end, each figure a number, received marks {found}")
    text = BLOCK.sub(lambda block: f"{block[1]}\n{_block(block[2], block[3], folder)}\n\n{block[4]}", text)
    return NUMBER.sub(lambda number: _number(number["number"], number["path"], folder) + number["mark"], text)


def _block(kind: str, path: str, folder: Path) -> str:
    if kind == "origin":
        return _named(path, lambda: _read(folder, path).origin.sentence())
    path, _, headings = path.partition(": ")
    columns = headings.split(" | ") if headings else []
    if kind == "worst":
        return _named(path, lambda: _worst(folder, [one.split("/") for one in path.split()], columns))
    return _named(path, lambda: _table(folder, *path.split("/", 1)).markdown(columns))


def _worst(folder: Path, places: list[list[str]], headings: list[str]) -> str:
    """Returns the rows of all tables, of those with one name the one with the largest ratio, and its processor."""
    rows: dict[str, list[figure_file.Cell]] = {}
    for file, name in places:
        table = _table(folder, file, name)
        processor = _read(folder, file).origin.machine.partition(" of an ")[2]
        ratio = headings.index(RATIO)
        for row in table.rows:
            cells = [row[table.place(heading)] for heading in headings]
            if (known := rows.get(str(row[0]))) is None or float(cells[ratio]) > float(known[ratio]):
                rows[str(row[0])] = [*cells, processor]
    columns = [*(table.columns[table.place(heading)] for heading in headings), ("processor", "")]
    return figure_file.Table(columns, list(rows.values())).markdown()


def _number(shown: str, path: str, folder: Path) -> str:
    def cell() -> str:
        file, table_name, row_name, heading = path.split("/", 3)
        table = _table(folder, file, table_name)
        found = table.row(row_name)[table.place(heading)]
        decimals = len(shown.partition(".")[2])
        return found if isinstance(found, str) else f"{found:,.{decimals}f}"

    return _named(path, cell)


def _named(path: str, action: Callable[[], str]) -> str:
    try:
        return action()
    except (KeyError, OSError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def _table(folder: Path, file: str, name: str) -> figure_file.Table:
    return _read(folder, file).tables[name]


@cache
def _read(folder: Path, file: str) -> figure_file.FigureFile:
    return figure_file.read(folder / f"{file}.json")


def main() -> int:
    """Fills all pages, or says which differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, name the pages that differ")
    options = parsed(parser, check=True)
    differing = 0
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (made := filled(text)) != text:
            differing += 1
            print(f"{page.relative_to(ROOT)}: {'differs from docs/figures' if options.check else 'filled'}")
            if not options.check:
                page.write_text(made, encoding="utf-8")
    return int(options.check and differing > 0)


if __name__ == "__main__":
    sys.exit(main())
