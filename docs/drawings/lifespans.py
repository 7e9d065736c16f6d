"""Lifespans in the arena: the memory plan of one step of a small net, a rectangle for each block."""

from __future__ import annotations

from drawings.svg import WIDTH, Drawing
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.compiler.report.plan_rows import PlacedRow

UNITS, BATCH = (64, 96, 80, 64, 10), 64
COLORS = {"forward": "blue", "derivative": "orange", "gradient": "green", "scratch": "gray"}
LEFT, TOP, TALL = 16, 50, 300


def plan() -> MemoryPlan:
    """Returns the plan of four dense layers by NumPy's kernels, whose bytes depend on no machine."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(kernels="numpy"))
    for place, units in enumerate(UNITS[1:], 1):
        given = {"input_sample_shape": (UNITS[0],)} if place == 1 else {}
        net.add(layers.Dense(f"dense{place}", units, use_bias=False, **given))
        if place < len(UNITS) - 1:
            net.add(layers.Activation(f"tanh{place}", mode="tanh"))
    net.compile(optimizer.SGD(lr=0.1))
    return net.plan_batch(BATCH, samples=BATCH)


def drawing() -> Drawing:
    """Returns the blocks over time, from left to right, and offsets, from the bottom up."""
    found = plan()
    words = "Each rectangle is a block of memory. Its width is its lifespan, its height its bytes. No two overlap."
    made = Drawing("Lifespans in the arena", words, TOP + TALL + 84)
    wide = WIDTH - 2 * LEFT
    made.label(LEFT, 20, f"{found.operations} operations, an arena of {found.arena_bytes / 1024:.0f} KiB", "strong")
    made.label(
        LEFT, 39, f"with bytes of its own for each block: {found.unshared_bytes / 1024:.0f} KiB", "soft", size=12
    )
    made.frame(LEFT, TOP, wide, TALL)
    for row in found.rows:
        left = LEFT + wide * row.lower / found.operations
        width = wide * (row.upper - row.lower) / found.operations
        height = TALL * row.nbytes / found.arena_bytes
        top = TOP + TALL - TALL * row.offset / found.arena_bytes - height
        made.frame(left + 0.6, top + 0.6, width - 1.2, max(height - 1.2, 0.6), COLORS[row.kind])
        word = _name(row)
        if word and height > 16 and width > 20:
            made.label(left + width / 2, top + height / 2 + 4, word, "on", "middle", size=11)
    made.label(WIDTH / 2, TOP + TALL + 20, "time, one operation after the other", "soft", "middle", size=12)
    for place, (kind, color) in enumerate(COLORS.items()):
        left = LEFT + place * 106
        made.frame(left, TOP + TALL + 33, 14, 14, color)
        made.label(left + 20, TOP + TALL + 45, kind, size=12)
    made.label(LEFT, TOP + TALL + 70, "h: output of a layer, dh: its derivative, dW: a gradient", "soft", size=12)
    return made


def _name(row: PlacedRow) -> str:
    """Returns the short name of a block of a dense layer; nothing for scratch."""
    number = int(row.layer.removeprefix("dense")) if row.layer.startswith("dense") else 0
    names = {"forward": f"h{number}", "derivative": f"dh{number - 1}", "gradient": f"dW{number}"}
    return names.get(row.kind, "") if number else ""
