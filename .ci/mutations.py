"""Small mistakes in the package, each a change of one source line, stored in .ci/mutations.tsv.

A mutation exchanges an operator, a constant, a condition or a call. It stands in a function, so that importing
the package stays possible. A stored mutation names its file and its line's text: it is found again when lines move.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("singa_lite", "layers", "snapshots")
#: The text of each operator, and the operator that takes its place.
EXCHANGED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: (" in ", " not in "), ast.NotIn: (" not in ", " in "),
    ast.Is: (" is ", " is not "), ast.IsNot: (" is not ", " is "),
    ast.And: (" and ", " or "), ast.Or: (" or ", " and "),
    ast.Add: (" + ", " - "), ast.Sub: (" - ", " + "), ast.Mult: (" * ", " / "), ast.Div: (" / ", " * "),
    ast.FloorDiv: (" // ", " * "), ast.Mod: (" % ", " + "),
}  # fmt: skip


@dataclass(frozen=True)
class Mutation:
    """One changed line: the file, its number in the file when it was drawn, its text, and the text in its place."""

    path: str
    line: int
    old: str
    new: str

    def position(self, lines: list[str]) -> int:
        """Index of the line now: of equal lines the one nearest to where it was drawn; ValueError without one."""
        same = [index for index, text in enumerate(lines) if text == self.old]
        if not same:
            raise ValueError(f"{self.path} has no line {self.old.strip()!r} any more: draw another mutation for it")
        return min(same, key=lambda index: abs(index + 1 - self.line))

    def apply(self, root: Path) -> None:
        """Change the file below `root`."""
        lines = (root / self.path).read_text(encoding="utf-8").split("\n")
        lines[self.position(lines)] = self.new
        (root / self.path).write_text("\n".join(lines), encoding="utf-8")


def read(path: Path) -> list[Mutation]:
    """The stored list: a line each, path, line, old and new text between tabs."""
    rows = [row.split("\t") for row in path.read_text(encoding="utf-8").splitlines()]
    return [Mutation(place, int(line), old, new) for place, line, old, new in rows]


def write(path: Path, mutations: list[Mutation]) -> None:
    """The form that `read` reads."""
    rows = (f"{one.path}\t{one.line}\t{one.old}\t{one.new}\n" for one in mutations)
    path.write_text("".join(rows), encoding="utf-8")


def draw(root: Path, count: int, seed: int) -> list[Mutation]:
    """`count` mutations of the package below `root`, all places equally likely, at most one a function."""
    found = []
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            found += list(_of_file(root, path))
    random.Random(seed).shuffle(found)
    chosen: dict[tuple[str, str], Mutation] = {}
    for function, mutation in found:
        chosen.setdefault((mutation.path, function), mutation)
        if len(chosen) == count:
            break
    return sorted(chosen.values(), key=lambda one: (one.path, one.line))


def statement_line(tree: ast.Module, line: int) -> int:
    """Number of the first line of the innermost statement that holds this line: a call may be inserted before it."""
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.stmt))
    return max(node.lineno for node in statements if node.lineno <= line <= (node.end_lineno or line))


def _of_file(root: Path, path: Path) -> Iterator[tuple[str, Mutation]]:
    source = path.read_text(encoding="utf-8")
    lines, place = source.split("\n"), path.relative_to(root).as_posix()
    tree = ast.parse(source)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in (inner for statement in function.body for inner in _expressions(statement)):
                for line, new in _changes(node, lines):
                    old = lines[line - 1]
                    first = lines[statement_line(tree, line) - 1]
                    if new != old and not first.lstrip().startswith(("elif", "else", "except", "case", "@", ")")):
                        yield f"{function.name}:{function.lineno}", Mutation(place, line, old, new)


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """What can be wrong without an error: no messages of errors, no annotations, no inner functions and classes."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise | ast.FunctionDef | ast.ClassDef | ast.JoinedStr | ast.Import | ast.ImportFrom):
            continue
        yield node
        annotation = getattr(node, "annotation", None)
        inside = (inner for inner in ast.iter_child_nodes(node) if inner is not annotation)
        waiting += [inner for inner in inside if getattr(inner, "arg", None) != "strict"]  # zip(..., strict=True)


def _changes(node: ast.AST, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Number and new text of a line for each mutation of this node."""
    if isinstance(node, ast.Compare):
        yield from _between(node.left, node.comparators[0], node.ops[0], lines)
    elif isinstance(node, ast.BoolOp):
        yield from _between(node.values[0], node.values[1], node.op, lines)
    elif isinstance(node, ast.BinOp):
        yield from _between(node.left, node.right, node.op, lines)
    elif isinstance(node, ast.Constant) and type(node.value) in (bool, int):
        value = (not node.value) if isinstance(node.value, bool) else node.value + 1
        yield _replaced(node, repr(value), lines)
    elif isinstance(node, ast.If | ast.While | ast.IfExp) and node.test.lineno == node.test.end_lineno:
        test = node.test
        yield _replaced(test, f"(not ({lines[test.lineno - 1][test.col_offset : test.end_col_offset]}))", lines)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.lineno == node.end_lineno:
        yield _replaced(node, "pass", lines)


def _between(left: ast.expr, right: ast.expr, operator: ast.AST, lines: list[str]) -> Iterator[tuple[int, str]]:
    """The operator between two operands that stand in one line."""
    if type(operator) in EXCHANGED and left.end_lineno == right.lineno:
        old, new = EXCHANGED[type(operator)]
        text = lines[right.lineno - 1]
        begin, end = left.end_col_offset or 0, right.col_offset
        if old in text[begin:end]:
            yield right.lineno, text[:begin] + text[begin:end].replace(old, new, 1) + text[end:]


def _replaced(node: ast.expr | ast.stmt, new: str, lines: list[str]) -> tuple[int, str]:
    text = lines[node.lineno - 1]
    return node.lineno, text[: node.col_offset] + new + text[node.end_col_offset :]
