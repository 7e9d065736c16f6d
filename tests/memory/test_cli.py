"""python -m singa_lite.memory solve: exit status, last line, solution, and the set that does not fit."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from placement_cases import KNOWN, cut_rectangle
from singa_lite.memory.__main__ import main
from singa_lite.memory.check import check
from singa_lite.memory.csv_file import write_solution

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
