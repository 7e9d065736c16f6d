"""What every format keeps to, over the one table of them."""

from __future__ import annotations

import sys

import pytest

from format_cases import CASES, small_net
from interrupts import Tracer
from singa_lite import SnapshotError
from singa_lite.snapshots import formats, net_tree, tree
from singa_lite.snapshots.formats.table import FORMATS, of_path

SUFFIXES = [suffix for one in FORMATS for suffix in one.suffixes]


def test_every_format_is_in_the_table():
    assert {one.name for one in FORMATS} == {of_path(f"x{case.suffix}").name for case in CASES.values()}


@pytest.mark.parametrize("one", FORMATS, ids=[one.name for one in FORMATS])
def test_a_suffix_leads_to_its_format(one):
    assert all(of_path(f"folder.npz/x{suffix.upper()}") is one for suffix in one.suffixes)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_open_file_is_a_tree_whose_arrays_are_as_announced(tmp_path, case):
    path, net = tmp_path / f"x{case.suffix}", case.make(8)
    case.write(path)
    with formats.opened(path, net_tree.of_net(net)) as found:
        assert isinstance(found, tree.Tree)
        assert (found.path, found.attributes["entries"]) == (str(path), len(found.arrays))
        for entry, lazy in found.arrays.items():
            assert lazy.fetched(entry).nbytes == lazy.nbytes
        with pytest.raises(SnapshotError, match=r"wanted one of its entries, received 'parameters/none'"):
            found.read("parameters/none")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_no_file_is_told(tmp_path, suffix):
    with pytest.raises(FileNotFoundError), formats.opened(tmp_path / f"none{suffix}"):
        pass
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(SnapshotError, match=r"folder.*no ordinary file"), formats.opened(tmp_path / f"folder{suffix}"):
        pass


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_option_of_no_format_is_refused(tmp_path, suffix):
    with pytest.raises(TypeError, match=r"wanted options of .*received \['strange'\]"):
        formats.write(tree.Tree({}), tmp_path / f"x{suffix}", strange=1)


@pytest.mark.parametrize("suffix", [suffix for one in FORMATS if not one.is_written for suffix in one.suffixes])
def test_a_format_that_is_only_read_is_not_written(tmp_path, suffix):
    with pytest.raises(SnapshotError, match="files are only read"):
        formats.write(tree.Tree({}), tmp_path / f"x{suffix}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("function", ["to_read", "_created"])
def test_an_interrupt_drops_no_open_file(tmp_path, monkeypatch, function):
    """Ctrl-C may come between opening a file and its `with` block. Warnings, of unclosed files too, are errors."""
    path, net = tmp_path / "x.npz", small_net()
    formats.save(net, path)
    work = (lambda: formats.load(net, path)) if function == "to_read" else (lambda: formats.save(net, path))
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", lambda given: dropped.append(repr(given.exc_value)))
    tracer = Tracer()
    tracer.run(work)
    events = [numbers for (code, _), numbers in tracer.places.items() if code.co_name == function]
    assert len(events) > 4
    for number in {number for numbers in events for number in (numbers[0], numbers[-1])}:
        tracer = Tracer(number)
        tracer.run(work)
        assert not dropped, tracer.place
        net.discard_step()
