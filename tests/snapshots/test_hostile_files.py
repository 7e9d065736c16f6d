"""Damaged files of every format are refused in our words, and change nothing, or are read as if they were whole.

A read takes little memory and time, and opens no other file. After a crash the file is in the folder of the test.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from damages import damaged, damages, inside, other_json
from format_cases import CASES, OTHERS, Case, small_net
from nets import all_bits, state_of
from singa_lite import SnapshotError
from singa_lite.snapshots import formats
from test_foreign import FILES

#: Bytes that a read may take beyond what is in use, and seconds of the processor.
MOST_MEMORY, MOST_SECONDS = 64 << 20, 5

UNCHECKED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
#: Files that Python opens while a test listens; None while none does. A hook stays for the life of a process.
OPENED: set[str] | None = None


def _listen(event: str, details: tuple[Any, ...]) -> None:
    if OPENED is not None and event == "open" and not isinstance(details[0], int) and "w" not in str(details[1]):
        OPENED.add(os.fsdecode(details[0]))


sys.addaudithook(_listen)


@contextmanager
def bounded(path: Path) -> Iterator[None]:
    """No other file is opened, no more memory is taken (a MemoryError else, touched or not) and no more time."""
    global OPENED
    limits, began = resource.getrlimit(resource.RLIMIT_AS), time.process_time()
    status = Path("/proc/self/statm")
    if status.exists():
        used = int(status.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, limits[1]))
    OPENED = set()
    try:
        yield
    finally:
        opened, OPENED = OPENED, None
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert {name for name in opened if ".py" not in name} <= {str(path)}  # but for modules of the package
    assert time.process_time() - began < MOST_SECONDS


class Reader:
    """Loads files of a case into a net. whole: the bytes of a file that fits."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.path = case, folder / f"damaged{case.suffix}"
        case.write(self.path)
        self.whole, self.net = self.path.read_bytes(), case.make(8)
        self.before = state_of(self.net)
        self.wanted = self.read(self.whole)
        assert self.wanted is not None

    def read(self, data: bytes) -> dict[str, Any] | None:
        """The net's state after it; None where the file is refused."""
        self.path.write_bytes(data)
        error = None
        with bounded(self.path):
            try:
                formats.load(self.net, self.path, **self.case.options)
            except SnapshotError as refused:
                error = refused
        if error is not None:
            assert str(self.path) in str(error)
            assert state_of(self.net) == self.before
            return None
        found, self.parameters, self.net = state_of(self.net), all_bits(self.net.parameters()), self.case.make(8)
        return found

    def check(self, data: bytes) -> None:
        """Refused, or the same; where a file has no digests, any values."""
        found = self.read(data)
        assert found is None or not self.case.verified or found == self.wanted


@pytest.fixture(scope="module", params=[*CASES, *OTHERS])
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader({**CASES, **OTHERS}[request.param], tmp_path_factory.mktemp("damaged"))


@pytest.fixture(scope="module", params=["native", "keras", "safetensors", "npz"])
def writer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Of a format that has a manifest."""
    return Reader(CASES[request.param], tmp_path_factory.mktemp("resealed"))


@pytest.fixture(params=[40, pytest.param(5000, marks=pytest.mark.nightly)])
def search(request: pytest.FixtureRequest) -> Callable[[Callable[[st.DataObject], None]], None]:
    """Runs a check of so many draws; the few are the same each time."""
    phases = set(Phase) - {Phase.explain}
    how = settings(
        max_examples=request.param,
        derandomize=request.param == 40,
        database=None,
        suppress_health_check=UNCHECKED,
        phases=phases,
    )
    return lambda check: how(given(data=st.data())(check))()


def test_a_damaged_file_is_refused_or_read_as_it_was(reader, search):
    def check(data: st.DataObject) -> None:
        reader.check(damaged(reader.whole, data.draw(damages(reader.whole))))

    search(check)


def test_other_json_under_a_right_digest_is_refused_or_read(writer, search):
    """A digest that someone made anew vouches for nothing; arrays that are taken are still those of the file."""
    contents, sealed = inside(writer.case.suffix, writer.whole)

    def check(data: st.DataObject) -> None:
        text = json.dumps(data.draw(other_json(contents))).encode()
        whole = writer.parameters
        assert writer.read(sealed(text)) is None or writer.parameters == whole

    search(check)


@pytest.mark.parametrize("pieces", [40, pytest.param(10**9, marks=pytest.mark.nightly)])
def test_a_file_that_was_cut_is_refused_or_read_as_it_was(reader, pieces):
    for length in range(0, len(reader.whole), 1 + len(reader.whole) // pieces):
        reader.check(reader.whole[:length])


def test_a_damaged_file_of_another_program_is_refused(tmp_path, search):
    def check(data: st.DataObject) -> None:
        name, net = data.draw(st.sampled_from(list(FILES))), small_net()
        content, path = FILES[name][0], tmp_path / name
        path.write_bytes(damaged(content, data.draw(damages(content or b"x"))))
        before = state_of(net)
        with pytest.raises(SnapshotError, match=str(path)), bounded(path):
            formats.load(net, path)
        assert state_of(net) == before

    search(check)
