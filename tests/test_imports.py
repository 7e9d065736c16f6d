"""Imports run down only: one table of floors, checked on the source; and what `import singa_lite` costs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import singa_lite
from every_row import over_rows
from package_source import PACKAGE, module_files

# Lowest first. A name is a module, or a folder with all that is in it; "" is singa_lite/__init__.py itself.
# A module imports from floors below its own and, on its own floor, only from its own folder.
FLOORS = (
    ("common",),
    ("kernels", "tensor"),
    ("runtime",),
    ("compiler",),
    ("graph",),
    ("device",),
    ("autograd",),
    ("layer", "optimizer"),
    ("data", "layers", "loss", "metric", "parallel", "testing"),
    ("training",),
    ("snapshots",),
    ("net",),
    ("callbacks", "models", "sklearn"),
    ("commands", ""),
    ("__main__",),
)

BESIDE = (
    *(
        "kernels.interface",
        "kernels.kernel_set",
        "kernels.built",
        "kernels.call",
        "kernels.routine",
        "kernels.variants",
    ),
    "kernels.widening",
)
SHARED = (
    *("kernels.ids", "kernels.philox", "kernels.unweighted"),
    "kernels.composed",
    "kernels.low_rank_product",
    "kernels.quantized_product",
    "kernels.workers",
)

# Folders that can be read alone: all that they may import of the project from outside themselves.
CLOSED = {
    "compiler.placement": ("common.errors", "common.unique", "common.atomic", "common.terminal"),
    "snapshots.readers": ("common.array_types", "common.atomic", "common.errors"),
    "kernels.interface": ("common.errors",),
    "kernels.numpy_kernels": (
        *("common.array_types", "common.errors", "kernels.interface", "kernels.kernel_set", "kernels.widening"),
        *SHARED,
    ),
    "kernels.onednn_kernels": (
        "common.array_types",
        "common.errors",
        "common.strides",
        "common.threads",
        "common.unique",
        *BESIDE,
        *SHARED,
    ),
    "kernels.cuda_kernels": (
        *("common.array_types", "common.errors", "common.strides"),
        *("kernels.composed", "kernels.low_rank_product", "kernels.pieces", "kernels.quantized_product"),
        "kernels.stored_update",
        *BESIDE,
    ),
}

# Folders that are entered by one door: from outside, only what stands in `__init__.py` is imported.
DOORS = ("snapshots.formats",)

# Libraries that a module may import when it is itself imported. All others are imported where they are used.
LIBRARIES = {
    "numpy": ("",),
    "h5py": ("snapshots.hdf5_writer", "snapshots.formats.native", "snapshots.formats.keras"),
    "cupy": ("kernels.cuda_kernels",),
    "jinja2": ("snapshots.language.sandbox",),
    "onnx": ("snapshots.onnx",),
    "sklearn": ("sklearn",),
}

SLOW_LIBRARIES = (
    *("cupy", "gguf", "h5py", "jinja2", "matplotlib", "onnx", "plotly", "scipy", "sklearn", "tokenizers", "torch"),
    "tqdm",
)
MOST_MODULES = 540


@dataclass(frozen=True)
class Import:
    """One import: what is named (":library", or a module less `singa_lite.`), its line, where it runs."""

    target: str
    line: int
    place: str  # "module", "function", or "typing" where it never runs


FILES = module_files()
MODULES = {name.removeprefix(PACKAGE).removeprefix("."): path for name, path in FILES.items()}


def inside(module: str, folder: str) -> bool:
    """Whether `module` is `folder` or lies in it; all lies in ""."""
    return not folder or module == folder or module.startswith(f"{folder}.")


def place_of(module: str) -> tuple[int, str]:
    """Floor number and the name of the table that holds the module."""
    for number, names in enumerate(FLOORS):
        for name in names:
            if module == name or (name and inside(module, name)):
                return number, name
    path = f"{PACKAGE}/{module.replace('.', '/')}"
    raise LookupError(f"{path}: place it on a floor, FLOORS in {Path(__file__).name}")


def imports_of(module: str, source: str, is_package: bool) -> Iterator[Import]:
    """All imports in the text of a module; modules of the project without the leading `singa_lite.`."""
    package = ".".join(filter(None, (PACKAGE, module))).split(".")
    if not is_package:
        package.pop()
    yield from _walk(ast.parse(source), package, "module")


def _walk(node: ast.AST, package: list[str], place: str) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(_short(alias.name), node.lineno, place) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else []
        origin = ".".join([*base, *filter(None, [node.module])])
        names = (_short(f"{origin}.{alias.name}", origin) for alias in node.names)
        yield from (Import(name, node.lineno, place) for name in names)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        place = "function"
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.body:
            yield from _walk(child, package, "typing")
        for child in node.orelse:
            yield from _walk(child, package, place)
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk(child, package, place)


def _short(name: str, origin: str | None = None) -> str:
    """The target of an import; `origin` is the module that `name` is taken from if it is no module itself."""
    if name.split(".")[0] != PACKAGE:
        return ":" + name.split(".")[0]
    if origin is not None and name not in FILES:
        name = origin
    return name.removeprefix(PACKAGE).removeprefix(".")


def breach(module: str, found: Import) -> str | None:
    """What is wrong with this import of the module, if anything."""
    if found.target.startswith(":"):
        return _library_breach(module, found)
    for folder, allowed in CLOSED.items():
        if inside(module, folder) and not any(inside(found.target, name) for name in (folder, *allowed)):
            return f"{folder}/ may import only {', '.join(allowed)} from outside itself"
    for folder in DOORS:
        if not inside(module, folder) and inside(found.target, folder) and found.target != folder:
            return f"{folder}/ is entered by its __init__.py alone"
    (floor, name), (other_floor, other_name) = place_of(module), place_of(found.target)
    if other_floor > floor:
        return f"{other_name or '__init__'} is on a higher floor than {name}"
    if other_floor == floor and other_name != name:
        return f"{other_name} is beside {name}, on the same floor"
    return None


def _library_breach(module: str, found: Import) -> str | None:
    library = found.target.removeprefix(":")
    if found.place != "module" or library in sys.stdlib_module_names:
        return None
    if any(inside(module, folder) for folder in LIBRARIES.get(library, ())):
        return None
    return f"{library} may not be imported at module level here, see LIBRARIES"


@cache
def imports_in(module: str) -> list[Import]:
    """Of a module of the package."""
    path = MODULES[module]
    return list(imports_of(module, path.read_text(encoding="utf-8"), path.name == "__init__.py"))


def breaches(module: str, imports: Iterable[Import]) -> list[str]:
    """One line for each import of the module that breaks a rule."""
    found = [(item, breach(module, item)) for item in imports]
    return [f"line {item.line}: {item.target or PACKAGE}: {text}" for item, text in found if text]


def test_every_floor_has_modules():
    empty = {name for names in FLOORS for name in names if not any(inside(module, name) for module in MODULES)}
    assert not empty, f"names in FLOORS that no module has: {sorted(empty)}"


def test_imports_run_down():
    over_rows(imports_run_down, ((module, (module,)) for module in MODULES))


def imports_run_down(module: str) -> None:
    """Of this module; it has a floor."""
    place_of(module)
    found = breaches(module, imports_in(module))
    assert not found, "\n".join(found)


def test_no_cycle_of_imports():
    """Imports inside functions count too: a circle is one wherever it is closed."""
    graph = {
        module: {
            found.target for found in imports_in(module) if not found.target.startswith(":") and found.target != module
        }
        for module in MODULES
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules that import each other: {' <- '.join(error.args[1])}")


def test_the_house_is_small():
    """Rooms are the entries of singa_lite, and layers and snapshots; an arrow leads from a room to one it imports."""
    rooms = {module.split(".")[0] for module in MODULES} - {"", "__main__"}
    targets = {(module.split(".")[0], found.target.split(".")[0]) for module in MODULES for found in imports_in(module)}
    arrows = [(room, other) for room, other in targets if other in rooms and room in rooms and room != other]
    assert len(rooms) <= 25 and len(FLOORS) <= 15 and len(arrows) <= 150, (len(rooms), len(FLOORS), len(arrows))
    files = Counter(path.parent for path in MODULES.values())
    assert not [str(folder) for folder, count in files.items() if count > 40 or folder.name.endswith("_parts")]
    lengths = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES.values()}
    assert not {path: count for path, count in lengths.items() if count > 350}


#: (module, its source, what is wrong with it; "" if nothing is)
SOURCES = [
    ("tensor", "from singa_lite.device import Device", "higher floor"),
    ("tensor", "def f():\n    from singa_lite import device", "higher floor"),
    ("tensor", "if TYPE_CHECKING:\n    from . import device", "higher floor"),
    ("net", "from singa_lite import FeedForwardNet", "__init__ is on a higher floor"),
    ("training", "def save():\n    from singa_lite import snapshots", "higher floor"),
    ("layer", "from singa_lite.optimizer import SGD", "beside layer"),
    ("layers.dense", "from ..snapshots import x", "higher floor"),
    ("snapshots.readers.raw", "from singa_lite.snapshots.tree import Tree", "snapshots.readers/ may import only"),
    ("kernels.interface.linear", "from ..numpy_kernels import x", "kernels.interface/ may import only"),
    ("snapshots.command", "from singa_lite.snapshots.formats import npz", "entered by its __init__.py alone"),
    ("net", "try:\n    from h5py import File\nexcept ImportError:\n    pass", "h5py may not"),
    ("net", "def save():\n    from singa_lite.snapshots import formats", ""),
    ("net", "def fit():\n    import tqdm", ""),
    ("net", "if TYPE_CHECKING:\n    import h5py", ""),
    ("snapshots.formats.native", "import h5py", ""),
    ("snapshots.command", "from singa_lite.snapshots.formats import opened", ""),
    ("", "from singa_lite import layers as layers\nfrom .net import FeedForwardNet as FeedForwardNet", ""),
]


def test_breaches_are_seen():
    for module, source, wanted in SOURCES:
        found = breaches(module, imports_of(module, source, is_package=not module))
        assert len(found) == bool(wanted) and wanted in "".join(found), (module, source)
    with pytest.raises(LookupError, match="attic/old"):
        place_of("attic.old")


IMPORT = """
import sys, numpy
before = set(sys.modules)
import singa_lite
print(*(sys.modules.keys() - before))
"""


def test_import_takes_few_modules_and_leaves_slow_libraries_alone():
    """Modules over NumPy's own, as seconds depend on the machine: 511 modules take 0.15 to 0.33 s."""
    path = os.pathsep.join([str(Path(singa_lite.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, "-c", IMPORT],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    imported = result.stdout.split()
    assert not set(SLOW_LIBRARIES) & set(imported)
    assert len(imported) < MOST_MODULES
