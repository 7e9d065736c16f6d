"""Plan: a cuDNN graph with the engine that will run it, chosen in the library's own order under our conditions."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from singa_lite.kernels.cuda_kernels.libraries.cudnn_call import (
    GENERIC,
    Draw,
    EngineConditions,
    Executor,
    Plan,
    PlannedCall,
    engine_of,
)
from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import Graph, Target, frontend
from singa_lite.kernels.cuda_kernels.libraries.cudnn_tensor import DTYPES
from singa_lite.kernels.cuda_kernels.libraries.cudnn_wrong_engines import wrong_engines
from singa_lite.kernels.cuda_kernels.routine import LibraryCall

#: Engines of one kind among which a plan of memory chooses, at most: each takes some milliseconds to ask for.
MOST_ENGINES = 6


class Knobs(NamedTuple):
    """What engines may do. None may round inputs to a shorter type, or sums of halves to halves.

    workspace_limit: bytes of a call, at most: how many of them it gets is for the plan of memory to say. By default
    what the engines that the library puts first want in nets of images. allow_tf32: float32 factors may be rounded to
    10 bits. deterministic: equal bits each time.
    """

    workspace_limit: int = 1 << 30
    allow_tf32: bool = False
    deterministic: bool = True


class CallPlanner(Protocol):
    """Has calls of the library for graphs: `Planner`, or what stands for it where there is no library."""

    def call(self, draw: Draw, dtype: str, nbytes: int) -> LibraryCall | None:
        """A call of the graph, see `Planner.call`. nbytes: of its tensors."""

    def call_within(self, draw: Draw, dtype: str, limit: int) -> LibraryCall | None:
        """A call of the graph, see `Planner.call_within`."""


class Planner:
    """Makes plans for one GPU, and calls of them. target: the GPU."""

    def __init__(self, target: Target, executor: Executor, knobs: Knobs) -> None:
        self.target = target
        self.executor = executor
        self.knobs = knobs

    def call(self, draw: Draw, dtype: str, nbytes: int = 0) -> PlannedCall | None:
        """A call of the graph; None where the library has no engine. dtype: NumPy's name of the tensors' type."""
        usual, thrifty = self.engines(draw, dtype)
        return PlannedCall(self, draw, dtype, usual, thrifty) if usual or thrifty else None

    def call_within(self, draw: Draw, dtype: str, limit: int) -> PlannedCall | None:
        """A call by the engine that the library puts first within so many bytes of workspace; None where it has none.

        One engine: those of attention are compiled when a plan is made, which takes seconds.
        """
        wish = EngineConditions(min(limit, self.knobs.workspace_limit), generic=True)
        plan = self.plan(draw, dtype, wish)
        return None if plan is None else PlannedCall(self, draw, dtype, [plan])

    def engines(self, draw: Draw, dtype: str) -> tuple[list[Plan], list[Plan]]:
        """The engines of a call that are worth their workspace: each the library's first within fewer bytes than the
        one before it wants.

        First those that are of the kind of the very first: on tensor cores if that is, and not generic. Then, where all
        of these want a workspace, those that are slower and do with less.
        """
        limit = self.knobs.workspace_limit
        first = self.plan(draw, dtype, EngineConditions(limit))
        if first is None:
            last = self.plan(draw, dtype)
            return [], [] if last is None else [last]
        may = "TENSOR_CORE" not in self._banned(dtype)
        on_cores = self.plan(draw, dtype, EngineConditions(limit, tensor_cores=True)) if may else None
        is_on_cores = on_cores is not None and on_cores.engine == first.engine
        usual = [first, *self._below(first, draw, dtype, [EngineConditions(limit, is_on_cores)])]
        wishes = [*([EngineConditions(limit)] if is_on_cores else []), EngineConditions(limit, generic=True)]
        return usual, self._below(usual[-1], draw, dtype, wishes)

    def _below(self, plan: Plan, draw: Draw, dtype: str, wishes: Sequence[EngineConditions]) -> list[Plan]:
        """What does with less workspace than a plan, and with less than that, by the first wish that finds any."""
        found = [plan]
        for wish in wishes:
            for _ in range(MOST_ENGINES):
                within = wish._replace(limit=found[-1].workspace_bytes - 1)
                less = self.plan(draw, dtype, within) if found[-1].workspace_bytes else None
                if less is None:
                    break
                found.append(less)
        return found[1:]

    def plan(self, draw: Draw, dtype: str, wish: EngineConditions | None = None) -> Plan | None:
        """The plan of the first engine that keeps to the knobs and the wish; None where there is none.

        wish: by default any engine within the limit of the workspace.
        """
        cudnn, wish = frontend(), wish or EngineConditions(self.knobs.workspace_limit, generic=True)
        try:
            graph = self.graph(draw, dtype, wish.alignments)
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            candidates = graph.get_execution_plan_count()
            graph.deselect_numeric_notes([getattr(cudnn.numerical_note, name) for name in self._banned(dtype)])
            if wish.tensor_cores:
                graph.select_numeric_notes([cudnn.numerical_note.TENSOR_CORE])
            graph.deselect_workspace_greater_than(wish.limit)
        except cudnn.cudnnGraphNotSupportedError:
            return None
        left_out = {*wrong_engines(graph, dtype), *([] if wish.generic else [GENERIC])}
        number = _build(graph, candidates, wish.limit, left_out)
        if number is None:
            return None
        return Plan(graph, graph.get_workspace_size(), candidates, graph.get_plan_name_at_index(number))

    def graph(self, draw: Draw, dtype: str, alignments: Mapping[int, int]) -> Graph:
        """The graph as the library takes it; its own error, cudnnGraphNotSupportedError, where it does not."""
        cudnn = frontend()
        io, compute = (getattr(cudnn.data_type, name) for name in DTYPES[dtype])
        graph = cudnn.pygraph(io_data_type=io, intermediate_data_type=compute, compute_data_type=compute, **self.target)
        draw(graph)
        graph.validate()
        _align(graph, alignments)
        graph.build_operation_graph()
        return graph

    def _banned(self, dtype: str) -> list[str]:
        notes = ["DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION"]
        if dtype == "float32" and not self.knobs.allow_tf32:
            notes.append("TENSOR_CORE")  # for float32 they round to TF32
        if self.knobs.deterministic:
            notes.append("NONDETERMINISTIC")
        return notes


def _build(graph: Graph, candidates: int, limit: int, left_out: Collection[str]) -> int | None:
    """Make the first plan of the list that can be made and wants no more workspace; its number, None where none can.

    left_out: engines that it may not be. The frontend's own list of these leaves out all whose names begin so.

    The workspace of a plan is the engine's, by which the library's list is filtered, and what the frontend adds to it.
    By index, as the frontend's own loop ends at the first engine that fails otherwise than by declining. Plans that
    our conditions leave out raise as well: what says that they are not supported, or what `_is_excluded` knows.
    """
    broken = ""
    for number in range(candidates):
        if engine_of(graph.get_plan_name_at_index(number)) in left_out:
            continue
        try:
            graph.build_plan_at_index(number)
            if graph.get_workspace_size() <= limit:
                return number
        except frontend().cudnnGraphNotSupportedError:
            continue
        except (RuntimeError, ValueError) as error:
            broken = broken or ("" if _is_excluded(error) else f"engine {number} of {candidates}: {error}")
    if broken:
        warnings.warn(f"cuDNN: no engine could be used, and not all declined: {broken}", stacklevel=2)
    return None


def _is_excluded(error: Exception) -> bool:
    """Whether the frontend says that a condition of ours excludes a plan."""
    return isinstance(error, ValueError) and "excluded by" in str(error)


def _align(graph: Graph, alignments: Mapping[int, int]) -> None:
    """Say how tensors are aligned. Graphs in Python have no argument for that, the C++ tensors in them have."""
    for uid, alignment in alignments.items():
        graph._cpp_tensors[uid].set_alignment(alignment)
