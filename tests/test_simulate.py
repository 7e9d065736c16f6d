"""The simulation of many processes: sums by a formula worked out by hand, a step gone through in its plan's order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.commands.simulate import Pretended
from singa_lite.commands.simulated_step import Network, replayed
from singa_lite.compiler.ir.collectives import BEGIN, WAIT, kind_of
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.time_model import CALL
from singa_lite.errors import ParallelError
from singa_lite.parallel import simulate

#: 1,000 bytes a second, 0.5 s a message, and 750 bytes a second of adding up.
SLOW = Network(1000.0, 0.5, rate=750.0)


def net() -> FeedForwardNet:
    made = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), seed=2)
    made.add(layers.Dense("a", 40, input_sample_shape=(30,)))
    made.add(layers.Activation("tanh", "tanh"))
    made.add(layers.Dense("b", 50))
    made.add(layers.Dense("c", 10))
    made.compile(optimizer.SGD(0.1, momentum=0.9))
    return made


def test_a_sum_takes_what_its_formula_says():
    """2 * 3 messages of half a second, 2 * 3/4 of 400 bytes at 1,000 a second; 3/4 of 400 are added, three passes."""
    assert SLOW.sent(400, 4) == 600
    assert SLOW.message_seconds(400, 4) == pytest.approx(3.0 + 0.6)
    assert SLOW.adding_seconds(400, 4) == pytest.approx(3 * 300 / 750)
    assert SLOW.meeting_seconds(4) == pytest.approx(1.5)


def steps(ranks: int = 2, bucket: int = 6000) -> tuple[Instruction, ...]:
    return simulate.instructions(net(), ranks, 8, bucket)


def test_a_step_is_gone_through_in_the_order_of_its_plan():
    """Each call takes half a second: what is waited for is what the channel takes beyond the calls between."""
    calls = steps()
    found = replayed(calls, lambda call: 0.5, SLOW._replace(rate=1e5), 2)
    now, free, ends, waited, polls = 0.0, 0.0, {}, 0.0, 0
    for call in calls:
        kind = kind_of(call)
        if kind == BEGIN:
            nbytes = call.operands[0].nbytes
            free = max(now, free) + 1.0 + nbytes / 1000
            now += 3 * nbytes / 2 / 1e5
            ends[call.operands[0].block, call.operands[0].offset] = free
        elif kind == WAIT:
            end = ends[call.operands[0].block, call.operands[0].offset]
            waited += max(0.0, end - now)
            now = max(now, end)
        else:
            now += CALL if kind else 0.5
            polls += bool(kind)
    assert found.sums == len(ends) >= 2 and polls
    assert found.waited == pytest.approx(waited) and 0 < found.hidden_share < 1
    assert found.seconds == pytest.approx(now + 0.5)
    parameters = sum(value.nbytes for value in net().param_values())
    assert found.sent == pytest.approx(parameters, rel=0.02)  # 2 * 1/2 of each, and what buckets round up


def test_a_fast_network_hides_all_and_cores_that_copy_hide_nothing():
    fast = Network(1e15, 1e-15)
    found = replayed(steps(), lambda call: 1.0, fast, 2)
    assert found.hidden_share == 1 and found.waited == 0
    copying = replayed(steps(), lambda call: 1.0, SLOW._replace(by_cores=True), 2)
    assert copying.hidden_share == 0 and copying.seconds > found.seconds
    assert copying.waited == pytest.approx(copying.summed)


def test_processes_that_share_cores_take_as_many_times_longer():
    """Of four on two cores each has a half: all that cores do takes twice as long, and the latency of messages not."""
    network = Network(1e6, 1e-3, by_cores=True, rate=1e6)
    own, shared = (
        list(simulate.simulated(net(), [2, 4], 8, network, by_rule=True, bucket=6000, cores=cores)) for cores in (4, 2)
    )
    assert own[:2] == shared[:2]
    words = 2 * 3 * 1e-3 * own[2].step.sums + 3e-3
    assert shared[2].step.computed == pytest.approx(2 * own[2].step.computed)
    assert shared[2].step.sent == own[2].step.sent
    assert shared[2].step.seconds == pytest.approx(2 * (own[2].step.seconds - words) + words, rel=1e-3)


def test_rows_go_down_in_efficiency_and_up_in_bytes():
    rows = list(simulate.simulated(net(), [2, 8, 64], 8, Network(1e8, 1e-6), by_rule=True, bucket=6000))
    assert [row.ranks for row in rows] == [1, 2, 8, 64]
    times, sent = [row.step.seconds for row in rows], [row.step.sent for row in rows]
    assert times == sorted(times) and sent == sorted(sent) and len(set(times)) == 4


@pytest.mark.parametrize(
    ("text", "wanted"), [("4", [4]), ("2,3", [2, 3]), ("2..16", [2, 4, 8, 16]), ("3..13,40", [3, 6, 12, 40])]
)
def test_numbers_of_ranks(text: str, wanted: list[int]):
    assert simulate.ranks_of(text) == wanted


SCRIPT = """
from singa_lite import FeedForwardNet, layers, loss

def small():
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=1)
    net.add(layers.Dense("a", 20, input_sample_shape=(7,)))
    return net
"""


def test_the_command_prints_a_line_for_each_number(tmp_path: Path, capsys: Any):
    (tmp_path / "simulated_nets.py").write_text(SCRIPT)
    assert simulate.main([f"{tmp_path}/simulated_nets.py:small", "--ranks", "2..8", "--by-rule", "--batch", "4"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["processes", "step", "ms", "kernels", "waiting", "MB", "sent", "hidden", "efficiency"]
    assert [line.split()[0] for line in lines] == ["1", "2", "4", "8"]
    assert lines[0].split()[-1] == "100.0%" and all(float(line.split()[1]) > 0 for line in lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ranks", "two"], "--ranks"),
        (["--ranks", "16..2"], "--ranks"),
        (["--ranks", "0..8"], "--ranks"),
        (["--ranks", "2,4000000000"], "--ranks"),
        (["--bandwidth", "0"], "--bandwidth"),
        (["--bandwidth", "inf"], "--bandwidth"),
        (["--latency", "-1"], "--latency"),
        (["--cores", "0"], "--cores"),
        (["--batch", "0"], "batch"),
        (["--bucket-bytes", "many"], "--bucket-bytes"),
    ],
)
def test_bad_options_have_one_message(options: list[str], message: str, tmp_path: Path, capsys: Any):
    (tmp_path / "simulated_nets.py").write_text(SCRIPT)
    assert simulate.main([f"{tmp_path}/simulated_nets.py:small", "--by-rule", *options]) == 2
    assert message in capsys.readouterr().err


def test_nobody_trains_with_processes_that_are_not_there():
    made = net()
    simulate.instructions(made, 3, 4)
    with pytest.raises(ParallelError, match="3 processes that are not there"):
        made.train_one_batch(np.zeros((4, 30), "f"), np.zeros(4, np.int64))
    with pytest.raises(ParallelError):
        Pretended(2).abort("")
