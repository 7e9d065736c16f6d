"""What clipping by the norm of all gradients takes within a budget: plans with and without it, and measured steps.

    pip install ".[onednn]" && python benchmarks/clipping.py [--net NAME ...] [--rounds N] [--write FILE]

The budget is what is held and an arena: without clipping half of the free plan's, with it `MORE` times what that takes;
or the least that is found. Bytes are of the arenas, estimates of `MemoryPlan`'s model of time. What is
measured is a step, the median of the rounds' ratios; both sides take turns. `--rounds 0` plans alone. Rows that were
taken beside other work are not printed, and the exit status is 4, unless --anyway is given (quiet.py).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import quiet
from figure_file import Cell, Table, add_option, line, origin, write
from nets import Entry, entry, random_batch
from singa_lite import FeedForwardNet, device, models, optimizer
from singa_lite.compiler.plan_variants import seconds_of
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.graph.budget_error import BudgetError
from tiny import parsed, size

MIB = 1 << 20
SHARE, MORE = 0.5, 1.05
#: SmolLM2-135M's sizes, but for the count of its layers.
SMOL: dict[str, Any] = {
    **{"architecture": "llama", "width": 576, "heads": 9, "kv_heads": 3, "hidden_size": 1536},
    **{"vocabulary": 49152, "rotary_base": 1e5, "tied": True},
    **size({}, {"width": 36, "hidden_size": 48, "vocabulary": 300}),
}


def smol(layers: int, length: int) -> Entry:
    """So many layers as SmolLM2-135M's over so many ids, the head tied."""
    config = models.LanguageConfig(layers=layers, **SMOL)
    ids = config.vocabulary
    return Entry(partial(models.language_model, config, length), (length,), ids, (length,), ids, False)


@dataclass(frozen=True)
class Subject:
    """A net, how it trains, and samples of a step."""

    title: str
    entry: Entry
    batch: int
    rule: Callable[[], optimizer.Optimizer]

    def net(self, **options: Any) -> FeedForwardNet:
        """The compiled net."""
        made = self.entry.build(device=device.new_cpu())
        made.compile(self.rule(), **options)
        return made


def _adamw() -> optimizer.Optimizer:
    return optimizer.AdamW(3e-4)


def _momentum() -> optimizer.Optimizer:
    return optimizer.SGD(0.1, momentum=0.9)


SUBJECTS = {
    "gpt": Subject("GPT of 11 M parameters, AdamW", entry(size("gpt_11m", "mlp")), size(8, 2), _adamw),
    "resnet50": Subject("ResNet-50, momentum", entry(size("resnet50", "digits_cnn")), size(16, 2), _momentum),
    "smollm2_6": Subject("6 layers as SmolLM2's, 256 ids, AdamW", smol(*size((6, 256), (1, 8))), 1, _adamw),
    "smollm2": Subject("SmolLM2-135M, 512 ids, AdamW", smol(*size((30, 512), (1, 8))), 1, _adamw),
}
COLUMNS = [
    ("net, optimizer", ""), ("batch", ""), ("MiB", ",.1f"), ("clipped", ",.1f"), ("bytes", ".2f"),
    ("estimated time", ".2f"), ("measured time", ""), ("form", ""),
]  # fmt: skip


def within(subject: Subject, budget: int, **options: Any) -> tuple[int, MemoryPlan]:
    """The budget and its plan; or the least budget and its plan."""
    try:
        return budget, subject.net(**options).plan_batch(subject.batch, memory_budget=budget)
    except BudgetError as error:
        return error.total_bytes, error.plan


def rounds(nets: list[FeedForwardNet], subject: Subject, count: int) -> list[list[float]]:
    """Seconds of a step of each net, by rounds."""
    feed = random_batch(subject.entry, subject.batch)
    found: list[list[float]] = [[] for _ in nets]
    for number in range(count + 1):
        for net, times in zip(nets, found, strict=True):
            start = time.perf_counter()
            float(net.train_one_batch(*feed)[0])
            if number:  # the first plans
                times.append(time.perf_counter() - start)
    return found


def row(subject: Subject, count: int) -> tuple[list[Cell], list[list[float]]]:
    """The cells of a net, and its times by rounds."""
    free = subject.net().plan_batch(subject.batch)
    held, clip = free.total_bytes - free.arena_bytes, {"clip_global_norm": 1.0}
    budget, plain = within(subject, held + int(SHARE * free.arena_bytes))
    wanted = held + int(MORE * plain.arena_bytes)
    least, clipped = within(subject, wanted, **clip)
    sides: list[tuple[int, dict[str, Any]]] = [(budget, {}), (least, clip)]
    nets = [subject.net(memory_budget=nbytes, **options) for nbytes, options in sides] if count else []
    times = rounds(nets, subject, count)
    ratio = f"{median(b / a for a, b in zip(*times, strict=True)):.2f}" if count else ""
    seconds = [seconds_of(plan.placed) for plan in (plain, clipped)]
    form = "the least found" if least != wanted else clipped.form.partition(",")[0] or "as recorded"
    mib = [plan.arena_bytes / MIB for plan in (plain, clipped)]
    return [subject.title, str(subject.batch), *mib, mib[1] / mib[0], seconds[1] / seconds[0], ratio, form], times


def main() -> int:
    """Plan, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--rounds", type=int, default=3, help="measured steps of each side")
    add_option(parser)
    quiet.add_option(parser)
    options = parsed(parser, rounds=1)
    table = Table(COLUMNS, [])
    print(table.markdown())
    watch = quiet.Watch(options.anyway or not options.rounds)
    for subject in (SUBJECTS[name] for name in options.net):
        cells, times = row(subject, options.rounds)
        table.rows.append(cells)
        text = line([table.text(cells, place) for place in range(len(cells))])
        watch.write(text, watch.trouble(*times) if options.rounds else "")
    if options.write:
        command = f"python benchmarks/clipping.py{' --rounds 0' * (not options.rounds)}"
        write(options.write, origin(command, ("NumPy", "oneDNN's wheel")), {"budget": table})
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
