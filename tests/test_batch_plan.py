"""What `plan_batch` and `largest_batch` promise of `fit`, held against what the pool and the process then hold."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from in_process import ROOT, output
from kernel_sets import kernel_sets
from singa_lite import FeedForwardNet, device, layers, loss, metric, optimizer
from singa_lite.kernels.kernel_set import FunctionKernel

RNG = np.random.default_rng(12)
SETS = [kernels.name for kernels in kernel_sets()]
#: For processes of their own, which import this module.
PATH = os.pathsep.join((ROOT, str(Path(__file__).parent)))
each_set = pytest.mark.parametrize("kernels", SETS)


def classifier(*made: Any, kernels: str = "auto", limit: int | None = None) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device.new_cpu(limit, kernels), seed=3)
    for layer in made:
        net.add(layer)
    net.compile(optimizer.SGD(lr=0.01, momentum=0.9))
    return net


def convolutional(**options: Any) -> FeedForwardNet:
    return classifier(
        layers.Conv2D("conv", 8, 3, input_sample_shape=(3, 20, 20)),
        layers.BatchNormalization("norm"),
        layers.Activation("relu"),
        layers.MaxPooling2D("pool", 2, 2, "valid"),
        layers.Conv2D("second", 8, 5, 2, "valid"),
        layers.Flatten("flat"),
        layers.Dropout("drop"),
        layers.Dense("dense", 5),
        **options,
    )


def perceptron(**options: Any) -> FeedForwardNet:
    return classifier(
        layers.Dense("first", 700, input_sample_shape=(300,)),
        layers.Activation("act"),
        layers.Dense("second", 500),
        layers.Dense("scores", 5),
        **options,
    )


def wide_input(**options: Any) -> FeedForwardNet:
    """Inputs are most of it."""
    return classifier(layers.Dense("scores", 5, input_sample_shape=(4000,)), **options)


NETS: dict[str, Callable[..., FeedForwardNet]] = {
    "convolutional": convolutional,
    "perceptron": perceptron,
    "wide input": wide_input,
}
each_net = pytest.mark.parametrize("make", NETS.values(), ids=NETS.keys())


def data(net: FeedForwardNet, count: int) -> tuple[np.ndarray, np.ndarray]:
    (shape,) = net.input_shapes().values()
    return RNG.standard_normal((count, *shape)).astype("f"), RNG.integers(0, 5, count)


def fit(net: FeedForwardNet, size: int, last: int, validation: int) -> None:
    net.fit(*data(net, 2 * size + last), size, 2, validation_data=data(net, validation), verbose=False)


# --- what fit takes -----------------------------------------------------------------------------------------


@each_set
@each_net
def test_the_pool_holds_what_was_predicted_after_fit_validation_and_other_sizes(make, kernels):
    net = make(kernels=kernels)
    predicted = net.plan_batch(32, samples=2 * 32 + 7)
    net.device.pool.reset_high_water()
    fit(net, 32, 7, 45)
    x, _ = data(net, 45)
    net.predict(x, batch_size=32)
    gc.collect()
    outputs = 2 * (5 * 4 * 32 + 64)  # what a prediction of 32 and one of 13 returned last
    assert net.device.pool.used <= predicted.total_bytes + outputs
    assert net.device.pool.high_water <= predicted.total_bytes + outputs + 5 * 4 * 45 + 64
    assert net.device.pool.used >= predicted.total_bytes - predicted.overhead_bytes - 64, "and it was needed"


@each_set
@each_net
def test_fit_runs_under_the_limit_that_largest_batch_was_asked_for(make, kernels):
    """With last batches of two sizes, and a validation."""
    limit = (5 if make is convolutional else 11) * 2**20
    size = make(kernels=kernels).largest_batch(limit)
    assert size > 3
    for last in (size // 2 + 1, size - 1):
        net = make(kernels=kernels, limit=limit)
        x, y = data(net, size + last)
        net.fit(x, y, size, 1, validation_data=(x[: size + 3], y[: size + 3]), verbose=False)
        assert net.device.pool.total <= limit


@pytest.mark.skipif("onednn" not in SETS, reason="wants oneDNN's scratch, pip install onednn-cpu-gomp")
@pytest.mark.parametrize("speed", [0.1, 10])
def test_a_plan_does_not_depend_on_how_fast_the_machine_is(monkeypatch, speed):
    net, clock = convolutional(kernels="onednn"), time.perf_counter
    wanted = [net.plan_batch(size, samples=size) for size in (31, 316)]
    monkeypatch.setattr(time, "perf_counter", lambda: clock() / speed)
    again = [net.plan_batch(size, samples=size) for size in (31, 316)]
    for one, other in zip(again, wanted, strict=True):
        assert one.arena_bytes == other.arena_bytes
        assert [row.offset for row in one.rows] == [row.offset for row in other.rows]


def test_the_known_last_batch_is_the_one_that_counts():
    net = convolutional(kernels="numpy")
    assert net.plan_batch(10, samples=40).beside.keys() == {"evaluation"}
    assert net.plan_batch(10, samples=43).total_bytes <= net.plan_batch(10).total_bytes
    for wrong in (0, -3, 2.5):
        with pytest.raises(ValueError, match="plan_batch samples"):
            net.plan_batch(10, samples=wrong)


CHILD = """
import numpy as np
from test_batch_plan import convolutional, data, fit, device

