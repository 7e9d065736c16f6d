"""The same training in half and in a third of the memory: a residual net on scikit-learn's handwritten digits.

    pip install ".[examples]" && python examples/half_the_memory.py

Three nets take the same steps in turn: one as it is, and two with a memory_budget of a half and of a third of all
that the first one takes (parameters, state, batch, outputs and the arena). What does not fit is dropped and computed
again, so each loss is equal to the last bit. Under a minute on two cores. Writes half_the_memory.png, the three plans
side by side and what less memory costs, into the folder named by --out, the present one by default.
"""

import argparse
import time
from pathlib import Path

import matplotlib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer, tensor

matplotlib.use("agg")  # draw into files; no screen is needed
import matplotlib.pyplot as plt
from matplotlib.patches import Patch, Rectangle

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("--epochs", type=int, default=2)
arguments.add_argument("--out", type=Path, default=Path("."))
options = arguments.parse_args()
BATCH, BLOCKS, CHANNELS, MIB = 128, 20, 16, 2**20
KINDS = {
    "forward": ("#56B4E9", "forward"),
    "again": ("#F0E442", "computed again"),
    "derivative": ("#E69F00", "derivative"),
    "gradient": ("#009E73", "gradient"),
    "update": ("#CC79A7", "update"),
    "scratch": ("#999999", "scratch of kernels"),
}

pictures, digits = load_digits(return_X_y=True)
pictures = (pictures / 16 - 0.5).astype(np.float32).reshape(-1, 1, 8, 8)
x, x_test, y, y_test = train_test_split(pictures, digits, test_size=0.2, stratify=digits, random_state=0)


def build(budget: int | None = None) -> FeedForwardNet:
    """A residual net (He and others, 2016) on a device of its own, whose pool tells what it takes."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device.new_cpu(), seed=0)
    end = net.add(layers.Conv2D("stem", CHANNELS, 3, use_bias=False, input_sample_shape=(1, 8, 8)))
    for block in range(1, BLOCKS + 1):
        start = end
        for half in "ab":
            net.add(layers.BatchNormalization(f"norm{block}{half}"), end)
            net.add(layers.Activation(f"relu{block}{half}"))
            end = net.add(layers.Conv2D(f"conv{block}{half}", CHANNELS, 3, use_bias=False))
        end = net.add(layers.Merge(f"sum{block}"), [start, end])
    net.add(layers.Activation("relu"), end)
    net.add(layers.MaxPooling2D("pool", 2, 2, border_mode="valid"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 10))
    net.compile(optimizer.SGD(lr=0.01, momentum=0.9), memory_budget=budget)
    return net


# Before anything runs: what it takes, and what less of it costs.
free = build()
plan = free.plan_batch(BATCH, samples=BATCH)
total, plans = plan.total_bytes, {1.0: plan}
for share in (0.8, 0.65, 1 / 2, 0.4, 1 / 3):  # free.budget_curve(BATCH) goes on to the least
    plans[share] = free.plan_batch(BATCH, samples=BATCH, memory_budget=int(total * share))
shares = {"free": 1.0, "half": 1 / 2, "a third": 1 / 3}
nets = {"free": free, "half": build(total // 2), "a third": build(total // 3)}

# The same steps in turn, so that whatever else the machine does slows all of them.
random, seconds = np.random.default_rng(0), {name: [] for name in nets}
steps = options.epochs * (len(x) // BATCH)
for step in range(steps):
    chosen = random.choice(len(x), BATCH, replace=False)
    losses = {}
    for name, net in nets.items():
        begin = time.perf_counter()
        value, _ = net.train_one_batch(x[chosen], y[chosen])
        losses[name] = tensor.to_numpy(value).tobytes()
        seconds[name].append(time.perf_counter() - begin)
    if len(set(losses.values())) > 1:
        raise SystemExit(f"step {step}: the losses differ")
print(f"{steps} steps of {BATCH}: all losses equal to the last bit, the last is {float(value):.4f}")

usual = np.median(seconds["free"][1:])
print(f"{'':8} {'MiB planned':>12} {'MiB taken':>10} {'ms a step':>10} {'measured':>9} {'estimated':>10}")
for name, net in nets.items():
    planned, taken = plans[shares[name]].total_bytes, net.device.pool.used
    if taken > planned:
        raise SystemExit(f"{name}: wanted at most the {planned} bytes planned, the pool gave out {taken}")
    median = np.median(seconds[name][1:])
    numbers = f"{planned / MIB:12.1f} {taken / MIB:10.1f} {1e3 * median:10.1f} {median / usual - 1:+9.1%}"
    print(f"{name:8} {numbers} {net.memory_plan.estimated_slowdown:+10.1%}")
print(f"right on {float(free.evaluate(x_test, y_test, BATCH)[1]):.1%} of the held-out fifth")

figure, axes = plt.subplots(1, 4, figsize=(14, 4.6), width_ratios=[1, 1, 1, 1.1], layout="constrained")
for place, (name, net) in zip(axes, nets.items(), strict=False):
    plan = net.memory_plan
    for row in plan.rows:
        corner, size = (row.lower, row.offset / MIB), (row.upper - row.lower, row.nbytes / MIB)
        edge = 0.2 if row.nbytes > MIB / 20 else 0.0  # edges of tiny blocks would be all that is seen of them
        place.add_patch(Rectangle(corner, *size, facecolor=KINDS[row.kind][0], edgecolor="#444444", linewidth=edge))
    place.set(xlim=(0, plan.operations), ylim=(0, free.memory_plan.arena_bytes / MIB * 1.02), xlabel="operation")
    place.set_title(f"{name}: {plan.arena_bytes / MIB:.1f} MiB, {plan.recomputed} computed again", fontsize=10)
axes[0].set_ylabel("offset in the arena (MiB)")
patches = [Patch(color=color, label=label) for color, label in KINDS.values()]
figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False)
slowdowns = [100 * plan.estimated_slowdown for plan in plans.values()]
axes[3].plot([total * share / MIB for share in plans], slowdowns, "o-", markersize=3)
axes[3].margins(0.12)
for name in ("half", "a third"):
    point = total * shares[name] / MIB, 100 * plans[shares[name]].estimated_slowdown
    axes[3].annotate(name, point, (7, 3), textcoords="offset points")
axes[3].set(xlabel="all that training takes (MiB)", ylabel="estimated extra time (%)")
axes[3].set_title("what less memory costs", fontsize=10)
axes[3].grid(alpha=0.3)
options.out.mkdir(parents=True, exist_ok=True)
figure.savefig(options.out / "half_the_memory.png", dpi=110)
print(f"wrote {options.out / 'half_the_memory.png'}")
