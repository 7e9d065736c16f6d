"""What ranks do in the tests of `fit` by several processes; run as a script by each, and imported for what one finds.

Each case is given the ranks, None for one process alone, and a folder, and gives {name: array or text}.
"""

from __future__ import annotations

import pickle
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from data_nets import CLASSES, FEATURES, Stateful, X, Y, batches
from singa_lite import FeedForwardNet, autograd, callbacks, device, layers, loss, metric, optimizer, parallel
from singa_lite.errors import ParallelError
from singa_lite.fit import Callback, StopTraining, Training
from singa_lite.snapshots import Checkpoint, formats, net_tree
from test_bucketed import IDS, TIME, of_tokens

Found = dict[str, Any]
#: Entries of the history that go by the clock, and by what a process has taken of memory before.
OWN = ("samples_per_second", "high_water")


def classifier(ranks: Any, **options: Any) -> FeedForwardNet:
    """A net without dropout, whose numbers go by rank, with metrics of all kinds."""
    several = [metric.Accuracy(), metric.ConfusionMatrix(), metric.F1()]
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), several, device.new_cpu(), seed=2)
    net.add(layers.Dense("hidden", 7, input_sample_shape=(FEATURES,)))
    net.add(layers.Activation(mode="tanh"))
    net.add(layers.Dense("out", CLASSES))
    net.compile(optimizer.SGD(lr=0.5, momentum=0.5), parallel=ranks, **options)
    return net


def found(net: FeedForwardNet, history: Any = None) -> Found:
    """All values of the net, and the history."""
    entries = {} if history is None else {f"history/{k}": v for k, v in history.history.items() if k not in OWN}
    every = {**net.parameters(), **net.states(), **net_tree.tensors(net)}
    return {name: np.array(value) for name, value in every.items()} | entries


class Order(Callback):
    """Notes the order of samples, and what checks of the loss by hand need."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_batch(self, training: Training) -> None:
        progress = training.progress
        assert progress.order is not None
        self.seen += progress.order[(progress.batch - 1) * 8 : progress.batch * 8].tolist()


def arrays(ranks: Any, folder: Path) -> Found:
    """37 samples by 6 leave one of the last batch, which is rank 0's."""
    net = classifier(ranks)
    history = net.fit(X, Y, batch_size=6, epochs=3, validation_data=(X[:20], Y[:20]), verbose=False)
    return found(net, history) | dict(zip(("loss", "metrics"), net.evaluate(X, Y, batch_size=8), strict=True))


def weights(ranks: Any, folder: Path) -> Found:
    net = classifier(ranks)
    each = np.linspace(0.2, 3, len(X))
    history = net.fit(X, Y, 8, 2, sample_weight=each, class_weight={0: 2.0, 2: 0.5}, verbose=False)
    return found(net, history)


def buckets(ranks: Any, folder: Path) -> Found:
    """The mean is over tokens, of which ranks have unequally many."""
    criteria = loss.SoftmaxCrossEntropy(-1, ignore_index=-1), metric.Accuracy(-1, ignore_index=-1)
    net = FeedForwardNet(*criteria, device.new_cpu(), seed=5)
    net.add(layers.Embedding("table", IDS, 6, mask_zero=True, input_sample_shape=(TIME,)))
    net.add(layers.TransformerBlock("block", 3, True))
    net.add(layers.Dense("scores", IDS))
    net.compile(optimizer.SGD(0.1), parallel=ranks)
    return found(net, net.fit(of_tokens(), epochs=2, verbose=False))