def resident(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))

warm = convolutional()
fit(warm, 40, 9, 50)
net = convolutional()
size = 2000
predicted = net.plan_batch(size).total_bytes
x, y = data(net, size + 300)
batch = x[:size].nbytes
level = resident("VmRSS")
net.fit(x, y, size, 2, validation_data=(x[:size + 9], y[:size + 9]), verbose=False)
net.predict(x, batch_size=size)
print(predicted, batch, resident("VmHWM") - level)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="this system has no /proc")
def test_the_process_holds_what_was_predicted():
    """Beside it: one batch on the host, taken from the data, and the record, the plan and the kernels' code."""
    predicted, batch, measured = map(int, output(CHILD, PYTHONPATH=PATH).split())
    assert measured <= predicted + batch + 24 * 2**20
    assert predicted > 60 * 2**20, "so that the rest is small beside it"


# --- the largest --------------------------------------------------------------------------------------------


def jagged(falls: Callable[[int], int]) -> FeedForwardNet:
    """A small net whose product asks for `falls(batch)` bytes of scratch."""
    net = classifier(layers.Dense("scores", 5, input_sample_shape=(30,)), kernels="numpy")
    plain = net.device.kernels
    net.device.kernels = type(plain)("jagged", plain.kernels)
    kernel = plain.kernels["linear"]

    def scratch(x: Any, *others: Any, **settings: Any) -> int:
        return kernel.scratch_bytes((x, *others), settings) + falls(x.shape[0])

    net.device.kernels.kernels["linear"] = FunctionKernel(lambda *arrays, **settings: None, scratch)
    return net


JAGGED: dict[str, Callable[[int], int]] = {
    "smooth": lambda size: 0,
    "one dip": lambda size: 6400 if size < 21 else 0,
    "saw": lambda size: 900 * (7 - size % 7),
    "stairs": lambda size: 2600 * (size // 6 % 3),
    "odd ones": lambda size: 4000 if size % 2 else 0,
}
MOST = 50  # beyond what any limit below lets through


@pytest.mark.parametrize("falls", JAGGED.values(), ids=JAGGED.keys())
def test_the_largest_batch_is_that_of_trying_all(falls):
    samples = 60 if falls is JAGGED["saw"] else None
    net = jagged(falls)
    totals = {size: net.plan_batch(size, samples=samples).total_bytes for size in range(1, MOST)}
    limits = totals[13], totals[20] - 1, totals[21]
    assert min(totals[size] for size in range(MOST - 7, MOST)) > max(limits)
    for limit in limits:
        wanted = max((n for n, total in totals.items() if total <= limit), default=0)
        assert net.largest_batch(limit, samples=samples) == wanted


def test_a_batch_beyond_a_dip_is_found_where_the_last_one_is_known():
    net = jagged(JAGGED["one dip"])
    limit = net.plan_batch(21, samples=21).total_bytes
    assert net.plan_batch(20, samples=20).total_bytes > limit
    assert net.largest_batch(limit, samples=21 * 4) == 21
    assert net.largest_batch(limit) < 20, "a last batch of 20 would not fit"


def test_sizes_as_text():
    net = wide_input()
    for text, nbytes in (("2 MiB", 2 << 20), ("2mib", 2 << 20), ("2.5MB", 2_500_000), ("3000000", 3_000_000)):
        assert net.largest_batch(text) == net.largest_batch(nbytes)
    for given in ("many", "", "-3 MiB", "4 GiBs", "1e9", "nan", -1, 2.5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="largest_batch"):
            net.largest_batch(given)
    for given in (None, True, b"1 GiB", [1]):
        with pytest.raises(TypeError, match="largest_batch"):
            net.largest_batch(given)


# --- beyond what can be counted -----------------------------------------------------------------------------

HUGE = """
import sys
from singa_lite.errors import ShapeError
from test_batch_plan import convolutional, perceptron
for make, room, samples, least in ((convolutional, 40 * 2**30, 2**40, 1000), (perceptron, "8 PiB", 1, 10**9)):
    net = make(kernels="{kernels}")
    for size in (2**31 - 1, 2**31, 2**32, 2**32 + 1, 2**33):
        assert net.plan_batch(size, samples=size).total_bytes > size
    for size in (2**62, 10**25):
        try:
            net.plan_batch(size)
        except ShapeError as error:
            assert "2**63" in str(error), error
        else:
            raise AssertionError(size)
    assert net.largest_batch(room, samples=samples) > least
print("done")
"""


@each_set
def test_huge_batches_neither_end_the_process_nor_leak_a_raw_error(kernels):
    assert output(HUGE.format(kernels=kernels), PYTHONPATH=PATH) == "done\n"


@pytest.mark.parametrize("shape", [(2**62, 4), (10**25,), (2**21, 2**21, 2**21)])
def test_a_tensor_of_more_bytes_than_can_be_counted(shape):
    with pytest.raises(ValueError, match=r"2\*\*63 bytes"):
        device.new_cpu().empty(shape)
