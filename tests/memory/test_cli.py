"""python -m singa_lite.memory solve: exit status, last line, solution, and the set that does not fit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import singa_lite
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


@pytest.mark.parametrize("name", KNOWN)
def test_a_problem_is_solved(tmp_path, capsys, name):
    requests, arena = KNOWN[name]
    out = tmp_path / "solution.csv"
    assert main(["solve", write(tmp_path / "p.csv", requests), "--out", str(out)]) == 0
    found, floor, proved = last_line(capsys.readouterr().out)
    assert (found, proved) == (arena, "true")
    assert floor <= arena
    rows = [line.split(",") for line in out.read_text().splitlines()]
    assert rows[0] == ["id", "lower", "upper", "size", "offset"]
    check(requests, {row[0]: int(row[-1]) for row in rows[1:]}, arena)


def test_without_a_file_the_solution_comes_before_the_last_line(tmp_path, capsys):
    requests, _ = KNOWN["MiniMalloc input.12"]
    assert main(["solve", write(tmp_path / "p.csv", requests), "--capacity", "12"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "id,lower,upper,size,offset"
    assert len(lines) == len(requests) + 2
    assert last_line(lines[-1]) == (12, 12, "true")


def test_a_capacity_that_does_not_suffice_is_explained(tmp_path, capsys):
    requests, arena = KNOWN["above its floor of 5"]
    out = tmp_path / "solution.csv"
    problem = write(tmp_path / "p.csv", requests)
    assert main(["solve", problem, "--capacity", "5", "--out", str(out)]) == 1
    text = capsys.readouterr()
    assert last_line(text.out) == (arena, 5, "true")
    assert "7 requests of 14 bytes together, cannot live in 5 bytes; without any one of them it can" in text.err
    assert all(f"{request.id}: {request.size} bytes" in text.err for request in requests)
    assert not out.exists()


def test_a_load_that_is_too_much_is_explained_by_its_step(tmp_path, capsys):
    requests, _ = KNOWN["TVM ResNet block"]
    assert main(["solve", write(tmp_path / "p.csv", requests), "--capacity", "6000000"]) == 1
    assert "2 requests of 6480000 bytes together, all alive at step 6, cannot live" in capsys.readouterr().err


def test_a_capacity_that_is_not_decided_is_not_called_impossible(tmp_path, capsys):
    problem = write(tmp_path / "p.csv", cut_rectangle(150, seed=9))
    assert main(["solve", problem, "--capacity", "512", "--seconds", "0"]) == 1
    text = capsys.readouterr()
    assert last_line(text.out)[1:] == (512, "false")
    assert "there may be one" in text.err


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("id,lower,upper\n", [], "line 1: wanted the columns"),
        ("id,lower,upper,size\na,0,1,x\n", [], "line 2, size: wanted a whole number"),
        (None, [], "No such file"),
        ("id,lower,upper,size\n", ["--capacity", "-5"], "wanted a capacity in bytes of 0 or more, received -5"),
        ("id,lower,upper,size\n", ["--seconds", "nan"], "wanted a seconds of 0 or more, received nan"),
        ("id,lower,upper,size\n", ["--out", "."], "Is a directory"),
    ],
)
def test_bad_input_has_a_status_of_its_own(tmp_path, capsys, content, options, message):
    path = tmp_path / "p.csv"
    if content is not None:
        path.write_text(content)
    assert main(["solve", str(path), *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["solve"], ["solve", "p.csv", "--capacity", "many"], ["pack", "p.csv"]])
def test_a_bad_command_line_is_bad_input(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_it_runs_as_a_module(tmp_path):
    requests, _ = KNOWN["ONE WIC planner"]
    path = os.pathsep.join([str(Path(singa_lite.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, "-m", "singa_lite.memory", "solve", write(tmp_path / "p.csv", requests)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert last_line(result.stdout) == (40, 40, "true")
