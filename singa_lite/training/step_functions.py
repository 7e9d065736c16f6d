"""What a step does with a batch: predict, evaluate or train. Operations alone; what they are given is checked above."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import ClassVar, Generic, TypeAlias, TypeVar

from singa_lite.criterion import Criterion
from singa_lite.layer import OneOrMore
from singa_lite.layer_graph import LayerGraph
from singa_lite.optimizer import Optimizer
from singa_lite.run import Run, nothing
from singa_lite.tensor import Tensor
from singa_lite.training.objective import MetricValues, Objective
from singa_lite.watch import Watch

#: {"input": {input layer: batch}, "target": {output layer: targets}}, on the layers' device.
Fed = Mapping[str, dict[str, Tensor]]


#: (loss, metric) of a batch.
Values: TypeAlias = tuple[Tensor, MetricValues]
Results = TypeVar("Results", covariant=True)


class StepFunction(ABC, Generic[Results]):
    """What is done with a batch. kind: its name; criteria: losses and metrics that a record of it must keep alive."""

    kind: ClassVar[str]
    criteria: tuple[Criterion, ...] = ()

    def __init__(self, layers: LayerGraph) -> None:
        self.layers = layers

    @abstractmethod
    def operations(self, fed: Fed) -> Results:
        """Do them, or have them recorded; the results are tensors, perhaps in a tuple or a dict."""

    @property
    def key(self) -> tuple[Hashable, ...]:
        """What tells its records from those of other steps, known by identity; the kind first."""
        return (self.kind,)

    def watch(self) -> Watch:
        """A watch on all objects whose options a record freezes, to be made before recording."""
        return Watch([*self.layers.layers.values(), *self.criteria])

    def settle(self, watch: Watch) -> None:
        """The recording is over."""
        watch.settle([], [])

    def _evaluated(self, fed: Fed) -> OneOrMore:
        run = Run(self.layers.ordered(), self.layers.device, self.layers.dtype, False, None)
        return run.forward(dict(fed["input"]), ())


class PredictStep(StepFunction[OneOrMore]):
    """The layers' outputs, in evaluation mode."""

    kind = "predict"

    def operations(self, fed: Fed) -> OneOrMore:
        return self._evaluated(fed)


class EvaluateStep(StepFunction[Values]):
    """(loss, metric) of a batch, without training."""

    kind = "evaluate"

    def __init__(self, layers: LayerGraph, objective: Objective) -> None:
        super().__init__(layers)
        self.objective = objective
        self.criteria = objective.criteria

    @property
    def key(self) -> tuple[Hashable, ...]:
        return self.kind, self.objective.named_criteria

    def operations(self, fed: Fed) -> Values:
        out = self._evaluated(fed)
        return self.objective.loss(False, out, fed["target"]), self.objective.metric(out, fed["target"])


class TrainStep(EvaluateStep):
    """Forward, loss, and each layer's update as soon as its gradients are there; (loss, metric) from before it.

    freeze: layers before this one, in topological order, do not train.
    """

    kind = "train"

    def __init__(self, layers: LayerGraph, objective: Objective, optimizer: Optimizer, freeze: str | None) -> None:
        super().__init__(layers, objective)
        self.optimizer = optimizer
        self.freeze = freeze
        self._run: Run | None = None

    @property
    def stopped_at(self) -> str:
        """The layer at which the walk back stands, "" before its first gradients and after its end."""
        return self._run.stopped_at if self._run is not None else ""

    @property
    def key(self) -> tuple[Hashable, ...]:
        return *super().key, id(self.optimizer), self.freeze

    def watch(self) -> Watch:
        made_by = [self.optimizer, *self.layers.layers.values(), *self.criteria]
        return Watch(made_by, {0: {*self.optimizer.live, "state"}})

    def settle(self, watch: Watch) -> None:
        watch.settle([self.optimizer.state], [*self.layers.param_values(), *self.layers.states().values()])

    def operations(self, fed: Fed, changing: Callable[[], object] = nothing) -> Values:
        """changing: called before the first change of a parameter or a layer's state, and perhaps again."""
        layers, objective = self.layers, self.objective
        self._run = Run(layers.ordered(), layers.device, layers.dtype, True, self.freeze, changing)
        out = self._run.forward(dict(fed["input"]), ())
        values = objective.loss(True, out, fed["target"]), objective.metric(out, fed["target"])
        del out, fed  # nothing of the batch outlives its last use, where the caller does not hold it
        self._update(self._run, objective.backward(), changing)
        return values

    def _update(self, run: Run, derivatives: dict[str, Tensor], changing: Callable[[], object]) -> None:
        """Drain backward, and update each layer's parameters in its turn."""
        walk, begun = run.backward({name: [dy] for name, dy in derivatives.items()}, frozenset(), None), False
        del derivatives
        for names, values, gradients, _ in walk:
            for name, value, gradient in zip(names, values, gradients, strict=True):
                if not begun:  # not before the first gradient: an error until then must not count a step
                    self.optimizer.begin_step()
                    changing()
                    begun = True
                with self.layers.device.scope(layer=name.partition("/")[0]):
                    self.optimizer.update(name, value, gradient)
