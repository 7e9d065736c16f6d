"""Items that start NVIDIA's tools over other items: compute-sanitizer and Nsight Compute."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence

from first_run.item import Context, Skipped, Values, Wrong

#: What Nsight Compute reads of each kernel.
METRICS = (
    "gpu__time_duration.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "launch__registers_per_thread",
)
#: Characters of a tool's output that are kept.
KEPT = 6000


def smallest(context: Context) -> list[str]:
    """Of each kernel the contract's call with the fewest bytes."""
    found: dict[str, str] = {}
    calls = context.prepared.calls
    for key, call in calls.items():
        held = found.setdefault(call.kernel, key)
        if call.nbytes < calls[held].nbytes:
            found[call.kernel] = key
    return list(found.values())


def sanitized(context: Context, tool: str, chunk: int, chunks: int) -> Values:
    """A share of the smallest calls under compute-sanitizer."""
    program = _found("compute-sanitizer")
    keys = [f"contract/{key}" for key in smallest(context)[chunk::chunks]]
    command = [program, "--tool", tool, "--error-exitcode", "9", *_alone(context, keys)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    values = {"calls": len(keys), "exit_status": done.returncode}
    if done.returncode:
        raise Wrong(f"{tool} complains", values | {"output": (done.stdout + done.stderr)[-KEPT:]})
    return values


def profiled(context: Context) -> Values:
    """Nsight Compute over the five kernels whose distance from the bandwidth costs a step most, of --again."""
    program = _found("ncu")
    worst = _worst(context)
    if not worst:
        raise Skipped("wants --again with the results of part 2")
    for item, kernel in worst:
        command = [program, "--csv", "--metrics", ",".join(METRICS), "--launch-count", "12"]
        command += ["--profile-from-start", "off", *_alone(context, [item]), f"--kernel={kernel}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        context.row({"kernel": kernel, "item": item, "exit_status": done.returncode, "output": done.stdout[-KEPT:]})
    return {"kernels": [kernel for _, kernel in worst]}


def _worst(context: Context) -> list[tuple[str, str]]:
    """(item, kernel) of the five that lose most microseconds of a step."""
    lost: dict[tuple[str, str], float] = {}
    for line in context.earlier():
        row = line.get("row", {})
        if "share" in row:
            key = line["item"], row["kernel"]
            lost[key] = lost.get(key, 0) + row["us"] * row["count"] * (1 - min(row["share"], 1))
    return sorted(lost, key=lambda key: -lost[key])[:5]


def _alone(context: Context, names: Sequence[str]) -> list[str]:
    """The command that does these items without a supervisor; they belong to parts 1 and 2."""
    options = context.options
    part = "2" if names[0].startswith("kernels/") else "1"
    given = [argument for argument in options.arguments if not argument.startswith(("--part", "--only"))]
    return [sys.executable, options.program, *given, f"--part={part}", "--own", "--alone", *names]


def _found(name: str) -> str:
    program = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if program is None:
        raise Skipped(f"no {name}, a part of the CUDA toolkit")
    return program
