"""What ranks do in the tests of several processes; run as a script by each, and imported for what one process finds.

Each case trains some steps and gives {name: array}: parameters, state, losses. ranks: None for one process, which takes
the whole batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from singa_lite import FeedForwardNet, layers, loss, optimizer, parallel
from singa_lite.kernels.interface import SIGNATURES

#: Samples of each rank's part, of four at most.
PARTS = (5, 3, 8, 2)
STEPS = 4
#: How many ranks a single process stands for: it takes their parts together.
Ranks = Any


def size_of(ranks: Ranks, together: int) -> int:
    return together if ranks is None else ranks.size


def part(ranks: Ranks, together: int, parts: tuple[int, ...] = PARTS) -> slice:
    """This rank's samples of the whole batch."""
    starts = np.cumsum([0, *parts[: size_of(ranks, together)]])
    return slice(0, starts[-1]) if ranks is None else slice(starts[ranks.rank], starts[ranks.rank + 1])


def values(net: FeedForwardNet) -> dict[str, np.ndarray]:
    found = {name: np.array(value) for name, value in zip(net.param_names(), net.param_values(), strict=True)}
    found = {name: value.astype("f") if value.dtype.kind == "V" else value for name, value in found.items()}
    return found | {name: np.array(value) for name, value in net.states().items()}


def mlp() -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=3)
    net.add(layers.Dense("a", 30, input_sample_shape=(20,)))
    net.add(layers.Activation("tanh", "tanh"))
    net.add(layers.Dense("b", 50))
    net.add(layers.Activation("relu", "relu"))
    net.add(layers.Dense("c", 7))
    return net


#: Inputs and targets of so many samples, and weights of the samples where there are any.
Draw = Callable[[np.random.Generator, int], tuple[Any, ...]]


def classes(*shape: int) -> Draw:
    """Random samples of one of 7 classes."""
    return lambda random, n: (random.standard_normal((n, *shape)).astype(np.float32), random.integers(0, 7, n))


def steps(
    net: FeedForwardNet,
    ranks: Ranks,
    together: int,
    draw: Draw,
    parts: tuple[int, ...] = PARTS,
    seed: int = 7,
    count: int = STEPS,
) -> dict[str, np.ndarray]:
    """Some steps of this rank's parts, of unequal sizes."""
    random, mine = np.random.default_rng(seed), part(ranks, together, parts)
    for _ in range(count):
        x, y, *weights = draw(random, sum(parts[: size_of(ranks, together)]))
        own = {name: each[mine] for name, each in y.items()} if isinstance(y, dict) else y[mine]
        net.train_one_batch(x[mine], own, **({"sample_weight": weights[0][mine]} if weights else {}))
    return values(net)


def train(
    net: FeedForwardNet,
    opt: optimizer.Optimizer,
    ranks: Ranks,
    together: int,
    shape: tuple[int, ...] = (20,),
    parts: tuple[int, ...] = PARTS,
    **options: Any,
) -> dict[str, np.ndarray]:
    """Some steps of a net that is compiled for it."""
    net.compile(opt, parallel=ranks, **options)
    return steps(net, ranks, together, classes(*shape), parts)


def sgd() -> optimizer.SGD:
    return optimizer.SGD(0.2, momentum=0.9, weight_decay=0.01)


def adamw() -> optimizer.AdamW:
    return optimizer.AdamW(0.01, epsilon=1e-3)


