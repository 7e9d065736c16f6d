"""Every public module, class, function and method says what it is; examples in docstrings run."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from every_row import over_rows
from package_source import module_files, script

MODULES = [name for name in module_files() if not any(part.startswith("_") for part in name.split("."))]
OPTIONAL_LIBRARIES = ("cupy", "sklearn")
DOCS = Path(__file__).resolve().parents[1] / "docs"


def undocumented(module: ModuleType) -> Iterator[str]:
    """Names of what the module defines in public without a docstring."""
    if not module.__doc__:
        yield module.__name__
    for name, item in vars(module).items():
        if name.startswith("_") or getattr(item, "__module__", None) != module.__name__:
            continue  # private, or defined elsewhere
        if inspect.isclass(item):
            yield from undocumented_in_class(item)
        elif inspect.isroutine(item) and not inspect.getdoc(item):
            yield f"{module.__name__}.{name}"


def undocumented_in_class(cls: type) -> Iterator[str]:
    """The class, and its public methods and properties that neither it nor a base class describes."""
    if not _own_docstring(cls):
        yield f"{cls.__module__}.{cls.__qualname__}"
    if getattr(cls, "_is_protocol", False):
        return  # its methods are described where they are implemented
    for name, member in vars(cls).items():
        callables = (staticmethod, classmethod, property, cached_property)
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, callables)):
            continue
        if not inspect.getdoc(getattr(cls, name)) and not _told_by_a_base(cls, name):
            yield f"{cls.__module__}.{cls.__qualname__}.{name}"


def _told_by_a_base(cls: type, name: str) -> bool:
    """Whether a base class that only declares the method describes it, as `name(...)`, in its docstring."""
    bases = (base for base in cls.__mro__[1:] if name in getattr(base, "__annotations__", {}))
    return any(f"{name}(" in _own_docstring(base) for base in bases)


def _own_docstring(cls: type) -> str:
    """The class's docstring; not the signature that a dataclass or named tuple puts where there is none."""
    text = cls.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{cls.__name__}(") else text


def check(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL_LIBRARIES:
            raise
    else:
        assert not list(undocumented(module))


def test_public_names_are_documented():
    over_rows(check, ((name, (name,)) for name in MODULES))
    assert list(undocumented_in_class(type("Bare", (), {"run": lambda self: None}))) == [
        f"{__name__}.Bare",
        f"{__name__}.Bare.run",
    ]


# ---- examples

#: What an example may use without importing it, as the reference says.
NAMES: dict[str, object] = {"np": np}
exec("from singa_lite import *", NAMES)


def public_names() -> Iterator[tuple[str, tuple[str]]]:
    """Paths of the public classes and functions, and of the methods of a net that the guides call."""
    guides = {DOCS.parent / "README.md", *DOCS.glob("*.md")} - {DOCS / "internals.md", DOCS / "lineage.md"}
    text = "".join(page.read_text(encoding="utf-8") for page in guides)
    methods = set(re.findall(r"\b(?:net|FeedForwardNet)\.(\w+)\(", text))
    site = script(DOCS / "site.py")  # knows what the reference prints, and needs no mkdocs
    paths = [path for module in site.MODULES for path in site.names(module).values()]
    paths += [f"singa_lite.FeedForwardNet.{method}" for method in methods]
    return ((path, (path,)) for path in sorted(paths))


def check_has_example(path: str) -> None:
    item = pkgutil.resolve_name(path)
    if inspect.isclass(item) or inspect.isroutine(item):
        has_example = ">>> " in (item.__doc__ or "")
        assert has_example


@pytest.mark.skipif(not DOCS.is_dir(), reason="this copy has no docs, the checkout has")
def test_public_names_have_an_example():
    over_rows(check_has_example, public_names())


def examples() -> Iterator[tuple[str, str]]:
    """The name and the docstring of each class, function and method with an example."""
    for module, path in module_files().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and ">>> " in (text := ast.get_docstring(node) or ""):
                yield f"{module}.{node.name}, line {node.lineno}", text


def check_example(name: str, text: str) -> None:
    test = doctest.DocTestParser().get_doctest(text, dict(NAMES), name, None, 0)
    report: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS).run(test, out=report.append)
    assert not report, "".join(report)


def test_examples_give_what_they_show(tmp_path, monkeypatch):
    def check(name: str, text: str, folder: Path) -> None:
        folder.mkdir()  # an empty one for each, as some write files
        monkeypatch.chdir(folder)
        check_example(name, text)

    over_rows(check, ((name, (name, text, tmp_path / str(at))) for at, (name, text) in enumerate(examples())))
