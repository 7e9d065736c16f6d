"""Threads: one number for all libraries, BLAS beside OpenMP, and what Python threads may do at the same time."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from in_process import output
from kernel_sets import kernel_sets
from nets import bits, state_of
from singa_lite import FeedForwardNet, autograd, device, layers, loss, optimizer, tensor
from singa_lite.common import threads
from singa_lite.common.machine import usable_cores
from singa_lite.device import step_context
from singa_lite.errors import GraphError
from singa_lite.kernels.choice import find_onednn

ONEDNN = find_onednn()
needs_onednn = pytest.mark.skipif(isinstance(ONEDNN, str), reason=f"{ONEDNN}; pip install onednn-cpu-gomp")
SETS = [kernels.name for kernels in kernel_sets()]


def in_thread(work: Callable[[], Any]) -> Any:
    """The result of the work in another thread, or what it raised."""
    results: list[Any] = ["it hangs"]

    def run() -> None:
        try:
            results[0] = work()
        except BaseException as error:
            results[0] = error

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    worker.join(60)
    return results[0]


# --- the number ---------------------------------------------------------------------------------------------


@pytest.fixture
def unset(monkeypatch) -> pytest.MonkeyPatch:
    """As in a new process with no setting."""
    for name in ("SINGA_LITE_THREADS", "OMP_NUM_THREADS", *threads.WAITS, *threads.BLAS_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_setting", threads._Setting())
    return monkeypatch


@pytest.mark.parametrize(
    ("ours", "openmp", "wanted"),
    [
        (None, None, usable_cores()),
        ("5", None, 5),
        ("5", "3", 5),
        (None, "3", 3),
        (None, "4,2", 4),
        ("", " 3 ", 3),
        (None, "0", usable_cores()),
        (None, "many", usable_cores()),
        ("4096", None, 4096),
    ],
)
def test_the_number_of_threads(unset, ours, openmp, wanted):
    for name, value in (("SINGA_LITE_THREADS", ours), ("OMP_NUM_THREADS", openmp)):
        if value is not None:
            unset.setenv(name, value)
    assert device.threads() == wanted


@pytest.mark.parametrize("text", ["0", "-2", "1.5", "many", "nan", "inf", "4097", "1e9"])
def test_numbers_that_are_none(unset, text):
    unset.setenv("SINGA_LITE_THREADS", text)
    with pytest.raises(ValueError, match="SINGA_LITE_THREADS"):
        device.threads()


@pytest.mark.parametrize("number", [0, -1, 2.5, float("nan"), 4097])
def test_set_threads_refuses_what_is_no_number_of_threads(unset, number):
    with pytest.raises(ValueError, match="set_threads"):
        device.set_threads(number)
    assert device.threads() == usable_cores()


# Print, before any device is made, {name: number of threads} of the libraries, in this thread and in another one.
NUMBERS = """
import os, sys, threading
import numpy as np
from singa_lite import device, tensor
from singa_lite.common import threads
from singa_lite.errors import DeviceError
environment = dict(os.environ)
def blas():
    return threads.blas()[0].get_num_threads()
def openmp():
    import ctypes
    from singa_lite.kernels.onednn_kernels.library.library import load
    return ctypes.CDLL(load().path).omp_get_max_threads()
def after_an_operation():
    tensor.ones((3, 2), device=on)
    return openmp()
def elsewhere(work):
    results = []
    worker = threading.Thread(target=lambda: results.append(work()))
    worker.start()
    worker.join()
    return results[0]
