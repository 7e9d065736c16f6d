"""Memory plans of training steps: what the passes and the placement make of each benchmark net.

    pip install ".[onednn]" && python benchmarks/plans.py [--kernels SET] [NET ...]

Nothing is trained: a step is recorded and planned, for each set of kernels that a CPU may run, the default device's
first: kernels differ in scratch and layouts. All float32, SGD with momentum. MiB, but for the gap, which is in bytes.
held: parameters and the optimizer's state, beside all that follows. unshared: every tensor and all scratch with bytes
of its own. eager: high water of doing each operation at once and freeing what Python lets go of. seconds: passes,
placement, proof (both independent checks). in all: recording and planning. The last table is of prediction, the forward
pass alone. Rows whose seconds were taken beside other work are not printed, and the exit status is 4, unless --anyway
is given (quiet.py).
"""

import argparse
import sys
import time

import quiet
from nets import NETS
from singa_lite import device, optimizer
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.errors import DeviceError
from tiny import parsed

BATCHES = {
    "digits_cnn": (32,),
    "lenet": (64,),
    "vgg16": (8,),
    "resnet50": (16, 32),
    "mobilenet_v2": (32,),
    "densenet121": (16,),
    "unet": (8,),
    "chain": (32,),
}
MIB = 2**20


#: The sets that a CPU may run, by what --kernels calls them.
SETS = ("onednn", "numpy")
TRAINING = (
    "net, batch",
    "operations",
    "blocks",
    "held",
    "unshared",
    "eager",
    "floor as recorded",
    "floor",
    "arena",
    "gap",
    "order",
    "seconds",
    "in all",
)
PREDICTION = ("prediction: net, batch", "operations", "unshared", "floor", "arena", "gap")


def mebibytes(*sizes: int) -> list[str]:
    """Cells of numbers of bytes."""
    return [f"{nbytes / MIB:.1f}" for nbytes in sizes]


def gap(plan: MemoryPlan) -> str:
    """Bytes of the arena above the floor, and whether no placement is smaller."""
    return f"{plan.gap_bytes}" + (" proved" if plan.proved else "")


def training_row(name: str, batch: int, plan: MemoryPlan, proof: float, seconds: float) -> str:
    """A line of the first table. proof, seconds: that both checks took, and that recording and planning took."""
    held = plan.by_role["parameter"] + plan.by_role["state"]
    cells = [
        f"{name}, {batch}",
        f"{plan.operations}",
        f"{len(plan.rows)}",
        *mebibytes(held, plan.unshared_bytes, plan.eager_bytes),
        *mebibytes(plan.recorded_floor_bytes, plan.floor_bytes, plan.arena_bytes),
        gap(plan),
        plan.order,
        " + ".join(f"{seconds:.3f}" for seconds in (plan.seconds["passes"], plan.seconds["placement"], proof)),
        f"{seconds:.2f}",
    ]
    return line(cells)


def prediction_row(name: str, batch: int, plan: MemoryPlan) -> str:
    """A line of the second table."""
    sizes = mebibytes(plan.unshared_bytes, plan.floor_bytes, plan.arena_bytes)
    return line([f"{name}, {batch}", f"{plan.operations}", *sizes, gap(plan)])


def line(cells: list[str] | tuple[str, ...]) -> str:
    """In Markdown."""
    return f"| {' | '.join(cells)} |"


def heading(cells: tuple[str, ...]) -> str:
    """The first two lines of a table."""
    return f"{line(cells)}\n|{'---|' * len(cells)}"


def tables(kernels: str, nets: list[str], watch: quiet.Watch) -> None:
    """Print both tables of a set of kernels."""
    usual = " (the default device)" if device.cpu().kernels.name == kernels else ""
    print(f"\n## Kernels: {kernels}{usual}\n\n{heading(TRAINING)}", flush=True)
    predictions = []
    for name in nets:
        for batch in BATCHES[name]:
            net = NETS[name].build(device.new_cpu(kernels=kernels), init=0.0)
            net.compile(optimizer.SGD(lr=0.1, momentum=0.9))
            start = time.perf_counter()
            plan = net.plan_batch(batch)
            planned = time.perf_counter()
            plan.check()
            proved = time.perf_counter()
            watch.row(training_row(name, batch, plan, proved - planned, planned - start))
            predictions.append(prediction_row(name, batch, net.plan_batch(batch, training=False)))
    print(f"\n{heading(PREDICTION)}", *predictions, sep="\n")  # bytes alone, which do not depend on the machine's rest


def sets_there() -> list[str]:
    """The sets that this machine has, its fastest first."""
    try:
        return [device.cpu(name).kernels.name for name in SETS]
    except DeviceError:  # oneDNN's library is not there
        return ["numpy"]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET", help=f"of {', '.join(BATCHES)}; all if none is named")
    parser.add_argument("--kernels", choices=(*SETS, "both"), default="both", help="default both, where oneDNN is")
    quiet.add_option(parser)
    options = parsed(parser, nets=["digits_cnn"])
    for name in options.nets:
        if name not in BATCHES:
            parser.error(f"wanted nets of {', '.join(BATCHES)}, received {name}")
    options.nets = options.nets or list(BATCHES)
    return options


def main() -> int:
    """Print the tables."""
    options = arguments()
    sets = sets_there() if options.kernels == "both" else [device.cpu(options.kernels).kernels.name]
    watch = quiet.Watch(options.anyway)
    if "onednn" not in sets and options.kernels == "both":
        print("plans.py: there is no oneDNN: plans for NumPy's kernels alone", file=sys.stderr)
    for kernels in sets:
        tables(kernels, options.nets, watch)
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
