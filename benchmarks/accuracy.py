"""How near `precision="bfloat16"` comes to float32, and PyTorch's autocast beside it, from equal weights and batches.

    python benchmarks/accuracy.py            # all three tables, some minutes
    python benchmarks/accuracy.py digits     # held-out accuracy of a CNN on scikit-learn's digits, by seeds
    python benchmarks/accuracy.py curves     # loss of a small ResNet on crops of scikit-learn's two photographs
    python benchmarks/accuracy.py gradients  # of one step, by layers, as shares of their norm

Wanted: accuracies within 0.6 points on the mean of the seeds; curves within the spread of float32's seeds.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from nets.resnet import resnet8_32
from nets.small import digits_cnn
from singa_lite import FeedForwardNet, device, optimizer, tensor
from singa_lite.errors import PrecisionWarning
from tiny import TINY, parsed, size

Array = np.ndarray[Any, Any]
Batches = list[tuple[Array, Array]]

NETS = {"digits_cnn": digits_cnn, "resnet8_32": resnet8_32}
PRECISIONS = ("float32", "bfloat16")
BATCH, LR = 32, 0.05
#: Held-out accuracies may differ by so many points.
POINTS = 0.6
EPOCHS = size(6, 1)
#: Of a curve, each the mean loss of so many steps.
STEPS, EACH = size((160, 20), (4, 2))


def main() -> int:
    """Print the tables; 1 if something is further off than wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = {"digits": digits, "curves": curves, "gradients": gradients}
    parser.add_argument("tables", nargs="*", choices=[*tables, []], help="which, by default all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--no-peer", action="store_true", help="without PyTorch")
    given = parsed(parser, seeds=1, no_peer=True)
    results = [tables[name](given.seeds, not given.no_peer) for name in given.tables or tables]
    return int(not all(results) and not TINY)


# ---- data


def digits_data() -> tuple[Array, Array]:
    """1,797 pictures of 8 x 8 pixels, and which digit each is."""
    from sklearn.datasets import load_digits

    pictures, y = load_digits(return_X_y=True)
    every = size(1, 10)
    return (pictures / 16 - 0.5).astype(np.float32).reshape(-1, 1, 8, 8)[::every], y[::every]


def shuffled(x: Array, y: Array, seed: int, epochs: int) -> Iterator[tuple[Array, Array]]:
    """Batches of some epochs, each in another order; what is left of an epoch is left out."""
    random = np.random.default_rng(seed)
    for _ in range(epochs):
        order = random.permutation(len(x))
        for start in range(0, len(x) - BATCH + 1, BATCH):
            at = order[start : start + BATCH]
            yield x[at], y[at]


