"""Problems and solutions as CSV files."""

from __future__ import annotations

import io

import pytest
from hypothesis import given

from placement_cases import KNOWN, requests_of, small_problems
from singa_lite.memory.csv_file import parse_problem, read_problem, write_solution
from singa_lite.memory.problem import PlanError, Request


def parsed(text):
    return parse_problem(io.StringIO(text, newline=""), "p.csv")


def test_the_columns_of_minimalloc():
    text = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"
    requests, _ = KNOWN["MiniMalloc input.12"]
    assert [(r.start, r.stop, r.size, r.alignment) for r in parsed(text)] == [
        (r.start, r.stop, r.size, 1) for r in requests
    ]


def test_columns_in_any_order_with_alignment_spaces_and_empty_lines():
    text = 'size, id,alignment,upper,lower\r\n\r\n 10 ,"a, b",64,7,2\r\n'
    assert parsed(text) == [Request("a, b", 2, 7, 10, 64)]
    assert parsed("id,lower,upper,size\n") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: wanted the columns id, lower, upper, size .* received none"),
        ("id,lower,upper\n", "line 1: wanted the columns .* received id, lower, upper$"),
        ("id,lower,upper,size,color\n", "line 1: wanted the columns"),
        ("id,lower,upper,size,size\n", "line 1: wanted the columns"),
        ("id,lower,upper,size\na,0,1\n", "line 2: wanted 4 fields, received 3"),
        ("id,lower,upper,size\n\na,0,1,2,3\n", "line 3: wanted 4 fields, received 5"),
        ("id,lower,upper,size\na,0,1,4.5\n", "line 2, size: wanted a whole number, received '4.5'"),
        ("id,lower,upper,size\na,x,1,4\n", "line 2, lower: wanted a whole number, received 'x'"),
        ("id,lower,upper,size\na,0,1_0,4\n", "line 2, upper: wanted a whole number"),
        ("id,lower,upper,size\na,0,1,\n", "line 2, size: wanted a whole number, received ''"),
        ("id,lower,upper,size\n,0,1,4\n", "line 2: wanted an id, received none"),
        ("id,lower,upper,size\na,3,3,4\n", "line 2: request 'a': wanted a lifespan of at least one step"),
        ("id,lower,upper,size\na,0,1,-4\n", "line 2: request 'a': wanted a size of 0 bytes or more"),
        ("id,lower,upper,size,alignment\na,0,1,4,0\n", "line 2: request 'a': .* alignment of 1 or more"),
        ("id,lower,upper,size\na,0,1,4\nb,0,1,4\na,2,3,4\n", "line 4: wanted a new id, received 'a' of line 2"),
        ('id,lower,upper,size\n"a"b,0,1,4\n', "line 2: wanted CSV, received a line with"),
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
    with pytest.raises(PlanError, match=r"p\.csv: wanted text in UTF-8, received byte 255"):
        read_problem(path)
    with pytest.raises(FileNotFoundError):
        read_problem(tmp_path / "none.csv")


def test_a_solution_has_the_offsets_in_its_last_column():
    requests = requests_of((0, 3, 40), (1, 9, 50))
    file = io.StringIO()
    write_solution(requests, {"r1": 40, "r0": 0}, file)
    assert file.getvalue() == "id,lower,upper,size,offset\nr0,0,3,40,0\nr1,1,9,50,40\n"


@given(small_problems())
def test_what_is_written_can_be_read(requests):
    file = io.StringIO()
    write_solution(requests, {request.id: 7 for request in requests}, file)
    lines = [line.rsplit(",", 1) for line in file.getvalue().splitlines()]
    assert [last for _, last in lines] == ["offset", *["7"] * len(requests)]
    assert parsed("\n".join(first for first, _ in lines)) == requests
