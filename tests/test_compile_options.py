"""The table of the options of `compile` is its signature, and what it says of them holds."""

from __future__ import annotations

from dataclasses import fields
from inspect import Parameter, signature

import pytest

from singa_lite import FeedForwardNet
from singa_lite.training.compile_options import CompileOptions, Trait, check_usual


def test_the_table_is_the_signature():
    given = signature(FeedForwardNet.compile).parameters.values()
    keywords = [(each.name, each.default) for each in given if each.kind is Parameter.KEYWORD_ONLY]
    assert [(each.name, each.default) for each in fields(CompileOptions)] == keywords


def test_what_is_kept_of_them():
    assert "keep" not in CompileOptions().given()
    assert CompileOptions().given()["freeze"] is None
    given = {each.name: each.default for each in fields(CompileOptions)} | {"keep": ["a"], "workers": 2, "x": 1}
    options = CompileOptions.among(given)
    assert options.given() == CompileOptions().given() | {"keep": ["a"], "workers": 2}


def test_an_option_that_is_not_as_usual():
    given = CompileOptions(accumulate=2).given()
    check_usual("here", given, Trait.ONE_PROCESS)
    with pytest.raises(ValueError, match="here: wanted accumulate=1, which it would not use otherwise, received 2"):
        check_usual("here", given, Trait.BUILT_IN)
