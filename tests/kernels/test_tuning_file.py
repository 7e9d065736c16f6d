"""The file of measured choices: where it is, what is read of it, and what damage and foreign machines make of it."""

from __future__ import annotations

import json
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from in_process import start
from singa_lite.kernels import built, tuning_file
from singa_lite.kernels.built import BuiltKernel
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.tuning_file import origin, path, read_tuning
from singa_lite.kernels.variants import Variants, using_choices

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
    found = read_tuning(LIBRARY, file)
    assert found.choices == {CALL: "fast"}
    assert (found.problem, found.told) == ("", f"1 calls by {file}")


def test_no_file(file, monkeypatch):
    monkeypatch.delenv(tuning_file.VARIABLE, raising=False)
    assert read_tuning(LIBRARY, file) == ({}, file, "")
    assert read_tuning(LIBRARY, file).told == f"the built-in rule, no file {file}"
    monkeypatch.setenv(tuning_file.VARIABLE, str(file))  # one that was asked for
    assert read_tuning(LIBRARY, file).problem == f"{tuning_file.VARIABLE}: no file {file}"


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
    found = read_tuning(LIBRARY, file)
    assert not found.choices
    assert str(file) in found.problem
    assert culprit in found.problem
    assert found.told.startswith("not used, the built-in rule decides: ")


def test_a_folder_and_a_file_that_is_too_large(tmp_path, monkeypatch):
    assert str(tmp_path) in read_tuning(LIBRARY, tmp_path).problem
    monkeypatch.setattr(tuning_file, "MOST_BYTES", 10)
    (tmp_path / "long").write_text(json.dumps(content()))
    assert "more than 10 bytes" in read_tuning(LIBRARY, tmp_path / "long").problem


def test_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv(tuning_file.VARIABLE, str(tmp_path / "a.json"))
    assert path() == tmp_path / "a.json"
    monkeypatch.setenv(tuning_file.VARIABLE, "off")
    assert path() is None
    assert read_tuning(LIBRARY, None) == ({}, None, "")
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
        "from singa_lite.kernels.tuning_file import tuning_for\n"
        f"print(tuning_for({LIBRARY!r}).choices, tuning_for({LIBRARY!r}).choices)"
    )
    done = start("-c", program, SINGA_LITE_TUNING=file)
    assert done.stdout == "{} {}\n"
    assert done.stderr.count("the tuning of kernels is not used, the built-in rule decides") == 1


# --- which of several ways of a call is chosen

SPECS = tuple(TensorSpec(shape, np.dtype("f4"), (4,) * len(shape)) for shape in ((3, 5), (3, 5)))


def made(**able: bool) -> Variants:
    """Variants of relu that can or cannot do a call; the rule takes the second."""
    names = list(able)

    def builder(name):
        return lambda call: SimpleNamespace(variant="", by=name) if able[name] else None

    return Variants("relu", {name: builder(name) for name in names}, lambda call: names[1], lambda: "lib 1", lambda: 2)


def test_by_the_table():
    variants = made(plain=True, fast=True, odd=True)
    with using_choices({variants.call_name(SPECS, {}): "odd", "another call": "plain"}):
        assert variants.routine(SPECS, {}).variant == "odd"


@pytest.mark.parametrize("chosen", ["fast", "odd"])
def test_what_cannot_do_a_call_leaves_it_to_the_first_that_can(chosen):
    variants = made(plain=True, fast=False, odd=False)
    with using_choices({variants.call_name(SPECS, {}): chosen}):
        assert variants.routine(SPECS, {}).variant == "plain"
    assert variants.default(SPECS, {}) == "plain"


def test_a_name_of_no_variant_is_told_and_the_rule_decides():
    variants = made(plain=True, fast=True)
    with (
        using_choices({variants.call_name(SPECS, {}): "faster"}),
        pytest.warns(UserWarning, match="relu.*'faster'"),
    ):
        assert variants.routine(SPECS, {}).variant == "fast"


def test_a_call_is_known_by_shapes_dtypes_settings_and_threads_not_by_strides():
    variants = made(plain=True, fast=True)
    name = variants.call_name(SPECS, {})
    assert name == "relu: x (3, 5) float32, y (3, 5) float32; ; threads=2"
    turned = tuple(TensorSpec(spec.shape, spec.dtype, (4, 12)) for spec in SPECS)
    assert variants.call_name(turned, {}) == name
    wider = (SPECS[0], TensorSpec((5, 3), np.dtype("f4"), (4, 4)))
    assert variants.call_name(wider, {}) != name
    assert variants.call_name(SPECS, {"axis": 1}) != name
    assert variants.call_name(SPECS, {"a": 1, "b": 2}) == variants.call_name(SPECS, {"b": 2, "a": 1})


# --- built routines

LIVING: weakref.WeakSet[Fill] = weakref.WeakSet()


class Fill:
    """A routine that writes a number."""

    scratch_bytes = 0
    variant = ""
    levels = ()

    def __init__(self, value: float) -> None:
        self.value = value
        LIVING.add(self)

    def bind(self, specs: Any, arrays: Any, scratch: Any) -> Any:
        return lambda: arrays[0].fill(self.value)


def filling(spec: TensorSpec, value: float) -> Fill:
    return Fill(value)


def test_the_oldest_routine_goes_and_what_was_bound_still_runs(monkeypatch):
    monkeypatch.setattr(built, "MOST_ROUTINES", 3)
    kernel, arrays = BuiltKernel(filling), [np.zeros(size) for size in range(1, 8)]
    launches = [kernel.prepare((array,), None, {"value": array.size}) for array in arrays]
    for launch in launches:
        launch()
    assert [array.tolist() for array in arrays] == [[array.size] * array.size for array in arrays]
    launches.clear()
    del launch
    assert len(LIVING) == 3
    kernel.prepare((arrays[0],), None, {"value": 9.0})()
    assert arrays[0].tolist() == [9.0]
