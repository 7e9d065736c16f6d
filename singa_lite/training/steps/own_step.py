"""A training step that the user wrote, `compile(step=)`: recorded, planned and replayed as the built-in one is."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np

from singa_lite.autograd import no_grad
from singa_lite.common.contexts import in_own_context
from singa_lite.common.described import Described
from singa_lite.common.errors import GraphError
from singa_lite.device import Device
from singa_lite.graph.graph import Graph
from singa_lite.layer.calls import no_op
from singa_lite.optimizer.stepping import StepTransaction
from singa_lite.tensor import Tensor, from_numpy
from singa_lite.training.steps.micro_batches import Fed
from singa_lite.training.steps.step_call import Member, StepCall, under_way
from singa_lite.training.steps.step_functions import EvaluateStep, Values
from singa_lite.training.steps.step_objective import StepObjective, values_of
from singa_lite.training.steps.train_step import Marked, TrainStep

#: The name of its random state in snapshots.
STEP_RANDOM = "step_random"


class OwnFunction:
    """A function `step(net, call)` as `compile(step=)` was given it.

    objective: which targets and numbers it has; random: uint64 (3,), what `StepCall.normal` draws by.
    """

    def __init__(self, function: Callable[..., object], seed: int, device: Device) -> None:
        self.function = function
        self.objective = StepObjective()
        self._key = np.array([seed, zlib.crc32(b"step/random"), 0], np.uint64)
        self.random = from_numpy(self._key, device)

    def to_device(self, device: Device) -> None:
        """Move the random state."""
        if self.random.device.is_abstract:
            self.random = from_numpy(self._key, device)
        else:
            self.random = self.random.to_device(device)

    @in_own_context
    def call(self, members: Sequence[Member], fed: Fed, training: bool, changing: Callable[[], object]) -> Values:
        """Do its operations, or have them recorded. GraphError for a training step that does not update all nets."""
        call = StepCall(members, fed, self.random, training, changing)
        under_way.set(call)
        returned = self.function(members[0].layers, call)
        values = values_of(returned, members[0].layers.device)
        left = [member.name or "the net itself" for member in members if member.name not in call.updated]
        if training and left:
            raise GraphError(
                f"step: wanted call.update(loss) to reach each net that it trains, received none for {left}"
            )
        self.objective.note([*values[1]], training)
        return values


class OwnStep(TrainStep):
    """A batch by the user's function. members: the net itself, then the others that it trains."""

    def __init__(self, function: OwnFunction, members: Sequence[Member]) -> None:
        super().__init__(members[0].layers, function.objective, members[0].optimizer, None)
        self.function = function
        self.members = tuple(members)

    @property
    def beside(self) -> tuple[Marked, ...]:
        return tuple(member.trainer for member in self.members[1:])

    @property
    def key(self) -> tuple[Hashable, ...]:
        nets = tuple((id(m.layers), id(m.optimizer), m.clip and m.clip.limit) for m in self.members)
        return self.kind, id(self.function), nets

    @property
    def kept(self) -> tuple[object, ...]:
        return self.function, *(member.layers for member in self.members)

    def one_step(self) -> StepTransaction:
        return StepTransaction([member.optimizer for member in self.members])

    def begin(self) -> None:
        for member in self.members:
            member.optimizer.begin_step()

    def evaluation(self) -> EvaluateStep:
        return OwnEvaluation(self.function, self.members)

    @property
    def parts(self) -> Iterable[Described]:
        for member in self.members:
            yield from TrainStep(member.layers, self.objective, member.optimizer, None).parts

    def note_in(self, graph: Graph) -> None:
        for member in self.members:
            TrainStep(member.layers, self.objective, member.optimizer, None).note_in(graph)

    def moved_values(self) -> list[Tensor]:
        return [value for member in self.members for value in member.layers.param_values()]

    def operations(self, fed: Fed, changing: Callable[[], object] = no_op) -> Values:
        self.begin()
        values = self.function.call(self.members, fed, True, changing)
        if self.look is not None and self.layers.device.graph is None:
            self.look(values[0], True)
        return values


class OwnEvaluation(EvaluateStep):
    """The same function, where nothing is updated and no tape is kept."""

    def __init__(self, function: OwnFunction, members: Sequence[Member]) -> None:
        super().__init__(members[0].layers, function.objective)
        self.function = function
        self.members = tuple(members)

    @property
    def key(self) -> tuple[Hashable, ...]:
        nets = tuple(id(member.layers) for member in self.members)
        return self.kind, id(self.function), nets

    @property
    def kept(self) -> tuple[object, ...]:
        return self.function, *(member.layers for member in self.members)

    @property
    def parts(self) -> Iterable[Described]:
        for member in self.members:
            yield from EvaluateStep(member.layers, self.objective).parts

    def operations(self, fed: Fed) -> Values:
        with no_grad():
            return self.function.call(self.members, fed, False, no_op)
