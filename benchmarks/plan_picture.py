"""The memory plan of a benchmark net's training step as a picture: live bytes, and each tensor in the arena over time.

    pip install ".[onednn]" matplotlib && python benchmarks/plan_picture.py NET BATCH FILE

Nothing is trained. `net.memory_plan.to_html` is the same to hover over. float32, SGD with momentum, the default device.
"""

from __future__ import annotations

import argparse

import matplotlib

matplotlib.use("agg")  # draw into files; no screen is needed
import matplotlib.pyplot as plt
from matplotlib.collections import PatchCollection
from matplotlib.patches import Patch, Rectangle

from nets import NETS
from singa_lite import device, optimizer
from singa_lite.compiler.ir.program import live_bytes
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.compiler.report.plan_figure import COLORS, EDGES
from tiny import parsed

MIB = 2**20


def draw(plan: MemoryPlan, title: str, path: str) -> None:
    """Write the picture to a file."""
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(11, 7.6), height_ratios=[1, 3], sharex=True, layout="constrained"
    )
    live = [nbytes / MIB for nbytes in live_bytes(plan.placed.planned)]
    above.fill_between(range(len(live)), live, step="post", color="#DDDDDD")
    above.axhline(plan.arena_bytes / MIB, color="#D55E00", label=f"arena {plan.arena_bytes / MIB:,.0f} MiB")
    above.axhline(
        plan.floor_bytes / MIB, color="#0072B2", dashes=(6, 4), label=f"floor {plan.floor_bytes / MIB:,.0f} MiB"
    )
    above.set(ylabel="live (MiB)", ylim=(0, plan.arena_bytes / MIB * 1.08))
    above.set_title(title)
    for kind, color in COLORS.items():
        shapes = [
            Rectangle((row.lower, row.offset / MIB), row.upper - row.lower, row.nbytes / MIB)
            for row in plan.rows
            if row.kind == kind
        ]
        below.add_collection(PatchCollection(shapes, facecolor=color, edgecolor=EDGES[kind], linewidth=0.5))
    below.set(xlabel="step", ylabel="offset (MiB)", xlim=(0, len(live)), ylim=(0, plan.arena_bytes / MIB))
    shown = [kind for kind in COLORS if any(row.kind == kind for row in plan.rows)]
    words = {"again": "computed again", "scratch": "scratch of kernels"}
    patches = [Patch(color=COLORS[kind], label=words.get(kind, kind)) for kind in shown]
    lines, _ = above.get_legend_handles_labels()
    figure.legend(handles=[*lines, *patches], loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Plan the net and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", choices=sorted(NETS))
    parser.add_argument("batch", type=int)
    parser.add_argument("file")
    options = parsed(parser)
    net = NETS[options.net].build(device.new_cpu())
    net.compile(optimizer.SGD(0.001, momentum=0.9))
    plan = net.plan_batch(options.batch, samples=options.batch)
    words = f"{options.net} at batch {options.batch}: {plan.operations} operations, {plan.recomputed} of them again"
    draw(plan, words, options.file)
    print(f"{words}; {plan.total_bytes / MIB:,.0f} MiB in all\nwrote {options.file}")


if __name__ == "__main__":
    main()
