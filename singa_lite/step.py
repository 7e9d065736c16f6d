"""Steps: one batch trained, evaluated or predicted; recorded once for each shape of batch and then replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np

from singa_lite.arena import Arena
from singa_lite.batch import as_tensors
from singa_lite.errors import GraphError
from singa_lite.feed_buffer import FeedBuffer
from singa_lite.graph import Graph, Pause
from singa_lite.objective import Objective
from singa_lite.recorded_steps import Feeds, RecordedStep, RecordedSteps, StepForm, form_of
from singa_lite.tensor import Shape, Tensor
from singa_lite.watch import Watch

#: What a step does with its feeds as tensors; gives tensors, alone, in a tuple or in a dict, or None.
Body = Callable[[Mapping[str, dict[str, Tensor]]], Any]
Seen = TypeVar("Seen")


class Steps:
    """How a net does a batch. Its recorded steps share one arena and one place for what they are fed, as they never run
    at the same time; those that were used least recently are forgotten.

    net: the net; graph: record and replay, or do each operation at once; fuse: see `Graph`. interrupted: whether a
    replay ended before its last operation, so that some layers are updated and others are not.
    """

    def __init__(self, net: Any, graph: bool, fuse: bool = True) -> None:
        self.net = net
        self.graph = graph
        self.fuse = fuse
        self.interrupted = False
        self.arena = Arena(net.device)
        self.feeds = FeedBuffer(self.arena)
        self._recorded = RecordedSteps()
        self._trained: RecordedStep | None = None

    def train(self, objective: Objective, inputs: Mapping[str, Any], targets: Mapping[str, Any]) -> tuple[Tensor, Any]:
        """One batch: forward, loss, and each layer's update as soon as its gradients are there; (loss, metric)."""
        pause = self.net.take_pause()
        try:
            return self._train(objective, inputs, targets, pause)
        finally:
            if pause is not None:
                pause.wait()  # also for a step that ended before its pause

    def _train(
        self, objective: Objective, inputs: Mapping[str, Any], targets: Mapping[str, Any], pause: Pause | None
    ) -> tuple[Tensor, Any]:
        net, feeds = self.net, {"input": inputs, "target": targets}

        if not self.graph:
            if pause is not None:
                pause.wait()
            values = self._trained_once(objective, self._tensors(feeds))
            net.optimizer.restore_step(net.optimizer.step)  # an update by hand that follows begins a step of its own
            return values
        before = net.optimizer.step
        try:
            step = self._recorded.find(self._key("train", objective, feeds), net.ordered())
            if step is None:
                step = self._record("train", objective, feeds)
            else:
                step.put_in(feeds)
                net.optimizer.begin_step()
            step.graph.prepare()
        except BaseException:
            net.optimizer.restore_step(before)
            net.forget_run()
            raise
        self._trained = step
        self._replay(step, pause)
        net.optimizer.restore_step(net.optimizer.step)
        loss, metric = _copies(step.results)
        return loss, metric

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

    def _replay(self, step: RecordedStep, pause: Pause | None) -> None:
        self.interrupted = True
        step.graph.run(pause=pause)
        self.interrupted = False

    def _tensors(self, feeds: Feeds) -> dict[str, dict[str, Tensor]]:
        return {kind: as_tensors(arrays, self.net.device) for kind, arrays in feeds.items()}


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
