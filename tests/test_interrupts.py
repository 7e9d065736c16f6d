"""An interrupt at any line of a training step: the next is refused until `discard_step` or `load`, or as before."""

from __future__ import annotations

import gc
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interrupts import Tracer
from nets import state_of
from singa_lite import FeedForwardNet, GraphError, autograd, device, layers, loss, metric, optimizer, tensor
from singa_lite.common import threads
from singa_lite.common.contexts import raise_ignored
from singa_lite.fit import Callback, Training
from singa_lite.snapshots import Checkpoint
from singa_lite.snapshots.checkpoints.folder import checkpoints, step_of

STEPS = 4
RNG = np.random.default_rng(4)
BATCHES = [(RNG.normal(size=(6, 1, 4, 4)).astype("f"), RNG.integers(0, 3, 6)) for _ in range(STEPS)]


def make(on: Any, graph: bool) -> FeedForwardNet:
    net = FeedForwardNet(loss.SoftmaxCrossEntropy(), metric.Accuracy(), device=on, seed=3)
    net.add(layers.Conv2D("conv", 2, 3, input_sample_shape=(1, 4, 4)))
    net.add(layers.BatchNormalization("norm"))
    net.add(layers.Activation("relu"))
    net.add(layers.Flatten("flat"))
    net.add(layers.Dropout("drop", 0.3))
    net.add(layers.Dense("scores", 3))
    net.compile(optimizer.SGD(lr=lambda step: 0.1 / (1 + step), momentum=0.9), graph=graph)
    return net


@cache
def wanted(graph: bool) -> list[dict[str, Any]]:
    """The state after so many steps that nothing disturbed."""
    net = make(device.new_cpu(), graph)
    states = [state_of(net)]
    for x, y in BATCHES:
        net.train_one_batch(x, y)
        states.append(state_of(net))
    return states


