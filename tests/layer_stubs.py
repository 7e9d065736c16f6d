"""What type checkers see of `singa_lite.layers`: each constructor with its name, and without.

    python tests/layer_stubs.py

writes layers/__init__.pyi. No decorator can say in types that a first argument may be left out, so that each class has
two overloads there; they are made of the constructors' own signatures, and a test holds the file to these.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType

from singa_lite import layers
from singa_lite.common.keywords import own_word
from singa_lite.common.words import ALIASES, CLASSES, ONLY_OF
from singa_lite.layer import Layer

STUB = Path(__file__).parents[1] / "layers" / "__init__.pyi"

OPTIONAL_NAME = "name: str | None = ..."
HEAD = '''"""Written by tests/layer_stubs.py: constructors with a name and without one, for type checkers."""

from typing import overload

from .elementwise import Input as Input
'''


def kinds() -> dict[str, type[Layer]]:
    """The public layers by name."""
    found = {name: kind for name, kind in vars(layers).items() if isinstance(kind, type) and issubclass(kind, Layer)}
    return dict(sorted(found.items()))


def _within(module: str) -> str:
    """The module's name within the package of layers."""
    return module.removeprefix(layers.__name__)


def constructor(kind: type[Layer]) -> object:
    """The `__init__` that the class has or inherits."""
    return next(vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base))


def parameters_of(kind: type[Layer]) -> list[Parameter]:
    """Its parameters but for `self` and the name, annotations as they stand in the source."""
    return list(signature(constructor(kind)).parameters.values())[2:]


def overloads(kind: type[Layer]) -> list[str]:
    """The parameter lists: the name first; without it; all by keyword, if a word of Keras's may be a required one."""
    given = parameters_of(kind)
    own = {each.name: each for each in given}
    bases = {base.__name__ for base in kind.__mro__}
    known = [word for word in ALIASES if bases & ONLY_OF.get(word, bases)]
    words = {word: own[name] for word in known if (name := own_word(word, own)) != word}
    required = [each.name for each in given if each.default is Parameter.empty]
    positional = [_parameter(each.name, each) for each in given if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    named = [_parameter(each.name, each) for each in given if each.kind is Parameter.KEYWORD_ONLY]
    free = [_parameter(word, each) for word, each in words.items() if each.name not in required]
    forms = [["name: str" if required else OPTIONAL_NAME, *positional, "*", *free, *named]]
    if positional and "str" not in given[0].annotation.replace("Sequence[str]", ""):
        forms.append([*positional, "*", OPTIONAL_NAME, *free, *named])
    elif required:  # a first text is the name
        forms.append(["*", OPTIONAL_NAME, *positional, *free, *named])
    renamed = {each.name for each in words.values() if each.name in required}
    if renamed:
        others = [text for text in positional if text.partition(":")[0] not in renamed]
        forms.append([OPTIONAL_NAME, "*", *(_parameter(*each) for each in words.items()), *others, *named])
    return [", ".join(["self", *parameters]) for parameters in forms]


def _parameter(name: str, parameter: Parameter) -> str:
    return f"{name}: {parameter.annotation}" + ("" if parameter.default is Parameter.empty else " = ...")


def imports(kind: type[Layer]) -> dict[str, str]:
    """{name that annotations use: the line that imports it}."""
    wanted = {name for each in parameters_of(kind) for name in re.findall(r"[A-Za-z]\w*", each.annotation)}
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        module = sys.modules[base.__module__]
        if module.__name__.startswith("singa_lite.") and "__init__" in vars(base):
            found |= _imports_of(module, wanted)
    return {name: line for name, line in found.items() if name not in kinds()}


def _imports_of(module: ModuleType, wanted: set[str]) -> dict[str, str]:
    """{name: the line that imports it}, of what a module imports or defines."""
    nodes = [node for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.ImportFrom)]
    imported = {alias.name: node.module for node in nodes for alias in node.names if alias.name in wanted}
    found = {name: f"from {home} import {name}" for name, home in imported.items()}
    own = (wanted & vars(module).keys()) - found.keys()
    return found | {name: f"from {_within(module.__name__)} import {name}" for name in own}


def text() -> str:
    """The stub: classes whose constructors take the same share a base that has it."""
    lines: dict[str, str] = {}
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, kind in kinds().items():
        lines |= imports(kind)
        lines[f"_{name}"] = f"from {_within(kind.__module__)} import {name} as _{name}"
        alike.setdefault(tuple(overloads(kind)), []).append(name)
    classes = []
    for forms, names in alike.items():
        head = "    @overload\n" if len(forms) > 1 else ""
        body = "".join(f"{head}    def __init__({form}) -> None: ...\n" for form in forms)
        if len(names) == 1:
            classes.append(f"class {names[0]}(_{names[0]}):\n{body}")
        else:
            shared = f"_ConstructorOf{names[0]}"
            classes.append(f"class {shared}:\n{body}")
            classes.append("".join(f"class {name}({shared}, _{name}): ...\n" for name in names))
    others = [f"{name} = {ours}\n" for name, (ours, given) in CLASSES.items() if ours in kinds() and not given]
    ordered = sorted({line for name, line in lines.items() if name != "Never"})
    return HEAD + "\n".join(ordered) + "\n\n" + "\n".join([*classes, "".join(others)])


if __name__ == "__main__":
    STUB.write_text(text(), encoding="utf-8")
