"""Bad input: one table. Each row is one clear error and changes nothing: the next good step is as without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nets import forward_and_loss, state_of
from singa_lite import (
    FeedForwardNet,
    GraphError,
    OutOfMemoryError,
    ShapeError,
    SnapshotError,
    device,
    layers,
    loss,
    metric,
    optimizer,
)
from singa_lite.graph_parts.budget_error import OverLimitError

RNG = np.random.default_rng(6)
X = RNG.standard_normal((6, 2, 5, 4)).astype("f")
Y = RNG.integers(0, 4, 6)
MANY = 6000  # samples whose activations are larger than any memory the pool holds in reserve

Bad = Callable[[], object]


def built(**options: Any) -> FeedForwardNet:
    """A net with all that has state: running statistics and random state."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device.new_cpu(), seed=9, **options)
    net.add(layers.Conv2D("conv", 3, 3, input_sample_shape=(2, 5, 4)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("act"))
    net.add(layers.Dropout("drop", 0.3))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 4))
    return net


def compiled(graph: bool = True) -> FeedForwardNet:
    net = built()
    net.compile(optimizer.Adam(0.01), graph=graph)
    return net


def trained(graph: bool = True) -> FeedForwardNet:
    net = compiled(graph)
    net.train_one_batch(X, Y)
    return net


def without_loss() -> FeedForwardNet:
    net = compiled()
    net.loss = None
    return net


def nothing(net: FeedForwardNet) -> None:
    """What most nets need before their next good step."""


@dataclass(frozen=True)
class Case:
    """A row of the table.

    error, words: what is raised, and what it must say. prepare(net, folder): brings a net to where the bad call can
    be made, and returns that call. recover: what a user does next. make: the net.
    """

    error: type[BaseException]
    words: list[str]
    prepare: Callable[[FeedForwardNet, Path], Bad]
    recover: Callable[[FeedForwardNet], object] = nothing
    make: Callable[[], FeedForwardNet] = trained


def step(x: Any = X, y: Any = Y) -> Callable[[FeedForwardNet, Path], Bad]:
    return lambda net, path: lambda: net.train_one_batch(x, y)


def adding(make: Callable[[], Any], src: Any = None) -> Callable[[FeedForwardNet, Path], Bad]:
    return lambda net, path: lambda: net.add(make(), src=src)


# --- how to get there ---------------------------------------------------------------------------------------


def unknown_source(net: FeedForwardNet, path: Path) -> Bad:
    net.add(layers.Merge("sum"), src=["dense", "nowhere"])
    return lambda: net.train_one_batch(X, Y)


def known_at_last(net: FeedForwardNet) -> None:
    net.add(layers.Dense("nowhere", 4), src="flat")


def cycle(net: FeedForwardNet, path: Path) -> Bad:
    net.add(layers.Merge("sum"), src=["dense", "nowhere"])
    net.add(layers.Activation("between"), src="sum")
    return lambda: net.add(layers.Dense("nowhere", 4), src="between")


def walked(net: FeedForwardNet, path: Path) -> Bad:
    dy = forward_and_loss(net, X, Y)
    list(net.backward(dy))
    return lambda: net.backward(dy)


def evaluated_only(net: FeedForwardNet, path: Path) -> Bad:
    dy = net.forward(False, X)
    return lambda: net.backward(dy)


def dropped(net: FeedForwardNet, path: Path) -> Bad:
    walk = net.backward(forward_and_loss(net, X, Y))
    names, values, gradients, _ = next(walk)
    for name, value, gradient in zip(names, values, gradients, strict=True):
        net.optimizer.update(name, value, gradient)
    walk.close()
    return lambda: net.train_one_batch(X, Y)


def saved_half(net: FeedForwardNet, path: Path) -> Bad:
    dropped(net, path)
    return lambda: net.save(path / "half.h5")


def file_with(content: Callable[[bytes], bytes]) -> Callable[[FeedForwardNet, Path], Bad]:
    """Load a file made of a good one's bytes."""

    def prepare(net: FeedForwardNet, path: Path) -> Bad:
        good, bad = path / "good.h5", path / "bad.h5"
        net.save(good)
        bad.write_bytes(content(good.read_bytes()))
        return lambda: net.load(bad)

    return prepare


