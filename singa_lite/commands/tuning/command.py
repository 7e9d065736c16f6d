"""`python -m singa_lite tune`: whose calls are measured, what is printed, and where it is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from singa_lite import optimizer
from singa_lite.commands.named_net import net_of
from singa_lite.commands.tuning import known_nets, measure, report, store
from singa_lite.commands.tuning.calls import Call, of_step, variants_of
from singa_lite.common import machine, threads
from singa_lite.common.sizes import memory_size
from singa_lite.device import default
from singa_lite.kernels import tuning_file
from singa_lite.kernels.kernel_set import KernelSet
from singa_lite.kernels.variants import using_choices


def tuned(function: str, net: str, batch: int, more_scratch: str, keep: bool) -> Iterator[str]:
    """Lines to print, while it is done. function: "MODULE:FUNCTION" of a net, or net: the name of a known one.

    ValueError for what names no net, and where there is nothing to choose; OSError where it cannot be kept.
    """
    if bool(function) == bool(net):
        raise ValueError(f"wanted either MODULE:FUNCTION or --net, received {'both' if net else 'neither'}")
    if net and net not in known_nets.NETS:
        raise ValueError(f"--net: wanted one of {sorted(known_nets.NETS)}, received {net!r}")
    if batch < 1:
        raise ValueError(f"--batch: wanted at least 1, received {batch}")
    room, file = memory_size("--scratch", more_scratch), tuning_file.path()
    if keep and file is None:
        raise ValueError(
            f"wanted a file to keep the table in, received {tuning_file.VARIABLE}={tuning_file.OFF}, or no home"
        )
    with using_choices({}):  # as if there were no table
        kernels, calls = _of_function(function, batch) if function else _of_known(net, batch)
    threads.settle()
    yield f"{machine.processor()}, {threads.threads()} threads, {kernels.name} kernels, batch {batch}"
    timings = [timing for call in calls if (timing := measure.measured(call, room)) is not None]
    if not timings:
        raise ValueError(f"wanted calls that can be done in several ways, received none in the {len(calls)} looked at")
    yield report.table(timings)
    yield report.totals(timings)
    if keep and file is not None:
        yield _store_timings(file, calls[0].variants.library(), timings)


def _store_timings(file: Path, library: str, timings: list[measure.Timing]) -> str:
    number, why = store.keep(file, library, timings)
    lost = f"; what it had before is gone: {why}" if why else ""
    return f"{file}: {number} calls, which every run from now on goes by{lost}"


def _of_known(net: str, batch: int) -> tuple[KernelSet, list[Call]]:
    kernels = default().kernels
    _check(kernels)
    return kernels, known_nets.calls(net, batch, kernels)


def _of_function(function: str, batch: int) -> tuple[KernelSet, list[Call]]:
    net = net_of(function)
    kernels = net.device.kernels
    _check(kernels)
    if net.optimizer is None:
        net.compile(optimizer.SGD())
    plan = net.plan_batch(batch)
    return kernels, of_step(kernels, plan.placed.planned.instructions)


def _check(kernels: KernelSet) -> None:
    if not variants_of(kernels):
        raise ValueError(f"wanted kernels with several ways to do a call, onednn's, received the set {kernels.name!r}")
