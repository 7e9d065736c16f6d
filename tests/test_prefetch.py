"""Items made ahead in a thread: the same ones in the same order, errors where they belong, and no thread left."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from nets import state_of
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer
from singa_lite.fit import Callback
from singa_lite.training.prefetch import ahead

RNG = np.random.default_rng(4)
X, LABELS = RNG.normal(size=(23, 5)).astype("f"), RNG.integers(0, 3, 23)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]


@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_the_same_items_in_the_same_order(count):
    assert list(ahead(iter(range(7)), count)) == list(range(7))
    assert list(ahead([], count)) == []
    assert not threads()


@pytest.mark.parametrize("count", [1, 4])
def test_so_many_are_made_before_they_are_asked_for_and_no_more(count):
    made: list[int] = []
    enough = threading.Event()

    def items() -> Iterator[int]:
        for number in range(20):
            made.append(number)
            if number == count:
                enough.set()
            yield number

    with closing(ahead(items(), count)) as found:
        assert next(found) == 0
        assert enough.wait(20)
        assert made == list(range(count + 1))
    assert made == list(range(count + 1)) and not threads()


def test_without_a_count_none_is_made_before():
    made: list[int] = []
    found = ahead((made.append(number) for number in range(5)), 0)
    next(found)
    assert made == [0] and not threads()


@pytest.mark.parametrize("count", [0, 2])
def test_an_error_comes_where_the_item_would_have_come(count):
    def items() -> Iterator[int]:
        yield from (0, 1)
        raise OSError("the disk is gone")

    found = ahead(items(), count)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)
    assert not threads()


# --- in fit -------------------------------------------------------------------------------------------------


def net() -> FeedForwardNet:
    made = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=device.new_cpu(), seed=3)
    made.add(layers.Dense("hidden", 4, input_sample_shape=(5,)))
    made.add(layers.Dropout("drop"))
    made.add(layers.Dense("scores", 3))
    made.compile(optimizer.Adam(lr=0.02))
    return made


def on_disk(folder) -> np.memmap:
    X.tofile(folder / "x")
    return np.memmap(folder / "x", np.float32, "r", shape=X.shape)


@pytest.mark.parametrize("shuffle", [True, False])
def test_training_is_the_same_to_the_bit(tmp_path, shuffle):
    outcomes = []
    for prefetch, x in ((0, X), (1, X), (3, on_disk(tmp_path)), (100, {"hidden": X})):
        one = net()
        settings = {"batch_size": 6, "epochs": 3, "validation_data": (x, LABELS), "verbose": False}
        told = one.fit(x, LABELS, shuffle=shuffle, prefetch=prefetch, **settings)
        outcomes.append((state_of(one), told["loss"], told["val_loss"]))
    assert all(outcome == outcomes[0] for outcome in outcomes[1:])
    assert not threads()


def test_the_thread_ends_with_an_error_of_the_step():
    class Broken(Callback):
        def on_batch(self, training):
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        net().fit(X, LABELS, batch_size=2, prefetch=2, verbose=False, callbacks=[Broken()])
    assert not threads()


@pytest.mark.parametrize("prefetch", [-1, 1.5, "two", None])
def test_what_is_no_count(prefetch):
    one = net()
    before = state_of(one)
    with pytest.raises((ValueError, TypeError), match="fit prefetch"):
        one.fit(X, LABELS, prefetch=prefetch, verbose=False)
    assert state_of(one) == before