def noisy(sample: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return sample + random.standard_normal(sample.shape).astype("f")


def transformed(ranks: Any, folder: Path) -> Found:
    """Random numbers go by the sample, not by who transforms it."""
    net = classifier(ranks)
    return found(net, net.fit(X, Y, 8, 2, transform=noisy, workers=2, verbose=False))


def logarithms(ranks: Any, folder: Path) -> Found:
    """Of zeros, which stand for the samples of a rank that has none of the last batch, there are none."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), [metric.Accuracy(), metric.AUC()], device.new_cpu(), seed=2)
    net.add(layers.Lambda("log", autograd.log, input_sample_shape=(FEATURES,)))
    net.add(layers.Dense("out", 2))
    net.compile(optimizer.SGD(0.1), parallel=ranks)
    x, y = np.abs(X) + np.float32(0.1), Y % 2
    history = net.fit(x, y, 6, 2, validation_data=(x[:11], y[:11]), verbose=False)
    return found(net, history)


class Halves:
    """Each rank's part of each batch, by the rank's own loader; without the last batch on the others than rank 0."""

    def __init__(self, ranks: Any) -> None:
        self._ranks = ranks

    def __iter__(self) -> Iterator[Any]:
        whole = batches()
        rank, size = (0, 1) if self._ranks is None else (self._ranks.rank, self._ranks.size)
        for x, y in whole[:-1]:
            yield x[rank::size], y[rank::size]
        if rank == 0:
            yield whole[-1]


def own_loaders(ranks: Any, folder: Path) -> Found:
    net = classifier(ranks)
    return found(net, net.fit(Halves(ranks), epochs=2, verbose=False))


# --- checkpoints and callbacks ------------------------------------------------------------------------------


class StopBehind(Callback):
    """Ends training behind so many batches, on all ranks."""

    def __init__(self, count: int) -> None:
        self.left = count

    def on_batch(self, training: Training) -> None:
        self.left -= 1
        if not self.left:
            raise StopTraining


def resumed(ranks: Any, folder: Path) -> Found:
    """Ends within the second epoch, and goes on; beside it a run that did not end. writes: files that it wrote."""
    writes, write = [], formats.write
    formats.write = lambda *given, **options: (writes.append(given[1]), write(*given, **options))[1]
    try:
        whole, first, second = (classifier(ranks) if n == 0 else None for n in range(3))
        order = Order()
        history = whole.fit(X, Y, 8, 4, verbose=False, callbacks=[order])
        made: Found = {f"whole/{name}": value for name, value in found(whole, history).items()}
        del whole
        first = classifier(again(ranks))
        keeping = lambda: Checkpoint(folder / "run", every_steps=3, monitor="loss")  # noqa: E731
        first.fit(X, Y, 8, 4, verbose=False, callbacks=[StopBehind(7), keeping()])
        del first
        second, seen = classifier(again(ranks)), Order()
        history = second.fit(X, Y, 8, 4, verbose=False, callbacks=[seen, keeping()], resume="auto")
    finally:
        formats.write = write
    made |= {f"resumed/{name}": value for name, value in found(second, history).items()}
    return made | {"order": order.seen[7 * 8 - 3 :], "order behind": seen.seen, "writes": len(writes)}


def gone_on(ranks: Any, folder: Path) -> Found:
    """From what another number of processes has written."""
    net, seen = classifier(ranks), Order()
    history = net.fit(X, Y, 8, 4, verbose=False, callbacks=[seen, Checkpoint(folder / "run")], resume="auto")
    return {"order behind": seen.seen, "loss": history["loss"]}


def again(ranks: Any) -> Any:
    """For a further net."""
    return None if ranks is None else parallel.mpi(timeout=60)


def stateful(ranks: Any, folder: Path) -> Found:
    """Loaders that say where they are, each its own."""

    def run(count: int, resume: bool) -> FeedForwardNet:
        net = classifier(again(ranks))
        ending = [StopBehind(count)] if count else []
        path = folder / "loaders"
        options = {"callbacks": [*ending, Checkpoint(path)], "resume": "auto"} if count or resume else {}
        net.fit(Stateful(), epochs=2, steps_per_epoch=4, verbose=False, **options)
        return net

    whole = found(run(0, False))
    run(3, False)
    return {f"whole/{k}": v for k, v in whole.items()} | {f"resumed/{k}": v for k, v in found(run(0, True)).items()}


def ended_alike(ranks: Any, folder: Path) -> Found:
    """Callbacks that end the training, and those that write, on all ranks or once."""
    net = classifier(ranks)
    stopping = callbacks.EarlyStopping("loss", patience=1, min_delta=10.0, restore_best=True)
    logging = callbacks.CSVLogger(folder / "log.csv")
    history = net.fit(X, Y, 8, 9, verbose=False, callbacks=[stopping, logging])
    made = found(net, history)
    rank = 0 if ranks is None else ranks.rank
    limit = callbacks.TimeLimit(1e-9 if rank else 1000.0)  # over on the others than rank 0
    net.fit(X, Y, 8, 9, verbose=False, callbacks=[limit])
    made["limited"] = net.optimizer.step
    net.save(folder / f"of_{rank}.h5")
    return made | {"files": sorted(path.name for path in folder.glob("of_*"))}


class OneStops(Callback):
    def on_batch(self, training: Training) -> None:
        if not training.is_first:
            raise StopTraining


def one_stops(ranks: Any, folder: Path) -> Found:
    """Where a callback ends it on some ranks alone, all are told."""
    net = classifier(ranks)
    try:
        net.fit(X, Y, 8, 2, verbose=False, callbacks=[OneStops()])
    except ParallelError as error:
        return {"error": str(error)}
    return {}


def called_otherwise(ranks: Any, folder: Path) -> Found:
    """Another number of epochs, other samples, other weights of classes, and other data of an evaluation on a rank."""
    net, rank, errors = classifier(ranks), ranks.rank, []
    for work in (
        lambda: net.fit(X, Y, 8, 2 + rank, verbose=False),
        lambda: net.fit(X[:: 1 - 2 * (rank == 2)], Y, 8, 2, verbose=False),
        lambda: net.fit(X, Y, 8, 2, class_weight={0: 1.0 + rank}, verbose=False),
        lambda: net.evaluate(X[: 20 + rank], Y[: 20 + rank]),
    ):
        try:
            work()
        except ParallelError as error:
            errors.append(str(error))
    return {"errors": errors}


#: Options of `parallel.mpi`, of `compile` and of `Checkpoint`, of runs of which each rank keeps something for itself.
PARTED: dict[str, tuple[Found, Found, Found]] = {
    "shard": ({"shard": "state"}, {"accumulate": 2}, {"background": True}),
    "at once": ({"shard": "state"}, {}, {}),
}


def of_parts(ranks: Any, kind: str, **options: Any) -> FeedForwardNet:
    """options: in the place of the kind's of `parallel.mpi`."""
    made, compiled, _ = PARTED[kind]
    made = {"timeout": 60, "bucket_bytes": 200} | (options or made)
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), None, device.new_cpu(), seed=2)
    net.add(layers.Dense("hidden", 37, input_sample_shape=(FEATURES,)))
    net.add(layers.Activation(mode="tanh"))
    net.add(layers.Dense("out", CLASSES))
    net.compile(optimizer.AdamW(0.02), parallel=None if ranks is None else parallel.mpi(**made), **compiled)
    return net


