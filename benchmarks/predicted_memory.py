"""Predicted against measured: what `plan_batch` says that `fit` takes, and what the process then really took.

    pip install . && python benchmarks/predicted_memory.py [NET BATCH] [--budgets] [--write FILE]

Each net is fitted in a process of its own: two whole batches and a shorter one, shuffled, and a validation of one whole
batch and a shorter one. Predicted: `plan_batch(n).total_bytes`, known before the first step. Measured: VmHWM over what
was resident before the net was built, after a warm-up in which BLAS makes its own buffers; one batch that NumPy takes
from the data is in it. Both with the kernels of the default device, which each row names. Nets of text (gpt2_small_256)
are trained by AdamW, all others with momentum. Linux only; other work on the machine changes no bytes.

--budgets: the same under memory budgets, shares of the free plan's total: first two training steps alone, then `fit` as
above, with its three further forms of record. What the process takes above the budget, over what was resident with the
data there and no net, is promised to be at most `ABOVE`, and `A_FORM` more for each further form (docs/budget.md);
where it is more the exit status is 1.
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
from singa_lite.graph.budget_error import BudgetError
from tiny import parsed

MIB = 2**20
#: Bytes that the process may take above the budget with one form of record, and for each further one.
ABOVE, A_FORM = 50 * MIB, 16 * MIB
#: Forms of record that `fit` adds to the training step of whole batches.
FURTHER = 3
SHARES = (1.0, 0.7, 0.5)
BUDGETED = (("resnet50", 16), ("mobilenet_v2", 32), ("unet", 8), ("lenet", 64))
COLUMNS = (
    ("net, batch", ""),
    ("kernels", ""),
    ("predicted MiB", ",.1f"),
    ("measured MiB", ",.1f"),
    ("measured / predicted", ".3f"),
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


def measure_within(name: str, size: int, share: float) -> dict:
    """Plan, train within the budget, and read off."""
    last = size // 3 + 1
    x, y = batch(name, 2 * size + last, 0)
    level = warmed_level()
    net = entry(name).build(device.new_cpu())
    net.compile(optimizer_of(name))
    budget = least_of(net, size, share)
    net.compile(optimizer_of(name), memory_budget=budget)
    for _ in range(2):
        net.train_one_batch(x[:size], y[:size])
    step = resident("VmHWM") - level
    net.fit(x, y, size, validation_data=(x[: size + last], y[: size + last]), verbose=False)
    fitted = resident("VmHWM") - level
    return {"budget": budget, "step": step, "fit": fitted, "kernels": net.device.kernels.name}


def least_of(net, size: int, share: float) -> int:
    """This share of the free plan's total, or the least that is possible."""
    budget = int(net.plan_batch(size).total_bytes * share)
    try:
        net.plan_batch(size, memory_budget=budget)
    except BudgetError as error:
        return error.total_bytes
    return budget


def budgets(cases) -> int:
    """The table of nets under budgets; 1 if a process took more than is promised."""
    allowed = ABOVE, ABOVE + FURTHER * A_FORM
    print("| net, batch | kernels | budget MiB | process - budget MiB: a step | fit | allowed |")
    print("|---|---|---|---|---|---|")
    status = 0
    for name, size in cases:
        for share in SHARES:
            row = in_process(name, size, "--share", str(share))
            above = row["step"] - row["budget"], row["fit"] - row["budget"]
            cells = [f"{nbytes / MIB:.1f}" for nbytes in (row["budget"], *above)]
            most = " and ".join(f"{nbytes / MIB:.0f}" for nbytes in allowed)
            broken = any(a > b for a, b in zip(above, allowed, strict=True))
            status |= broken
            print(
                f"| {name}, {size} | {row['kernels']} | {' | '.join(cells)} | {most}{', **broken**' * broken} |",
                flush=True,
            )
    return status


def in_process(*arguments: str | int) -> dict:
    """A measurement in a process of its own."""
    command = [sys.executable, __file__, *map(str, arguments), "--one"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> int:
    """All nets, each in a process of its own, as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("net", nargs="?", choices=[*NETS, *TEXTS])
    parser.add_argument("batch", nargs="?", type=int)
    parser.add_argument("--budgets", action="store_true", help="under memory budgets, against what is promised")
    add_option(parser)
    parser.add_argument("--share", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--one", action="store_true", help="in this process, as JSON")
    options = parsed(parser, net="lenet", batch=4)
    if options.one:
        given = options.net, options.batch
        print(json.dumps(measure(*given) if options.share is None else measure_within(*given, options.share)))
        return 0
    if options.budgets:
        return budgets([(options.net, options.batch)] if options.net else BUDGETED)
    table = Table(COLUMNS, [])
    print(table.markdown())
    for name, size in [(options.net, options.batch)] if options.net else DEFAULT:
        found = in_process(name, size)
        predicted, measured = found["predicted"] / MIB, found["measured"] / MIB
        ratio = round(measured / predicted, 3)
        table.rows.append([f"{name}, {size}", found["kernels"], round(predicted, 1), round(measured, 1), ratio])
        print(table.markdown().splitlines()[-1], flush=True)
    if options.write:
        write(
            options.write, origin("python benchmarks/predicted_memory.py", ("NumPy", "oneDNN's wheel")), {"fit": table}
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
