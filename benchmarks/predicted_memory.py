"""Predicted against measured: what `plan_batch` says that `fit` takes, and what the process then really took.

    pip install . && python benchmarks/predicted_memory.py [NET BATCH] [--budgets [BUDGET ...]] [--write FILE]

Each net is fitted in a process of its own: two whole batches and a shorter one, shuffled, and a validation of one whole
batch and a shorter one. Predicted: `plan_batch(n).total_bytes`, known before the first step. Measured: VmHWM over what
was resident before the net was built, after a warm-up in which BLAS makes its own buffers; one batch that NumPy takes
from the data is in it. Both with the kernels of the default device, which each row names. Nets of text (gpt2_small_256)
are trained by AdamW, all others with momentum. Linux only; other work on the machine changes no bytes.

--budgets: the same under memory budgets, in MiB, or up to 1 as shares of the free plan's total; what is less than the
least possible is that. First two training steps alone, then `fit` as above, with its three further forms of record.
What the process takes above the budget, over what was resident with the data there and no net, is promised to be at
most `BESIDE`, and `A_FORM` more for each further form (docs/budget.md); where it is more the exit status is 1.
"""

import argparse
import json
import subprocess
import sys

import numpy as np

from figure_file import Table, add_option, origin, write
from nets import NETS, TEXTS, batch, entry
from peers.singa_side import use_once
from singa_lite import device, optimizer
from singa_lite.compiler.byte_limit import A_FORM, BESIDE, FURTHER
from singa_lite.graph.budget_error import BudgetError
from tiny import parsed

MIB = 2**20
SHARES = (1.0, 0.7, 0.5)
BUDGETED = {
    ("resnet50", 16): (1.0, 780, 600, 480),
    ("mobilenet_v2", 32): (1.0, 800, 460),
    **dict.fromkeys((("densenet121", 16), ("unet", 8), ("lenet", 64)), SHARES),
    ("gpt2_small_256", 2): (1.0,),
}
COLUMNS = (
    ("net, batch", ""),
    ("kernels", ""),
    ("predicted MiB", ",.1f"),
    ("measured MiB", ",.1f"),
    ("measured / predicted", ".3f"),
)
BUDGET_COLUMNS = (
    ("net, batch, budget", ""),
    ("kernels", ""),
    ("budget, MiB", ",.1f"),
    ("counted", ",.1f"),
    ("a step above", ",.1f"),
    ("promised", ",d"),
    ("fit above", ",.1f"),
    ("promised of fit", ",d"),
)
DEFAULT = (("vgg16", 8), ("resnet50", 16), ("mobilenet_v2", 32), ("densenet121", 16), ("unet", 8))


def resident(field: str) -> int:
    """VmRSS (resident now) or VmHWM (most so far) of this process in bytes."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def warmed_level() -> int:
    """Bytes that are resident once the libraries have made buffers of their own."""
    matrix = np.ones((2048, 2048), np.float32)
    np.matmul(matrix, matrix)
    del matrix
    use_once()
    return resident("VmRSS")


def optimizer_of(name: str) -> optimizer.Optimizer:
    """AdamW for nets of text, momentum for all others."""
    return optimizer.AdamW(lr=1e-4) if name in TEXTS else optimizer.SGD(lr=0.001, momentum=0.9)


def measure(name: str, size: int) -> dict:
    """Predict, train, and read off."""
    last = size // 3 + 1
    x, y = batch(name, 2 * size + last, 0)
    level = warmed_level()
    net = entry(name).build(device.new_cpu())
    net.compile(optimizer_of(name))
    predicted = net.plan_batch(size).total_bytes
    validation = x[: size + last], y[: size + last]
    net.fit(x, y, size, validation_data=validation, verbose=False)
    return {"predicted": predicted, "measured": resident("VmHWM") - level, "kernels": net.device.kernels.name}


def measure_within(name: str, size: int, wanted: float) -> dict:
    """Plan, train within the budget, and read off."""
    last = size // 3 + 1
    x, y = batch(name, 2 * size + last, 0)
    level = warmed_level()
    net = entry(name).build(device.new_cpu())
    net.compile(optimizer_of(name))
    budget = least_of(net, size, wanted)
    net.compile(optimizer_of(name), memory_budget=budget)
    counted = net.plan_batch(size).process_bytes
    for _ in range(2):
        net.train_one_batch(x[:size], y[:size])
    step = resident("VmHWM") - level
    net.fit(x, y, size, validation_data=(x[: size + last], y[: size + last]), verbose=False)
    fitted = resident("VmHWM") - level
    return {"budget": budget, "counted": counted, "step": step, "fit": fitted, "kernels": net.device.kernels.name}


def least_of(net, size: int, wanted: float) -> int:
    """The bytes of so many MiB, or of this share of the free plan's total; the least that is possible if it is more."""
    budget = int(wanted * MIB) if wanted > 1 else int(net.plan_batch(size).total_bytes * wanted)
    try:
        net.plan_batch(size, memory_budget=budget)
    except BudgetError as error:
        return error.total_bytes
    return budget


def budgets(cases, path: str) -> int:
    """The table of nets under budgets; 1 if a process took more than is promised."""
    table, allowed, status = Table(BUDGET_COLUMNS, []), BESIDE + FURTHER * A_FORM, 0
    print(table.markdown())
    for (name, size), each in cases.items():
        for wanted in each:
            found = in_process(name, size, "--budget", str(wanted))
            step, fit = found["step"] - found["budget"], found["fit"] - found["budget"]
            budget, counted, *above = (round(n / MIB, 1) for n in (found["budget"], found["counted"], step, fit))
            told = f"{name}, {size}, {wanted:g}", found["kernels"]
            table.rows.append([*told, budget, counted, above[0], BESIDE // MIB, above[1], allowed // MIB])
            print(table.markdown().splitlines()[-1], flush=True)
            status |= step > BESIDE or fit > allowed
    if path:
        written("python benchmarks/predicted_memory.py --budgets", path, budgets=table)
    return status


def written(command: str, path: str, **tables: Table) -> None:
    """Write the figures."""
    write(path, origin(command, ("NumPy", "oneDNN's wheel")), tables)


def in_process(*arguments: str | int) -> dict:
    """A measurement in a process of its own."""
    command = [sys.executable, __file__, *map(str, arguments), "--one"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> int:
    """All nets, each in a process of its own, as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", nargs="?", choices=[*NETS, *TEXTS])
    parser.add_argument("batch", nargs="?", type=int)
    parser.add_argument("--budgets", type=float, nargs="*", help="under memory budgets, against what is promised")
    add_option(parser)
    parser.add_argument("--budget", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--one", action="store_true", help="in this process, as JSON")
    options = parsed(parser, net="lenet", batch=4)
    if options.one:
        given = options.net, options.batch
        print(json.dumps(measure(*given) if options.budget is None else measure_within(*given, options.budget)))
        return 0
    if options.budgets is not None:
        one = {(options.net, options.batch): options.budgets or SHARES}
        return budgets(one if options.net else BUDGETED, options.write)
    table = Table(COLUMNS, [])
    print(table.markdown())
    for name, size in [(options.net, options.batch)] if options.net else DEFAULT:
        found = in_process(name, size)
        predicted, measured = found["predicted"] / MIB, found["measured"] / MIB
        ratio = round(measured / predicted, 3)
        table.rows.append([f"{name}, {size}", found["kernels"], round(predicted, 1), round(measured, 1), ratio])
        print(table.markdown().splitlines()[-1], flush=True)
    if options.write:
        written("python benchmarks/predicted_memory.py", options.write, fit=table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
