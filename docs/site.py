"""A hook of mkdocs (mkdocs.yml) that adds pages to the site: README as the first page, the examples, the reference.

The reference has a page for each public module. Its names come from the package's sources, which are not imported.
"""

from __future__ import annotations

import ast
import posixpath
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
#: Pages that lie outside docs/, and their places on the site.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "examples/gallery/README.md": "gallery.md",
    "tests/README.md": "tests.md",
}


def literals(path: str) -> dict[str, Any]:
    """Returns {name: value} of the lists and tables that a file of the package writes out."""
    found = {}
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            with suppress(ValueError):  # computed
                found[target.id] = ast.literal_eval(node.value)
    return found


def present_name(module: str) -> str:
    """Returns the name of the module that a public name stands for: most are the same, some modules have moved."""
    moved = literals("singa_lite/common/old_paths.py")["MOVED"]
    package, _, path = module.partition(".")
    return f"{package}.{moved[path]}" if path in moved else module


def source(module: str) -> Path:
    """Returns the path of the module's file."""
    path = ROOT.joinpath(*present_name(module).split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def modules() -> tuple[str, ...]:
    """Returns the public modules, the package first: those in its `__all__`, `_LATER` and `_BY_NAME`."""
    written = literals("singa_lite/__init__.py")
    found = {name for key in ("__all__", "_LATER", "_BY_NAME") for name in written[key]}
    within = [f"singa_lite.{name}" for name in sorted(found) if name.islower()]  # classes have capitals
    return "singa_lite", *(module for module in within if source(module).exists())


def names(module: str) -> dict[str, str]:
    """Returns {public class or function of the module: its full name}. Names imported `as` themselves are public too.

    The full name is that of the module that defines it, since stubs (.pyi) have no docstrings. Modules are left out.
    """
    found: dict[str, str] = {}
    defined = present_name(module)
    body = ast.parse(source(module).read_text(encoding="utf-8")).body
    for node in (inner for top in body for inner in (top.body if isinstance(top, ast.If) else [top])):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found[node.name] = f"{defined}.{node.name}"
        elif isinstance(node, ast.ImportFrom):
            where = f"{defined}.{node.module}" if node.level else node.module
            handed_on = [one.name for one in node.names if one.asname == one.name]
            found |= {name: f"{where}.{name}" for name in handed_on if not is_module(defined, node, name)}
    return {name: found[name] for name in sorted(found) if not name.startswith("_")}


def is_module(module: str, node: ast.ImportFrom, name: str) -> bool:
    """True if an import of the module, or of the package, brings a module."""
    base = module if node.level else ""
    found = ROOT.joinpath(*".".join(part for part in (base, node.module or "", name) if part).split("."))
    return found.is_dir() or found.with_suffix(".py").exists()


#: Each has a page of all its public names.
MODULES = modules()
#: Classes that are shown with the methods of their bases, which have no page.
WHOLE = {"Device", "FeedForwardNet", "Layer", "NetClassifier", "NetRegressor", "Optimizer", "Tensor", "Training"}
FIRST = """Every public name, by module. The examples assume these two lines:

```python
import numpy as np
from singa_lite import *
```"""


def block(name: str, path: str) -> str:
    """Returns the lines that stand for a class or function."""
    return f"::: {path}\n" + "    options: {inherited_members: true}\n" * (name in WHOLE)


def reference() -> dict[str, str]:
    """Returns {place on the site: text} of the reference's pages."""
    pages = {"reference/index.md": f"# Reference\n\n{FIRST}\n\n"}
    # A name of several modules is whole on one page, on the last of this order: a module's and not the package's.
    order = (MODULES[0], *reversed(MODULES[1:]))
    homes = {path: module for module in order for path in names(module).values()}
    for module in MODULES:
        own = names(module)
        here = [block(name, path) for name, path in own.items() if homes[path] == module]
        links = [f"* [`{name}`]({homes[path]}.md#{path})" for name, path in own.items() if homes[path] != module]
        text = "\n".join([*links, "", *here])
        pages[f"reference/{module}.md"] = f"# {module}\n\n{text}"
        pages["reference/index.md"] += f"* [`{module}`]({module}.md): {', '.join(f'`{name}`' for name in own)}\n"
    return pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/, and the examples as files."""
    from mkdocs.structure.files import File

    for path, where in OUTSIDE.items():
        files.append(File.generated(config, where, content=(ROOT / path).read_text(encoding="utf-8")))
    for where, text in reference().items():
        files.append(File.generated(config, where, content=text))
    for path in sorted((ROOT / "examples").rglob("*.py")):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Returns the page with links of the repository turned into links of the site."""
    if page.file.src_uri.startswith("reference/"):
        return markdown
    paths = {where: path for path, where in OUTSIDE.items()}
    folder = posixpath.dirname(paths.get(page.file.src_uri, "docs/"))
    return re.sub(r"\]\(([^)#:\s]+)", lambda link: f"]({site_path(posixpath.join(folder, link[1]))}", markdown)


def site_path(path: str) -> str:
    """Returns where a file of the repository lies on the site."""
    path = posixpath.normpath(path)
    return OUTSIDE.get(path, path.removeprefix("docs/"))