@dataclass(frozen=True)
class Places:
    """Where interrupts come: before so many of the lines, or the instructions, that the work runs."""

    count: int
    opcodes: bool = False

    def of(self, work: Callable[[], Any], share: int = 1) -> list[int]:
        """Numbers of events, each at one of the turns of its place. share: 3 for a third of `count`."""
        tracer = Tracer(opcodes=self.opcodes)
        assert not tracer.run(work)
        rng, turns = random.Random(), list(tracer.places.values())
        return sorted(rng.choice(numbers) for numbers in rng.sample(turns, min(self.count // share, len(turns))))


@pytest.fixture(
    params=[
        pytest.param(Places(40), id="some lines"),
        pytest.param(Places(400), id="lines", marks=pytest.mark.nightly),
        pytest.param(Places(400, opcodes=True), id="instructions", marks=pytest.mark.nightly),
    ]
)
def places(request: pytest.FixtureRequest) -> Places:
    """Where the work of a test is interrupted."""
    return request.param


class Scene:
    """A net, on a device of its own, whose step after `before` others is interrupted again and again."""

    def __init__(self, graph: bool, before: int, file: Path) -> None:
        self.graph, self.before, self.file = graph, before, file
        self.on = device.new_cpu()
        self.blas = [library.get_num_threads() for library in threads.blas()]
        self.net = make(self.on, graph)
        for x, y in BATCHES[:before]:
            self.net.train_one_batch(x, y)
        self.net.save(file)
        self.other = make(self.on, graph)

    def restore(self) -> None:
        self.net.load(self.file)

    def step(self) -> None:
        self.net.train_one_batch(*BATCHES[self.before])

    def interrupt(self, at: int, opcodes: bool) -> str:
        """Interrupt a step there, look at what is left, and train on; "refused", "as before" or "done"."""
        tracer = Tracer(at, opcodes)
        tracer.run(self.step)
        return self.look(tracer.place or f"after the end: {tracer.count} events this time")

    def look(self, where: Any) -> str:
        """See what is left of a step, and train on; "refused", "as before" or "done"."""
        self.where = where
        self.check_device()
        answer = self.answer()
        self.train_on(self.net.optimizer.step)
        return answer

    def answer(self) -> str:
        """What the net says to the next step, having been told to go on if it refuses."""
        net, states = self.net, wanted(self.graph)
        if not net.unfinished_at:
            assert self.same(net.optimizer.step), self.where
            return "as before" if net.optimizer.step == self.before else "done"
        with pytest.raises(GraphError, match=r"Load a snapshot, or call discard_step\(\)"):
            self.step()
        net.discard_step()
        self.step()  # of values between two steps, but it can
        assert all(np.isfinite(value.array).all() for value in net.param_values()), self.where
        self.restore()
        assert self.same(self.before), self.where
        assert states[self.before]["step"] == net.optimizer.step
        return "refused"

    def train_on(self, start: int) -> None:
        for number in range(start, STEPS):
            self.net.train_one_batch(*BATCHES[number])
            assert self.same(number + 1), (self.where, number)

    def same(self, step: int) -> bool:
        """Whether the net is as after so many steps; slots of the optimizer's that are zero yet may be there."""
        found = state_of(self.net)
        return all(found.get(name) == bits for name, bits in wanted(self.graph)[step].items())

    def check_device(self) -> None:
        """Nothing of the step has stayed there: other nets train as ever."""
        assert self.on.graph is None, self.where
        assert (self.on.phase, self.on.layer) == (device.base.Phase.FORWARD, ""), self.where
        assert [library.get_num_threads() for library in threads.blas()] == self.blas, self.where
        found = self.other.optimizer.step
        self.other.train_one_batch(*BATCHES[0])
        assert self.other.optimizer.step == found + 1


@pytest.mark.parametrize("graph", [True, False], ids=["replayed", "at once"])
def test_a_later_step(graph, places, tmp_path):
    scene = Scene(graph, 2, tmp_path / "net.h5")
    scene.restore()
    answers = []
    for at in places.of(scene.step):
        scene.restore()
        answers.append(scene.interrupt(at, places.opcodes))
    assert {"refused", "as before"} <= set(answers)
    used = scene.on.pool.used
    scene.restore()
    scene.train_on(2)
    gc.collect()
    scene.on.pool.release_free()
    assert scene.on.pool.used <= used


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timer that sends signals")
@pytest.mark.parametrize("graph", [True, False], ids=["replayed", "at once"])
def test_real_signals(graph, tmp_path):
    """As Ctrl-C sends them, noticed where Python looks for them."""
    scene, rng = Scene(graph, 2, tmp_path / "net.h5"), random.Random()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(30):
            scene.restore()
            start = time.perf_counter()
            scene.step()
            seconds = time.perf_counter() - start
            scene.restore()
            delay = max(rng.uniform(0, 1.2 * seconds), 1e-6)
            with suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, delay)
                scene.step()
                time.sleep(2 * seconds)
                raise_ignored()  # one that came in the last destructors
            scene.look(f"after {delay} of {seconds} seconds")
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("graph", [True, False], ids=["recorded", "at once"])
def test_a_first_step(graph, places, tmp_path):
    scenes = iter(lambda: Scene(graph, 0, tmp_path / "net.h5"), None)
    answers = [next(scenes).interrupt(at, places.opcodes) for at in places.of(next(scenes).step, share=2)]
    assert "as before" in answers


# ---- fit with checkpoints


class Note(Callback):
    """The state after each step."""

    def __init__(self) -> None:
        self.states: dict[int, dict[str, Any]] = {}

    def on_batch(self, training: Training) -> None:
        self.states[training.net.optimizer.step] = state_of(training.net)


class Run:
    """fit of two epochs of two steps, a checkpoint each step, interrupted again and again."""

    X = np.concatenate([x for x, _ in BATCHES])[:12]
    LABELS = np.concatenate([labels for _, labels in BATCHES])[:12]

    def __init__(self, folder: Path, background: bool) -> None:
        self.folder, self.background = folder, background
        self.on = device.new_cpu()
        self.net, self.probe = make(self.on, True), make(self.on, True)
        self.net.save(folder / "start.npz")
        note = Note()
        self.fit("first", note)
        self.net.load(folder / "start.npz")
        self.probe.train_one_batch(self.X[:6], self.LABELS[:6])
        self.states = note.states
        self.number = 0

    def fit(self, name: str, *callbacks: Callback, resume: str | None = None) -> None:
        last = Checkpoint(self.folder / name, every_steps=1, background=self.background, keep=9)
        self.net.fit(self.X, self.LABELS, 6, 2, verbose=False, callbacks=[*callbacks, last], resume=resume)

    def interrupt(self, at: int, opcodes: bool) -> str:
        self.net.load(self.folder / "start.npz")
        self.number += 1
        name = f"run {self.number}"
        tracer = Tracer(at, opcodes)
        out = tracer.run(lambda: self.fit(name))
        where, net = tracer.place, self.net
        answer = "refused" if net.unfinished_at else "whole"
        if net.unfinished_at:
            with pytest.raises(GraphError, match="discard_step"):
                net.train_one_batch(self.X[:6], self.LABELS[:6])
        elif net.optimizer.step:
            assert state_of(net) == self.states[net.optimizer.step], where
        if not out:
            return "over"
        self.check_files(self.folder / name, where)
        if not checkpoints(self.folder / name):
            net.load(self.folder / "start.npz")
        self.fit(name, resume="auto")
        assert state_of(net) == self.states[STEPS], where
        self.check_files(self.folder / name, where)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, where
        shutil.rmtree(self.folder / name)
        return answer

    def check_files(self, folder: Path, where: Any) -> None:
        """Each checkpoint is whole, and of its step."""
        for file in checkpoints(folder):
            self.probe.load(file)
            assert state_of(self.probe) == self.states[step_of(file)], (where, file)


@pytest.mark.parametrize("background", [False, True], ids=["at once", "background"])
def test_fit_with_checkpoints(background, places, tmp_path):
    run = Run(tmp_path, background)
    answers = [run.interrupt(at, places.opcodes) for at in places.of(lambda: run.fit("counted"), share=3)]
    assert "whole" in answers


def test_a_block_whose_end_was_interrupted_is_no_output():
    """What is raised in `__del__` is told and forgotten by Python; the recording goes on, and must be right."""
    on = device.new_cpu()
    x = tensor.from_numpy(np.linspace(-1, 1, 8, dtype="f"), on)
    with on.recording() as graph:
        inner = autograd.relu(x)
        inner.block.set_give(lambda: None)
        y = autograd.multiply(inner, inner)
        del inner
        others = [autograd.relu(x) for _ in range(8)]
    graph.run()
    assert tensor.to_numpy(y).tolist() == (np.maximum(tensor.to_numpy(x), 0) ** 2).tolist()
    assert all(np.array_equal(tensor.to_numpy(other), np.maximum(tensor.to_numpy(x), 0)) for other in others)


@pytest.mark.parametrize("what", ["load", "plan_batch", "compile"])
def test_other_calls(what, places, tmp_path):
    """A load is refused half-way, a plan leaves the count of steps, and a net is compiled or says that it is not."""
    scene = Scene(True, 2, tmp_path / "net.h5")
    scene.train_on(2)
    later = tmp_path / "later.npz"
    scene.net.save(later)

    def compile() -> None:
        scene.net.compile(scene.net.optimizer)

    works = {"load": lambda: scene.net.load(later), "plan_batch": lambda: scene.net.plan_batch(5), "compile": compile}
    for at in places.of(works[what], share=2):
        used = scene.net.optimizer
        scene.restore()
        tracer = Tracer(at, places.opcodes)
        tracer.run(works[what])
        scene.where = tracer.place
        if scene.net.optimizer is None:
            assert what == "compile"
            with pytest.raises(GraphError, match=r"call compile\(optimizer\) first"):
                scene.step()
            scene.net.compile(used)
        elif scene.net.unfinished_at:
            with pytest.raises(GraphError, match="discard_step"):
                scene.step()
            scene.restore()
        step = scene.net.optimizer.step
        assert step in ((2, STEPS) if what == "load" else (2,)), scene.where
        assert scene.same(step), scene.where
        scene.train_on(step)
