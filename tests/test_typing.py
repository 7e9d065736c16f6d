"""What type checkers see: the stub of `singa_lite.layers` is that of its constructors, and packaged.

That it says what a user wants is checked by mypy itself, over tests/typed.
"""

from __future__ import annotations

import inspect

import pytest

import layer_stubs
from singa_lite.layer_parts.layer_names import ELSEWHERE


def test_the_stub_is_that_of_the_constructors():
    written = layer_stubs.STUB.read_text(encoding="utf-8")
    assert written == layer_stubs.text(), "python tests/layer_stubs.py writes it anew"


@pytest.mark.parametrize("name", layer_stubs.kinds())
def test_overloads_are_the_calls_that_run(name):
    """Each parameter of the constructor is in both forms; only the first wants a name."""
    parameters = inspect.signature(layer_stubs.kinds()[name]).parameters
    wanted = [n for n, p in parameters.items() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    with_name, without = map(form, layer_stubs.overloads(layer_stubs.kinds()[name]))
    assert sorted(with_name) == sorted(without) == sorted(wanted)
    assert next(iter(with_name)) == "name" and with_name["name"].default is inspect.Parameter.empty
    assert without["name"].kind is inspect.Parameter.KEYWORD_ONLY
    assert not set(with_name) & set(ELSEWHERE) - set(wanted)


def form(parameters: str) -> dict[str, inspect.Parameter]:
    """The parameters of an overload, `self` aside."""
    space: dict = {}
    exec(f"from __future__ import annotations\ndef __init__({parameters}): ...", space)
    return dict(list(inspect.signature(space["__init__"]).parameters.items())[1:])
