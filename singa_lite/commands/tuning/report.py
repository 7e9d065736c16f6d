"""The table of what was measured: milliseconds and rates of each way, what was chosen, and what a step gains."""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.commands.tuning.measure import Timing


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