"""
NUMPY_NUMBERS = "on = device.new_cpu(kernels='numpy')\nprint(device.threads(), blas())\n"
ALL_NUMBERS = """
on = device.new_cpu(kernels='onednn')
print(device.threads(), after_an_operation(), elsewhere(after_an_operation))
"""


def numbers(program: str, **variables: object) -> list[int]:
    return [int(word) for word in output(NUMBERS + program, **variables).split()]


def test_blas_gets_the_number():
    assert numbers(NUMPY_NUMBERS, SINGA_LITE_THREADS=3, OPENBLAS_NUM_THREADS=1, OMP_NUM_THREADS=2) == [3, 3]
    assert numbers("device.set_threads(5)\n" + NUMPY_NUMBERS + "device.set_threads(2)\nprint(blas())") == [5, 5, 2]


def test_without_a_setting_blas_keeps_its_own():
    assert numbers(NUMPY_NUMBERS) == [usable_cores(), usable_cores()]
    assert numbers(NUMPY_NUMBERS, OPENBLAS_NUM_THREADS=1) == [usable_cores(), 1]


@needs_onednn
def test_openmp_gets_the_number_in_every_thread():
    assert numbers(ALL_NUMBERS, SINGA_LITE_THREADS=3, OMP_NUM_THREADS=2) == [3] * 3
    assert numbers(ALL_NUMBERS, OMP_NUM_THREADS=2) == [2] * 3
    before_any = "on = device.new_cpu(kernels='onednn')\nprint(openmp(), elsewhere(openmp))"
    assert numbers(before_any, SINGA_LITE_THREADS=3) == [3] * 2


@needs_onednn
def test_a_replay_in_another_thread_has_the_number_too():
    replay = """
import ctypes
ctypes.CDLL('libgomp.so.1').omp_set_num_threads(4)
on = device.new_cpu(kernels='onednn')
x = tensor.ones((3, 2), device=on)
with on.recording() as graph:
    y = x + x
def number():
    graph.run()
    return openmp()
print(elsewhere(number))
"""
    assert numbers(replay, SINGA_LITE_THREADS=3) == [3]


@needs_onednn
def test_the_number_is_fixed_once_the_library_is_loaded():
    late = """
device.new_cpu(kernels='onednn')
device.set_threads(3)
try:
    device.set_threads(2)
except DeviceError as error:
    print(error)
print(device.threads())
"""
    error, number = output(NUMBERS + late, SINGA_LITE_THREADS=3).splitlines()
    assert "set_threads" in error and "3" in error
    assert number == "3"


@needs_onednn
def test_the_environment_is_left_as_it_was():
    after = """
device.new_cpu(kernels='onednn')
for name in ('OMP_NUM_THREADS', 'GOMP_SPINCOUNT', 'OMP_WAIT_POLICY'):
    print(name in os.environ, os.environ.get(name) == environment.get(name))
"""
    assert output(NUMBERS + after).split() == ["False", "True"] * 3


# --- BLAS beside OpenMP -------------------------------------------------------------------------------------


def blas_threads() -> int:
    return threads.blas()[0].get_num_threads()


@pytest.fixture
def two_blas_threads() -> Iterator[None]:
    before = blas_threads()
    threads.blas()[0].set_num_threads(2)
    yield
    threads.blas()[0].set_num_threads(before)


@pytest.mark.usefixtures("two_blas_threads")
@pytest.mark.parametrize("name", SETS)
def test_large_products_beside_openmp_have_one_blas_thread(monkeypatch, name):
    on = device.new_cpu(kernels=name)
    seen: list[int] = []
    product = np.matmul

    def watched(*arrays: Any, **settings: Any) -> Any:
        seen.append(blas_threads())
        return product(*arrays, **settings)

    monkeypatch.setattr(np, "matmul", watched)
    large = tensor.ones((70, 60), np.float64, on)
    y = autograd.matmul(large, tensor.ones((60, 5), np.float64, on))
    assert (tensor.to_numpy(y) == 60).all()
    autograd.matmul(tensor.ones((6, 5), np.float64, on), tensor.ones((5, 3), np.float64, on))
    assert seen == [1 if name == "onednn" else 2, 2]
    assert blas_threads() == 2


# --- Python threads -----------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 2, 5, 4)).astype("f"), RNG.integers(0, 4, 6)


def trained(on: device.Device, steps: int = 4) -> dict[str, Any]:
    """The state of a small net of the usual layers after some steps."""
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on)
    net.add(layers.Conv2D("conv", 3, input_sample_shape=(2, 5, 4)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("act"))
    net.add(layers.Dropout("drop", 0.2))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dense("dense", 4))
    net.compile(optimizer.Adam())
    for _ in range(steps):
        net.train_one_batch(X, Y)
    state = state_of(net)
    del state["layers"]
    return state


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads change places as often as can be."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def at_once(works: list[Callable[[], Any]]) -> list[Any]:
    """The results of all, each in a thread of its own, begun together."""
    barrier = threading.Barrier(len(works))
    results: list[Any] = ["it hangs"] * len(works)

    def run(index: int) -> None:
        barrier.wait(60)
        try:
            results[index] = works[index]()
        except BaseException as error:
            results[index] = error

    workers = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(works))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    return results


@pytest.mark.usefixtures("hasty_threads", "two_blas_threads")
@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", SETS)
def test_nets_on_devices_of_their_own_train_at_once(name, times):
    """Nothing that one of them still executes goes with another one's plan."""
    alone = trained(device.new_cpu(kernels=name), steps=2)
    for _ in range(times):
        assert at_once([lambda: trained(device.new_cpu(kernels=name), steps=2)] * 3) == [alone] * 3
        assert blas_threads() == 2, "the last that left gave them back"


