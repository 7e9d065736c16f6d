"""`python -m singa_lite tune`: whose calls are measured, what is printed, and where it is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from singa_lite import optimizer
from singa_lite.commands.named_net import net_of
from singa_lite.commands.tuned_calls import NETS, Call, Timing, calls_of_net, measured, of_step, variants_of
from singa_lite.common import machine, threads
from singa_lite.common.atomic import write_anew
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
    if net and net not in NETS:
        raise ValueError(f"--net: wanted one of {sorted(NETS)}, received {net!r}")
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
    timings = [timing for call in calls if (timing := measured(call, room)) is not None]
    if not timings:
        raise ValueError(f"wanted calls that can be done in several ways, received none in the {len(calls)} looked at")
    yield table(timings)
    yield totals(timings)
    if keep and file is not None:
        yield _store_timings(file, calls[0].variants.library(), timings)


def _store_timings(file: Path, library: str, timings: list[Timing]) -> str:
    number, why = keep_timings(file, library, timings)
    lost = f"; what it had before is gone: {why}" if why else ""
    return f"{file}: {number} calls, which every run from now on goes by{lost}"


def _of_known(net: str, batch: int) -> tuple[KernelSet, list[Call]]:
    kernels = default().kernels
    _check(kernels)
    return kernels, calls_of_net(net, batch, kernels)


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


def table(timings: Sequence[Timing]) -> str:
    """A row a call; figures of a single one, but the gain is that of all equal ones in a step."""
    names = list(dict.fromkeys(name for timing in timings for name in timing.seconds))
    head = ["layer", "calls", "tensors"]
    head += [title for name in names for title in (f"{name} ms", "GFLOP/s", "KiB")] + ["chosen", "gain ms"]
    rows = [head, *(_row(timing, names) for timing in timings)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(cells, widths) for cells in rows)


def totals(timings: Sequence[Timing]) -> str:
    """What all calls of a step take, by the built-in rule and as chosen."""
    before = sum(timing.call.count * timing.seconds[timing.default] for timing in timings)
    gain, calls = sum(timing.gain for timing in timings), sum(timing.call.count for timing in timings)
    others = sum(timing.chosen != timing.default for timing in timings)
    return (
        f"{calls} calls of a step, {len(timings)} different ones: {before * 1e3:.2f} ms by the built-in rule, "
        f"{(before - gain) * 1e3:.2f} ms as chosen (estimated gain {gain * 1e3:.2f} ms); "
        f"{others} chosen otherwise than by the rule"
    )


def _row(timing: Timing, names: Sequence[str]) -> list[str]:
    call, cells = timing.call, list[str]()
    for name in names:
        took = timing.seconds.get(name)
        if took is None:
            cells += ["", "", ""]
        else:
            rate = f"{call.flops / took / 1e9:.1f}" if took else ""
            cells += [f"{took * 1e3:.3f}", rate, str(-(-timing.scratch[name] // 1024))]
    return [call.layer, str(call.count), call.shapes, *cells, timing.chosen, f"{timing.gain * 1e3:.3f}"]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Names stand left, figures right."""
    names = {0, 2, len(cells) - 2}
    padded = (c.ljust(w) if i in names else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
    return "  ".join(padded).rstrip()


def keep_timings(file: Path, library: str, timings: Sequence[Timing]) -> tuple[int, str]:
    """Put the choices into the file, in the place of older ones of the same calls.

    How many calls it has now, and why what it had before is gone, "" if it is not. OSError if it cannot be written.
    """
    before, why = _stored_calls(file, library)
    calls = {**before, **{timing.call.name: _entry(timing) for timing in timings}}
    content = {tuning_file.NAME: tuning_file.VERSION, **tuning_file.origin(library), "calls": calls}
    os.makedirs(file.parent, exist_ok=True)
    write_anew(file, f"{json.dumps(content, indent=1)}\n")
    return len(calls), why


def _stored_calls(file: Path, library: str) -> tuple[dict[str, object], str]:
    """The calls that the file has, if it is one that would be read here."""
    try:
        content = tuning_file.read(file)
        tuning_file.check_origin(file, content, library)
        return dict(tuning_file.calls_of(file, content)), ""
    except FileNotFoundError:
        return {}, ""
    except ValueError as error:
        return {}, str(error)


def _entry(timing: Timing) -> dict[str, object]:
    return {
        "chosen": timing.chosen,
        "milliseconds": {name: round(seconds * 1e3, 4) for name, seconds in timing.seconds.items()},
        "scratch bytes": dict(timing.scratch),
    }
