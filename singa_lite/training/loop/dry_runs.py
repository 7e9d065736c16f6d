"""DryRuns: records of steps for batches that are not there, to ask for their memory plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from singa_lite.graph.graph import Graph
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.training.steps.step_functions import PredictStep
from singa_lite.training.steps.train_step import TrainStep
from singa_lite.training.trainer import Trainer

Seen = TypeVar("Seen")


class DryRuns:
    """Records steps of a net for batches of any size. Nothing runs.

    step: the net's training step, by whose objective it is evaluated too; None where only predictions are asked for.
    begins: that of the first batch of a group; None where each batch is one.
    """

    def __init__(
        self, layers: LayerGraph, trainer: Trainer, step: TrainStep | None = None, begins: TrainStep | None = None
    ) -> None:
        self._layers = layers
        self._trainer = trainer
        self._step = step
        self._begins = begins

    @property
    def beside(self) -> dict[str, str]:
        """{what `fit` does beside a training step: its kind}."""
        return {"evaluation": "evaluate"} | ({} if self._begins is None else {"first batch of a group": "begins"})

    def look(self, kind: str, size: int, ask: Callable[[Graph], Seen], budget: int | None = None) -> Seen:
        """Ask something of the record of a step.

        kind: "train", "begins", "evaluate" or "predict"; size: of the batch; budget: see `Steps.look`.
        """
        layers, steps = self._layers, self._trainer.steps
        dtypes = dict.fromkeys(layers.input_ids(), np.dtype(np.int64))
        inputs = {
            name: ((size, *shape), dtypes.get(name, layers.dtype)) for name, shape in layers.input_shapes().items()
        }
        if kind == "predict" or self._step is None:
            return steps.look(PredictStep(layers), {"input": inputs}, ask, budget)
        objective = self._step.objective
        forms = {"input": inputs, "target": objective.batch_forms(layers, size)}
        if kind == "evaluate":
            return steps.look(self._step.evaluation(), forms, ask, budget)
        self._trainer.open_forward.forget()
        step = self._begins if kind == "begins" and self._begins is not None else self._step
        return self._trainer.look(step, forms, ask, budget)
