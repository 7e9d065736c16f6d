"""Memory plans of training steps: what the passes and the placement make of each benchmark net.

    pip install . && python benchmarks/plans.py [NET ...]

Nothing is trained: a step is recorded and planned. All float32, SGD with momentum. MiB, but for the gap, which is in
bytes. unshared: every tensor and all scratch with bytes of its own. eager: high water of doing each operation at once
and freeing what Python lets go of. seconds: passes, placement, proof (both independent checks). in all: recording and
planning. saved: by recycling, of arena + parameters + state. The last table is of prediction, the forward pass alone.
"""

import argparse
import time

from nets import NETS
from singa_lite import device, optimizer
from singa_lite.memory_plan import MemoryPlan

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


def training_row(name: str, batch: int, plan: MemoryPlan, proof: float, seconds: float) -> str:
    """A line of the first table."""
    held = plan.by_role["parameter"] + plan.by_role["state"]
    saved = 1 - (plan.arena_bytes + held) / (plan.unshared_bytes + held)
    cells = [
        f"{name}, {batch}",
        f"{plan.operations}",
        f"{len(plan.rows)}",
        *(f"{nbytes / MIB:.1f}" for nbytes in (plan.unshared_bytes, plan.eager_bytes, plan.recorded_floor_bytes)),
        *(f"{nbytes / MIB:.1f}" for nbytes in (plan.floor_bytes, plan.arena_bytes)),
        f"{plan.gap_bytes}" + (" proved" if plan.proved else ""),
        plan.order,
        " + ".join(f"{seconds:.3f}" for seconds in (plan.seconds["passes"], plan.seconds["placement"], proof)),
        f"{seconds:.2f}",
        f"{saved:.1%}",
        f"{1 - plan.arena_bytes / plan.unshared_bytes:.1%}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET", help=f"of {', '.join(BATCHES)}; all if none is named")
    chosen = parser.parse_args().nets or list(BATCHES)
    for name in chosen:
        if name not in BATCHES:
            parser.error(f"wanted nets of {', '.join(BATCHES)}, received {name}")
    print(
        "| net, batch | operations | blocks | unshared | eager | floor as recorded | floor | arena | gap | order "
        "| seconds | in all | saved | of transient bytes |\n|" + "---|" * 14
    )
    predictions = []
    for name in chosen:
        for batch in BATCHES[name]:
            net = NETS[name].build(device.new_cpu(), init=0.0)
            net.compile(optimizer.SGD(lr=0.1, momentum=0.9))
            start = time.perf_counter()
            plan = net.plan_batch(batch)
            planned = time.perf_counter()
            plan.check()
            proved = time.perf_counter()
            print(training_row(name, batch, plan, proved - planned, planned - start), flush=True)
            predictions.append((name, batch, net.plan_batch(batch, training=False)))
    print("\n| prediction: net, batch | operations | unshared | floor | arena | gap |\n|---|---|---|---|---|---|")
    for name, batch, plan in predictions:
        sizes = (plan.unshared_bytes, plan.floor_bytes, plan.arena_bytes)
        megabytes = " | ".join(f"{nbytes / MIB:.1f}" for nbytes in sizes)
        proved = " proved" if plan.proved else ""
        print(f"| {name}, {batch} | {plan.operations} | {megabytes} | {plan.gap_bytes}{proved} |")


if __name__ == "__main__":
    main()
