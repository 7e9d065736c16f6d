"""Plans of training language models whose weights need not fit here: adapters and all weights, with and without budget.

    pip install ".[onednn]" && python benchmarks/language_plans.py [--model NAME ...] [--write FILE]

One text of 512 ids. Nothing is trained, and no weight has bytes (`device.abstract`). In all: what a processor with
oneDNN's kernels takes, the objects of the process included. Within: the same with a memory budget that leaves `SHARE`
of the free plan's arena, or the least where that is more, and the estimated extra time of a step. Laptop and card: the
smallest with so many GB in which the plan within the budget fits; `SYSTEM` is left to the system, and `CONTEXT` of a
card, whose plan is made with CUDA's kernels, to what CUDA takes itself. The last table is of planning itself: seconds,
and the most that the process of each row held over what it began with.
"""

from __future__ import annotations

import argparse
import inspect
import multiprocessing
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from figure_file import Cell, Table, add_option, line, origin, write
from peak_memory import high_water
from singa_lite import FeedForwardNet, device, models, optimizer
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.graph.budget_error import BudgetError
from tiny import parsed, size

MIB, GIB = 1 << 20, 1 << 30
LENGTH, RANK = size((512, 8), (16, 2))
#: Of the free plan's arena, what the budget leaves.
SHARE = 0.3
LAPTOPS, SYSTEM = (8, 16, 32, 64, 128), 2
CARDS, CONTEXT = (8, 12, 16, 24, 48, 80), 1
_LLAMA3 = {
    "rope_type": "llama3",
    **{"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "original_max_position_embeddings": 8192,
}
MODELS: dict[str, dict[str, Any]] = {
    "Llama-3.2-1B": {
        **{"architecture": "llama", "width": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "hidden_size": 8192},
        **{"vocabulary": 128256, "rotary_base": 5e5, "rotary_scaling": _LLAMA3, "tied": True},
    },
    "Llama-3-8B": {
        **{"architecture": "llama", "width": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "hidden_size": 14336},
        **{"vocabulary": 128256, "rotary_base": 5e5},
    },
    "Qwen2.5-7B": {
        **{"architecture": "qwen2", "width": 3584, "layers": 28, "heads": 28, "kv_heads": 4, "hidden_size": 18944},
        **{"vocabulary": 152064, "rotary_base": 1e6, "biases": True},
    },
}
SMALL = {"width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "hidden_size": 64, "vocabulary": 300}


@dataclass(frozen=True)
class Way:
    """How a model trains. weights: the format of frozen ones, "" where all train; options: of `compile`."""

    name: str
    weights: str = ""
    optimizer: str = "AdamW"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        """Whether this version has the optimizer and the options."""
        return hasattr(optimizer, self.optimizer) and self.options.keys() <= _COMPILE

    def net(self, model: str, kernels: str) -> FeedForwardNet:
        """The compiled net without bytes."""
        sizes = MODELS[model] | size({}, SMALL)
        config = models.LanguageConfig(**sizes)
        on = device.abstract(kernels)
        net = models.language_model(config, LENGTH, weight_format=self.weights or "float", device=on)
        if self.weights:
            net.add_lora(RANK, 2.0 * RANK)
        net.compile(getattr(optimizer, self.optimizer)(), **self.options)
        return net


_COMPILE = inspect.signature(FeedForwardNet.compile).parameters.keys()
_INT8, _BFLOAT16 = {"state_dtype": "int8"}, {"parameter_dtype": "bfloat16"}
_ALL = [("SGD", {}), ("AdamW", {}), ("AdamW", _INT8), ("Lion", {}), ("Adafactor", {}), ("Muon", {})]
WAYS = [
    Way("adapters over 4 bits", "q4_0"),
    Way("adapters over bfloat16", "bf16"),
    *(Way(f"all by {name}{', int8 state' * bool(more)}", "", name, more) for name, more in _ALL),
    *(
        Way(f"all in bfloat16 by {name}{', int8 state' * bool(more)}", "", name, {**_BFLOAT16, **more})
        for name, more in _ALL
        if name != "AdamW" or more  # whole state beside half the weights: no one's choice
    ),
]
PLAN_COLUMNS = [
    ("what trains", ""), ("weights, GiB", ",.2f"), ("state, GiB", ",.2f"), ("in all, GiB", ",.2f"),
    ("within, GiB", ",.2f"), ("more time", ".0%"), ("laptop, GB", ""), ("card, GB", ""),
]  # fmt: skip
COST_COLUMNS = [
    ("model, what trains", ""),
    ("operations", ",d"),
    ("free, s", ".1f"),
    ("within, s", ".1f"),
    ("MiB", ",.0f"),
]


def within(net: FeedForwardNet, free: MemoryPlan) -> tuple[int, float]:
    """Bytes in all, and the estimated extra time, with a budget that leaves a share of the arena; or the least."""
    budget = free.total_bytes - int((1 - SHARE) * free.arena_bytes)
    try:
        plan = net.plan_batch(1, memory_budget=budget)
    except BudgetError as error:
        return error.total_bytes, error.plan.estimated_slowdown
    return plan.total_bytes, plan.estimated_slowdown


def smallest(nbytes: int, sizes: tuple[int, ...], less: int) -> str:
    """Of machines of so many GB, of which `less` is taken already, the smallest that has the bytes."""
    return next((str(each) for each in sizes if nbytes <= (each - less) * GIB), f"more than {sizes[-1]}")


def planned(model: str, way: Way) -> tuple[list[Cell], list[Cell]]:
    """Rows of both tables."""
    level = high_water()
    net = way.net(model, "onednn")
    start = time.perf_counter()
    free = net.plan_batch(1)
    middle = time.perf_counter()
    total, slower = within(net, free)
    end, held = time.perf_counter(), (high_water() - level) / MIB
    on_card, _ = within(card := way.net(model, "cuda"), card.plan_batch(1))
    weights = sum(value.nbytes for value in net.param_values()) + sum(value.nbytes for value in net.frozen().values())
    state = free.by_class.get("optimizer state", 0)
    sizes = [nbytes / GIB for nbytes in (weights, state, free.total_bytes, total)]
    fits = smallest(total, LAPTOPS, SYSTEM), smallest(on_card, CARDS, CONTEXT)
    cost = [f"{model}, {way.name}", free.operations, middle - start, end - middle, held]
    return [way.name, *sizes, slower, *fits], cost


def rows(chosen: list[str]) -> Iterator[tuple[str, list[Cell], list[Cell]]]:
    """(model, rows of both tables) of all that are to be planned, each in a process of its own."""
    wanted = [(model, way) for model in chosen for way in WAYS if way.exists]
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        for (model, _), (plan, cost) in zip(wanted, pool.starmap(planned, wanted, chunksize=1), strict=True):
            yield model, plan, cost


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    add_option(parser)
    options = parsed(parser, model=["Qwen2.5-7B"])
    tables = {model: Table(PLAN_COLUMNS, []) for model in options.model}
    costs = Table(COST_COLUMNS, [])
    for model, plan, cost in rows(options.model):
        table = tables[model]
        if not table.rows:
            print(f"\n{model}\n{table.markdown()}", flush=True)
        table.rows.append(plan)
        costs.rows.append(cost)
        print(line([table.text(plan, place) for place in range(len(plan))]), flush=True)
    print(f"\n{costs.markdown()}")
    if options.write:
        tables["planning"] = costs
        write(options.write, origin("python benchmarks/language_plans.py", ("NumPy", "oneDNN's wheel")), tables)
    return 0


if __name__ == "__main__":
    sys.exit(main())