def file_of(make: Callable[[], FeedForwardNet]) -> Callable[[FeedForwardNet, Path], Bad]:
    """Load the file of another net."""

    def prepare(net: FeedForwardNet, path: Path) -> Bad:
        make().save(path / "other.h5")
        return lambda: net.load(path / "other.h5")

    return prepare


def deeper() -> FeedForwardNet:
    net = built()
    net.add(layers.Dense("one more", 4))
    net.compile(optimizer.Adam())
    return net


def shallower() -> FeedForwardNet:
    net = FeedForwardNet(device=device.new_cpu())
    net.add(layers.Conv2D("conv", 3, 3, input_sample_shape=(2, 5, 4)))
    net.compile(optimizer.Adam())
    return net


def wider() -> FeedForwardNet:
    net = FeedForwardNet(device=device.new_cpu())
    net.add(layers.Conv2D("conv", 5, 3, input_sample_shape=(2, 5, 4)))
    net.compile(optimizer.Adam())
    return net


def in_float64() -> FeedForwardNet:
    net = built(dtype="float64")
    net.compile(optimizer.Adam())
    return net


def by_sgd() -> FeedForwardNet:
    net = built()
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9))
    net.train_one_batch(X, Y)
    return net


def limited(net: FeedForwardNet, bad: Bad) -> Bad:
    net.device.pool.set_limit(net.device.pool.used)
    return bad


def unlimited(net: FeedForwardNet) -> None:
    net.device.pool.set_limit(None)


def with_metric_of(k: int) -> Callable[[FeedForwardNet, Path], Bad]:
    def prepare(net: FeedForwardNet, path: Path) -> Bad:
        net.compile(net.optimizer, metric=metric.TopKAccuracy(k))
        return lambda: net.train_one_batch(X, Y)

    return prepare


def with_accuracy(net: FeedForwardNet) -> None:
    net.compile(net.optimizer, metric=metric.Accuracy())


def nan_first(net: FeedForwardNet, path: Path) -> Bad:
    x = X.copy()
    x[3, 1, 0, 2] = np.nan
    return lambda: net.train_one_batch(x, Y)


def rows_with(value: float) -> np.ndarray:
    rows = np.eye(4, dtype="f")[Y]
    rows[2] = value
    return rows


SMALL, LARGE = Y.copy(), Y.copy()
SMALL[4], LARGE[5] = -1, 4

