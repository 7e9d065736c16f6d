"""Reads a pickle without unpickling: it runs the few opcodes of a dictionary of arrays on a stack of descriptions.

Nothing is imported or called: a name is looked up in a table of six, and a call of one gives a description of what it
would make. Strings and bytes stay in the file, a `Span` says where. So pickles of Python 2 and 3, of protocols 0 to 4,
are read alike, and the memory depends on the number of opcodes, which is bounded. `pickle` itself would make what the
file says before anything can be checked; `pickletools`, which documents the opcodes, fails at Python 2's strings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from singa_lite.snapshots.readers.pickle import arrays
from singa_lite.snapshots.readers.pickle.arrays import Global, PickledArray, PickledDType, Span, kind
from singa_lite.snapshots.readers.pickle.cursor import Cursor
from singa_lite.snapshots.readers.raw import RawFile

#: Opcodes of a file, of which an array takes about 40; and values on the stack, to which `pickle` writes the entries of
#: a dictionary by the thousand.
_MOST_OPCODES = 1 << 18
_MOST_VALUES = 1 << 12

#: {opcode: (bytes of its length, how it is coded)} of strings and bytes that say how long they are.
_SPANS = {
    b"U": (1, "bytes"), b"T": (4, "bytes"), b"C": (1, "bytes"), b"B": (4, "bytes"), b"\x8e": (8, "bytes"),
    b"\x8c": (1, "utf-8"), b"X": (4, "utf-8"), b"\x8d": (8, "utf-8"),
}  # fmt: skip

#: {opcode: how it is coded} of those that end with their line.
_LINES = {b"S": "escaped", b"V": "raw-unicode"}

#: {opcode: (bytes, whether signed)} of integers.
_INTEGERS = {b"K": (1, False), b"M": (2, False), b"J": (4, True)}

_CONSTANTS: dict[bytes, object] = {b"N": None, b"\x88": True, b"\x89": False, b")": ()}

#: {opcode: values that it takes}.
_TUPLES = {b"\x85": 1, b"\x86": 2, b"\x87": 3}

#: {opcode: bytes of a number in the memo}.
_PUTS, _GETS = {b"q": 1, b"r": 4}, {b"h": 1, b"j": 4}


class _Mark(NamedTuple):
    """Stands on the stack where the items of a tuple or a dictionary begin."""


class Machine:
    """Runs one pickle; `run` gives what it describes."""

    def __init__(self, file: RawFile) -> None:
        self._cursor = Cursor(file)
        self._stack: list[object] = []
        self._memo: dict[int, object] = {}
        self._dictionaries = 0

    def run(self) -> dict[str, object]:
        """The dictionary that is pickled. SnapshotError, with the byte, for anything else."""
        cursor = self._cursor
        for _ in range(_MOST_OPCODES):
            opcode = cursor.take(1)
            if opcode == b".":
                return self._result()
            self._do(opcode)
        raise cursor.wrong(f"at most {_MOST_OPCODES} opcodes, received more")

    def _do(self, opcode: bytes) -> None:
        cursor = self._cursor
        if opcode in _OTHERS:
            _OTHERS[opcode](self)
        elif opcode in _SPANS:
            width, coding = _SPANS[opcode]
            count = cursor.number(width)
            self._push(Span(cursor.at, count, coding))
            cursor.skip(count)
        elif opcode in _LINES:
            begin = cursor.at
            self._push(Span(begin, cursor.line(), _LINES[opcode]))
        elif opcode in _INTEGERS:
            self._push(cursor.number(*_INTEGERS[opcode]))
        elif opcode in _CONSTANTS:
            self._push(_CONSTANTS[opcode])
        elif opcode in _TUPLES:
            self._push(tuple([self._pop() for _ in range(_TUPLES[opcode])][::-1]))
        elif opcode in _PUTS:
            self._put(cursor.number(_PUTS[opcode]))
        elif opcode in _GETS:
            self._get(cursor.number(_GETS[opcode]))
        else:
            raise cursor.wrong(f"an opcode of a dictionary of arrays, received {opcode!r}")

    def _result(self) -> dict[str, object]:
        cursor = self._cursor
        if cursor.at != cursor.file.size:
            raise cursor.wrong(f"the end, received {cursor.file.size - cursor.at} more bytes")
        found = self._pop()
        if self._stack or not isinstance(found, dict):
            raise cursor.wrong(f"a dictionary and no more, received {kind(found)}")
        return found

    def _push(self, value: object) -> None:
        if len(self._stack) >= _MOST_VALUES:
            raise self._cursor.wrong(f"at most {_MOST_VALUES} values on the stack, received more")
        self._stack.append(value)

    def _pop(self) -> object:
        if not self._stack or isinstance(self._stack[-1], _Mark):
            raise self._cursor.wrong("a value on the stack, received none")
        return self._stack.pop()

    def _items(self) -> list[object]:
        """Takes the values above the last mark off the stack, and the mark."""
        stack = self._stack
        mark = next((i for i in range(len(stack) - 1, -1, -1) if isinstance(stack[i], _Mark)), None)
        if mark is None:
            raise self._cursor.wrong("a mark on the stack, received none")
        items = stack[mark + 1 :]
        del stack[mark:]
        return items

    def _mark(self) -> None:
        self._push(_Mark())

    def _tuple(self) -> None:
        self._push(tuple(self._items()))

    def _put(self, number: int) -> None:
        value = self._pop()
        self._push(value)
        self._memo[number] = value

    def _put_text(self) -> None:
        self._put(self._decimal(self._cursor.short_line()))

    def _put_next(self) -> None:
        self._put(len(self._memo))

    def _get(self, number: int) -> None:
        if number not in self._memo:
            raise self._cursor.wrong(f"a value noted before, received number {number}")
        self._push(self._memo[number])

    def _get_text(self) -> None:
        self._get(self._decimal(self._cursor.short_line()))

    def _text_integer(self) -> None:
        text = self._cursor.short_line()
        if text in ("00", "01"):  # how Python 2 writes False and True
            self._push(text == "01")
        else:
            self._push(self._decimal(text.removesuffix("L")))

    def _decimal(self, text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
            raise self._cursor.wrong(f"an integer, received {text!r}")
        return int(text)

    def _long(self) -> None:
        width = self._cursor.number(1)
        if width > 8:
            raise self._cursor.wrong(f"an integer of at most 8 bytes, received {width}")
        self._push(self._cursor.number(width, signed=True))

    def _empty_dictionary(self) -> None:
        self._dictionaries += 1
        if self._dictionaries > 1:
            raise self._cursor.wrong("one dictionary, received another in it")
        self._push({})

    def _dictionary(self) -> None:
        items = self._items()
        self._empty_dictionary()
        self._fill(items)

    def _set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._fill([key, value])

    def _set_items(self) -> None:
        self._fill(self._items())

    def _fill(self, items: list[object]) -> None:
        """Put keys and values into the dictionary on top of the stack."""
        target = self._pop()
        if not isinstance(target, dict) or len(items) % 2:
            raise self._cursor.wrong(f"a dictionary and pairs, received {kind(target)} and {len(items)} values")
        for key, value in zip(items[::2], items[1::2], strict=True):
            name = arrays.text(self._cursor.file, key)
            if name in target:
                raise self._cursor.wrong(f"one entry {name!r}, received two")
            target[name] = value
        self._push(target)

    def _global(self) -> None:
        module = self._cursor.short_line()
        self._named(module, self._cursor.short_line())

    def _stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        self._named(arrays.text(self._cursor.file, module), arrays.text(self._cursor.file, name))

    def _named(self, module: str, name: str) -> None:
        found = arrays.GLOBALS.get((module, name))
        if found is None:
            known = sorted(".".join(pair) for pair in arrays.GLOBALS)
            raise self._cursor.wrong(f"no other names than {known}, received {module}.{name}"[:500])
        self._push(found)

    def _reduce(self) -> None:
        given, called = self._pop(), self._pop()
        if not isinstance(called, Global) or not isinstance(given, tuple):
            raise self._cursor.wrong(f"a call of one of NumPy's functions, received one of {kind(called)}")
        made = arrays.called(self._cursor.file, called, given)
        if made is None:
            raise self._cursor.wrong(f"a call of {called.name} as NumPy writes it, received another")
        self._push(made)

    def _build(self) -> None:
        state = self._pop()
        target = self._pop()
        if not isinstance(target, PickledArray | PickledDType) or not isinstance(state, tuple):
            raise self._cursor.wrong(f"the state of an array or a dtype, received that of {kind(target)}")
        target.build(self._cursor.file, state)
        self._push(target)

    def _protocol(self) -> None:
        protocol = self._cursor.number(1)
        if self._cursor.at != 2 or not 2 <= protocol <= 4:
            raise self._cursor.wrong(f"protocol 0 to 4 at the beginning, received {protocol}")

    def _frame(self) -> None:
        count = self._cursor.number(8)
        if count > self._cursor.file.size - self._cursor.at:
            raise self._cursor.wrong(f"{count} more bytes, received {self._cursor.file.size - self._cursor.at}")


#: {opcode: method} of all others.
_OTHERS: dict[bytes, Callable[[Machine], None]] = {
    b"(": Machine._mark,
    b"t": Machine._tuple,
    b"}": Machine._empty_dictionary,
    b"d": Machine._dictionary,
    b"s": Machine._set_item,
    b"u": Machine._set_items,
    b"I": Machine._text_integer,
    b"L": Machine._text_integer,
    b"\x8a": Machine._long,
    b"p": Machine._put_text,
    b"\x94": Machine._put_next,
    b"g": Machine._get_text,
    b"c": Machine._global,
    b"\x93": Machine._stack_global,
    b"R": Machine._reduce,
    b"b": Machine._build,
    b"\x80": Machine._protocol,
    b"\x95": Machine._frame,
}
