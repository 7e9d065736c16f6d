"""Every call of CuPy, NCCL and cuDNN's frontend is one that the installed package takes.

Those state no types, so a checker of types takes every call for right. Each chain of names that begins at a library's
module, or at an object of a class of it, is read from the sources and looked up there, and each call is bound to the
signature that it has: that of Python, or the one that Cython and pybind11 write into a docstring.
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import singa_lite
import skips
from benchmark_modules import FOLDER
from every_row import over_rows
from singa_lite.runtime import cupy_types

PACKAGE = Path(singa_lite.__file__).parent
#: How the sources name a library and what they take from it, {chain in the sources: chain in the library}.
ROOTS = {
    "cupy": {
        "cupy": "cupy",
        "runtime.cupy": "cupy",
        "self._cupy": "cupy",
        "self._module": "module",
        "module": "module",
    },
    # graph: a `pygraph`; result: a tensor that an operation of a graph gives
    "cudnn": {"cudnn": "cudnn", "self._cudnn": "cudnn", "frontend()": "cudnn", "graph": "graph", "result": "tensor"},
    "nccl": {"self._nccl": "nccl", "self._comm": "comm"},
}
#: The modules that call it.
MODULES = {
    "cupy": [
        *(f"runtime/{name}.py" for name in ("cuda", "cuda_pool", "staging", "pinned", "side_stream")),
        "parallel/gpus.py",
        "device/cuda.py",
        "device/cuda_libraries.py",
        "kernels/cuda_kernels/loader.py",
    ],
    "cudnn": [
        f"kernels/cuda_kernels/libraries/cudnn_{name}.py"
        for name in ("library", "tensor", "plan", "call", "convolution", "attention")
    ],
    "nccl": ["parallel/nccl.py"],
}
#: What a graph has once it is made. Tests of plans make graphs and use it.
OF_INSTANCES = ("graph._cpp_tensors",)
#: The protocols that calls of objects of CuPy are checked by, and their classes.
CLASSES = {
    "Stream": "cuda.Stream",
    "CapturingStream": "cuda.Stream",
    "Event": "cuda.Event",
    "CupyPool": "cuda.MemoryPool",
    "CapturedGraph": "cuda.graph.Graph",
    "Pointer": "cuda.MemoryPointer",
    "CupyArray": "ndarray",
}


class Call(NamedTuple):
    """A chain of names in a source; named: None where it is only read; is_open: it has * or ** arguments."""

    where: str
    chain: str
    positional: int = 0
    named: tuple[str, ...] | None = None
    is_open: bool = False


def calls(path: Path, roots: Mapping[str, str]) -> set[Call]:
    """Those of a module. What is assigned to a name from such a chain goes on under that name, in its function."""
    found = set[Call]()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        known = dict(roots)
        for target, value in _assigned(function):
            chain = _resolved(value, known)
            if chain is not None:
                known[target] = chain
        found |= set(_calls(function, path.name, known))
    return found


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    for node in [node for node in ast.walk(function) if isinstance(node, ast.Assign)]:
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            yield from ((one.id, value) for one, value in pairs if isinstance(one, ast.Name))


def _calls(function: ast.FunctionDef, name: str, known: Mapping[str, str]) -> Iterator[Call]:
    called = {id(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and (chain := _resolved(node.func, known)):
            given = [one for one in node.args if not isinstance(one, ast.Starred)]
            named = tuple(one.arg for one in node.keywords if one.arg is not None)
            is_open = len(given) < len(node.args) or len(named) < len(node.keywords)
            yield Call(f"{name}:{node.lineno}", chain, len(given), named, is_open)
        elif isinstance(node, ast.Attribute) and id(node) not in called and (chain := _resolved(node, known)):
            yield Call(f"{name}:{node.lineno}", chain)


def _resolved(node: ast.expr, known: Mapping[str, str]) -> str | None:
    """The chain in the library; None for what begins elsewhere."""
    text = ast.unparse(node)
    for root in sorted(known, key=len, reverse=True):
        rest = text.removeprefix(root)
        if rest != text and re.fullmatch(r"(\.[\w.]+)?", rest):
            return known[root] + rest
    return None


def check(call: Call, library: Mapping[str, Any]) -> None:
    """library: {what chains begin with: its module or class}."""
    first, *names = call.chain.split(".")
    found, owner = library[first], None
    for name in names:
        owner, found = found, getattr(found, name)
    if call.named is None:
        return
    positional = call.positional + (inspect.isclass(owner) and not inspect.isclass(found))  # self
    known = signatures(found)
    assert any(_binds(one, positional, call) for one in known), f"{positional} {call.named} in {known}"


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


def library(name: str) -> dict[str, Any]:
    """{what chains begin with: module or class}; the test is skipped where the package is missing."""
    if name == "cudnn":
        cudnn: Any = pytest.importorskip("cudnn", reason="wants cuDNN's frontend, pip install nvidia-cudnn-frontend")
        return {"cudnn": cudnn, "graph": cudnn.pygraph, "tensor": import_module("cudnn.graph_types").Tensor}
    cupy = skips.library("cupy")
    if name == "cupy":
        return {"cupy": cupy, "module": cupy.RawModule}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the library is not found
        nccl = import_module("cupy.cuda.nccl")
    if not nccl.available:
        pytest.skip("wants NCCL, pip install nvidia-nccl-cu13")
    return {"nccl": nccl, "comm": nccl.NcclCommunicator}


@pytest.mark.parametrize("name", MODULES)
def test_every_call_is_one_that_the_library_has(name):
    having = library(name)
    paths = [PACKAGE / module for module in MODULES[name]]
    if name == "cupy" and FOLDER.is_dir():  # a wheel has no benchmarks
        paths.append(FOLDER / "first_run" / "machine.py")
    found = [call for path in paths for call in calls(path, ROOTS[name])]
    assert len(found) > 5
    over_rows(check, ((f"{c.where} {c.chain}", (c, having)) for c in found if c.chain not in OF_INSTANCES))


def test_a_wrong_call_is_told(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "def work(self):\n    runtime, on = self._cupy.cuda.runtime, 3\n    runtime.memcpyAsync(1, 2, 3, on)\n"
    )
    (call,) = [one for one in calls(wrong, ROOTS["cupy"]) if one.named is not None]
    with pytest.raises(AssertionError, match="4"):
        check(call, library("cupy"))


def test_objects_of_cupy_have_what_their_protocols_say():
    cupy = library("cupy")["cupy"]
    import_module("cupy.cuda.graph")
    for protocol, path in CLASSES.items():
        real = cupy
        for name in path.split("."):
            real = getattr(real, name)
        example = cupy.cuda.Stream.null if protocol == "Stream" else real  # some attributes are the object's own
        for name, member in vars(getattr(cupy_types, protocol)).items():
            if isinstance(member, property):
                assert hasattr(real, name) or hasattr(example, name), (protocol, name)
            elif inspect.isfunction(member) and name not in ("__init__", "__subclasshook__"):
                given = list(inspect.signature(member).parameters.values())[1:]
                plain = [one for one in given if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
                try:
                    check(Call(protocol, f"real.{name}", len(plain), (), len(plain) < len(given)), {"real": real})
                except ValueError:  # a slot of C, such as __add__, says no signature
                    continue
    assert hasattr(cupy.RawKernel, "kernel")
    assert hasattr(import_module("cupy.cuda.function").Function, "ptr")