#: Parts of which the second rank's has no samples.
IDLE: dict[str, Any] = {"parts": (5, 0, 8, 2)}
GROUPED: dict[str, Any] = {"clip_global_norm": 0.1, "accumulate": 2, "micro_batches": 2}
SHARDED: dict[str, Any] = {"shard": "state"}
#: How parameters in bfloat16 are rounded, and when they are updated.
STORED: dict[str, dict[str, Any]] = {
    "stored_stochastic": {},
    "stored_eager": {"graph": False},
    "stored_clipped": {"rounding": "compensated", **GROUPED},
    "stored_compensated": {"rounding": "compensated"},
}
#: {case: (its optimizer, options of `parallel.mpi`, options of `train`)}, all of the perceptron.
PLAIN: dict[str, tuple[Callable[[], optimizer.Optimizer], dict[str, Any], dict[str, Any]]] = {
    "recorded": (sgd, {}, {}),
    "recorded_again": (sgd, {}, {}),
    "eager": (sgd, {}, {"graph": False}),
    "unshared_gradients": (sgd, {"bucket_bytes": 1}, {}),
    "adam": (adamw, {}, {}),
    "clipped": (sgd, {}, GROUPED),
    "accumulated": (lambda: optimizer.SGD(0.2, momentum=0.9), {}, {"accumulate": 2}),
    "scaled": (sgd, {}, {"loss_scale": 256.0, "clip_global_norm": 1.0}),
    "idle": (sgd, {}, IDLE),
    "frozen": (sgd, {}, {"freeze": "b"}),
    **{name: (sgd, {}, {"parameter_dtype": "bfloat16", **options}) for name, options in STORED.items()},
    "sharded": (sgd, SHARDED, {}),
    "sharded_eager": (sgd, SHARDED, {"graph": False}),
    "sharded_clipped": (sgd, SHARDED, GROUPED),
    "sharded_clipped_alone": (sgd, SHARDED, {"clip_global_norm": 0.1}),
    "sharded_clipped_idle": (sgd, SHARDED, {"clip_global_norm": 0.1, "loss_scale": 64.0, **IDLE}),
}


