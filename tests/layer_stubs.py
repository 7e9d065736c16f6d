"""What type checkers see of `singa_lite.layers`: each constructor with its name, and without.

    python tests/layer_stubs.py

writes layers/__init__.pyi. No decorator can say in types that a first argument may be left out, so that each class has
two overloads there; they are made of the constructors' own signatures, and a test holds the file to these.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from types import FunctionType

from singa_lite import layers
from singa_lite.common.keywords import own_word
from singa_lite.common.words import ALIASES, CLASSES
from singa_lite.layer import Layer

STUB = Path(__file__).parents[1] / "layers" / "__init__.pyi"

HEAD = '''"""Written by tests/layer_stubs.py: constructors with a name and without one, for type checkers."""

from typing import overload

from .dummy import Input as Input
'''


def kinds() -> dict[str, type[Layer]]:
    """The public layers by name."""
    found = {name: kind for name, kind in vars(layers).items() if isinstance(kind, type) and issubclass(kind, Layer)}
    return dict(sorted(found.items()))


def _within(module: str) -> str:
    """The module's name within the package of layers."""
    return module.removeprefix(layers.__name__)


def constructor(kind: type[Layer]) -> FunctionType:
    """The `__init__` that the class has or inherits, as it was written."""
    return inspect.unwrap(vars(next(base for base in kind.__mro__ if "__init__" in vars(base)))["__init__"])


def signature(kind: type[Layer]) -> ast.arguments:
    """Its parameters, as they stand in the source."""
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(constructor(kind)))).body
    assert isinstance(found, ast.FunctionDef)
    return found.args


def overloads(kind: type[Layer]) -> list[str]:
    """The parameter lists: the name first; without it, where the next parameter takes no text; with Keras's words."""
    given = signature(kind)
    required = {arg.arg for arg in given.args[: len(given.args) - len(given.defaults)]}
    positional = [_parameter(arg, arg.arg not in required) for arg in given.args[2:]]
    named = [_parameter(a, d is not None) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    star = "*" if given.vararg is None else f"*{ast.unparse(given.vararg)}"
    several = given.vararg is not None
    first = ast.unparse(given.args[2].annotation) if len(given.args) > 2 else "str"
    is_text = "str" in first.replace("Sequence[str]", "")
    with_name = ["name: str", *positional, *([star, *named] if named or several else [])]
    forms = [with_name, _without_name(is_text, positional, named, star), *_with_aliases(given, required, named)]
    return [", ".join(["self", *parameters]) for parameters in forms]


def _without_name(is_text: bool, positional: list[str], named: list[str], star: str) -> list[str]:
    optional = "name: str | None = ..."
    return [star, optional, *positional, *named] if is_text else [*positional, star, optional, *named]


def _with_aliases(given: ast.arguments, required: set[str], named: list[str]) -> list[list[str]]:
    """All arguments by keyword, those that have words of Keras's by these; and required ones by position."""
    own = {arg.arg: arg for arg in (*given.args[2:], *given.kwonlyargs)}
    words = {word: own[name] for word in ALIASES if (name := own_word(word, own)) != word}
    if not words:
        return []
    aliases = [_parameter(ast.arg(word, arg.annotation), arg.arg not in required) for word, arg in words.items()]
    free = [text for text, arg in zip(aliases, words.values(), strict=True) if arg.arg not in required]
    renamed = required.intersection(arg.arg for arg in words.values())
    others = [_parameter(arg, arg.arg not in required) for arg in given.args[2:] if arg.arg not in renamed]
    by_word = ["name: str | None = ...", "*", *aliases, *others, *named]
    positional = [_parameter(arg, arg.arg not in required) for arg in given.args[2:]]
    return [by_word, [*positional, "*", "name: str | None = ...", *free, *named]] if renamed else [by_word]


def _parameter(argument: ast.arg, is_optional: bool) -> str:
    return ast.unparse(argument) + (" = ..." if is_optional else "")


def imports(kind: type[Layer]) -> dict[str, str]:
    """{name that annotations use: the line that imports it}."""
    module = inspect.getmodule(constructor(kind))
    tree, wanted = ast.parse(inspect.getsource(module)), set()
    for arg in ast.walk(signature(kind)):
        if isinstance(arg, ast.arg) and arg.annotation is not None and arg is not signature(kind).kwarg:
            wanted |= {node.id for node in ast.walk(arg.annotation) if isinstance(node, ast.Name)}
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            if alias.name in wanted:
                found[alias.name] = f"from {'.' * node.level}{node.module or ''} import {alias.name}"
    own = (wanted & vars(module).keys()) - found.keys() - kinds().keys()
    found = {name: line for name, line in found.items() if name not in kinds()}
    return found | {name: f"from {_within(module.__name__)} import {name}" for name in own}


def text() -> str:
    """The stub."""
    lines: dict[str, str] = {}
    classes = []
    for name, kind in kinds().items():
        lines |= imports(kind)
        lines[f"_{name}"] = f"from {_within(kind.__module__)} import {name} as _{name}"
        forms = "".join(f"    @overload\n    def __init__({form}) -> None: ...\n" for form in overloads(kind))
        classes.append(f"class {name}(_{name}):\n{forms}")
    classes += [f"{name} = {ours}\n" for name, (ours, given) in CLASSES.items() if ours in kinds() and not given]
    ordered = sorted({line for name, line in lines.items() if name != "Never"})
    return HEAD + "\n".join(ordered) + "\n\n" + "\n".join(classes)


if __name__ == "__main__":
    STUB.write_text(text(), encoding="utf-8")
