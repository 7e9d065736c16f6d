"""Attention in 16 bits by cuDNN's fused kernels, forward and for the derivatives.

Tensors are (n, t, heads, size) in memory; the library is told (n, heads, t, size) with the strides that this makes.
What the library cannot do as the interface has it is left to others: masks, first keys, and dropout, whose numbers
would be the library's own. What a call may want is linear in the lengths, but for derivatives that have equal bits each
time: engines for a Hopper have all scores in their workspace, and do a call where the plan of memory has room for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self, cast

import numpy as np

from singa_lite.common.strides import span
from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.call import Call
from singa_lite.kernels.cuda_kernels.elementwise import copied
from singa_lite.kernels.cuda_kernels.libraries.cudnn_call import ALIGNMENT, Draw
from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import Graph, frontend
from singa_lite.kernels.cuda_kernels.libraries.cudnn_plan import CallPlanner
from singa_lite.kernels.cuda_kernels.libraries.cudnn_tensor import GraphTensor, strides_in
from singa_lite.kernels.cuda_kernels.routine import Addresses, Argument, CudaStep, LibraryCall, Routine
from singa_lite.kernels.cuda_kernels.source import HALVES
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import Launch, TensorSpec
from singa_lite.kernels.routine import Row, Temporary

#: Sizes of a head that engines for derivatives are made for: multiples of so many elements, which are 16 bytes.
VECTOR, MOST = 8, 128
#: Bytes of workspace that an engine may want beside scores and sums that are linear in the lengths.
FURTHER = 1 << 20

#: Rows and keys of the library's tiles, at most.
TILE = 128

_TIME_FIRST, _HEADS_FIRST = (0, 1, 2, 3), (0, 2, 1, 3)


class Attention:
    """The builders. deterministic: derivatives have equal bits each time."""

    def __init__(self, planner: CallPlanner, deterministic: bool = True) -> None:
        self.planner = planner
        self.deterministic = deterministic

    @property
    def builders(self) -> Mapping[str, CallBuilder[Routine]]:
        """By kernel."""
        return {"attention": self.forward, "attention_derivative": self.derivative}

    def forward(self, call: Call) -> Routine | None:
        """The library's sdpa, with the log of the sums."""
        tensors = graph_tensors(call)

        def draw(graph: Graph) -> None:
            given = {name: tensors[name].read(graph) for name in ("q", "k", "v")}
            y, lse = graph.sdpa(**given, generate_stats=True, **_scores(call))
            tensors["y"].write(y)
            tensors["lse"].write(lse)

        return self._routine(draw, call, FURTHER) if tensors else None

    def derivative(self, call: Call) -> Routine | None:
        """The library's sdpa_backward."""
        tensors = graph_tensors(call)

        def draw(graph: Graph) -> None:
            names = {"q": "q", "k": "k", "v": "v", "o": "y", "dO": "dy", "stats": "lse"}
            given = {theirs: tensors[name].read(graph) for theirs, name in names.items()}
            given["use_deterministic_algorithm"] = self.deterministic
            results = graph.sdpa_backward(**given, **_scores(call))
            for name, result in zip(("dq", "dk", "dv"), results, strict=True):
                tensors[name].write(result)

        scores = _score_bytes(call) if self.deterministic else 0
        return self._routine(draw, call, scores + _linear_bytes(call) + FURTHER) if tensors else None

    def _routine(self, draw: Draw, call: Call, limit: int) -> Routine | None:
        planned = self.planner.call_within(draw, call["q"].dtype.name, limit)
        return None if planned is None else with_temporaries(planned, call)


def graph_tensors(call: Call) -> dict[str, GraphTensor]:
    """The operands by name, with their numbers in the call; none where the library is not asked for it."""
    q, lse = call["q"], call["lse"]
    if call.all("mask", "first", "key") or q.dtype.name not in HALVES or lse.dtype != np.float32:
        return {}
    if q.shape[3] % VECTOR or q.shape[3] > MOST:
        return {}
    found = {}
    for uid, (name, spec) in enumerate(call.operands.items(), 1):
        tensor = _sums(lse, uid) if name == "lse" else _heads(spec, uid)
        if tensor is None or (name != "lse" and spec.dtype != q.dtype):
            return {}
        found[name] = tensor
    return found


def _heads(spec: TensorSpec, uid: int) -> GraphTensor | None:
    """(n, t, heads, size), gaps allowed, each row of it at a multiple of 16 bytes."""
    strides = strides_in(spec, _TIME_FIRST)
    if strides is None or any(step % VECTOR for step in strides[:3]):
        return None
    extents, lying = (tuple(values[axis] for axis in _HEADS_FIRST) for values in (spec.shape, strides))
    return GraphTensor(uid, extents, lying, spec.dtype.name)


