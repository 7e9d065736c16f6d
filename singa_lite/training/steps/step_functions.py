"""Functions of a step over a batch: predict or evaluate. Operations alone; what they are given is checked above."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable
from typing import ClassVar, Generic, TypeAlias, TypeVar

from singa_lite.common.described import Described
from singa_lite.graph.graph import Graph
from singa_lite.graph.recorded_options import reached
from singa_lite.layer.criterion import Criterion
from singa_lite.layer.layer import OneOrMore
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.layer.run import Run
from singa_lite.tensor import Tensor
from singa_lite.training.objective import Objective
from singa_lite.training.steps.micro_batches import Fed
from singa_lite.training.steps.observer import ObservedTensors, Observer

#: (loss, {key: metric}) of a batch; see `Objective.metric`.
Values: TypeAlias = tuple[Tensor, dict[str, Tensor]]
Results = TypeVar("Results", covariant=True)


class StepFunction(ABC, Generic[Results]):
    """A function over a batch that is recorded or done. kind: its name; criteria: losses and metrics, whose options a
    record of it freezes.
    """

    kind: ClassVar[str]
    #: Whether a net that was not compiled records it too.
    recorded_before_compile: ClassVar[bool] = False
    criteria: tuple[Criterion, ...] = ()
    #: What looks at the step while its operations are done; None: nothing.
    observer: Observer | None = None

    def __init__(self, layers: LayerGraph) -> None:
        self.layers = layers

    @abstractmethod
    def operations(self, fed: Fed) -> Results:
        """Do them, or have them recorded; the results are tensors, perhaps in a tuple or a dict."""

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What tells its records from those of other steps, known by identity; the kind first."""
        return (self.kind,)

    @property
    def kept(self) -> tuple[object, ...]:
        """What a record of it must keep alive."""
        return self.criteria

    @property
    def parts(self) -> Iterable[Described]:
        """All objects whose Python it runs: layers, with those within them, losses and metrics, and what these hold."""
        for layer in self.layers.layers.values():
            yield from layer.with_sublayers()
        yield from (part for part in reached(self.criteria) if isinstance(part, Described))

    def note_in(self, graph: Graph) -> None:
        """Note in its record what that was made by, beside the layers that were called."""
        graph.options.note(*self.criteria)

    def _through_layers(self, fed: Fed, watcher: Observer | None = None, output: Collection[str] = ()) -> OneOrMore:
        run = Run(self.layers.ordered(), self.layers.device, False, None, watcher=watcher)
        return run.forward(dict(fed["input"]), output)

    def seen(self) -> ObservedTensors | None:
        """What was observed of it, in tensors that each replay of its record fills."""
        return None if self.observer is None else self.observer.seen()

    @property
    def _observed(self) -> tuple[Hashable, ...]:
        """Of the key: what is observed."""
        return () if self.observer is None else (self.observer.names, self.observer.norms)

    def _evaluated(self, fed: Fed, output: Collection[str] = ()) -> OneOrMore:
        return self._through_layers(fed, self.observer, output)


class PredictStep(StepFunction[OneOrMore]):
    """The layers' outputs, in evaluation mode. output: paths of layers whose outputs are wanted too."""

    kind = "predict"

    def __init__(self, layers: LayerGraph, output: tuple[str, ...] = ()) -> None:
        super().__init__(layers)
        self.output = output

    @property
    def key(self) -> tuple[Hashable, ...]:
        return self.kind, self.output

    def operations(self, fed: Fed) -> OneOrMore:
        return self._evaluated(fed, self.output)


class EvaluateStep(StepFunction[Values]):
    """(loss, metric) of a batch, without training."""

    kind = "evaluate"

    def __init__(self, layers: LayerGraph, objective: Objective) -> None:
        super().__init__(layers)
        self.objective = objective
        self.criteria = objective.criteria

    @property
    def key(self) -> tuple[Hashable, ...]:
        return self.kind, self.objective.named_criteria, *self._observed

    def operations(self, fed: Fed) -> Values:
        return self._measured(self._evaluated(fed), fed)

    def _measured(self, out: OneOrMore, fed: Fed) -> Values:
        return self.objective.values(False, out, fed)
