"""Files of figures, `docs/figures/*.json`: what a benchmark found, on which machine, with which versions, and when.

    write(path, origin("python benchmarks/plans.py"), {"training": Table(columns, rows)})
    read(path).tables["training"].row("lenet, 64")

The manual's tables are made from these files by `pages.py`. A column is its heading and the format of its numbers, as
in `format(1234.5, ",.1f")`; a cell is a number or a text. The first cell of a row is its name.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Cell = float | str
#: Libraries that compute, and the names of their packages.
LIBRARIES = {"NumPy": "numpy", "oneDNN's wheel": "onednn-cpu-gomp", "PyTorch": "torch"}
#: Variables that plans go by. The first holds oneDNN to the instructions of a lesser processor, as its scratch goes by
#: them: with AVX2, bytes are equal on all. The second leaves passes out.
VARIABLES = ("ONEDNN_MAX_CPU_ISA", "SINGA_LITE_PASSES")


@dataclass(frozen=True)
class Table:
    """A table of figures. columns: (heading, format of its numbers); of headings in one table no two are equal."""

    columns: Sequence[tuple[str, str]]
    rows: list[Sequence[Cell]]

    def markdown(self, headings: Sequence[str] = ()) -> str:
        """Returns the lines of the table, or of these columns of it."""
        places = [self.place(heading) for heading in headings] or list(range(len(self.columns)))
        lines = [[self.columns[place][0] for place in places]]
        lines += [[self.text(row, place) for place in places] for row in self.rows]
        return "\n".join([line(lines[0]), f"|{'---|' * len(places)}", *map(line, lines[1:])])

    def text(self, row: Sequence[Cell], place: int) -> str:
        """Returns a cell as the page shows it."""
        cell = row[place]
        return cell if isinstance(cell, str) else format(cell, self.columns[place][1])

    def place(self, heading: str) -> int:
        """Returns the number of a column. KeyError if there is no such one."""
        found = [number for number, (own, _) in enumerate(self.columns) if own == heading]
        if not found:
            raise KeyError(f"wanted a column of {[own for own, _ in self.columns]}, received {heading!r}")
        return found[0]

    def row(self, name: str) -> Sequence[Cell]:
        """Returns a row by its first cell, with or without the stars of bold text. KeyError if there is no such one."""
        found = {str(row[0]).strip("*"): row for row in self.rows}
        if name not in found:
            raise KeyError(f"wanted a row of {list(found)}, received {name!r}")
        return found[name]


@dataclass(frozen=True)
class Origin:
    """Where figures come from. command: "" for none. remark: how quiet the machine was, and the like."""

    command: str
    machine: str
    versions: Mapping[str, str]
    date: str
    remark: str = ""

    def sentence(self) -> str:
        """Returns the line that a page shows below its tables."""
        parts = [self.machine, *(f"{name} {number}" for name, number in self.versions.items()), self.date]
        begin = f"`{self.command}`" if self.command else "Measured by hand"
        return f"{begin}: {', '.join(parts)}{'; ' * bool(self.remark)}{self.remark}."


@dataclass(frozen=True)
class FigureFile:
    """The contents of a file of figures."""

    origin: Origin
    tables: Mapping[str, Table] = field(default_factory=dict)


def of_lines(headings: Sequence[str], lines: Iterable[str]) -> Table:
    """Returns a table of lines in Markdown, whose cells stay text. Other lines are left out."""
    rows = [one.removeprefix("| ").removesuffix(" |").split(" | ") for one in lines if one.startswith("|")]
    return Table([(heading, "") for heading in headings], rows)


def line(cells: Sequence[str]) -> str:
    """Returns a line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"


def write(path: str | Path, origin: Origin, tables: Mapping[str, Table]) -> None:
    """Writes a file of figures, a line for each row, so that a change shows as the rows that changed."""
    parts = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in vars(origin).items()]
    made = []
    for name, table in tables.items():
        rows = ",\n".join(f"    {json.dumps(list(row))}" for row in table.rows)
        columns = ",\n".join(f"    {json.dumps(list(column))}" for column in table.columns)
        made.append(f'  {json.dumps(name)}: {{\n   "columns": [\n{columns}\n   ],\n   "rows": [\n{rows}\n   ]\n  }}')
    parts.append(' "tables": {\n' + ",\n".join(made) + "\n }")
    Path(path).write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def read(path: str | Path) -> FigureFile:
    """Returns what `write` wrote. ValueError for another file."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        tables = {
            name: Table([(heading, form) for heading, form in table["columns"]], table["rows"])
            for name, table in found.pop("tables").items()
        }
        return FigureFile(Origin(**found), tables)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: wanted a file of figures, received {type(error).__name__}: {error}") from None


def add_option(parser: argparse.ArgumentParser) -> None:
    """Adds --write."""
    parser.add_argument("--write", metavar="FILE", help="write the tables there, as a file of figures")


def origin(command: str, libraries: Sequence[str] = tuple(LIBRARIES), remark: str = "") -> Origin:
    """Returns this machine, its versions and the date. libraries: those that the figures depend on."""
    used = {name: number for name, number in versions().items() if name not in LIBRARIES or name in libraries}
    command = " ".join([*(f"{name}={os.environ[name]}" for name in VARIABLES if name in os.environ), command])
    found = machine()
    return Origin(command, f"{found['cores']} cores of an {processor()}", used, found["date"], remark)


def machine() -> dict[str, Any]:
    """Returns the processor, its cores, the system and the date."""
    date = datetime.date.today().isoformat()
    return {
        "cpu": _of_cpuinfo("model name") or "unknown",
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "date": date,
    }


def processor() -> str:
    """Returns the processor's name and the widest vectors that it computes with."""
    flags = _of_cpuinfo("flags").split()
    widest = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else ""
    name = _of_cpuinfo("model name") or platform.machine()
    return f"{name} with {widest}{' and AMX' * ('amx_tile' in flags)}" if widest else name


def versions() -> dict[str, str]:
    """Returns the versions of Python, this package, and the libraries that are installed."""
    import singa_lite

    found = {"Python": platform.python_version(), "singa_lite": singa_lite.__version__}
    for name, package in LIBRARIES.items():
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(package)
    return found


def _of_cpuinfo(key: str) -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith(key)), "")
