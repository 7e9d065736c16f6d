"""A call of cuDNN: engines with their workspaces, one of which does it, by the workspace that it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import Graph
from singa_lite.kernels.cuda_kernels.routine import LibraryCall
from singa_lite.kernels.kernel_set import Launch

#: Addresses that the library takes for granted, bytes: its vector loads are as wide.
ALIGNMENT = 16

#: The library's engine that serves where no other does, by a plain loop over all products. It is the last choice.
GENERIC = "eng0"

#: Adds tensors and operations to an empty graph.
Draw = Callable[[Graph], None]


class Executor(Protocol):
    """Runs plans: `cudnn_library.Handle`, or a stand-in."""

    def bind(self, graph: Graph, addresses: Mapping[int, int], workspace: int) -> Launch:
        """A run of a planned graph. addresses: of its tensors by uid; workspace: of its bytes, 0 for none."""


class Plan(NamedTuple):
    """A graph that is ready to run.

    workspace_bytes: what it must be given; candidates: engines there were to choose from, before any condition;
    engine: the library's name of the one that was chosen, with its knobs.
    """

    graph: Graph
    workspace_bytes: int
    candidates: int
    engine: str


def engine_of(plan: str) -> str:
    """The engine in a plan's name, which goes on with the engine's knobs."""
    return plan.split("_")[0]


class EngineConditions(NamedTuple):
    """Conditions on an engine. limit: bytes of workspace; tensor_cores: it must use them; generic: it may be that one.

    alignments: of tensors' addresses by uid, where it is not ALIGNMENT.
    """

    limit: int
    tensor_cores: bool = False
    generic: bool = False
    alignments: Mapping[int, int] = {}


class Replanner(Protocol):
    """What a call asks for another plan: `cudnn_plan.Planner`."""

    executor: Executor

    def plan(self, draw: Draw, dtype: str, wish: EngineConditions | None = None) -> Plan | None:
        """The plan of the first engine that keeps to the wish; None where there is none."""


class PlannedCall(LibraryCall):
    """A call as a step of a routine, by one engine or another; its tensors' uids number the arguments, from 1 on.

    usual: plans of engines of the best kind, thrifty: of slower ones that want less workspace; the most wanting first.

    Engines load whole vectors, so they are chosen for addresses that allow it. Tensors of a plan of memory start at
    such ones; a piece of a concatenation or of a batch may not, which shows only when there are addresses. Then another
    engine is taken, one that does with the workspace there is.
    """

    def __init__(
        self, planner: Replanner, draw: Draw, dtype: str, usual: Sequence[Plan], thrifty: Sequence[Plan] = ()
    ) -> None:
        self.plans = [*usual, *thrifty]
        self.scratch_bytes = (usual or thrifty)[-1].workspace_bytes
        self._planner = planner
        self._draw = draw
        self._dtype = dtype

    @property
    def plan(self) -> Plan:
        """Of the call as it is where its workspace has `scratch_bytes`."""
        return self.plan_within(self.scratch_bytes)

    @property
    def levels(self) -> tuple[int, ...]:
        """Bytes with which another engine begins, from the least on."""
        return tuple(sorted({plan.workspace_bytes for plan in self.plans}))

    def plan_within(self, nbytes: int) -> Plan:
        """Of the best engine that does with so much workspace; ValueError where none does."""
        for plan in self.plans:
            if plan.workspace_bytes <= nbytes:
                return plan
        raise ValueError(f"cuDNN: wanted at least {self.levels[0]} bytes of workspace, received {nbytes}")

    def bind(self, addresses: Sequence[int], scratch: int, nbytes: int) -> Launch:
        """The call over tensors at these addresses, 0 for one that is left out."""
        named = {uid: address for uid, address in enumerate(addresses, 1) if address}
        plan = self._for_addresses(self.plan_within(nbytes), named)
        return self._planner.executor.bind(plan.graph, named, scratch if plan.workspace_bytes else 0)

    def _for_addresses(self, usual: Plan, named: Mapping[int, int]) -> Plan:
        given = {uid: address & -address for uid, address in named.items() if address % ALIGNMENT}
        if not given:
            return usual
        wishes = [
            EngineConditions(usual.workspace_bytes, generic=generic, alignments=given) for generic in (False, True)
        ]
        found = (self._planner.plan(self._draw, self._dtype, wish) for wish in wishes)
        plan = next((plan for plan in found if plan is not None), None)
        if plan is None:
            raise LookupError(f"cuDNN: wanted tensors at multiples of {ALIGNMENT} bytes, received {given} by uid")
        return plan
