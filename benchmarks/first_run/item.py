"""Item: one question to a GPU. Context: what its function is given."""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from first_run.machine import Machine
    from first_run.prepared import Prepared

Values = dict[str, Any]


class Wrong(Exception):
    """A result is not what it should be. values: what was found."""

    def __init__(self, message: str, values: Values) -> None:
        super().__init__(message)
        self.values = values


class Skipped(Exception):
    """The item cannot be done here; the message says what is missing."""


@dataclass(frozen=True)
class Options:
    """The command line, as workers get it."""

    program: str
    out: str
    expected: str
    part: int
    again: str | None
    only: str | None
    stand_in: bool
    tiny: bool
    kernel: str
    own: bool

    @staticmethod
    def of(asked: argparse.Namespace, program: str) -> Options:
        """From parsed arguments; paths become absolute."""
        again = str(Path(asked.again).resolve()) if asked.again else None
        places = str(asked.out.resolve()), str(Path(asked.expected).resolve())
        return Options(
            program, *places, asked.part, again, asked.only, asked.stand_in, asked.tiny, asked.kernel, asked.own
        )

    @property
    def arguments(self) -> list[str]:
        """The command line again."""
        given = asdict(self)
        named = [f"--{name}={given[name]}" for name in ("out", "expected", "part", "again", "only") if given[name]]
        flags = [f"--{name.replace('_', '-')}" for name in ("stand_in", "tiny") if given[name]]
        return [*named, *flags]

    def wants(self, name: str) -> bool:
        """Whether --only lets the item through."""
        return self.only is None or fnmatch.fnmatchcase(name, self.only)


@dataclass
class Context:
    """What items share in a worker. write: adds a line to results.jsonl."""

    options: Options
    write: Callable[[Values], None]
    item: str = ""

    @cached_property
    def machine(self) -> Machine:
        """The GPU, or what stands in its place. Made when an item first asks."""
        from first_run.machine import machine

        return machine(self.options.stand_in)

    @cached_property
    def prepared(self) -> Prepared:
        """The file of --expected."""
        from first_run.prepared import Prepared

        return Prepared.read(self.options.expected)

    @property
    def out(self) -> Path:
        """The folder of results."""
        return Path(self.options.out)

    def earlier(self) -> Iterator[Values]:
        """The lines of --again."""
        if self.options.again:
            for line in Path(self.options.again).read_text().splitlines():
                yield json.loads(line)

    def row(self, values: Values) -> None:
        """Write a line of a long item now, so that it is there if the item does not end."""
        self.write({"item": self.item, "row": values})


@dataclass(frozen=True)
class Item:
    """run: does it and returns values; raises Wrong or Skipped. share: of the deadline, at most.

    side: "singa_lite", "torch" or "tools"; a worker does items of one side only.
    """

    name: str
    share: float
    run: Callable[[Context], Values]
    side: str = "singa_lite"
