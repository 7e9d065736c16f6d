"""Steps: one batch trained, evaluated or predicted; recorded once for each shape of batch and then replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from enum import Enum
from functools import partial
from typing import Any, TypeVar

import numpy as np

from singa_lite.arena import Arena
from singa_lite.contexts import in_own_context
from singa_lite.errors import GraphError
from singa_lite.feed_buffer import FeedBuffer
from singa_lite.graph import Graph, Pause
from singa_lite.recorded_steps import Feeds, RecordedStep, RecordedSteps, StepForm, form_of
from singa_lite.tensor import Shape, Tensor
from singa_lite.training.batch import as_tensors, untaped
from singa_lite.training.objective import Objective
from singa_lite.unique import Unique
from singa_lite.watch import Watch

#: What a step does with its feeds as tensors; gives tensors, alone, in a tuple or in a dict, or None.
Body = Callable[[Mapping[str, dict[str, Tensor]]], Any]
R = TypeVar("R")
Seen = TypeVar("Seen")

LEFT_WITHIN = "(somewhere within it: running statistics may have moved, and some layers may be updated)"
LEFT_PLANNING = "(while a step was being planned: the count of steps may be off by one)"


class _Stage(Enum):
    """How far a training step is: it can be taken back, it cannot, or nothing is left to be done."""

    BEGUN = 0
    CHANGING = 1
    DONE = 2


#: The steps that the present call is a part of.
_under_way: ContextVar[Steps | None] = ContextVar("under_way", default=None)


class Steps(Unique):
    """How a net does a batch. Its recorded steps share one arena and one place for what they are fed, as they never run
    at the same time; those that were used least recently are forgotten.

    net: the net; graph: record and replay, or do each operation at once; fuse: see `Graph`.
    """

    def __init__(self, net: Any, graph: bool, fuse: bool = True) -> None:
        self.net = net
        self.graph = graph
        self.fuse = fuse
        self.arena = Arena(net.device)
        self._left_at = ""
        self._stage = _Stage.DONE
        self.feeds = FeedBuffer(self.arena)
        self._recorded = RecordedSteps()
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

        step = self._recorded.find(self._key("train", objective, feeds), self.net.ordered())
        if step is None:
            step = self._record("train", objective, feeds)
        else:
            step.put_in(feeds)
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
        loss, metric = self._do("evaluate", objective, {"input": inputs, "target": targets})
        return loss, metric

    def predict(self, inputs: Mapping[str, Any]) -> Any:
        """The net's output for one batch; valid until the next call."""
        return self._do("predict", None, {"input": inputs})

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
    def look(
        self,
        kind: str,
        objective: Objective | None,
        forms: Mapping[str, Mapping[str, tuple[Any, Any]]],
        ask: Callable[[Graph], Seen],
    ) -> Seen:
        """Ask something of the record of a step for batches of these (shape, dtype) forms.

        No batch is needed, nothing runs. kind: "train", "evaluate", or "predict", which has no objective.
        """
        net, device = self.net, self.net.device
        before = net.optimizer.step if kind == "train" else 0
        if kind == "train":
            _under_way.set(self)
            self._left_at = LEFT_PLANNING
        try:
            with device.recording(Arena(device), self.fuse) as graph:
                tensors = {
                    kind: {name: _fed(device.empty, device, *form) for name, form in given.items()}
                    for kind, given in forms.items()
                }
                results = self._body(kind, objective)(tensors)
            seen = ask(graph)
            del tensors, results  # alive until here: inputs and outputs of the plan
            return seen
        finally:
            if kind == "train":
                net.optimizer.restore_step(before)
                net.forget_run()
                self._left_at = ""

    def _body(self, kind: str, objective: Objective | None) -> Body:
        """What a step does with its feeds."""
        if objective is None:
            return lambda tensors: self.net.forward(False, tensors["input"])
        return partial(self._trained_once if kind == "train" else self._evaluated_once, objective)

    def _evaluated_once(self, objective: Objective, tensors: Mapping[str, dict[str, Tensor]]) -> tuple[Tensor, Any]:
        """The operations of an evaluation; (loss, metric)."""
        out = self.net.forward(False, tensors["input"])
        return objective.loss(False, out, tensors["target"]), objective.metric(out, tensors["target"])

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

    def _do(self, kind: str, objective: Objective | None, feeds: Feeds) -> Any:
        if not self.graph:
            return self._body(kind, objective)(self._tensors(feeds))
        step = self._recorded.find(self._key(kind, objective, feeds), self.net.ordered())
        if step is None:
            step = self._record(kind, objective, feeds)
        else:
            step.put_in(feeds)
        step.graph.run()
        return _copies(step.results) if kind == "evaluate" else step.results

    def _record(self, kind: str, objective: Objective | None, feeds: Feeds) -> RecordedStep:
        net, device = self.net, self.net.device
        tensors = {
            kind: {name: _fed(device.unbound, device, array.shape, _dtype(array)) for name, array in arrays.items()}
            for kind, arrays in feeds.items()
        }
        feed = self.feeds.feed([tensor.block for named in tensors.values() for tensor in named.values()])
        kept = () if objective is None else objective.criteria
        watch = self._watch(kind, kept)
        step = RecordedStep(Graph(device, self.arena, self.fuse), tensors, feed, None, net.ordered(), watch, kept)
        step.put_in(feeds)  # before recording, which looks at the targets' values
        with device.recording(self.arena, self.fuse) as step.graph:
            step.results = self._body(kind, objective)(tensors)
        step.graph.check_inputs = feed.check
        if kind == "train":
            watch.settle([net.optimizer.state], [*net.param_values(), *net.states().values()])
        else:
            watch.settle([], [])
        self._recorded.keep(self._key(kind, objective, feeds), step, self._trained)
        return step

    def _watch(self, kind: str, criteria: tuple[Any, ...]) -> Watch:
        """Of all whose options are frozen in a recorded step."""
        made_by = [*self.net.layers.values(), *criteria]
        if kind != "train":
            return Watch(made_by)
        return Watch([self.net.optimizer, *made_by], {0: {*self.net.optimizer.live, "state"}})

    def _key(self, kind: str, objective: Objective | None, feeds: Feeds) -> Any:
        """What tells recorded steps apart: losses and metrics, for training what is trained, the batch's form."""
        trained = (id(self.net.optimizer), self.net.freeze) if kind == "train" else ()
        criteria = objective.named_criteria if objective is not None else ()
        return kind, criteria, trained, form_of(feeds)

    def _tensors(self, feeds: Feeds) -> dict[str, dict[str, Tensor]]:
        return {kind: untaped(as_tensors(arrays, self.net.device)) for kind, arrays in feeds.items()}


def _fed(make: Callable[..., Tensor], device: Any, shape: Shape, dtype: Any) -> Tensor:
    """A tensor that batches are copied into, images as the device's kernels like them best. make: of the device's."""
    return make(shape, dtype, device.runtime.feed_layout if len(shape) == 4 else "")


def _dtype(array: Any) -> np.dtype[Any]:
    return np.dtype(str(array.dtype).removeprefix("torch."))


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
