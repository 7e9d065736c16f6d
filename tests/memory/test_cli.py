"""python -m singa_lite.memory solve: exit status, last line, solution, and the set that does not fit."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest
from hypothesis import given

from placement_cases import KNOWN, cut_rectangle, small_problems
from singa_lite.compiler.placement.__main__ import main
from singa_lite.compiler.placement.check import check
from singa_lite.compiler.placement.csv_file import parse_problem, read_problem, write_solution
from singa_lite.compiler.placement.problem import PlanError, Request

LAST_LINE = re.compile(r"arena=(\d+) floor=(\d+) proved=(true|false) seconds=\d+\.\d{3}")


def write(path, requests):
    """A problem as a file: a solution less its last column."""
    with path.open("w", newline="") as file:
        write_solution(requests, {request.id: 0 for request in requests}, file)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line.rsplit(",", 1)[0] for line in lines) + "\n")
    return str(path)


def last_line(text):
    """arena, floor, proved."""
    arena, floor, proved = LAST_LINE.fullmatch(text.splitlines()[-1]).groups()
    return int(arena), int(floor), proved


def test_a_problem_is_solved_to_a_file_or_to_the_output(tmp_path, capsys):
    requests, arena = KNOWN["MiniMalloc input.12"]
    problem, out = write(tmp_path / "p.csv", requests), tmp_path / "solution.csv"
    assert main(["solve", problem, "--out", str(out)]) == 0
    assert last_line(capsys.readouterr().out) == (arena, 12, "true")
    rows = [line.split(",") for line in out.read_text().splitlines()]
    check(requests, {row[0]: int(row[-1]) for row in rows[1:]}, arena)
    assert main(["solve", problem, "--capacity", "12"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",") for line in lines[:-1]] == rows
    assert last_line(lines[-1]) == (12, 12, "true")


@pytest.mark.parametrize(
    ("requests", "options", "last", "words"),
    [
        (KNOWN["above its floor of 5"][0], ["5"], (6, 5, "true"), ("7 requests of 14 bytes", "r3: 1 bytes")),
        (KNOWN["TVM ResNet block"][0], ["6000000"], (7_200_256,) * 2 + ("true",), ("6480000 bytes", "step 6")),
        (cut_rectangle(150, seed=9), ["512", "--seconds", "0"], (None, 512, "false"), ("there may be one",)),
    ],
    ids=["search", "load", "not decided"],
)
def test_a_capacity_that_does_not_suffice_is_explained(tmp_path, capsys, requests, options, last, words):
    out = tmp_path / "solution.csv"
    problem = write(tmp_path / "p.csv", requests)
    assert main(["solve", problem, "--out", str(out), "--capacity", *options]) == 1
    text = capsys.readouterr()
    found = last_line(text.out)
    assert found == (last[0] or found[0], *last[1:])
    assert all(word in text.err for word in words)
    assert not out.exists()


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("id,lower,upper\n", [], "line 1"),
        ("id,lower,upper,size\na,0,1,x\n", [], "line 2, size"),
        (None, [], "No such file"),
        ("id,lower,upper,size\n", ["--capacity", "-5"], "-5"),
        ("id,lower,upper,size\n", ["--seconds", "nan"], "nan"),
        ("id,lower,upper,size\n", ["--out", "."], "Is a directory"),
    ],
)
def test_bad_input_has_a_status_of_its_own(tmp_path, capsys, content, options, message):
    path = tmp_path / "p.csv"
    if content is not None:
        path.write_text(content)
    assert main(["solve", str(path), *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["solve", "p.csv", "--capacity", "many"], ["pack", "p.csv"]])
def test_a_bad_command_line_is_bad_input(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_it_runs_as_a_module(tmp_path):
    problem = write(tmp_path / "p.csv", KNOWN["ONE WIC planner"][0])
    command = [sys.executable, "-m", "singa_lite.memory", "solve", problem]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert last_line(result.stdout) == (40, 40, "true")


# --- problems and solutions as CSV files

COLUMNS = "id,lower,upper,size\n"


def parsed(text):
    return parse_problem(io.StringIO(text, newline=""), "p.csv")


def test_the_columns_of_minimalloc():
    found = parsed(COLUMNS + "b1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n")
    requests, _ = KNOWN["MiniMalloc input.12"]
    assert [(r.start, r.stop, r.size, r.alignment) for r in found] == [(r.start, r.stop, r.size, 1) for r in requests]


def test_columns_in_any_order_with_alignment_spaces_and_empty_lines():
    text = 'size, id,alignment,upper,lower\r\n\r\n 10 ,"a, b",64,7,2\r\n'
    assert parsed(text) == [Request("a, b", 2, 7, 10, 64)]
    assert parsed(COLUMNS) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: .*none"),
        ("id,lower,upper\n", "line 1: .*id, lower, upper"),
        ("id,lower,upper,size,color\n", "line 1: "),
        ("id,lower,upper,size,size\n", "line 1: "),
        (COLUMNS + "a,0,1\n", "line 2: .*4 fields.*3"),
        (COLUMNS + "\na,0,1,2,3\n", "line 3: .*4 fields.*5"),
        (COLUMNS + "a,0,1,4.5\n", "line 2, size: .*'4.5'"),
        (COLUMNS + "a,x,1,4\n", "line 2, lower: .*'x'"),
        (COLUMNS + "a,0,1_0,4\n", "line 2, upper: "),
        (COLUMNS + "a,0,1,\n", "line 2, size: .*''"),
        (COLUMNS + ",0,1,4\n", "line 2: .*id"),
        (COLUMNS + "a,3,3,4\n", "line 2: request 'a': .*lifespan"),
        (COLUMNS + "a,0,1,-4\n", "line 2: request 'a': .*size"),
        ("id,lower,upper,size,alignment\na,0,1,4,0\n", "line 2: request 'a': .*alignment"),
        (COLUMNS + "a,0,1,4\nb,0,1,4\na,2,3,4\n", "line 4: .*'a' of line 2"),
        (COLUMNS + '"a"b,0,1,4\n', "line 2: .*CSV"),
    ],
)
def test_bad_input_is_told_with_its_line(text, message):
    with pytest.raises(PlanError, match=f"^p.csv, {message}"):
        parsed(text)


def test_files(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(b"\xef\xbb\xbfid,lower,upper,size\n\xc3\xa4,0,1,4\n")  # with a byte order mark
    assert read_problem(path) == [Request("ä", 0, 1, 4)]
    path.write_bytes(b"id,lower,upper,size\n\xff,0,1,4\n")
    with pytest.raises(PlanError, match=r"p\.csv: .*255"):
        read_problem(path)
    with pytest.raises(FileNotFoundError):
        read_problem(tmp_path / "none.csv")


@given(small_problems())
def test_what_is_written_can_be_read(requests):
    file = io.StringIO()
    write_solution(requests, {request.id: 7 for request in requests}, file)
    lines = [line.rsplit(",", 1) for line in file.getvalue().splitlines()]
    assert [last for _, last in lines] == ["offset", *["7"] * len(requests)]
    assert parsed("\n".join(first for first, _ in lines)) == requests
