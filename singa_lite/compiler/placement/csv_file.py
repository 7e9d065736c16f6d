"""Placement problems and their solutions as CSV files, in the columns of MiniMalloc."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TextIO

from singa_lite.compiler.placement.problem import PlanError, Request

#: {column: the attribute of a request that it holds}.
ATTRIBUTES = {"id": "id", "lower": "start", "upper": "stop", "size": "size", "alignment": "alignment"}
COLUMNS = tuple(ATTRIBUTES)
REQUIRED = COLUMNS[:4]


def read_problem(path: str | PathLike[str]) -> list[Request]:
    """The requests of a file with a header and the columns id, lower, upper, size and, if it has it, alignment.

    The columns may come in any order; lifespans are half-open, sizes are in bytes. Empty lines are left out.
    PlanError with file and line for anything else; OSError if the file cannot be read.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as file:
            return parse_problem(file, str(path))
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: wanted text in UTF-8, received byte {error.object[error.start]} in it") from None


def parse_problem(lines: Iterable[str], name: str) -> list[Request]:
    """The same from lines of text; `name` is what errors call them."""
    rows = _rows(lines, name)
    header, at = next(rows, ([], 1))
    _check_header(header, f"{name}, line {at}")
    requests: list[Request] = []
    seen: dict[str, int] = {}
    for row, at in rows:
        request = _request(header, row, f"{name}, line {at}")
        if request.id in seen:
            raise PlanError(f"{name}, line {at}: wanted a new id, received {request.id!r} of line {seen[request.id]}")
        seen[request.id] = at
        requests.append(request)
    return requests


def write_solution(requests: Sequence[Request], offsets: Mapping[str, int], file: TextIO) -> None:
    """Write the requests with their alignment if any has one, and a last column `offset`, in bytes."""
    columns = COLUMNS if any(request.alignment != 1 for request in requests) else REQUIRED
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*columns, "offset"])
    for request in requests:
        writer.writerow([*(getattr(request, ATTRIBUTES[column]) for column in columns), offsets[request.id]])


def _rows(lines: Iterable[str], name: str) -> Iterator[tuple[list[str], int]]:
    """Fields without the spaces around them, and the number of the line where they end."""
    reader = csv.reader(lines, strict=True)
    try:
        for row in reader:
            if row:
                yield [field.strip() for field in row], reader.line_num
    except csv.Error as error:
        raise PlanError(f"{name}, line {reader.line_num}: wanted CSV, received a line with {error}") from None


def _check_header(header: list[str], where: str) -> None:
    missing = [column for column in REQUIRED if column not in header]
    unknown = [column for column in header if column not in COLUMNS]
    if missing or unknown or len(set(header)) < len(header):
        raise PlanError(
            f"{where}: wanted the columns {', '.join(REQUIRED)} and perhaps {COLUMNS[4]}, each once, "
            f"received {', '.join(header) or 'none'}"
        )


def _request(header: list[str], row: list[str], where: str) -> Request:
    if len(row) != len(header):
        raise PlanError(f"{where}: wanted {len(header)} fields, received {len(row)}")
    fields = dict(zip(header, row, strict=True))
    name = fields.pop("id")
    if not name:
        raise PlanError(f"{where}: wanted an id, received none")
    numbers = {ATTRIBUTES[column]: _integer(field, f"{where}, {column}") for column, field in fields.items()}
    try:
        return Request(name, **numbers)
    except PlanError as error:
        raise PlanError(f"{where}: {error}") from None


def _integer(text: str, where: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,4000}", text):
        raise PlanError(f"{where}: wanted a whole number, received {text[:40]!r}")
    return int(text)
