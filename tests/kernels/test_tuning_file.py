"""The file of measured choices: where it is, what is read of it, and what damage and foreign machines make of it."""

from __future__ import annotations

import json

import pytest

from in_process import start
from singa_lite.kernels import tuning_file
from singa_lite.kernels.tuning_file import look, origin, path

LIBRARY = "lib 1.2.3"
CALL = "relu: x (3, 5) float32; ; threads=2"


def content(**changed: object) -> dict[str, object]:
    """What a good file holds, with changes; None leaves an entry out."""
    whole = {tuning_file.NAME: tuning_file.VERSION, **origin(LIBRARY), "calls": {CALL: {"chosen": "fast"}}}
    return {name: value for name, value in {**whole, **changed}.items() if value is not None}


@pytest.fixture
def file(tmp_path):
    """Where the file is to be."""
    return tmp_path / "tuning.json"


def test_a_good_file(file):
    file.write_text(json.dumps(content()))
    found = look(LIBRARY, file)
    assert found.choices == {CALL: "fast"}
    assert (found.problem, found.told) == ("", f"1 calls by {file}")


def test_no_file(file, monkeypatch):
    monkeypatch.delenv(tuning_file.VARIABLE, raising=False)
    assert look(LIBRARY, file) == ({}, file, "")
    assert look(LIBRARY, file).told == f"the built-in rule, no file {file}"
    monkeypatch.setenv(tuning_file.VARIABLE, str(file))  # one that was asked for
    assert look(LIBRARY, file).problem == f"{tuning_file.VARIABLE}: no file {file}"


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("", "no JSON"),
        (json.dumps(content())[:-9], "no JSON"),
        ("[" * 100_000, "no JSON"),
        (b"\xff\xfe\x00", "no JSON"),
        ("[]", "something else"),
        ("{}", "something else"),
        (json.dumps(content(**{tuning_file.NAME: 2})), "version 2"),
        (json.dumps(content(**{tuning_file.NAME: True})), "version True"),
        (json.dumps(content(calls=[])), "[]"),
        (json.dumps(content(calls={CALL: "fast"})), "relu: x"),
        (json.dumps(content(calls={CALL: {"chosen": 3}})), "relu: x"),
        (json.dumps(content(library="lib 1.2.4")), "lib 1.2.4"),
        (json.dumps(content(processor="abacus")), "abacus"),
        (json.dumps(content(processor=None)), "None"),
    ],
)
def test_a_damaged_or_foreign_file_is_not_used(file, text, culprit):
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = look(LIBRARY, file)
    assert not found.choices
    assert str(file) in found.problem
    assert culprit in found.problem
    assert found.told.startswith("not used, the built-in rule decides: ")


def test_a_folder_and_a_file_that_is_too_large(tmp_path, monkeypatch):
    assert str(tmp_path) in look(LIBRARY, tmp_path).problem
    monkeypatch.setattr(tuning_file, "MOST_BYTES", 10)
    (tmp_path / "long").write_text(json.dumps(content()))
    assert "more than 10 bytes" in look(LIBRARY, tmp_path / "long").problem


def test_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv(tuning_file.VARIABLE, str(tmp_path / "a.json"))
    assert path() == tmp_path / "a.json"
    monkeypatch.setenv(tuning_file.VARIABLE, "off")
    assert path() is None
    assert look(LIBRARY, None) == ({}, None, "")
    monkeypatch.delenv(tuning_file.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert path() == tmp_path / "singa_lite" / "tuning.json"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert path() == tmp_path / ".cache" / "singa_lite" / "tuning.json"


def test_a_file_of_no_use_is_told_once(file):
    file.write_text("{}")
    program = (
        "import warnings; warnings.simplefilter('always')\n"
        "from singa_lite.kernels.tuning_file import found\n"
        f"print(found({LIBRARY!r}).choices, found({LIBRARY!r}).choices)"
    )
    done = start("-c", program, SINGA_LITE_TUNING=file)
    assert done.stdout == "{} {}\n"
    assert done.stderr.count("the tuning of kernels is not used, the built-in rule decides") == 1
