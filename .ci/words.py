"""Checks plain words: names, first sentences of docstrings, sentences of the docs.

Usage: python .ci/words.py lists each breach as file:line and exits 1 if there is one. words_known.txt has the names
that are older than this check, words_docs.txt how many long sentences a page has; --shorten lowers both.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KNOWN, LONG = Path(__file__).with_name("words_known.txt"), Path(__file__).with_name("words_docs.txt")
PACKAGES = ("singa_lite", "layers", "snapshots")
FIRST_SENTENCE, DOC_SENTENCE = 25, 35

# Words that name nothing: a function, method or class is named by the field's noun or by what it does.
WORDS = """
across after again ahead alike alone along among apart applied around asked at attempt away before begun behind
below beside between beyond by carried chance chosen closed closing continued died doubtful down dying each even
failed failing followed following found from gathered gathering given gone handed held help here hidden how insides
into kept knows lasting late lazily leading left lies like look looking looks lost made making meet meeting meets
moved near nearby needed needs never nothing noticed nowhere of on once onto others out outside over own put rest
room said same seen serve served serves several shown stray taken takes tell telling then there through thrown
together told touched towards tried turned turns twice unasked under until upon wanted way ways what whats when
where whether whole whom whose wish with within without wrong

a all an and any are be does for has in is it its no not one or so that the this to two up was
"""
EVERYDAY, GLUE = (frozenset(part.split()) for part in WORDS.split("\n\n"))


def names_nothing(name: str) -> bool:
    """True if all words of a name are everyday words or glue, as in `put_in` or `told`."""
    words = {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
    return not name.startswith("__") and bool(words & EVERYDAY) and words <= EVERYDAY | GLUE


def sentences(text: str) -> list[str]:
    """Splits text at a full stop, question or exclamation mark that ends a sentence, or precedes `x: ` or `x = `."""
    return re.split(r"(?<=[.?!])[\"')*]*\s+(?=[^a-z]|\w+(?:, \w+)*(?: =|:) )", re.sub(r"`[^`]*`", "Code", text.strip()))


def length(sentence: str) -> int:
    """Counts words; signs alone are none."""
    return len([word for word in sentence.split() if re.search(r"\w", word)])


def definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Yields each function, method and class below a node with its qualified name."""
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.FunctionDef | ast.ClassDef)
        if named:
            yield prefix + child.name, child
        yield from definitions(child, f"{prefix}{child.name}." if named else prefix)


def python_breaches(found: set[str], known: set[str]) -> Iterator[str]:
    """Yields breaches in Python files, and adds each name that is an everyday word to `found`."""
    for path in (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))):
        if any(parent.is_symlink() for parent in path.parents):
            continue  # singa_lite/layers is a link to layers
        file = path.relative_to(ROOT)
        module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
        tree = ast.parse(path.read_text())
        for name, node in [("", tree), *definitions(tree)]:
            line = f"{file}:{getattr(node, 'lineno', 1)}"
            if names_nothing(name.split(".")[-1]):
                found.add(f"{module}:{name}")
                if f"{module}:{name}" not in known:
                    yield f"{line}: {name} is an everyday word: name the thing, or what the function does"
            count = length(sentences(ast.get_docstring(node) or "")[0].split("\n\n")[0])
            if count > FIRST_SENTENCE:
                yield f"{line}: the docstring of {name or module} begins with {count} words, at most {FIRST_SENTENCE}"


def doc_breaches(path: Path) -> Iterator[str]:
    """Yields sentences of a Markdown page that are too long, outside code blocks and tables."""
    file, code = path.relative_to(ROOT), re.compile(r"^ *```.*?^ *```|<!--.*?-->", re.S | re.M)
    text = code.sub(lambda match: "\n" * match[0].count("\n"), path.read_text())
    text = re.sub(r"\]\([^)]*\)", "]", text)
    paragraph: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        item = re.match(r" *(?:[-*+]|\d+\.) ", line)
        if paragraph and (item or not line.strip() or line.startswith(("#", "|"))):
            for sentence in sentences(" ".join(paragraph)):
                if (count := length(sentence)) > DOC_SENTENCE:
                    yield f"{file}:{number - len(paragraph)}: {count} words, at most {DOC_SENTENCE}: {sentence[:50]}"
            paragraph = []
        if line.strip() and not line.startswith(("#", "|")):
            paragraph.append(line[item.end() :] if item else line.strip())


def main() -> int:
    """Prints all breaches."""
    known, found = set(KNOWN.read_text().split()), set[str]()
    allowed = {page: int(count) for page, count in (line.split() for line in LONG.read_text().splitlines())}
    breaches = list(python_breaches(found, known))
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    long = {f"{page.relative_to(ROOT)}": list(doc_breaches(page)) for page in pages}
    if "--shorten" in sys.argv:
        known, allowed = known & found, {page: min(allowed.get(page, 0), len(rows)) for page, rows in long.items()}
        KNOWN.write_text("".join(f"{entry}\n" for entry in sorted(known)))
        LONG.write_text("".join(f"{page} {count}\n" for page, count in sorted(allowed.items()) if count))
    breaches += [f".ci/words_known.txt: {entry} is gone: run words.py --shorten" for entry in sorted(known - found)]
    for page in sorted(long.keys() | allowed.keys()):
        count, most = len(long.get(page, [])), allowed.get(page, 0)
        if count > most:
            breaches += [*long[page], f"{page}: {count} long sentences, at most {most}"]
        elif count < most:
            breaches.append(f".ci/words_docs.txt: {page} has {count} long ones, not {most}: run words.py --shorten")
    print("\n".join(breaches) or "words: no breach")
    return bool(breaches)


if __name__ == "__main__":
    sys.exit(main())