def crops(seed: int, steps: int) -> Iterator[tuple[Array, Array]]:
    """Batches of 32 x 32 pixels from two photographs, each cut in five upright strips: which of ten is it?"""
    from sklearn.datasets import load_sample_images

    photographs = [np.asarray(p, np.float32) / 127.5 - 1 for p in load_sample_images().images]
    random = np.random.default_rng(seed)
    for _ in range(steps):
        y = random.integers(0, 10, BATCH)
        yield np.stack([_crop(photographs[k // 5], k % 5, random) for k in y]), y


def _crop(photograph: Array, strip: int, random: np.random.Generator) -> Array:
    height, width = photograph.shape[:2]
    top = random.integers(0, height - 32)
    left = random.integers(strip * width // 5, (strip + 1) * width // 5 - 32)
    return photograph[top : top + 32, left : left + 32].transpose(2, 0, 1)


# ---- our side


def built(name: str, seed: int, precision: str, lr: float = LR, momentum: float = 0.9) -> FeedForwardNet:
    """A compiled net, of equal weights for equal seeds."""
    net = NETS[name](device.new_cpu(), seed)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", PrecisionWarning
        )  # that there may be no kernels for bfloat16 here is not what is asked
        net.compile(optimizer.SGD(lr=lr, momentum=momentum), precision=precision)
    return net


def weights_of(net: FeedForwardNet) -> dict[str, Array]:
    """Copies of all parameters by name."""
    return {
        name: tensor.to_numpy(value).copy() for name, value in zip(net.param_names(), net.param_values(), strict=True)
    }


def trained(net: FeedForwardNet, batches: Batches) -> list[float]:
    """The loss of each step."""
    return [float(net.train_one_batch(x, y)[0]) for x, y in batches]


def accuracy_of(net: FeedForwardNet, x: Array, y: Array) -> float:
    """The share of samples whose largest score is the right one."""
    return float((tensor.to_numpy(net.predict(x)).argmax(1) == y).mean())


def gradients_of(net: FeedForwardNet, x: Array, y: Array) -> dict[str, Array]:
    """What a step of plain SGD at rate 1 moves."""
    before = weights_of(net)
    net.train_one_batch(x, y)
    return {name: before[name] - after for name, after in weights_of(net).items()}


# ---- tables


def digits(seeds: int, peer: bool) -> bool:
    """Held-out accuracy, per cent; each seed holds out another fifth."""
    x, y = digits_data()
    found: dict[str, list[float]] = {}
    for seed in range(seeds):
        held = np.random.default_rng(100 + seed).permutation(len(x)) < len(x) // 5
        batches = list(shuffled(x[~held], y[~held], seed, EPOCHS))
        weights = weights_of(built("digits_cnn", seed, "float32"))
        for precision in PRECISIONS:
            net = built("digits_cnn", seed, precision)
            trained(net, batches)
            found.setdefault(f"ours, {precision}", []).append(accuracy_of(net, x[held], y[held]))
            if peer:
                other = _peer("digits_cnn", weights, precision, seed)
                other.train(batches, LR)
                found.setdefault(f"PyTorch, {precision}", []).append(other.accuracy(x[held], y[held]))
    print(f"\ndigits, {EPOCHS} epochs, held-out accuracy in per cent of seeds 0 to {seeds - 1}, and their mean")
    means = {name: 100 * float(np.mean(row)) for name, row in found.items()}
    for name, row in sorted(found.items()):
        print(f"{name:20}", *(f"{100 * one:6.2f}" for one in row), f"  {means[name]:6.2f}")
    near = abs(means["ours, bfloat16"] - means["ours, float32"]) <= POINTS
    print(f"within {POINTS} points: {'yes' if near else 'NO'}")
    return near


def curves(seeds: int, peer: bool) -> bool:
    """Mean losses of pieces of the way."""
    found: dict[str, list[Array]] = {}
    for seed in range(seeds):
        batches = list(crops(seed, STEPS))
        weights = weights_of(built("resnet8_32", seed, "float32"))
        for precision in PRECISIONS:
            losses = trained(built("resnet8_32", seed, precision), batches)
            found.setdefault(f"ours, {precision}", []).append(_pieces(losses))
            if peer:
                losses = _peer("resnet8_32", weights, precision, seed).train(batches, LR)
                found.setdefault(f"PyTorch, {precision}", []).append(_pieces(losses))
    print(f"\nresnet8_32 on crops, mean loss of {EACH} steps each: least, mean and most of seeds 0 to {seeds - 1}")
    for name, rows in sorted(found.items()):
        for what, of in (("least", np.min), ("mean", np.mean), ("most", np.max)):
            print(f"{name:20} {what:6}", *(f"{one:6.3f}" for one in of(rows, axis=0)))
    wide, mean = found["ours, float32"], np.mean(found["ours, bfloat16"], axis=0)
    within = bool(np.all((np.min(wide, axis=0) <= mean) & (mean <= np.max(wide, axis=0))))
    print(f"bfloat16's mean within the spread of float32's seeds: {'yes' if within else 'NO'}")
    return within


def _pieces(losses: list[float]) -> Array:
    return np.array(losses).reshape(-1, EACH).mean(axis=1)


def gradients(seeds: int, peer: bool) -> bool:
    """Of the first step: the norm of the difference to float32 as a share of the gradient's, per cent."""
    for name in NETS:
        batch = next(crops(0, 1)) if name == "resnet8_32" else next(shuffled(*digits_data(), 0, 1))
        rows = dict[str, list[float]]()
        plain = {"lr": 1.0, "momentum": 0.0}
        wide, *ours = (gradients_of(built(name, 0, one, **plain), *batch) for one in (*PRECISIONS, "float16"))
        sides = [[wide, narrow] for narrow in ours]
        if peer:
            weights = weights_of(built(name, 0, "float32"))
            sides.append([_peer(name, weights, precision, 0).gradients(*batch) for precision in PRECISIONS])
        for wide, narrow in sides:
            for layer, gradient in wide.items():
                off = np.linalg.norm(narrow[layer] - gradient) / max(float(np.linalg.norm(gradient)), 1e-12)
                rows.setdefault(layer, []).append(100 * float(off))
        print(
            f"\n{name}, gradients of the first step, off by per cent of their norm: "
            f"bfloat16, float16{', PyTorch in bfloat16' if peer else ''}"
        )
        for layer, shares in rows.items():
            print(f"{layer:32}", *(f"{share:6.2f}" for share in shares))
    return True


def _peer(name: str, weights: dict[str, Array], precision: str, seed: int) -> Any:
    from peers.torch_accuracy import Trained

    return Trained(name, weights, precision == "bfloat16", seed)


if __name__ == "__main__":
    sys.exit(main())
