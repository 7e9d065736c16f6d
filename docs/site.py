"""A hook of mkdocs (mkdocs.yml) that adds pages to the site: README as the first page, the examples, the reference.

The reference has a page for each public module. Its names come from the package's sources, which are not imported.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
#: Pages that lie at the top of the repository, and their places on the site.
TOP = {"README.md": "index.md", "CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}


def source(module: str) -> Path:
    """Returns the path of the module's file."""
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def modules() -> tuple[str, ...]:
    """Returns the public modules, the package first: those in its `__all__`, `_LATER` and `_BY_NAME`."""
    lists = {}
    for node in ast.parse(source("singa_lite").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            lists[target.id] = node.value
    found = {name for key in ("__all__", "_LATER", "_BY_NAME") for name in ast.literal_eval(lists[key])}
    within = [f"singa_lite.{name}" for name in sorted(found) if name.islower()]  # classes have capitals
    return "singa_lite", *(module for module in within if source(module).exists())


def names(module: str) -> dict[str, str]:
    """Returns {public class or function of the module: its full name}. Names imported `as` themselves are public too.

    The full name is that of the module that defines it, since stubs (.pyi) have no docstrings. Modules are left out.
    """
    found: dict[str, str] = {}
    body = ast.parse(source(module).read_text(encoding="utf-8")).body
    for node in (inner for top in body for inner in (top.body if isinstance(top, ast.If) else [top])):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found[node.name] = f"{module}.{node.name}"
        elif isinstance(node, ast.ImportFrom):
            where = f"{module}.{node.module}" if node.level else node.module
            handed_on = [one.name for one in node.names if one.asname == one.name]
            found |= {name: f"{where}.{name}" for name in handed_on if not is_module(module, node, name)}
    return {name: found[name] for name in sorted(found) if not name.startswith("_")}


def is_module(module: str, node: ast.ImportFrom, name: str) -> bool:
    """True if an import of the module, or of the package, brings a module."""
    base = module if node.level else ""
    found = ROOT.joinpath(*".".join(part for part in (base, node.module or "", name) if part).split("."))
    return found.is_dir() or found.with_suffix(".py").exists()


#: Each has a page of all its public names.
MODULES = modules()


def reference() -> dict[str, str]:
    """Returns {place on the site: text} of the reference's pages."""
    pages = {"reference/index.md": "# Reference\n\nEvery public name, by module.\n\n"}
    for module in MODULES:
        own = names(module)
        blocks = "\n".join(f"::: {path}\n" for path in own.values())
        pages[f"reference/{module}.md"] = f"# {module}\n\n{blocks}"
        pages["reference/index.md"] += f"* [`{module}`]({module}.md): {', '.join(f'`{name}`' for name in own)}\n"
    return pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/, and the examples as files."""
    from mkdocs.structure.files import File

    for path, place in TOP.items():
        files.append(File.generated(config, place, content=(ROOT / path).read_text(encoding="utf-8")))
    for place, text in reference().items():
        files.append(File.generated(config, place, content=text))
    for path in sorted((ROOT / "examples").rglob("*.py")):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Returns the page with GitHub's links turned into links of the site."""
    if page.file.src_uri in TOP.values():
        return markdown.replace("](docs/", "](").replace("](README.md", "](index.md")
    return markdown.replace("](../examples/", "](examples/").replace("](../README.md", "](index.md")
