"""What the package calls of libraries that state no types, read from its sources, and whether the installed ones agree.

A checker of types takes every call of such a library for right. Here each chain of names that begins at a library's
module, or at an object of a class of it, is looked up there, and each call is bound to the signature that it has: that
of Python, or the one that Cython and pybind11 write into the first line of a docstring.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import singa_lite

PACKAGE = Path(singa_lite.__file__).parent
#: Chains of names that stand for a library's module or object: {chain in the sources: chain in the library}.
Roots = Mapping[str, str]


class Call(NamedTuple):
    """A chain of names in a source; arguments: None where it is only read."""

    where: str
    chain: str
    positional: int = 0
    named: tuple[str, ...] | None = None
    is_open: bool = False  # it has * or ** arguments

    def __str__(self) -> str:
        return f"{self.where} {self.chain}"


def calls(path: Path, roots: Roots) -> list[Call]:
    """Those of a module of the package."""
    return calls_in(path.read_text(encoding="utf-8"), path.name, roots)


def calls_in(text: str, name: str, roots: Roots) -> list[Call]:
    """Those of a text. What is assigned to a name from such a chain goes on under that name, in its function."""
    found = []
    for function in [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]:
        known = dict(roots)
        for target, value in _assigned(function):
            chain = _resolved(value, known)
            if chain is not None:
                known[target] = chain
        found += _calls(function, name, known)
    return sorted(set(found))


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            yield from ((one.id, value) for one, value in pairs if isinstance(one, ast.Name))


def _calls(function: ast.FunctionDef, name: str, known: Roots) -> Iterator[Call]:
    called = {id(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            chain = _resolved(node.func, known)
            if chain is not None:
                given = [one for one in node.args if not isinstance(one, ast.Starred)]
                named = tuple(one.arg for one in node.keywords if one.arg is not None)
                is_open = len(given) < len(node.args) or len(named) < len(node.keywords)
                yield Call(f"{name}:{node.lineno}", chain, len(given), named, is_open)
        elif isinstance(node, ast.Attribute) and id(node) not in called:
            chain = _resolved(node, known)
            if chain is not None:
                yield Call(f"{name}:{node.lineno}", chain)


def _resolved(node: ast.expr, known: Roots) -> str | None:
    """The chain in the library; None for what begins elsewhere."""
    text = ast.unparse(node)
    for root in sorted(known, key=len, reverse=True):
        if text == root:
            return known[root]
        rest = text.removeprefix(root + ".")
        if rest != text and re.fullmatch(r"[\w.]+", rest):
            return f"{known[root]}.{rest}"
    return None


def complaint(call: Call, library: Mapping[str, Any]) -> str:
    """What is wrong with a call; "" if nothing is. library: {what chains begin with: its module or class}."""
    first, *names = call.chain.split(".")
    found, owner = library[first], None
    for name in names:
        if not hasattr(found, name):
            return f"{call}: there is no {name!r} in {found!r}"
        owner, found = found, getattr(found, name)
    if call.named is None:
        return ""
    of_class = inspect.isclass(owner) and not inspect.isclass(found)
    positional = call.positional + of_class  # self
    known = signatures(found)
    if any(_binds(one, positional, call) for one in known):
        return ""
    return f"{call}: {positional} {call.named} in {known}"


def _binds(signature: inspect.Signature, positional: int, call: Call) -> bool:
    bind = signature.bind_partial if call.is_open else signature.bind
    try:
        bind(*range(positional), **dict.fromkeys(call.named or ()))
    except TypeError:
        return False
    return True


def signatures(function: Any) -> list[inspect.Signature]:
    """That of a function or class, or all that its docstring begins with; ValueError if it says none."""
    name = function.__name__
    said = re.findall(rf"^(?:\d+\. )?(?:\w+\.)?{name}\((.*)\)(?: ->.*)?$", function.__doc__ or "", re.MULTILINE)
    said = [one for one in said if one != "*args, **kwargs"]  # pybind11's heading of several
    try:
        return [inspect.signature(function)]
    except ValueError:
        if not said:
            raise
    return [parsed(one) for one in said]


def parsed(text: str) -> inspect.Signature:
    """A signature by its parameters, with C's types before names or Python's behind them."""
    kind, found = inspect.Parameter.POSITIONAL_OR_KEYWORD, []
    for part in re.split(r",\s*(?![^\[\](){}]*[\])}])", text):
        if not part:
            continue
        if part == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
            continue
        words, given, _ = part.partition("=")
        name = re.split(r"[\s*]+", words.split(":")[0].strip())[-1]
        default = None if given else inspect.Parameter.empty
        rest = {"**": inspect.Parameter.VAR_KEYWORD, "*": inspect.Parameter.VAR_POSITIONAL}
        starred = next((rest[stars] for stars in rest if part.startswith(stars)), None)
        found.append(inspect.Parameter(name, starred or kind, default=inspect.Parameter.empty if starred else default))
    return inspect.Signature(found)


def of_protocol(protocol: type, real: type, example: object = None) -> list[str]:
    """What a class lacks of a protocol of ours, which a checker holds our calls to.

    example: an object of the class, where attributes are the object's own.
    """
    wrong = []
    for name, member in vars(protocol).items():
        if isinstance(member, property) and not hasattr(real, name) and not hasattr(example, name):
            wrong.append(f"{protocol.__name__}: there is no {name!r} in {real!r}")
        elif inspect.isfunction(member) and name not in ("__init__", "__subclasshook__"):
            wrong.append(_of_method(protocol, name, member, real))
    return [one for one in wrong if one]


def _of_method(protocol: type, name: str, member: Any, real: type) -> str:
    given = list(inspect.signature(member).parameters.values())[1:]
    plain = [one for one in given if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    call = Call(protocol.__name__, f"real.{name}", len(plain), (), len(plain) < len(given))
    try:
        return complaint(call, {"real": real})
    except ValueError:  # a slot of C, such as __add__, says no signature
        return ""
