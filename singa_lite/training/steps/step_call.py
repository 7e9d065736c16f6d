"""StepCall: what a user's own training step is given: the batch, random numbers, and updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np

from singa_lite import autograd
from singa_lite.autograd.backward_pass import BackwardPass, unit_derivative
from singa_lite.autograd.ops.op import Edge, is_taping, tape_position
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.common.unique import Unique
from singa_lite.device import Device, device_of
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.optimizer import GlobalNorm, Optimizer
from singa_lite.optimizer.gradient_accumulation import WHOLE
from singa_lite.tensor import Tensor
from singa_lite.training.steps.step_objective import TARGET
from singa_lite.training.steps.train_step import Marked
from singa_lite.training.steps.updates import UnscaleAndClip, Updates, updates_of


class Member(NamedTuple):
    """A net that a step trains. name: as `compile(nets=)` calls it, "" of the net itself; trainer: its own."""

    name: str
    layers: LayerGraph
    optimizer: Optimizer
    clip: GlobalNorm | None
    trainer: Marked


class StepCall(Unique):
    """One call of a step function `step(net, call)`, while it is recorded or done.

    training: False in an evaluation, where `update` does nothing; give it to `forward` of the nets. size: how many
    samples the batch has.
    """

    def __init__(
        self,
        members: Sequence[Member],
        fed: Mapping[str, Mapping[str, Tensor]],
        random: Tensor,
        training: bool,
        changing: Callable[[], object],
    ) -> None:
        self.training = training
        self.size = int(next(iter(fed["input"].values())).shape[0])
        self.updated: set[str] = set()
        self.changing = changing
        self._members = members
        self._fed = fed
        self._random = random
        self._own_random: Tensor | None = None
        self._moved: dict[int, tuple[str, int]] = {}

    @property
    def x(self) -> Tensor | dict[str, Tensor]:
        """The batch: a tensor, or {input layer: tensor} of several."""
        inputs = self._fed["input"]
        return dict(inputs) if len(inputs) > 1 else next(iter(inputs.values()))

    @property
    def y(self) -> Tensor | dict[str, Tensor]:
        """The targets: a tensor, or those by name where a dict was given. GraphError where there are none."""
        targets = self._fed.get("target", {})
        if not targets:
            raise GraphError(
                "step: wanted targets, as it reads y, received a batch without any; a plan that is asked for before "
                "the first batch wants one shown, net.evaluate_one_batch(x, y)"
            )
        return targets[TARGET] if [*targets] == [TARGET] else dict(targets)

    def normal(self, shape: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Tensor:
        """Normal numbers (`autograd.normal`) in the net's dtype, new in each step and the same in every run. Their
        counter lies in memory, and snapshots keep it. An evaluation draws what the next step would.
        """
        layers = self._members[0].layers
        drawn = autograd.normal(shape, self._state(layers.device), mean, std)
        return autograd.cast(drawn, layers.dtype)

    def _state(self, device: Device) -> Tensor:
        if self.training:
            self.changing()
            return self._random
        if self._own_random is None:
            self._own_random = device.empty((3,), np.uint64)
            device.run("copy", self._random, self._own_random)
        return self._own_random

    def update(self, loss: Tensor, *nets: LayerGraph) -> None:
        """Walks back from a loss () and updates these nets, by default all that the step trains. Each parameter is
        updated by its net's optimizer as soon as its gradient is there. Nothing is computed for parameters of other
        nets.

        A net may be updated more than once in a step: its schedule counts steps, rules such as Adam's count updates.
        GraphError for a loss that depends on none of their parameters, that was walked back before, or that was
        computed with parameters which an update of this step has moved since.
        """
        members = [self._member(net) for net in nets] if nets else list(self._members)
        _check_loss(loss)
        if not self.training:
            return
        owners = {id(p): (p, member) for member in members for p in member.layers.param_values() if p.stores_grad}
        edge = Edge(loss.creator, loss.output_index, None)
        tape = BackwardPass([(edge, unit_derivative(loss))], parameters=[parameter for parameter, _ in owners.values()])
        self._check(tape, members)
        self._apply(tape, members, {key: member for key, (_, member) in owners.items()})
        self.updated |= {member.name for member in members}

    def _member(self, net: LayerGraph) -> Member:
        for member in self._members:
            if member.layers is net:
                return member
        names = [member.name for member in self._members if member.name]
        raise GraphError(
            f"call.update: wanted the net itself or one of compile(nets=), which has {names}, received {net!r:.60}"
        )

    def _apply(self, tape: BackwardPass, members: Sequence[Member], owners: Mapping[int, Member]) -> None:
        updates = {id(member.optimizer): self._updates(member) for member in members}
        moved: list[Tensor] = []
        for parameter, gradient in tape.gradients():
            with device_of(parameter).scope(layer=parameter.name.rpartition("/")[0]):
                updates[id(owners[id(parameter)].optimizer)].take(parameter.name, parameter, gradient)
            moved.append(parameter)
        for each in updates.values():
            each.end()
        position = tape_position()
        self._moved |= {id(parameter.block): (parameter.name, position) for parameter in moved}

    def _updates(self, member: Member) -> Updates:
        member.optimizer.update_again()
        closing = None if member.clip is None else UnscaleAndClip(member.clip, None, member.layers.device, {})
        updates = updates_of(member.optimizer, self.changing, WHOLE, closing)
        updates.counts = False
        return updates

    def _check(self, tape: BackwardPass, members: Sequence[Member]) -> None:
        """GraphError for a walk that would reach nothing, or compute with parameters that have moved since."""
        if not tape.nodes:
            names = [member.name or "the net itself" for member in members]
            raise GraphError(
                f"call.update: wanted a loss that depends on parameters of {names}, received one of others"
            )
        for node in tape.nodes:
            for kept in node.saved:
                name, position = ("", -1) if kept is None else self._moved.get(id(kept.block), ("", -1))
                if position > node.sequence:
                    tape.finish()
                    raise GraphError(
                        f"call.update: wanted a loss computed behind the last update of {name!r}, received one from "
                        "before it, whose derivative would mix old values and new ones; do its forward again, or "
                        "update by both losses' sum"
                    )


def _check_loss(loss: object) -> None:
    if not isinstance(loss, Tensor):
        raise TypeError(f"call.update: wanted a loss as a Tensor, received {type(loss).__name__}")
    if loss.shape != ():
        raise ShapeError(f"call.update: wanted a loss (), such as autograd.reduce_mean gives, received {loss.shape}")
    if loss.creator is None and is_taping():
        raise GraphError(
            "call.update: wanted a loss that taped operations made of parameters, received one apart from any tape"
        )


#: The call of a step function that the present call is a part of.
under_way: ContextVar[StepCall | None] = ContextVar("step call", default=None)