@pytest.mark.usefixtures("hasty_threads")
@pytest.mark.parametrize("name", SETS)
def test_operations_on_tensors_of_their_own_may_be_done_at_once_on_one_device(name):
    on = device.new_cpu(kernels=name)

    def work(seed: int) -> Any:
        x = tensor.from_numpy(np.random.default_rng(seed).standard_normal((7, 5)).astype("f"), on)
        for _ in range(20):
            x = autograd.tanh(x * x + x)
        return bits(x)

    alone = [work(seed) for seed in range(3)]
    assert at_once([lambda seed=seed: work(seed) for seed in range(3)]) == alone


REFUSED = {
    "an operation": lambda on, kept, graph: kept + kept,
    "a new tensor": lambda on, kept, graph: on.empty((2, 3)),
    "host values": lambda on, kept, graph: kept.copy_from_numpy(np.zeros((3, 2))),
    "a reading": lambda on, kept, graph: tensor.to_numpy(kept),
    "an array of it": lambda on, kept, graph: on.export(kept),
    "a recording": lambda on, kept, graph: on.recording().__enter__(),
    "a replay": lambda on, kept, graph: graph.run(),
}


@pytest.mark.parametrize("what", REFUSED)
def test_while_one_thread_records_the_others_wait_and_are_refused_in_the_end(what, monkeypatch):
    monkeypatch.setattr(step_context, "LONGEST_WAIT", 0.05)
    on = device.new_cpu()
    x = tensor.from_numpy(np.arange(6, dtype="f").reshape(3, 2), on)
    kept = tensor.ones((3, 2), device=on)
    with on.recording() as before:
        z = kept + kept
    with on.recording() as graph:
        y = x + x
        refused = in_thread(lambda: REFUSED[what](on, kept, before))
        y = y * x
    assert isinstance(refused, GraphError)
    if what != "a replay":
        assert "another thread" in str(refused) and "device.new_cpu()" in str(refused)
    assert [operation.kernel for operation in graph.operations] == ["add", "multiply"]
    graph.run()
    before.run()
    np.testing.assert_array_equal(tensor.to_numpy(y), 2 * np.arange(6).reshape(3, 2) ** 2)
    np.testing.assert_array_equal(tensor.to_numpy(kept), np.ones((3, 2)))
    np.testing.assert_array_equal(tensor.to_numpy(z), np.full((3, 2), 2))


def test_first_batches_of_nets_in_threads_wait_for_each_other():
    on = device.new_cpu()

    def made(width: int) -> Callable[[], Any]:
        net = FeedForwardNet(loss.SoftmaxCrossEntropy(), device=on, seed=1)
        net.add(layers.Dense("hidden", width, input_sample_shape=(20,)))
        net.add(layers.Dense("scores", 3))
        net.compile(optimizer.SGD(0.1))

        def work() -> Any:
            for count in range(1, 9):
                net.train_one_batch(np.ones((count, 20), "f"), np.zeros(count, int))
                net.predict_one_batch(np.ones((count, 20), "f"))
            return bits(net.parameters()["scores/weight"])

        return work

    alone = [made(width)() for width in (10, 20, 30)]
    assert at_once([made(width) for width in (10, 20, 30)]) == alone


