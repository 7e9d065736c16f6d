"""The text of the character models: sources of Python's standard library, and an order-3 model of it to compare with.

Every Python has these sources, in a folder or in a zip file; one that comes with compiled modules alone has none.
"""

from importlib.util import find_spec

import numpy as np

#: The modules that are read, in this order. Those of every HELD_OUT-th name are held out as wholes.
MODULES = """
argparse ast bdb calendar cmd code collections configparser contextlib copy csv ctypes dataclasses difflib dis doctest
email.message enum filecmp fileinput fnmatch fractions ftplib functools gettext glob gzip heapq html.parser
http.client http.cookiejar http.server imaplib inspect ipaddress json.decoder json.encoder locale logging
logging.handlers mailbox mimetypes numbers optparse pathlib pdb pickle pickletools pkgutil platform plistlib poplib
pprint profile pstats random reprlib sched selectors shelve shlex shutil smtplib socket socketserver ssl statistics
string subprocess symtable tarfile tempfile textwrap threading timeit tokenize trace traceback tracemalloc types
typing unittest.case unittest.mock urllib.parse urllib.request urllib.robotparser uuid warnings wave weakref
webbrowser xml.dom.minidom xmlrpc.client zipapp zipfile
""".split()  # noqa: SIM905
HELD_OUT = 10
#: All characters there are; any other is the last one.
CHARACTERS = "\n" + "".join(map(chr, range(32, 127))) + "\x7f"


def read() -> tuple[np.ndarray, np.ndarray]:
    """(text to train on, held-out text), int64 ids of CHARACTERS. No module is run. SystemExit where there is none."""
    sources = {name: source for name in MODULES if (source := source_of(name))}
    if len(sources) < len(MODULES) // 2:
        raise SystemExit(f"wanted the sources of Python's standard library, found those of {len(sources)} modules")
    parts = [ids("\n".join(sources[name] for name in names)) for names in split(list(sources))]
    return parts[0], parts[1]


def prepared(length: int, seen: int, characters: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """(text to train on, x, y, bits a character of the order-3 model), see `windows`. characters: of held-out text."""
    training, held_out = read()
    x, y = windows(held_out[:characters], length, seen)
    bits = order3_bits(training, x, y)
    print(f"{len(training):,} characters to train on, {(y >= 0).sum():,} held out: {bits:.3f} bits each, order-3 model")
    return training, x, y, bits


def split(names: list[str]) -> tuple[list[str], list[str]]:
    """(modules to train on, those that are held out)."""
    held = names[HELD_OUT - 1 :: HELD_OUT]
    return [name for name in names if name not in held], held


def source_of(name: str) -> str | None:
    """The source of a module, by whatever loads it, a zip file's loader too; None if it has none."""
    spec = find_spec(name)
    get_source = getattr(spec and spec.loader, "get_source", None)
    return get_source(name) if get_source else None


def ids(text: str) -> np.ndarray:
    """Text as int64 ids."""
    codes = {character: number for number, character in enumerate(CHARACTERS)}
    return np.array([codes.get(character, len(codes) - 1) for character in text.expandtabs()])


def text(numbers: np.ndarray) -> str:
    """Ids as text."""
    return "".join(CHARACTERS[number] for number in numbers)


def windows(numbers: np.ndarray, length: int, seen: int) -> tuple[np.ndarray, np.ndarray]:
    """(x, y), each (n, length), to score each character of a text once, by at least `seen` before it.

    y is x one character later; -1, which does not count, where the window before has it, and in the first one for as
    many. What is left at the end is left out.
    """
    starts = np.arange(0, len(numbers) - length, length - seen)
    x, y = (numbers[starts[:, None] + np.arange(length) + later] for later in (0, 1))
    y[:, :seen] = -1
    return x, y


def order3_bits(training: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Bits a character of an order-3 model on the same characters of the same windows.

    Counts of each character behind three others, interpolated with those behind two, one and none, and with all
    characters alike, by Witten and Bell (IEEE Transactions on Information Theory 37, 1991, method C): p(c | h) =
    (count(h c) + kinds(h) * p(c | h without its first)) / (count(h) + kinds(h)).
    """
    rows, columns = np.nonzero(y >= 0)
    p = np.full(len(rows), 1 / len(CHARACTERS))
    for order in range(4):
        seen, before = code(training, order + 1), code(training[:-1], order) if order else np.zeros(len(training), int)
        history = sum((x[rows, columns - back] * len(CHARACTERS) ** back for back in range(order)), np.zeros_like(rows))
        known, counts = np.unique(seen, return_counts=True)
        heads, kinds = np.unique(known // len(CHARACTERS), return_counts=True)
        _, totals = np.unique(before[: len(seen)], return_counts=True)
        count = look_up(known, counts, history * len(CHARACTERS) + y[rows, columns])
        total, kind = look_up(heads, totals, history), look_up(heads, kinds, history)
        p = np.where(total > 0, (count + kind * p) / np.maximum(total + kind, 1), p)
    return float(-np.log2(p).mean())


def code(numbers: np.ndarray, count: int) -> np.ndarray:
    """Each `count` characters in a row as one number."""
    size = len(numbers) - count + 1
    return sum(numbers[at : at + size] * len(CHARACTERS) ** (count - 1 - at) for at in range(count))


def look_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value of each wanted key, 0 for one that is not there. keys: rising."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)
