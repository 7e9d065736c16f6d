"""Problems and solutions as CSV files."""

from __future__ import annotations

import io

import pytest
from hypothesis import given

from placement_cases import KNOWN, small_problems
from singa_lite.memory.csv_file import parse_problem, read_problem, write_solution
from singa_lite.memory.problem import PlanError, Request

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
