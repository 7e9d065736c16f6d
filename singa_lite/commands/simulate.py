"""`python -m singa_lite.parallel.simulate MODULE:FUNCTION --ranks 2..4096`: what a step of many processes would take.

The step of one of so many processes is recorded and planned as it would be there, sums over the processes included, and
gone through call by call: kernels by their seconds on this machine, each measured alone over bytes of its own, or by
the rule that budgets go by; sums by a model of the network (formula: `simulated_step.py`).
Every process has its own batch of the same size. Nothing is sent, and no step is done.

    python -m singa_lite.parallel.simulate nets.py:resnet50 --batch 32 --ranks 2..64 --bandwidth 1.25e9 --latency 20e-6

Printed by number of processes: milliseconds of a step, of these for kernels and waiting for sums; megabytes that each
sends; the share of the sums' time that is hidden behind kernels; the efficiency, one process's step over this one's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

from singa_lite.commands.named_net import net_of
from singa_lite.commands.simulated_step import Network, Replayed, replayed
from singa_lite.common.checks import finite_above_zero, integer
from singa_lite.common.errors import ParallelError
from singa_lite.common.sizes import memory_size
from singa_lite.common.terminal import escape_streams
from singa_lite.compiler.ir.collectives import kind_of
from singa_lite.compiler.ir.operation import Instruction
from singa_lite.compiler.ir.time_model import Cost, seconds
from singa_lite.compiler.placement.problem import PlanError
from singa_lite.graph.arena import Arena
from singa_lite.graph.call_times import key_of, seconds_of
from singa_lite.net.feed_forward_net import FeedForwardNet
from singa_lite.optimizer import SGD
from singa_lite.parallel.communicator import Communicator
from singa_lite.parallel.data_parallel import DataParallel


class Pretended(Communicator):
    """Rank 0 of so many. Plans can be made with it; ParallelError for all that would wait for the others."""

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size

    def _refuse(self, *given: object, **named: object) -> NoReturn:
        """ParallelError: there is no other process to talk to."""
        raise ParallelError(f"wanted plans alone of {self.size} processes that are not there, received a step to do")

    exchange = spread = wait = abort = _refuse


#: Of a cluster with 10 Gbit/s Ethernet: bytes a second, and seconds of a message.
BANDWIDTH, LATENCY = 1.25e9, 20e-6
MOST_RANKS = 1 << 16


class Row(NamedTuple):
    """A step of so many processes."""

    ranks: int
    step: Replayed


def ranks_of(text: str) -> list[int]:
    """ "4" is 4, "2,3" both, "2..16" is 2, 4, 8 and 16. ValueError for others, and for too many processes."""
    found = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()):
            raise ValueError(f"--ranks: wanted numbers such as 4, 2,3 or 2..64, received {text!r}")
        least, most = int(first), int(last) if dots else int(first)
        if not 1 <= least <= most <= MOST_RANKS:
            raise ValueError(f"--ranks: wanted numbers from 1 to {MOST_RANKS}, rising in a range, received {text!r}")
        found += [least << doublings for doublings in range((most // least).bit_length())]
    return found


def instructions(
    net: FeedForwardNet, ranks: int, batch: int, bucket: int = 4_000_000, in_flight: int = 32_000_000
) -> tuple[Instruction, ...]:
    """Those of the planned step of one of so many processes, each with a batch of this size. The net is compiled anew,
    as it was, for so many processes. PlanError and GraphError as of `compile` and `plan_batch`.
    """
    options = {name: value for name, value in net.compiled_as.items() if name != "parallel"}
    parallel = DataParallel(Pretended(ranks), bucket, in_flight, None, False, 1) if ranks > 1 else None
    net.compile(net.optimizer or SGD(0.1, momentum=0.9), **options, parallel=parallel)  # type: ignore[arg-type]
    return net.plan_batch(batch).placed.planned.instructions


def measured(net: FeedForwardNet, calls: Sequence[Instruction]) -> Cost:
    """Returns the seconds of a call on this machine, by the rule where there is no room to measure it.

    calls: those that are measured now; others are when they are asked for.
    """
    arena = Arena(net.device)
    known = seconds_of(arena, [call for call in calls if not kind_of(call)])

    def cost(call: Instruction) -> float:
        key = key_of(call)
        if key not in known:
            known[key] = seconds_of(arena, [call]).get(key, seconds(call))
        return known[key]

    return cost


def simulated(
    net: FeedForwardNet,
    ranks: Sequence[int],
    batch: int,
    network: Network,
    by_rule: bool = False,
    bucket: int = 4_000_000,
    in_flight: int = 32_000_000,
    cores: int | None = None,
) -> Iterator[Row]:
    """Returns a row for one process, and a row for each number of ranks. by_rule: kernels go by the budgets' rule;
    cores: that all processes share, where they have none of their own.
    """
    alone = instructions(net, 1, batch)
    cost: Cost = seconds if by_rule else measured(net, alone)
    yield Row(1, replayed(alone, cost, network, 1))
    for count in ranks:
        if count > 1:
            share = min(1.0, cores / count) if cores else 1.0
            calls = instructions(net, count, batch, bucket, in_flight)
            yield Row(count, replayed(calls, _slower(cost, share), network.with_cores(share), count))


def _slower(cost: Cost, share: float) -> Cost:
    """Of a process that has this share of a core."""
    return lambda instruction: cost(instruction) / share


def lines(rows: Iterator[Row]) -> Iterator[str]:
    """The table, each line as soon as it is known; the first row is that of one process."""
    titles = "step ms", "kernels", "waiting", "MB sent"
    yield f"{'processes':>9} {titles[0]:>10} {''.join(f'{each:>9} ' for each in titles[1:])}{'hidden':>7} efficiency"
    alone = 0.0
    for ranks, step in rows:
        alone = alone or step.seconds
        hidden = f"{step.hidden_share:7.0%}" if step.sums else f"{'-':>7}"
        yield (
            f"{ranks:>9} {step.seconds * 1e3:>10.2f} {step.computed * 1e3:>9.2f} {step.waited * 1e3:>9.2f} "
            f"{step.sent / 1e6:>9.1f} {hidden} {alone / step.seconds:>10.1%}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks. The exit status is 0, or 2 for what is none, and for a net that has no plan."""
    parser = argparse.ArgumentParser(
        prog="python -m singa_lite.parallel.simulate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="what makes the net; or SCRIPT.py:FUNCTION")
    parser.add_argument("--ranks", default="2..64", help="numbers of processes: 4, 2,3 or 2..4096 (default 2..64)")
    parser.add_argument("--batch", type=int, default=32, help="samples of each process (default 32)")
    parser.add_argument("--bandwidth", type=float, default=BANDWIDTH, help="bytes a second (default 1.25e9, 10 Gbit/s)")
    parser.add_argument("--latency", type=float, default=LATENCY, help="seconds of a message (default 20e-6)")
    parser.add_argument("--one-machine", action="store_true", help="messages are copied by the cores that compute")
    parser.add_argument("--cores", type=int, help="of the machine that all processes share (default: one for each)")
    parser.add_argument("--by-rule", action="store_true", help="kernels by the rule of budgets; nothing is measured")
    parser.add_argument("--bucket-bytes", default="4 MB", help="as of parallel.mpi (default 4 MB)")
    parser.add_argument("--in-flight-bytes", default="32 MB", help="as of parallel.mpi (default 32 MB)")
    options = parser.parse_args(arguments)
    try:
        network = Network(
            finite_above_zero("--bandwidth", options.bandwidth),
            finite_above_zero("--latency", options.latency),
            options.one_machine,
        )
        cores = None if options.cores is None else integer("--cores", options.cores, 1)
        bucket, in_flight = (
            memory_size(f"--{name.replace('_', '-')}", getattr(options, name), 1)
            for name in ("bucket_bytes", "in_flight_bytes")
        )
        net, ranks = net_of(options.function), ranks_of(options.ranks)
        rows = simulated(net, ranks, options.batch, network, options.by_rule, bucket, in_flight, cores)
        for line in lines(rows):
            print(line, flush=True)
    except (ValueError, TypeError, RuntimeError, PlanError) as error:
        print(f"python -m singa_lite.parallel.simulate: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    escape_streams()
    sys.exit(main())