def plain(name: str, ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """A row of PLAIN, with the norm that it clipped by."""
    make, options, compiled = PLAIN[name]
    net = mlp()
    found = train(net, make(), again(ranks, **options), together, **compiled)
    return found | ({"norm": np.array(net.gradient_norm)} if "clip_global_norm" in compiled else {})


def stored_once(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """The first step of parameters that are rounded by chance."""
    net = mlp()
    net.compile(sgd(), parallel=again(ranks), parameter_dtype="bfloat16")
    return steps(net, ranks, together, classes(20), count=1)


def two_outputs(criteria: dict[str, Any]) -> FeedForwardNet:
    net = FeedForwardNet(criteria, seed=3)
    net.add(layers.Dense("a", 30, input_sample_shape=(20,)))
    net.add(layers.Dense("c", 7), "a")
    net.add(layers.Dense("d", 2), "a")
    return net


def idle_targets(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """Losses that take only some: probabilities, and -1 or 1."""

    def draw(random: np.random.Generator, n: int) -> tuple[Any, ...]:
        x, c = random.standard_normal((n, 20)).astype("f"), random.dirichlet(np.ones(7), n).astype("f")
        return x, {"c": c, "d": random.choice([-1, 1], (n, 2)).astype("f")}

    net = two_outputs({"c": loss.KLDivergence(), "d": loss.Hinge()})
    net.compile(sgd(), parallel=again(ranks))
    return steps(net, ranks, together, draw, **IDLE)


def weighted(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """Two outputs, with weights of losses and of samples."""

    def draw(random: np.random.Generator, n: int) -> tuple[Any, ...]:
        x, c = random.standard_normal((n, 20)).astype("f"), random.integers(0, 7, n)
        d, weights = random.standard_normal((n, 2)).astype("f"), random.uniform(0.5, 2, n).astype("f")
        return x, {"c": c, "d": d}, weights

    net = two_outputs({"c": loss.SoftmaxCrossEntropy(), "d": loss.SquaredError()})
    net.compile(sgd(), parallel=again(ranks), loss_weights={"d": 0.5})
    return steps(net, ranks, together, draw)


def ignored(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """Positions that do not count are unequally many in the parts; on the first rank none counts."""

    def draw(random: np.random.Generator, n: int) -> tuple[Any, ...]:
        x, y = random.standard_normal((n, 6, 4)).astype("f"), random.integers(-1, 5, (n, 6))
        y[: PARTS[0]] = -1
        return x, y

    found = {}
    for options in ({}, {"accumulate": 3}, {"micro_batches": 2}):
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(axis=-1, ignore_index=-1), seed=3)
        net.add(layers.Dense("a", 5, input_sample_shape=(6, 4)))
        net.compile(sgd(), parallel=again(ranks), **options)
        made = steps(net, ranks, together, draw)
        found |= {f"{name} {options}": value for name, value in made.items()}
    return found


def images(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """Statistics of each rank's own part; running ones are those of all."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=3)
    net.add(layers.Conv2D("conv", 6, 3, input_sample_shape=(2, 9, 8)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("relu", "relu"))
    net.add(layers.MaxPooling2D("pool", 2, 2))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("scores", 7))
    return train(net, sgd(), again(ranks), together, (2, 9, 8))


def statistics(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """One step of a normalisation by itself."""
    net = FeedForwardNet(loss.SquaredError(), seed=3)
    net.add(layers.BatchNormalization("norm", input_sample_shape=(4,)))
    net.compile(sgd(), parallel=again(ranks))
    mine = part(ranks, together)
    x = np.random.default_rng(7).normal(2, 3, (sum(PARTS[: size_of(ranks, together)]), 4)).astype(np.float32)
    net.train_one_batch(x[mine], x[mine])
    return values(net) | {"batch": x}


def synced(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """Statistics of the whole batch, so that several processes do what one does."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=3)
    net.add(layers.Conv2D("conv", 6, 3, input_sample_shape=(2, 9, 8)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("relu", "relu"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("hidden", 11))
    net.add(layers.BatchNormalization("norm_2"))
    net.add(layers.Dense("scores", 7))
    return train(net, sgd(), again(ranks, sync=True), together, (2, 9, 8), (5, 3, 0, 2))


def dropped(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """What each rank drops of equal inputs; state is the same everywhere."""
    net = FeedForwardNet(loss.SquaredError(), seed=3)
    net.add(layers.Dropout("drop", 0.5, input_sample_shape=(40,)))
    net.add(layers.Dense("dense", 1))
    net.compile(sgd(), parallel=again(ranks), keep=["drop"])
    net.train_one_batch(np.ones((2, 40), np.float32), np.zeros((2, 1), np.float32))
    found = np.array(net.kept["drop"].output)
    every = [found] if ranks is None else net.parallel.gathered(found)
    return values(net) | {"kept": np.stack(every)}


def sharded_adam(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    net, opt = mlp(), optimizer.AdamW(0.01, epsilon=1e-3)
    found = train(net, opt, again(ranks, shard="state"), together)
    slots = ("first_moment", "second_moment")
    return found | {"state": np.array(sum(s.nbytes for state in opt.state.values() for s in map(state.get, slots)))}


def each_optimizer(ranks: Ranks, together: int = 0, **options: Any) -> dict[str, np.ndarray]:
    """With state in parts those alone that update each element by itself."""
    found = {}
    for kind in (kind for kind in vars(optimizer).values() if isinstance(kind, type) and hasattr(kind, "kernel")):
        if not options or SIGNATURES[kind.kernel].facts.by_elements:
            made = train(mlp(), kind(), again(ranks, **options), together)
            found |= {f"{kind.__name__} {name}": value for name, value in made.items()}
    return found


#: Ways of updating that come behind the last gradient, or not at each step.
LATE: tuple[dict[str, Any], ...] = (
    {"clip_global_norm": 0.1},
    {"accumulate": 2},
    {"accumulate": 2, "clip_global_norm": 0.1, "loss_scale": 64.0},
)


def sharded_few(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """Parameters of fewer elements than ranks, so that some have no part of them."""
    found = {}
    for number, options in enumerate(LATE):
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=3)
        net.add(layers.Dense("a", 2, input_sample_shape=(20,)))
        net.add(layers.Dense("b", 1))
        net.add(layers.Dense("c", 7))
        made = train(net, sgd(), again(ranks, shard="state", bucket_bytes=1), together, parts=(5, 0, 8, 2), **options)
        found |= {f"{number} {name}": value for name, value in made.items()}
    return found


def norms(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """Of parameters and gradients, of which each rank has parts, or nothing."""
    net = mlp()
    net.verbose = 1
    found = train(net, sgd(), again(ranks, shard="state"), together)
    taken = {"parameters": net.norms.parameters, "gradients": net.norms.gradients}
    return found | {f"{kind} {name}": np.array(n) for kind, every in taken.items() for name, n in every.items()}


def thawed(ranks: Ranks, together: int = 0, **options: Any) -> dict[str, np.ndarray]:
    """A layer that does not train at first, and shares a bucket with others that do."""
    net = mlp()
    net.layers["b"].trainable = False
    train(net, sgd(), again(ranks, **options), together)
    net.layers["c"].trainable, net.layers["b"].trainable = False, True
    return steps(net, ranks, together, classes(20), seed=8)


def bytes_sent(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """By this rank in the sums of some steps, with whole state and with state in parts."""
    found = []
    for options in ({}, SHARDED):
        made, sent = again(ranks, **options), [0]
        if made is not None:
            spread = made.communicator.spread

            def counted(given: Any, received: Any, number: int, spread: Any = spread, sent: Any = sent) -> Any:
                sent[0] += sum(array.nbytes for rank, array in enumerate(given) if rank != ranks.rank)
                return spread(given, received, number)

            made.communicator.spread = counted
        train(mlp(), sgd(), made, together)
        found.append(sent[0])
    every = [found] if ranks is None else ranks.gathered(found)
    return {"sent": np.sum(every, axis=0)}


def wide(ranks: Ranks, together: int, rows: int = 1000, columns: int = 1100, **options: Any) -> dict[str, np.ndarray]:
    """A net with a large gradient."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), seed=3)
    net.add(layers.Dense("a", columns, input_sample_shape=(rows,)))
    net.add(layers.Activation("tanh", "tanh"))
    net.add(layers.Dense("b", 7))
    ranks = again(ranks, in_flight_bytes="6 MB", **options)
    found = train(net, sgd(), ranks, together, (rows,))
    found["arena"] = np.array(net.memory_plan.arena_bytes)
    return found | {"in_flight": np.array(net.memory_plan.in_flight_bytes)}


def tiles(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """Gradients that never exist whole."""
    return wide(ranks, together)


def sharded_strips(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """A gradient that never exists whole."""
    return wide(ranks, together, shard="state", bucket_bytes="400 kB")


def sharded_cut_rows(ranks: Ranks, together: int = 0) -> dict[str, np.ndarray]:
    """A gradient that exists whole, as ranks have parts of rows; the others' parts come strip by strip."""
    return wide(ranks, together, 23, 50_000, shard="state", bucket_bytes="400 kB")


def again(ranks: Ranks, **options: Any) -> Ranks:
    """A communicator of its own for another net, with small buckets where nothing else is said."""
    return None if ranks is None else parallel.mpi(timeout=60, **{"bucket_bytes": 3000, **options})


CASES: dict[str, Callable[..., dict[str, np.ndarray]]] = {
    **{name: partial(plain, name) for name in PLAIN},
    "each_optimizer": each_optimizer,
    "each_optimizer_in_parts": partial(each_optimizer, **SHARDED),
    "thawed_whole": thawed,
    "thawed_in_parts": partial(thawed, **SHARDED),
    **{
        case.__name__: case
        for case in (
            *(stored_once, idle_targets, ignored, weighted, images, statistics, synced, dropped, tiles, norms),
            *(bytes_sent, sharded_strips, sharded_cut_rows, sharded_adam, sharded_few),
        )
    },
}


def main(folder: str, *cases: str) -> None:
    """Do these cases, one after the other, and write what this rank found."""
    ranks = parallel.mpi(timeout=60, bucket_bytes=3000)
    found = {f"{case}/{name}": array for case in cases for name, array in CASES[case](ranks).items()}
    np.savez(Path(folder, f"{ranks.rank}.npz"), **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
