"""Item: one question to a GPU. Context: what its function is given."""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
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

        return machine(self.options.stand_in, self.options.own)

    @cached_property
    def varying_machine(self) -> Machine:
        """The same GPU as another device, whose results may differ from run to run, as PyTorch's do."""
        from first_run.machine import machine

        return machine(self.options.stand_in, deterministic=False)

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
        return written(Path(self.options.again)) if self.options.again else iter(())

    def try_row(self, names: Values, made: Callable[[], Values]) -> Values:
        """Write the row that is made, or `names` and why it was not: the other rows of a long item do not need it."""
        try:
            row = made()
        except Exception as error:
            if not self.machine.is_alive():
                raise
            row = names | {"failed": f"{type(error).__name__}: {error}"}
        self.row(row)
        return row

    def row(self, values: Values) -> None:
        """Write a line of a long item now, so that it is there if the item does not end."""
        self.write({"item": self.item, "row": values})


def counted(failed: int, rows: int, **values: Any) -> Values:
    """The values of an item with rows. Wrong if some of them failed."""
    found = {"rows": rows, **values}
    if failed:
        raise Wrong(f"{failed} of {rows} rows failed", found)
    return found


def written(results: Path) -> Iterator[Values]:
    """The lines of a results.jsonl, without those that a killed worker left broken; none if there is no such file."""
    for line in results.read_text(errors="replace").splitlines() if results.is_file() else ():
        with suppress(ValueError):
            yield json.loads(line)


@dataclass(frozen=True)
class Item:
    """run: does it and returns values; raises Wrong or Skipped. share: of the deadline, at most.

    side: "singa_lite", "torch" or "tools"; a worker does items of one side only.
    """

    name: str
    share: float
    run: Callable[[Context], Values]
    side: str = "singa_lite"