CASES: dict[str, Case] = {
    # building
    "unknown source": Case(GraphError, ["'sum'", "'nowhere'", "'conv'"], unknown_source, known_at_last),
    "cycle": Case(GraphError, ["cycle", "nowhere", "sum", "between"], cycle, known_at_last),
    "own source": Case(GraphError, ["cycle", "'loop'"], adding(lambda: layers.Dense("loop", 4), "loop")),
    "duplicate name": Case(
        GraphError, ["different names", "'norm'", "names are left out"], adding(lambda: layers.Dense("norm", 4))
    ),
    "layer of another net": Case(
        GraphError, ["'dense'", "no net yet"], lambda net, path: lambda: net.add(trained().layers["dense"])
    ),
    "no layer": Case(TypeError, ["wanted a Layer", "str"], adding(lambda: "dense")),
    "no source shape": Case(ShapeError, ["'late'", "input_sample_shape"], adding(lambda: layers.Dense("late", 4), [])),
    "layers that do not fit: axes": Case(
        ShapeError, ["'late'", "(time, features)", "(3, 5, 4)"], adding(lambda: layers.LearnedPositions("late"), "norm")
    ),
    "layers that do not fit: sum": Case(
        ShapeError, ["'late'", "(4,)", "(60,)"], adding(lambda: layers.Merge("late"), ["dense", "flat"])
    ),
    "layers that do not fit: side by side": Case(
        ShapeError, ["'late'", "(3, 5, 4)", "(60,)"], adding(lambda: layers.Concat("late", 1), ["norm", "flat"])
    ),
    "layers that do not fit: shape stated": Case(
        ShapeError,
        ["'late'", "(5,)", "(4,)", "'dense'"],
        adding(lambda: layers.Activation("late", input_sample_shape=(5,))),
    ),
    "layers that do not fit: window": Case(
        ShapeError, ["'late'", "5 x 4", "7 x 7"], adding(lambda: layers.Conv2D("late", 2, 7, pad=0), "norm")
    ),
    "more consumers than outputs": Case(
        GraphError,
        ["'third'", "2 outputs of 'twice'"],
        lambda net, path: (
            [
                net.add(layers.Split("twice", 2)),
                net.add(layers.Merge("both"), src=["twice", "twice"]),
            ]
            and (lambda: net.add(layers.Merge("third"), src=["both", "twice"]))
        ),
    ),
    "even kernel with same": Case(ValueError, ["'c'", "odd kernel", "4"], adding(lambda: layers.Conv2D("c", 2, 4))),
    "even kernel with same: pooling": Case(
        ValueError, ["'p'", "odd kernel", "2"], adding(lambda: layers.MaxPooling2D("p", 2, 2, "same"))
    ),
    "stride 0": Case(ValueError, ["'c'", "stride", "0"], adding(lambda: layers.Conv2D("c", 2, 3, 0))),
    "stride 0: pooling": Case(ValueError, ["'p'", "stride", "0"], adding(lambda: layers.AvgPooling2D("p", 3, (1, 0)))),
    "negative size: outputs": Case(ValueError, ["'d'", "num_output", "-3"], adding(lambda: layers.Dense("d", -3))),
    "negative size: kernels": Case(ValueError, ["'c'", "nb_kernels", "-2"], adding(lambda: layers.Conv2D("c", -2))),
    "negative size: kernel": Case(ValueError, ["'c'", "kernel", "-3"], adding(lambda: layers.Conv2D("c", 2, -3))),
    "negative size: pad": Case(ValueError, ["'c'", "pad", "-1"], adding(lambda: layers.Conv2D("c", 2, pad=-1))),
    "negative size: input": Case(
        ShapeError, ["'d'", "(2, -5)"], adding(lambda: layers.Dense("d", 3, input_sample_shape=(2, -5)), [])
    ),
    "no size at all": Case(ValueError, ["'d'", "num_output", "0"], adding(lambda: layers.Dense("d", 0))),
    "pool limit too small: parameters": Case(
        OutOfMemoryError,
        ["bytes", "used", "limit"],
        lambda net, path: limited(net, lambda: net.add(layers.Dense("big", 500_000))),
        unlimited,
    ),
    # batches
    "wrong batch shape: features": Case(
        ShapeError, ["'conv'", "('n', 2, 5, 4)", "(6, 2, 4, 5)"], step(X.transpose(0, 1, 3, 2))
    ),
    "wrong batch shape: one sample": Case(ShapeError, ["'conv'", "(2, 5, 4)"], step(X[0])),
    "wrong batch shape: no axes": Case(ShapeError, ["'conv'", "()"], step(np.float32(3))),
    "wrong dtype: float64": Case(TypeError, ["'conv'", "float32", "float64"], step(X.astype("float64"))),
    "wrong dtype: integers": Case(TypeError, ["'conv'", "float32", "int64"], step(X.astype("int64"))),
    "wrong dtype: objects": Case(TypeError, ["'conv'", "float32", "object"], step(X.astype(object))),
    "empty batch": Case(ShapeError, ["'conv'", "at least one sample", "(0, 2, 5, 4)"], step(X[:0], Y[:0])),
    "inputs by a wrong name": Case(GraphError, ["'conv'", "'dense'"], step({"dense": X})),
    "targets by a wrong name": Case(GraphError, ["'dense'", "'conv'"], step(X, {"conv": Y})),
    "NaN in the first batch": Case(RuntimeWarning, ["input of layer 'conv'", "NaN"], nan_first, make=compiled),
    "NaN in the first targets": Case(
        ValueError, ["finite weights", "nan", "[2, 0]"], step(X, rows_with(np.nan)), make=compiled
    ),
    "pool limit too small: batch": Case(
        OverLimitError,
        ["bytes", "used", "limit"],
        lambda net, path: limited(
            net, lambda: net.train_one_batch(np.zeros((MANY, 2, 5, 4), "f"), np.zeros(MANY, int))
        ),
        unlimited,
    ),
    # targets
    "label above the classes": Case(ValueError, ["0 to 3", "received 4", "[5]"], step(X, LARGE)),
    "label below the classes": Case(ValueError, ["0 to 3", "received -1", "[4]"], step(X, SMALL)),
    "labels that are no whole numbers": Case(ValueError, ["whole numbers", "at [0]"], step(X, Y + 0.5)),
    "too few labels": Case(ShapeError, ["6 targets", "(5,)"], step(X, Y[:5])),
    "labels of another shape": Case(ShapeError, ["(6,)", "(6, 4)", "(6, 1, 1)"], step(X, Y[:, None, None])),
    "rows without weights": Case(ValueError, ["sum above 0", "[2]"], step(X, rows_with(0))),
    "rows with negative weights": Case(ValueError, ["at least 0", "-1.0", "[2, 0]"], step(X, rows_with(-1))),
    "metric that does not fit": Case(ValueError, ["TopKAccuracy", "4 classes", "5"], with_metric_of(5), with_accuracy),
    # order of calls
    "optimizer missing": Case(
        GraphError,
        ["optimizer", "compile"],
        step(),
        lambda net: net.compile(optimizer.Adam(0.01)),
        make=built,
    ),
    "loss missing": Case(
        GraphError,
        ["loss", "compile"],
        step(),
        lambda net: net.compile(optimizer.Adam(0.01), loss.SoftmaxCrossEntropy()),
        make=without_loss,
    ),
    "backward before forward": Case(
        GraphError, ["forward(True, x)"], lambda net, path: lambda: net.backward(np.zeros((6, 4), "f"))
    ),
    "backward after an evaluation": Case(GraphError, ["forward(True, x)"], evaluated_only),
    "backward twice": Case(GraphError, ["forward(True, x)", "once"], walked),
    "generator dropped midway": Case(
        GraphError, ["train_one_batch", "'dense'", "discard_step"], dropped, lambda net: net.discard_step()
    ),
    "save after a half step": Case(SnapshotError, ["save", "'dense'"], saved_half, lambda net: net.discard_step()),
    # files
    "no file": Case(OSError, ["nothing.h5"], lambda net, path: lambda: net.load(path / "nothing.h5")),
    "not HDF5": Case(SnapshotError, ["bad.h5", "HDF5"], file_with(lambda good: b"not HDF5 " * 200)),
    "empty file": Case(SnapshotError, ["bad.h5", "HDF5"], file_with(lambda good: b"")),
    "truncated file: start": Case(SnapshotError, ["bad.h5"], file_with(lambda good: good[:600])),
    "truncated file: half": Case(SnapshotError, ["bad.h5"], file_with(lambda good: good[: len(good) // 2])),
    "truncated file: last byte": Case(SnapshotError, ["bad.h5"], file_with(lambda good: good[:-1])),
    "file of another net: more": Case(SnapshotError, ["other.h5", "'parameters/one more/"], file_of(deeper)),
    "file of another net: less": Case(SnapshotError, ["other.h5", "'parameters/norm/"], file_of(shallower)),
    "file of another net: shape": Case(
        SnapshotError, ["other.h5", "'parameters/conv/weight'", "(3, 2, 3, 3)", "(5, 2, 3, 3)"], file_of(wider)
    ),
    "file of another net: dtype": Case(
        SnapshotError, ["other.h5", "'parameters/conv/weight'", "float32", "float64"], file_of(in_float64)
    ),
    "file of another net: optimizer": Case(SnapshotError, ["other.h5", "Adam", "SGD"], file_of(by_sgd)),
    "file without an optimizer": Case(SnapshotError, ["other.h5", "Adam", "None"], file_of(built)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_bad_input_is_one_clear_error_and_changes_nothing(case, tmp_path):
    net, twin = case.make(), case.make()
    folders = [tmp_path / "net", tmp_path / "twin"]
    for folder in folders:
        folder.mkdir()
    bad = case.prepare(net, folders[0])
    case.prepare(twin, folders[1])
    before, files = state_of(net), sorted(folders[0].iterdir())
    for _ in range(2):  # the second time as the first
        with pytest.raises(case.error) as caught:
            bad()
        assert caught.type is case.error or issubclass(case.error, OSError)
        assert not [words for words in case.words if words not in str(caught.value)], str(caught.value)
        assert state_of(net) == before
        assert sorted(folders[0].iterdir()) == files
    for each in (net, twin):
        case.recover(each)
        loss_value, _ = each.train_one_batch(X, Y)
        assert np.isfinite(float(loss_value))
    assert state_of(net) == state_of(twin)
    assert state_of(net) != before


# --- NaN ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_in_the_first_batch_is_a_warning_once(value):
    net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu())
    net.add(layers.Dense("a", 3, input_sample_shape=(5,)))
    net.compile(optimizer.SGD(lr=0.1))
    x, y = np.zeros((4, 5), "f"), np.zeros((4, 3), "f")
    y[2, 1] = value
    with np.errstate(invalid="ignore"):
        with pytest.warns(RuntimeWarning, match="target of layer 'a' holds NaN or infinity") as caught:
            net.train_one_batch(x, y)
        net.train_one_batch(x, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__


# --- memory that ends inside a step -------------------------------------------------------------------------


def with_a_large_first_layer(graph: bool) -> FeedForwardNet:
    """Its last gradients are the largest thing in a step, so that memory may end when others are already applied."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=device.new_cpu(), seed=9)
    net.add(layers.Dense("first", 500, input_sample_shape=(600,)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Dropout("drop"))
    net.add(layers.Dense("last", 40))
    net.compile(optimizer.SGD(lr=0.1, momentum=0.9), graph=graph)
    net.train_one_batch(WIDE, LABELS)
    return net


WIDE, LABELS = RNG.standard_normal((7, 600)).astype("f"), RNG.integers(0, 40, 7)


# Eager with fewer samples: activations are small then beside the last gradient, before which memory ends midway.
@pytest.mark.parametrize(("graph", "repeats"), [(True, 40), (False, 10)])
def test_memory_that_ends_anywhere_in_a_step_leaves_no_half_step_without_a_word(graph, repeats):
    """At limits from far too small to large enough.

    A recorded step changes nothing at all. One that is done at once may have moved statistics and random state, or
    have updated some layers, which the net says then.
    """
    reference = with_a_large_first_layer(graph)
    before, used = state_of(reference), reference.device.pool.used
    reference.device.pool.reset_high_water()
    x, y = np.tile(WIDE, (repeats, 1)), np.tile(LABELS, repeats)
    reference.train_one_batch(x, y)
    done, needed = state_of(reference), reference.device.pool.high_water - used
    outcomes = []
    for part in np.linspace(0.05, 2, 14):
        net = with_a_large_first_layer(graph)
        net.device.pool.set_limit(used + int(part * needed))
        outcomes.append(outcome(net, x, y))
        if outcomes[-1] == "half":
            with pytest.raises(GraphError, match=net.unfinished_at):
                net.train_one_batch(x, y)
            continue
        wanted, found = done if outcomes[-1] == "done" else before, state_of(net)
        assert found == wanted
    assert outcomes[0] == ("whole" if graph else "half") and outcomes[-1] == "done"
    assert ("half" in outcomes) is not graph


def outcome(net: FeedForwardNet, x: np.ndarray, y: np.ndarray) -> str:
    """What becomes of one step: done, refused with a whole net, or stopped with one that says it is not."""
    try:
        net.train_one_batch(x, y)
    except OutOfMemoryError:
        return "half" if net.unfinished_at else "whole"
    return "done"
