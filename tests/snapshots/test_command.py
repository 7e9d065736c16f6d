"""`python -m singa_lite snapshot`: inspect, convert, diff, and what it says of bad files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

import warm
from format_cases import WHOLE
from nets import state_of
from singa_files import native
from singa_lite import __main__ as program
from singa_lite import tensor
from singa_lite.snapshots import formats, net_tree
from snapshot_nets import make_net, trained


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], str]:
    """Exit status, lines printed, and what went to standard error."""
    status = program.main(["snapshot", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out.splitlines(), err


@pytest.mark.parametrize("suffix", WHOLE)
def test_inspect_tells_every_array_with_its_digest(tmp_path, capsys, suffix):
    net, path = trained(), tmp_path / f"net{suffix}"
    net.save(path)
    status, lines, _ = said(capsys, "inspect", path)
    assert status == 0
    assert lines[0].startswith(f"net{suffix}: ") and f"{path.stat().st_size:,}" in lines[0]
    weight = tensor.to_numpy(net.parameters()["conv/weight"])
    (line,) = [line.split() for line in lines if "parameters/conv/weight" in line]
    assert line[:6] == ["parameters/conv/weight", "float32", "(3,", "2,", "3,", "3)"]
    assert line[6:] == [f"{weight.nbytes:,}", hashlib.sha256(weight.tobytes()).hexdigest()[:12]]
    assert "  optimizer = Adam" in lines


#: Each format that keeps all with the next one.
PAIRS = list(zip(WHOLE, (*WHOLE[1:], WHOLE[0]), strict=True))


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_converted_files_hold_the_same_to_the_bit(tmp_path, capsys, first, second):
    net, a, b = trained(), tmp_path / f"a{first}", tmp_path / f"b{second}"
    net.save(a)
    assert said(capsys, "convert", a, b)[0] == 0
    assert said(capsys, "diff", a, b) == (0, [], "")
    other = make_net("Adam", seed=8)
    other.load(b)
    assert state_of(other) == state_of(net)


DIFFERENCES = [
    ([np.nan, 1, 2.5], [1.0, 1, 2.25], ["a: 2 of 3 elements differ, by at most 0.25, 1 of them NaN in one file alone"]),
    ([np.nan, 1, 2], [np.nan, 1, 4.5], ["a: 1 of 3 elements differ, by at most 2.5"]),
    ([np.inf, 1, 2], [-np.inf, 1, 2], ["a: 1 of 3 elements differ, by at most inf"]),
    ([0.0, 1], [-0.0, 1], ["a: 0 of 2 elements differ, but for signs of zeros or kinds of NaN"]),
    ([True, False], [True, True], ["a: 1 of 2 elements differ"]),
    (np.float32(3), np.float32(5), ["a: 1 of 1 elements differ, by at most 2"]),
    (np.zeros((0, 3)), np.zeros((0, 3)), []),
    (np.float32([1, 2]), np.array([1, 2], ">f4"), []),
]


def test_diff_tells_how_far_elements_are_from_each_other(tmp_path, capsys):
    for one, other, told in DIFFERENCES:
        for name, value in (("one", one), ("other", other)):
            np.savez(tmp_path / f"{name}.npz", a=np.asarray(value))
        assert said(capsys, "diff", tmp_path / "one.npz", tmp_path / "other.npz") == (bool(told), told, "")


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_diff_tells_attributes_that_one_file_alone_has(tmp_path, capsys, first, second):
    """SGD has no arrays: compiled with it, a net differs in nothing else."""
    make_net().save(tmp_path / f"plain{first}")
    make_net("SGD").save(tmp_path / f"compiled{second}")
    for files, place in (
        ((f"plain{first}", f"compiled{second}"), "second"),
        ((f"compiled{second}", f"plain{first}"), "first"),
    ):
        status, lines, _ = said(capsys, "diff", *(tmp_path / file for file in files))
        wanted = [f"attribute optimizer: 'SGD', only in the {place}", f"attribute step: 0, only in the {place}"]
        assert (status, lines[0].split(":")[0], lines[1:]) == (1, "attribute config", wanted)


def test_diff_of_different_nets(tmp_path, capsys, saved):
    make_net(dtype="float64").save(tmp_path / "plain.h5")
    status, lines, _ = said(capsys, "diff", saved, tmp_path / "plain.h5")
    assert status == 1
    assert any(line.startswith("attribute entries: ") for line in lines)
    assert "optimizer/conv/weight/count: only in the first" in lines
    assert "parameters/conv/weight: (3, 2, 3, 3) float32, (3, 2, 3, 3) float64" in lines
    assert said(capsys, "diff", tmp_path / "plain.h5", saved)[1][-1].endswith(": only in the second")


@pytest.mark.parametrize("action", [("inspect",), ("diff", "net.h5"), ("convert", "other.npz")])
def test_bad_files_are_one_line_on_standard_error(tmp_path, capsys, monkeypatch, saved, action):
    monkeypatch.chdir(tmp_path)
    for name, content in (("missing.h5", None), ("torn.h5", saved.read_bytes()[:700]), ("net.tar", b"")):
        if content is not None:
            Path(name).write_bytes(content)
        status, _, err = said(capsys, action[0], name, *action[1:])
        assert status == 2
        assert err.count("\n") == 1
        assert name in err
    assert not Path("other.npz").exists()


def test_convert_tells_what_it_leaves_out(tmp_path, capsys, saved):
    target = tmp_path / "net.weights.h5"
    arrays = len(net_tree.of_net(trained()).arrays)
    assert said(capsys, "convert", saved, tmp_path / "net.npz")[1] == [f"{tmp_path / 'net.npz'}: {arrays} arrays"]
    status, (line,), _ = said(capsys, "convert", saved, target)
    with formats.opened(target) as written:
        kept = len(written.specs)
    told = f"{arrays - kept - 1} below optimizer/, 1 below state/, attribute optimizer, attribute step"
    assert (status, sorted(line.split("; left out: ")[1].split(", "))) == (0, sorted(told.split(", ")))
    assert line.startswith(f"{target}: {kept} arrays; ")


@pytest.mark.parametrize("suffix", [".safetensors", ".weights.h5"])
def test_files_that_name_no_layers_go_where_nothing_is_turned(tmp_path, capsys, suffix):
    """A convolution's weight of SINGA's has two axes, as a dense layer's, which lies otherwise in PyTorch."""
    (tmp_path / "net.bin").write_bytes(native({"conv/weight": np.ones((3, 18), np.float32)}, "1.2"))
    status, _, err = said(capsys, "convert", tmp_path / "net.bin", tmp_path / f"net{suffix}")
    assert (status, "load it into a net" in err) == (2, True)
    assert said(capsys, "convert", tmp_path / "net.bin", tmp_path / "net.h5")[0] == 0
    assert said(capsys, "diff", tmp_path / "net.bin", tmp_path / "net.h5")[0] == 0


def test_a_reader_that_stops(tmp_path, saved):
    """As of `inspect x.npz | head -1`, where the pipe is closed before all is printed."""
    there, here = os.pipe()
    os.close(there)
    try:
        done = warm.run("-m", "singa_lite", "snapshot", "inspect", saved, stdout=here)
    finally:
        os.close(here)
    assert (done.returncode, done.stderr) == (141, "")