def own(net: FeedForwardNet) -> Found:
    """All that this rank has: also its parts of state."""
    return found(net) | {
        f"{name}/{slot}": np.array(t) for name, state in net.optimizer.state.items() for slot, t in state.items()
    }


def parted(ranks: Any, folder: Path) -> Found:
    """Ends within the second epoch, within a group of batches where there are any, and goes on from the file."""
    made: Found = {"folder": str(folder)}
    for kind, (_, _, how) in PARTED.items():
        whole, first, second = (of_parts(ranks, kind) for _ in range(3))
        history = whole.fit(X, Y, 8, 3, verbose=False)
        keeping = lambda path=folder / kind, how=how: Checkpoint(path, every_steps=3, **how)  # noqa: E731
        first.fit(X, Y, 8, 3, verbose=False, callbacks=[StopBehind(7), keeping()])
        ranks.barrier()
        if ranks.rank == 0:
            shutil.copytree(folder / kind, folder / f"{kind} left")
        ranks.barrier()
        second.fit(X, Y, 8, 3, verbose=False, callbacks=[keeping()], resume="auto")
        made |= {f"{kind}/whole/{name}": value for name, value in own(whole).items()}
        made |= {f"{kind}/resumed/{name}": value for name, value in own(second).items()}
        made[f"{kind}/loss"] = history["loss"]
    return made


def saved_in_parts(ranks: Any, folder: Path) -> Found:
    """A file of state in parts, and one of the same run without; each is read by the other kind of net."""
    nets = [of_parts(ranks, "shard", timeout=60.0), of_parts(ranks, "shard")]
    for net, name in zip(nets, ("whole.h5", "parts.h5"), strict=True):
        net.fit(X, Y, 8, 1, verbose=False)
        net.save(folder / name)
        net.save(folder / f"weights of {name}.npz", weights_only=True)
    ranks.barrier()
    others = [of_parts(ranks, "shard", timeout=60.0), of_parts(ranks, "shard")]
    for net, name in zip(others, ("parts.h5", "whole.h5"), strict=True):
        net.load(folder / name)
        net.fit(X, Y, 8, 1, verbose=False)
    for net in nets:
        net.fit(X, Y, 8, 1, verbose=False)
    made = {f"whole/{i}/{name}": value for i, net in enumerate(nets) for name, value in own(net).items()}
    return made | {f"read/{i}/{name}": value for i, net in enumerate(others) for name, value in own(net).items()}


def unwritable(ranks: Any, folder: Path) -> Found:
    """Where rank 0 cannot write, all are told, and go on; so where one is elsewhere."""
    net, errors = of_parts(ranks, "shard"), []
    net.fit(X, Y, 8, 1, verbose=False)
    for work in (
        lambda: net.save(folder / "no such folder" / "net.h5"),
        lambda: net.save(folder / "net.h5") if ranks.rank == 0 else net.parallel.barrier(),
        lambda: pickle.dumps(net),
    ):
        try:
            work()
        except (OSError, ParallelError) as error:
            errors.append(f"{type(error).__name__}: {error}")
    net.fit(X, Y, 8, 1, verbose=False)
    return {"errors": errors, "step": net.optimizer.step}


def gone_on_parts(ranks: Any, folder: Path) -> Found:
    """From what another number of ranks has written."""
    made: Found = {}
    for kind in PARTED:
        net = of_parts(ranks, kind)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            history = net.fit(X, Y, 8, 3, verbose=False, callbacks=[Checkpoint(folder / kind)], resume="auto")
        made[kind] = {"loss": history["loss"], "told": [str(one.message) for one in told]}
    return made


CASES: dict[str, Callable[[Any, Path], Found]] = {
    each.__name__: each
    for each in (arrays, weights, buckets, transformed, logarithms, own_loaders, resumed, stateful, ended_alike)
}
ERRORS: dict[str, Callable[[Any, Path], Found]] = {
    each.__name__: each for each in (called_otherwise, parted, saved_in_parts, unwritable, one_stops)
}
OTHERS: dict[str, Callable[[Any, Path], Found]] = {each.__name__: each for each in (gone_on, gone_on_parts)}


if __name__ == "__main__":
    results, where = {}, Path(sys.argv[1])
    for case in sys.argv[2:]:
        of_all = parallel.mpi(timeout=60)
        results[case] = (CASES | ERRORS | OTHERS)[case](of_all, where)
    Path(where, f"{of_all.rank}.pickle").write_bytes(pickle.dumps(results))
