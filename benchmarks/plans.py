"""Memory plans of training steps: what the passes and the placement make of each benchmark net.

    pip install ".[onednn]" && python benchmarks/plans.py [--kernels SET] [--precision NAME] [--write FILE] [NET ...]

Nothing is trained: a step is recorded and planned, for each set of kernels that a CPU may run, the default device's
first: kernels differ in scratch and layouts. SGD with momentum, float32 unless --precision says other. MiB, but for the
gap, which is in bytes.
held: parameters and the optimizer's state, which all columns but total leave out. unshared: every tensor and all
scratch with bytes of its own. eager: high water of doing each operation at once and freeing what Python lets go of.
total: all that fit takes of the device's memory. A second table is of prediction, the forward pass alone.

--write: bytes do not depend on what else the machine does, and go into a file of figures. They are of two threads. With
oneDNN held to AVX2, by ONEDNN_MAX_CPU_ISA=AVX2, they do not depend on the processor either: docs/figures/plans.json is
written so. Seconds do: their table has passes, placement, proof (both independent checks), and recording and planning
in all. Rows that were taken beside other work are not printed, and the exit status is 4, unless --anyway is given
(quiet.py).
"""

import argparse
import sys
import time

import quiet
from figure_file import Cell, Table, add_option, line, origin, write
from nets import NETS
from singa_lite import device, optimizer
from singa_lite.compiler.report.memory_plan import MemoryPlan
from singa_lite.errors import DeviceError
from tiny import parsed

#: Of the tables that are written: scratch of oneDNN's kernels goes by the number of threads.
THREADS = 2
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
#: Bytes are in MiB.
SIZE = ",.1f"
TRAINING = (
    ("net, batch", ""),
    ("operations", ",d"),
    ("blocks", ",d"),
    ("held", SIZE),
    ("unshared", SIZE),
    ("eager", SIZE),
    ("floor as recorded", SIZE),
    ("floor", SIZE),
    ("arena", SIZE),
    ("gap", ""),
    ("order", ""),
    ("total", SIZE),
)
PREDICTION = (
    ("net, batch", ""),
    ("operations", ",d"),
    ("unshared", SIZE),
    ("floor", SIZE),
    ("arena", SIZE),
    ("gap", ""),
)
SECONDS = ("net, batch", "passes", "placement", "proof", "in all")


def mebibytes(*sizes: int) -> list[Cell]:
    """Returns cells of numbers of bytes, rounded so that a file of figures shows what a page shows."""
    return [round(nbytes / MIB, 1) for nbytes in sizes]


def gap(plan: MemoryPlan) -> str:
    """Returns the bytes of the arena above the floor, and whether no placement is smaller."""
    return f"{plan.gap_bytes}" + (" proved" if plan.proved else "")


def training_row(title: str, plan: MemoryPlan) -> list[Cell]:
    """Returns a row of the first table."""
    held = plan.by_role["parameter"] + plan.by_role["state"]
    sizes = (held, plan.unshared_bytes, plan.eager_bytes, plan.recorded_floor_bytes, plan.floor_bytes, plan.arena_bytes)
    found: list[Cell] = [title, plan.operations, len(plan.rows), *mebibytes(*sizes)]
    return [*found, gap(plan), plan.order, *mebibytes(plan.total_bytes)]


def prediction_row(title: str, plan: MemoryPlan) -> list[Cell]:
    """Returns a row of the second table."""
    sizes = mebibytes(plan.unshared_bytes, plan.floor_bytes, plan.arena_bytes)
    return [title, plan.operations, *sizes, gap(plan)]


def tables(kernels: str, nets: list[str], precision: str, watch: quiet.Watch) -> dict[str, Table]:
    """Returns the tables of bytes of a set of kernels, by the set and what they are of; prints that of seconds."""
    print(f"\n{line(SECONDS)}\n|{'---|' * len(SECONDS)}", flush=True)
    training, prediction = [], []
    for name in nets:
        for batch in BATCHES[name]:
            title = f"{name}, {batch}"
            net = NETS[name].build(device.new_cpu(kernels=kernels), init=0.0)
            net.compile(optimizer.SGD(lr=0.1, momentum=0.9), precision=precision)
            start = time.perf_counter()
            plan = net.plan_batch(batch)
            planned = time.perf_counter()
            plan.check()
            proof = time.perf_counter() - planned
            seconds = (plan.seconds["passes"], plan.seconds["placement"], proof, planned - start)
            watch.row(line([title, *(f"{second:.3f}" for second in seconds)]))
            training.append(training_row(title, plan))
            prediction.append(prediction_row(title, net.plan_batch(batch, training=False)))
    return {f"{kernels} training": Table(TRAINING, training), f"{kernels} prediction": Table(PREDICTION, prediction)}


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
    parser.add_argument("--precision", default="float32", help="as of compile, such as bfloat16")
    add_option(parser)
    quiet.add_option(parser)
    options = parsed(parser, nets=["digits_cnn"])
    for name in options.nets:
        if name not in BATCHES:
            parser.error(f"wanted nets of {', '.join(BATCHES)}, received {name}")
    options.nets = options.nets or list(BATCHES)
    return options


def main() -> int:
    """Prints the tables, and writes those of bytes."""
    options = arguments()
    if options.write:
        device.set_threads(THREADS)  # before the first device
    sets = sets_there() if options.kernels == "both" else [device.cpu(options.kernels).kernels.name]
    watch = quiet.Watch(options.anyway)
    if "onednn" not in sets and options.kernels == "both":
        print("plans.py: there is no oneDNN: plans for NumPy's kernels alone", file=sys.stderr)
    found: dict[str, Table] = {}
    for kernels in sets:
        made = tables(kernels, options.nets, options.precision, watch)
        print("".join(f"\n## {name}\n\n{table.markdown()}\n" for name, table in made.items()), flush=True)
        found |= made
    if options.write:
        command = "python benchmarks/plans.py"
        if options.precision != "float32":
            command += f" --precision {options.precision}"
        write(options.write, origin(command, ("NumPy", "oneDNN's wheel")), found)
    return watch.status


if __name__ == "__main__":
    sys.exit(main())
