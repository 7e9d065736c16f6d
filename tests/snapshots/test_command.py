"""`python -m singa_lite snapshot`: inspect, convert, diff, and what it says of bad files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from nets import state_of
from singa_files import native
from singa_lite import __main__ as program
from singa_lite import tensor
from snapshot_nets import make_net, trained

SUFFIXES = (".h5", ".safetensors", ".npz")


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], str]:
    """Exit status, lines printed, and what went to standard error."""
    status = program.main(["snapshot", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out.splitlines(), err


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "net.h5"
    trained().save(path)
    return path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_inspect_tells_every_array_with_its_digest(tmp_path, capsys, suffix):
    net, path = trained(), tmp_path / f"net{suffix}"
    net.save(path)
    status, lines, _ = said(capsys, "inspect", path)
    assert status == 0
    assert lines[0].startswith(f"net{suffix}: ")
    assert lines[0].endswith(f"{path.stat().st_size:,} bytes")
    weight = tensor.to_numpy(net.parameters()["conv/weight"])
    (line,) = [line.split() for line in lines if "parameters/conv/weight" in line]
    assert line[:6] == ["parameters/conv/weight", "float32", "(3,", "2,", "3,", "3)"]
    assert line[6:] == [f"{weight.nbytes:,}", hashlib.sha256(weight.tobytes()).hexdigest()[:12]]
    assert "  optimizer = Adam" in lines
    assert lines[-1].split()[1] == "arrays,"


@pytest.mark.parametrize("first", SUFFIXES)
@pytest.mark.parametrize("second", SUFFIXES)
def test_converted_files_hold_the_same_to_the_bit(tmp_path, capsys, first, second):
    net, a, b = trained(), tmp_path / f"a{first}", tmp_path / f"b{second}"
    net.save(a)
    assert said(capsys, "convert", a, b)[0] == 0
    assert said(capsys, "diff", a, b) == (0, [], "")
    other = make_net("Adam", seed=8)
    other.load(b)
    assert state_of(other) == state_of(net)


def test_diff_names_what_differs_and_by_how_much(tmp_path, capsys, saved):
    net = make_net("Adam")
    net.load(saved)
    weight = net.parameters()["dense/weight"]
    values = tensor.to_numpy(weight)
    values[0, 1] += 0.25
    values[2, 0] = np.nan
    weight.copy_from_numpy(values)
    net.save(tmp_path / "other.npz")
    status, lines, _ = said(capsys, "diff", saved, tmp_path / "other.npz")
    assert status == 1
    assert lines == ["parameters/dense/weight: 2 of 72 elements differ, by at most 0.25"] or lines == [
        f"parameters/dense/weight: 2 of {values.size} elements differ, by at most 0.25"
    ]


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


def test_a_target_that_is_only_read_is_refused(tmp_path, capsys, saved):
    status, _, err = said(capsys, "convert", saved, tmp_path / "net.bin")
    assert (status, "only read" in err) == (2, True)


@pytest.mark.parametrize("suffix", [".safetensors", ".weights.h5"])
def test_files_that_name_no_layers_go_where_nothing_is_turned(tmp_path, capsys, suffix):
    """A convolution's weight of SINGA's has two axes, as a dense layer's, which lies otherwise in PyTorch."""
    (tmp_path / "net.bin").write_bytes(native({"conv/weight": np.ones((3, 18), np.float32)}, "1.2"))
    status, _, err = said(capsys, "convert", tmp_path / "net.bin", tmp_path / f"net{suffix}")
    assert (status, "load it into a net" in err) == (2, True)
    assert said(capsys, "convert", tmp_path / "net.bin", tmp_path / "net.h5")[0] == 0
    assert said(capsys, "diff", tmp_path / "net.bin", tmp_path / "net.h5")[0] == 0


def test_a_bad_command_line(capsys):
    for arguments in (["snapshot"], ["snapshot", "inspect"], ["snapshot", "weigh", "net.h5"]):
        with pytest.raises(SystemExit) as caught:
            program.main(arguments)
        assert caught.value.code == 2
        assert "usage" in capsys.readouterr().err
