"""Random nets trained here and in PyTorch: 60, and 3,000 in `pytest -m nightly`.

A net that fails prints a script that shows the difference by itself.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from peer_nets import text

pytestmark = pytest.mark.peer

#: Nets in one test.
PIECE = 20


@pytest.fixture(scope="module")
def training() -> Any:
    """The module that trains both sides; a skip where PyTorch is missing."""
    torch = pytest.importorskip("torch", reason="PyTorch, the peer, is missing: pip install torch==2.13.0")
    torch.set_num_threads(1)
    import peer_training

    return peer_training


def twin(training: Any, net: str) -> Any:
    """What the text of a net defines."""
    names = dict(vars(training))
    exec(compile(net, "<random net>", "exec"), names)
    return SimpleNamespace(**names)


def ways(training: Any, seed: int) -> list[Any]:
    """How our net is trained: in each precision, by each kernel set, and otherwise as it falls."""
    choose = random.Random(seed + 1)
    kernels = {"numpy", training.device.new_cpu().kernels.name}
    cases = [("float64", "numpy"), *(("float32", name) for name in sorted(kernels, reverse=True))]
    return [training.Way(*case, choose.random() < 0.6, choose.random() < 0.5) for case in cases]


def inspected(seed: int, among: list[Any]) -> Any:
    """Which of the ways is run in all modes; in one net of four."""
    return among[seed // 4 % len(among)] if seed % 4 == 0 else None


def script(training: Any, net: str, seed: int) -> str:
    """A program that trains the net on both sides and prints where they differ."""
    among = ways(training, seed)
    common = Path(training.__file__).read_text()
    return "\n".join([
        *common.splitlines(),
        "",
        "",
        "# --- the net " + "-" * 60,
        "",
        *net.splitlines(),
        "",
        "",
        'if __name__ == "__main__":',
        "    import sys",
        "",
        "    torch.set_num_threads(1)",
        f"    found = complaints(sys.modules[__name__], {among}, {inspected(seed, among)})",
        '    print("\\n".join(found) or "no difference")',
        "    sys.exit(bool(found))",
        "",
    ])  # fmt: skip


@pytest.mark.parametrize(
    "first",
    [*range(0, 60, PIECE), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(60, 3000, PIECE))],
)
def test_random_nets_train_as_in_pytorch(training, first):
    failed = []
    for seed in range(first, first + PIECE):
        net, among = text(seed), ways(training, seed)
        try:
            found = training.complaints(twin(training, net), among, inspected(seed, among))
        except Exception as error:  # a net that one side refuses is a failure like any other
            found = [f"{type(error).__name__}: {error}"]
        if found:
            failed.append("\n".join([f"seed {seed}:", *found, "", "# replay:", script(training, net, seed)]))
    assert not failed, "\n\n".join(failed)


def test_a_wrong_net_is_found_and_its_script_shows_it_by_itself(training, tmp_path):
    net = text(8)
    assert "softmax" not in net
    wrong = net.replace("activation(v['d1'], 'tanh')", "activation(v['d1'], 'tanh') * 1.00001")
    assert wrong != net
    found = training.complaints(twin(training, wrong), ways(training, 8), None)
    assert any("float32" in line for line in found)
    assert any("float64" in line for line in found)
    paths = []
    for name, source in (("right", net), ("wrong", wrong)):
        paths.append(tmp_path / f"{name}.py")
        paths[-1].write_text(script(training, source, 8))
    done = [subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120) for path in paths]
    assert (done[0].returncode, done[0].stdout) == (0, "no difference\n"), done[0].stderr
    assert done[1].returncode == 1, done[1].stderr
    assert "prediction of d7" in done[1].stdout