class Gate:
    """A kernel that stops in the midst of a step until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, on: device.Device) -> None:
        self.inside, self.go = threading.Event(), threading.Event()
        prepare = on.kernels.prepare
        monkeypatch.setattr(on.kernels, "prepare", lambda name, *rest: self._launch(name, prepare(name, *rest)))

    def _launch(self, name: str, launch: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> None:
            launch()
            if name == "tanh" and not self.go.is_set():
                self.inside.set()
                assert self.go.wait(60)

        return run


def perceptron(on: device.Device) -> FeedForwardNet:
    net = FeedForwardNet(loss.SquaredError(), device=on)
    net.add(layers.Dense("dense", 3, input_sample_shape=(4,)))
    net.add(layers.Activation("act", "tanh"))
    net.compile(optimizer.Adam(lr=0.1))
    return net


def test_a_net_that_another_thread_is_training_is_refused_and_stays_whole(monkeypatch):
    batch = RNG.standard_normal((5, 4)).astype("f"), RNG.standard_normal((5, 3)).astype("f")
    alone = perceptron(device.new_cpu())
    for _ in range(2):
        alone.train_one_batch(*batch)
    on = device.new_cpu()
    gate, net = Gate(monkeypatch, on), perceptron(on)
    worker = threading.Thread(target=net.train_one_batch, args=batch, daemon=True)
    worker.start()
    assert gate.inside.wait(60)
    for _ in range(2):
        with pytest.raises(GraphError):
            net.train_one_batch(*batch)
    gate.go.set()
    worker.join(60)
    net.train_one_batch(*batch)
    trained, wanted = state_of(net), state_of(alone)
    del trained["layers"], wanted["layers"]
    assert trained == wanted


RECURRENT = """
import numpy as np
from singa_lite import FeedForwardNet, device, layers, loss, optimizer
net = FeedForwardNet(loss.SquaredError(), device=device.new_cpu(kernels='onednn'), seed=0)
net.add(layers.LSTM('lstm', 256, input_sample_shape=(3, 4)))
net.compile(optimizer.SGD(0.01))
rng = np.random.default_rng(5)
for rows in (15, 30):
    given, wanted = (rng.standard_normal(shape).astype('f') for shape in ((rows, 3, 4), (rows, 256)))
    print(int(np.isfinite(float(net.train_one_batch(given, wanted)[0]))))
"""


@needs_onednn
def test_equal_products_on_several_threads_and_on_one():
    """15 rows by two threads together, and then 30, of which each of two workers does 15 by itself."""
    assert output(RECURRENT, SINGA_LITE_THREADS=2).split() == ["1", "1"]


FORKS = """
import os, threading, time
import numpy as np
from singa_lite import autograd, device, tensor
on, going = device.new_cpu(kernels='numpy'), True
tensor.zeros((2,))  # Python's own locks of imports are not freed in a child
def work():
    while going:
        for n in (3, 1000, 70):
            tensor.zeros((n,), device=on)
        tensor.zeros((2,))
        device.new_cpu()
workers = [threading.Thread(target=work) for _ in range(3)]
for each in workers:
    each.start()
for _ in range(20):
    time.sleep(0.003)
    child = os.fork()
    if not child:
        made = [tensor.zeros((50,), device=on), tensor.zeros((2,)), tensor.zeros((2,), device=device.new_cpu())]
        os._exit(0)
    until = time.monotonic() + 20
    while not os.waitpid(child, os.WNOHANG)[0]:
        if time.monotonic() > until:
            os.kill(child, 9)
            os.waitpid(child, 0)
            print('it hangs')
            break
        time.sleep(0.001)
going = False
print('over')
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_does_not_wait_for_threads_that_its_parent_has():
    """It is made while other threads take memory and make devices."""
    assert output(FORKS).split() == ["over"]