def _sums(lse: TensorSpec, uid: int) -> GraphTensor | None:
    """(n, heads, t) without gaps."""
    strides = strides_in(lse, (0, 1, 2))
    if strides is None or _gaps(lse):
        return None
    return GraphTensor(uid, (*lse.shape, 1), (*strides, 1), lse.dtype.name)


def _gaps(spec: TensorSpec) -> bool:
    """Whether some bytes between the first element and the last are no element's."""
    return len(span(spec.shape, spec.strides, spec.dtype.itemsize)) > spec.size * spec.dtype.itemsize


def _scores(call: Call) -> dict[str, object]:
    """How scores are made, as the library takes it. Causal: from the first of rows and keys on."""
    scale: dict[str, object] = {"attn_scale": call.number("scale")}
    if not call.settings["causal"]:
        return scale
    return {**scale, "diagonal_alignment": frontend().diagonal_alignment.TOP_LEFT, "diagonal_band_right_bound": 0}


def _linear_bytes(call: Call) -> int:
    """Of the sums of a derivative: dq in float32, dk and dv of each head of q, one number a row."""
    q, k = call["q"], call["k"]
    of_each_head = 0 if q.shape[2] == k.shape[2] else 2 * k.dtype.itemsize * k.size // k.shape[2] * q.shape[2]
    return 4 * q.size + of_each_head + 4 * call["lse"].size


def _score_bytes(call: Call) -> int:
    """Of one number of 16 bits for each row and key of each head, both rounded up to whole tiles of the library."""
    rows, keys = (-(-call[name].shape[1] // TILE) * TILE for name in ("q", "k"))
    return call["q"].dtype.itemsize * call["lse"].size // call["q"].shape[1] * rows * keys


# ---- results over operands


@dataclass(frozen=True)
class AttentionStep(CudaStep):
    """A call of the library that is done over temporaries where its results share bytes with its operands.

    The interface allows that, and the library says nothing of it: engines read on after they have begun to write. Nor
    does it go by how tensors are aligned, and its loads are of 16 bytes: others are an error, a LookupError.
    arguments: of the call, results at the end; results: their number; over: the steps with temporaries for results,
    and copies of these.
    """

    results: int
    direct: CudaStep
    over: tuple[CudaStep, ...]

    def changed(self, change: Callable[[Argument], Argument]) -> Self:
        """The same step, each of its buffers what `change` makes of it."""
        over = tuple(step.changed(change) for step in self.over)
        return replace(super().changed(change), direct=self.direct.changed(change), over=over)

    @property
    def scratch_bytes(self) -> int:
        """Of the call."""
        return self.direct.scratch_bytes

    def bind(self, binding: Addresses) -> Launch:
        """In one of the two ways, by the addresses."""
        views = cast(tuple[TensorSpec | Temporary, ...], self.arguments)
        addresses = [binding[view] for view in views]
        odd = [at for at, view in zip(addresses, views, strict=True) if at % ALIGNMENT and view.dtype.name in HALVES]
        if odd:
            raise LookupError(f"attention by cuDNN: wanted tensors at multiples of {ALIGNMENT} bytes, received {odd}")
        shares = set(addresses[: -self.results]) & set(addresses[-self.results :])
        return Row(self.over if shares else (self.direct,)).bind(binding)


def with_temporaries(planned: LibraryCall, call: Call) -> Routine | None:
    """The planned call, with temporaries for results that may share bytes with operands. Whole blocks alone are shared,
    which have no gaps.
    """
    specs = tuple(call.operands.values())
    routine, copies = Routine(), Routine()
    temporaries: dict[TensorSpec, Temporary] = {}
    for spec in [call[name] for name in SIGNATURES[call.kernel].overwrites]:
        if _gaps(spec):
            continue
        beside = spec.without_gaps()
        copy = copied(beside, spec)
        if copy is None:
            return None
        temporaries[spec] = routine.temporary((spec.size,), spec.dtype)
        copies.then(copy.over({beside: temporaries[spec]}))
    (direct,) = Routine().call(planned, *specs).steps
    over = Routine().call(planned, *specs).over(temporaries).then(copies)
    results = sum(call.role(spec) == "Write" for spec in specs)
    routine.steps.append(AttentionStep(specs, results, direct, tuple(over.steps)))
    return routine
