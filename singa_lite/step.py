"""Steps: one batch trained, evaluated or predicted; recorded once for each shape of batch and then replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from singa_lite.arena import Arena
from singa_lite.batch import as_tensors
from singa_lite.contexts import in_own_context
from singa_lite.errors import GraphError
from singa_lite.graph import Graph, Pause
from singa_lite.memory_plan import MemoryPlan
from singa_lite.objective import Objective
from singa_lite.tensor import Shape, Tensor
from singa_lite.unique import Unique

#: {"input": {layer: batch}, "target": {layer: targets}}; arrays of the user's, or tensors.
Feeds = Mapping[str, Mapping[str, Any]]
#: ("input" or "target", layer, shape, dtype) of all that a step is fed.
StepForm = tuple[tuple[str, str, Shape, str], ...]
#: What a step does with its feeds as tensors; gives tensors, alone, in a tuple or in a dict, or None.
Body = Callable[[Mapping[str, dict[str, Tensor]]], Any]
R = TypeVar("R")

LEFT_WITHIN = "(somewhere within it: running statistics may have moved, and some layers may be updated)"
LEFT_PLANNING = "(while a step was being planned: the count of steps may be off by one)"


class _Stage(Enum):
    """How far a training step is: it can be taken back, it cannot, or nothing is left to be done."""

    BEGUN = 0
    CHANGING = 1
    DONE = 2


#: The steps that the present call is a part of.
_under_way: ContextVar[Steps | None] = ContextVar("under_way", default=None)


@dataclass
class RecordedStep:
    """A step for batches of one form. feeds: tensors that each batch is copied into; results: read after a run."""

    graph: Graph
    feeds: dict[str, dict[str, Tensor]]
    results: Any

    def feed(self, feeds: Feeds) -> None:
        """Copy a batch in."""
        for kind, arrays in feeds.items():
            for name, array in arrays.items():
                tensor = self.feeds[kind][name]
                tensor.device.feed(tensor, array)


class Steps(Unique):
    """How a net does a batch. Its recorded steps share one arena, as they never run at the same time.

    net: the net; graph: record and replay, or do each operation at once; fuse: see `Graph`.
    """

    def __init__(self, net: Any, graph: bool, fuse: bool = True) -> None:
        self.net = net
        self.graph = graph
        self.fuse = fuse
        self.arena = Arena(net.device)
        self._left_at = ""
        self._stage = _Stage.DONE
        self._recorded: dict[Any, RecordedStep] = {}
        self._trained: RecordedStep | None = None

    @property
    def interrupted(self) -> str:
        """Where the last step was left, so that some layers are updated and others are not; "" after whole steps.

        It is noted when a step begins, as an interrupt leaves no time for it, and is seen from outside of it alone.
        """
        return "" if self.under_way else self._left_at

    @interrupted.setter
    def interrupted(self, left_at: str) -> None:
        self._left_at = left_at

    @property
    def under_way(self) -> bool:
        """Whether the present call is a part of a training step."""
        return _under_way.get() is self

    def alone(self, work: Callable[..., R], *arguments: Any) -> R:
        """work(*arguments), while no other thread does a step of this net."""
        return self.arena.alone.run(work, *arguments)

    @in_own_context
    def train(self, objective: Objective, inputs: Mapping[str, Any], targets: Mapping[str, Any]) -> tuple[Tensor, Any]:
        """One batch: forward, loss, and each layer's update as soon as its gradients are there; (loss, metric)."""
        before = self.net.optimizer.step
        _under_way.set(self)
        self._stage, self._left_at = _Stage.BEGUN, LEFT_WITHIN
        try:
            values = self._train(objective, {"input": inputs, "target": targets}, self.net.take_pause())
        except BaseException:
            self._leave(before)
            raise
        self._leave(before)
        return values

    def _leave(self, before: int) -> None:
        """End a step as whole, or as one that never was; one that can be neither is left. before: steps until then."""
        net = self.net
        net.end_readers(give_up=False)  # also of a step that ended before its pause
        if self._stage is _Stage.BEGUN:
            net.optimizer.restore_step(before)
            net.forget_run()
        if self._stage is _Stage.DONE:
            net.optimizer.restore_step(net.optimizer.step)  # an update by hand that follows begins a step of its own
        if self._stage is not _Stage.CHANGING:
            self._left_at = ""

    def _train(self, objective: Objective, feeds: Feeds, pause: Pause | None) -> tuple[Tensor, Any]:
        if not self.graph:
            return self._train_at_once(objective, feeds, pause)

        def body(tensors: Mapping[str, dict[str, Tensor]]) -> tuple[Tensor, Any]:
            return self._trained_once(objective, tensors)

        step = self._recorded.get(self._key("train", objective, feeds))
        if step is None:
            step = self._record("train", objective, body, feeds)
        else:
            step.feed(feeds)
            self.net.optimizer.begin_step()
        step.graph.prepare()
        self._trained = step
        self._stage = _Stage.CHANGING
        step.graph.run(pause=pause)
        self._stage = _Stage.DONE
        loss, metric = _copies(step.results)
        return loss, metric

    def _train_at_once(self, objective: Objective, feeds: Feeds, pause: Pause | None) -> tuple[Tensor, Any]:
        if pause is not None:
            pause.wait()
        net, before = self.net, self.net.optimizer.step
        net.forget_run()
        self._stage = _Stage.CHANGING
        try:
            values = self._trained_once(objective, self._tensors(feeds))
        except BaseException:
            if not net.has_moved and net.optimizer.step == before:
                self._stage = _Stage.BEGUN
            raise
        self._stage = _Stage.DONE
        return values

    def evaluate(
        self, objective: Objective, inputs: Mapping[str, Any], targets: Mapping[str, Any]
    ) -> tuple[Tensor, Any]:
        """(loss, metric) of one batch, without training."""

        def body(tensors: Mapping[str, dict[str, Tensor]]) -> tuple[Tensor, Any]:
            out = self.net.forward(False, tensors["input"])
            return objective.loss(False, out, tensors["target"]), objective.metric(out, tensors["target"])

        loss, metric = self._do("evaluate", objective, body, {"input": inputs, "target": targets})
        return loss, metric

    def predict(self, inputs: Mapping[str, Any]) -> Any:
        """The net's output for one batch; valid until the next call."""

        def body(tensors: Mapping[str, dict[str, Tensor]]) -> Any:
            return self.net.forward(False, tensors["input"])

        return self._do("predict", None, body, {"input": inputs})

    @property
    def training_graph(self) -> Graph:
        """The last recorded training step. GraphError if there is none."""
        if self._trained is None:
            raise GraphError(
                "wanted a recorded training step, train a batch first with compile(graph=True); "
                "plan_batch(batch_size) plans one beforehand"
            )
        return self._trained.graph

    @property
    def recorded_forms(self) -> list[tuple[str, StepForm]]:
        """("train", "evaluate" or "predict", form of the batch) of each recorded step."""
        return [(key[0], key[-1]) for key in self._recorded]

    @in_own_context
    def planned(self, objective: Objective | None, forms: Mapping[str, Mapping[str, tuple[Any, Any]]]) -> MemoryPlan:
        """The plan of a step for batches of these (shape, dtype) forms. No batch is needed, nothing runs.

        objective: of a training step; None: the plan of a prediction.
        """
        net, device = self.net, self.net.device
        before = net.optimizer.step if objective is not None else 0
        if objective is not None:
            _under_way.set(self)
            self._left_at = LEFT_PLANNING
        try:
            with device.recording(Arena(device), self.fuse) as graph:
                tensors = {
                    kind: {name: _fed(device, *form) for name, form in given.items()} for kind, given in forms.items()
                }
                if objective is None:
                    results = net.forward(False, tensors["input"])
                else:
                    results = self._trained_once(objective, tensors)
            plan: MemoryPlan = graph.memory_plan
            del tensors, results  # alive until here: inputs and outputs of the plan
            return plan
        finally:
            if objective is not None:
                net.optimizer.restore_step(before)
                net.forget_run()
                self._left_at = ""

    def _trained_once(self, objective: Objective, tensors: Mapping[str, dict[str, Tensor]]) -> tuple[Tensor, Any]:
        """The operations of a training step; (loss, metric)."""
        out = self.net.forward(True, tensors["input"], freeze=self.net.freeze)
        values = objective.loss(True, out, tensors["target"]), objective.metric(out, tensors["target"])
        del out, tensors  # nothing of the batch outlives its last use, where the caller does not hold it
        self._update(objective.backward())
        return values

    def _update(self, dy: Any) -> None:
        """Drain backward, and update each layer's parameters in its turn."""
        net, optimizer = self.net, self.net.optimizer
        walk, begun = net.backward(dy), False
        del dy
        for names, values, gradients, _ in walk:
            for name, value, gradient in zip(names, values, gradients, strict=True):
                if not begun:  # not before the first gradient: an error until then must not count a step
                    optimizer.begin_step()
                    begun = True
                with net.device.scope(layer=name.partition("/")[0]):
                    optimizer.update(name, value, gradient)

    def _do(self, kind: str, objective: Objective | None, body: Body, feeds: Feeds) -> Any:
        if not self.graph:
            return body(self._tensors(feeds))
        step = self._recorded.get(self._key(kind, objective, feeds))
        if step is None:
            step = self._record(kind, objective, body, feeds)
        else:
            step.feed(feeds)
        step.graph.run()
        return _copies(step.results) if kind == "evaluate" else step.results

    def _record(self, kind: str, objective: Objective | None, body: Body, feeds: Feeds) -> RecordedStep:
        device = self.net.device
        tensors = {
            kind: {name: _fed(device, array.shape, _dtype(array)) for name, array in arrays.items()}
            for kind, arrays in feeds.items()
        }
        step = RecordedStep(Graph(device, self.arena, self.fuse), tensors, None)
        step.feed(feeds)  # before recording, which looks at the targets' values
        with device.recording(self.arena, self.fuse) as step.graph:
            step.results = body(tensors)
        self._recorded[self._key(kind, objective, feeds)] = step
        return step

    def _key(self, kind: str, objective: Objective | None, feeds: Feeds) -> Any:
        """What a recorded step holds for: layers, losses and metrics, the optimizer's rules, the batch's form."""
        rules = len(self.net.optimizer.rules) if kind == "train" else 0
        criteria = objective.criteria if objective is not None else ()
        return kind, len(self.net.layers), criteria, rules, _form(feeds)

    def _tensors(self, feeds: Feeds) -> dict[str, dict[str, Tensor]]:
        return {kind: as_tensors(arrays, self.net.device) for kind, arrays in feeds.items()}


def _fed(device: Any, shape: Shape, dtype: Any) -> Tensor:
    """A tensor that batches are copied into, images as the device's kernels like them best."""
    made: Tensor = device.empty(shape, dtype, device.runtime.feed_layout if len(shape) == 4 else "")
    return made


def _dtype(array: Any) -> np.dtype[Any]:
    return np.dtype(str(array.dtype).removeprefix("torch."))


def _form(feeds: Feeds) -> StepForm:
    """The shapes and dtypes of a batch, to find its recorded step by."""
    return tuple(
        (kind, name, tuple(array.shape), str(array.dtype).removeprefix("torch."))
        for kind, arrays in feeds.items()
        for name, array in arrays.items()
    )


def _copies(results: Any) -> Any:
    """The results as tensors of their own, which the next replay does not overwrite."""
    if isinstance(results, tuple):
        return tuple(_copies(result) for result in results)
    if isinstance(results, dict):
        return {name: _copies(result) for name, result in results.items()}
    if results is None:
        return None
    copy = results.device.empty(results.shape, results.dtype)
    results.device.run("copy", results, copy)
    return copy
