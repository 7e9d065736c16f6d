"""Plan: a cuDNN graph with the engine that will run it, chosen in the library's own order under our conditions."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from singa_lite.kernels.cuda_kernels.cudnn_library import Graph, Target, frontend
from singa_lite.kernels.cuda_kernels.routine import LibraryCall
from singa_lite.kernels.kernel_set import Launch

#: Addresses that the library takes for granted, bytes: its vector loads are as wide.
ALIGNMENT = 16

#: Types of the library by NumPy's names: of tensors, and of the arithmetic.
DTYPES = {
    "float16": ("HALF", "FLOAT"),
    "bfloat16": ("BFLOAT16", "FLOAT"),
    "float32": ("FLOAT", "FLOAT"),
    "float64": ("DOUBLE", "DOUBLE"),
}

#: Adds tensors and operations to an empty graph.
Draw = Callable[[Graph], None]


class Knobs(NamedTuple):
    """What engines may do. None may round inputs to a shorter type, or sums of halves to halves.

    workspace_limit: bytes of a call. By default what the engines that the library puts first want for four fifths of
    the convolutions of ResNet-50 at batch 32 in float32. allow_tf32: float32 factors may be rounded to 10 bits.
    deterministic: equal bits each time.
    """

    workspace_limit: int = 64 << 20
    allow_tf32: bool = False
    deterministic: bool = True


class Executor(Protocol):
    """Runs plans: `cudnn_library.Handle`, or a stand-in."""

    def bind(self, graph: Graph, addresses: Mapping[int, int], workspace: int) -> Launch:
        """A run of a planned graph. addresses: of its tensors by uid; workspace: of its bytes, 0 for none."""


class CallPlanner(Protocol):
    """Has calls of the library for graphs: `Planner`, or what stands for it where there is no library."""

    def call(self, draw: Draw, dtype: str) -> LibraryCall | None:
        """A call of the graph, see `Planner.call`."""


class Plan(NamedTuple):
    """A graph that is ready to run.

    workspace_bytes: what it must be given; candidates: engines there were to choose from, before any condition.
    """

    graph: Graph
    workspace_bytes: int
    candidates: int


class Planner:
    """Makes plans for one GPU, and calls of them. target: the GPU."""

    def __init__(self, target: Target, executor: Executor, knobs: Knobs) -> None:
        self.target = target
        self.executor = executor
        self.knobs = knobs

    def call(self, draw: Draw, dtype: str) -> PlannedCall | None:
        """A call of the graph; None where the library has no engine. dtype: NumPy's name of the tensors' type."""
        plan = self.plan(draw, dtype)
        return None if plan is None else PlannedCall(self, draw, dtype, plan)

    def plan(
        self, draw: Draw, dtype: str, limit: int | None = None, alignments: Mapping[int, int] | None = None
    ) -> Plan | None:
        """The plan of the first engine that keeps to the knobs; None where there is none.

        limit: of the workspace in the place of the knob; alignments: of tensors' addresses by uid, where it is not
        ALIGNMENT.
        """
        cudnn = frontend()
        io, compute = (getattr(cudnn.data_type, name) for name in DTYPES[dtype])
        graph = cudnn.pygraph(io_data_type=io, intermediate_data_type=compute, compute_data_type=compute, **self.target)
        draw(graph)
        try:
            graph.validate()
            _align(graph, alignments or {})
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            candidates = graph.get_execution_plan_count()
            graph.deselect_numeric_notes([getattr(cudnn.numerical_note, name) for name in self._banned(dtype)])
            graph.deselect_workspace_greater_than(self.knobs.workspace_limit if limit is None else limit)
        except cudnn.cudnnGraphNotSupportedError:
            return None
        if not _build(graph, candidates):
            return None
        return Plan(graph, graph.get_workspace_size(), candidates)

    def _banned(self, dtype: str) -> list[str]:
        notes = ["DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION"]
        if dtype == "float32" and not self.knobs.allow_tf32:
            notes.append("TENSOR_CORE")  # for float32 they round to TF32
        if self.knobs.deterministic:
            notes.append("NONDETERMINISTIC")
        return notes


class PlannedCall:
    """A plan as a step of a routine; its tensors' uids number the arguments, from 1 on.

    Engines load whole vectors, so they are chosen for addresses that allow it. Tensors of a plan of memory start at
    such ones; a piece of a concatenation or of a batch may not, which shows only when there are addresses. Then another
    engine is taken, one that does with the workspace there is.
    """

    def __init__(self, planner: Planner, draw: Draw, dtype: str, plan: Plan) -> None:
        self.plan = plan
        self.scratch_bytes = plan.workspace_bytes
        self._planner = planner
        self._draw = draw
        self._dtype = dtype

    def bind(self, addresses: Sequence[int], scratch: int) -> Launch:
        """The call over tensors at these addresses, 0 for one that is left out."""
        named = {uid: address for uid, address in enumerate(addresses, 1) if address}
        plan = self._for_addresses(named)
        return self._planner.executor.bind(plan.graph, named, scratch if plan.workspace_bytes else 0)

    def _for_addresses(self, named: Mapping[int, int]) -> Plan:
        given = {uid: address & -address for uid, address in named.items() if address % ALIGNMENT}
        if not given:
            return self.plan
        plan = self._planner.plan(self._draw, self._dtype, self.scratch_bytes, given)
        if plan is None:
            raise LookupError(f"cuDNN: wanted tensors at multiples of {ALIGNMENT} bytes, received {given} by uid")
        return plan


def _build(graph: Graph, candidates: int) -> bool:
    """Make the first plan of the list that can be made; False where none can.

    By index, as the frontend's own loop ends at the first engine that fails otherwise than by declining. Plans that
    our conditions leave out raise as well: what says that they are not supported, or what `_is_left_out` knows.
    """
    broken = ""
    for number in range(candidates):
        try:
            graph.build_plan_at_index(number)
            return True
        except frontend().cudnnGraphNotSupportedError:
            continue
        except (RuntimeError, ValueError) as error:
            broken = broken or ("" if _is_left_out(error) else f"engine {number} of {candidates}: {error}")
    if broken:
        warnings.warn(f"cuDNN: no engine could be used, and not all declined: {broken}", stacklevel=2)
    return False


def _is_left_out(error: Exception) -> bool:
    """Whether the frontend says that a condition of ours excludes a plan."""
    return isinstance(error, ValueError) and "excluded by" in str(error)


def _align(graph: Graph, alignments: Mapping[int, int]) -> None:
    """Say how tensors are aligned. Graphs in Python have no argument for that, the C++ tensors in them have."""
    for uid, alignment in alignments.items():
        graph._cpp_tensors[uid].set_alignment(alignment)
