"""Files of parameters and running statistics alone: what is in them, and nets that read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from format_cases import WRITTEN, small_net
from nets import state_of
from singa_lite import SnapshotError
from singa_lite.__main__ import main
from singa_lite.snapshots import formats, net_tree
from singa_lite.tensor import to_numpy
from snapshot_nets import make_net, trained


def entries(path: Path) -> set[str]:
    with formats.opened(path) as source:
        return set(source.specs)


@pytest.mark.parametrize("suffix", WRITTEN)
def test_it_holds_weights_and_statistics(tmp_path, suffix):
    net = trained("Adam")
    net.save(tmp_path / f"x{suffix}", weights_only=True)
    found = entries(tmp_path / f"x{suffix}")
    assert found == {f"parameters/{name}" for name in net.param_names()} | {
        "state/norm/running_mean",
        "state/norm/running_var",
    }


@pytest.mark.parametrize("suffix", WRITTEN)
def test_all_else_of_the_net_stays(tmp_path, suffix):
    net, other = trained("Adam"), trained("Adam", seed=8, steps=2)
    net.save(tmp_path / f"x{suffix}", weights_only=True)
    key, step = to_numpy(other.states()["drop/random"]), other.optimizer.step
    velocity = {n: {s: to_numpy(t) for s, t in slots.items()} for n, slots in other.optimizer.state.items()}
    other.load(tmp_path / f"x{suffix}")
    for name, value in net.parameters().items():
        np.testing.assert_array_equal(to_numpy(other.parameters()[name]), to_numpy(value))
    np.testing.assert_array_equal(to_numpy(other.states()["drop/random"]), key)
    assert other.optimizer.step == step
    for name, slots in velocity.items():
        for slot, value in slots.items():
            np.testing.assert_array_equal(to_numpy(other.optimizer.state[name][slot]), value)


def test_the_optimizer_s_state_is_missed_where_it_is_asked_for(tmp_path):
    trained("Adam").save(tmp_path / "x.h5", weights_only=True)
    net = make_net("Adam", seed=8)
    before = state_of(net)
    with pytest.raises(SnapshotError, match="wanted the state of optimizer Adam, received None"):
        net.load(tmp_path / "x.h5", optimizer=True)
    assert state_of(net) == before


@pytest.mark.parametrize("suffix", WRITTEN)
def test_a_file_is_converted_to_one(tmp_path, suffix, capsys):
    net = trained("Adam")
    net.save(tmp_path / "all.h5")
    converted, wanted = str(tmp_path / f"x{suffix}"), str(tmp_path / f"wanted{suffix}")
    net.save(wanted, weights_only=True)
    assert main(["snapshot", "convert", str(tmp_path / "all.h5"), converted, "--weights-only"]) == 0
    assert "left out: " in capsys.readouterr().out
    assert main(["snapshot", "diff", converted, wanted]) == 0


def test_running_statistics_that_a_file_lacks_are_not_those_of_the_net(tmp_path):
    """Random state alone may be missing in another program's file."""
    net = small_net()
    held = {
        path: lazy.fetch() for path, lazy in net_tree.of_net(net).arrays.items() if not path.startswith("optimizer/")
    }
    np.savez(tmp_path / "x.npz", **{path: array for path, array in held.items() if path != "state/b/running_var"})
    with pytest.raises(SnapshotError, match=r"wanted an entry 'state/b/running_var'"):
        net.load(tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", **{path: array for path, array in held.items() if array.dtype.kind == "f"})
    net.load(tmp_path / "x.npz")
