"""Passes over time of recurrent layers, in parts of the batch that workers do beside one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from singa_lite.common.array_types import Array
from singa_lite.kernels import workers
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import Launch, TensorSpec
from singa_lite.kernels.onednn_kernels import one_thread
from singa_lite.kernels.onednn_kernels.library import layouts, memories
from singa_lite.kernels.onednn_kernels.recurrent_arithmetic import NoFastCode, RecurrentArithmetic, placeholder
from singa_lite.kernels.onednn_kernels.routine import Routine
from singa_lite.kernels.onednn_kernels.views import Arrays
from singa_lite.kernels.onednn_kernels.work import Work
from singa_lite.kernels.recurrence import Call, Pass
from singa_lite.kernels.routine import Step

#: Multiply-adds of a step that take as long as an element of the work that one thread does as fast as several.
_A_STEP = 16
#: Samples of a part that a worker does, at least: of fewer, reading the weight takes longer than what is shared.
_LEAST_ROWS = 8
#: Tensors whose first axis is the sample's, and those that have none. In all others it is the second, behind time.
_BY_SAMPLE, _OF_NO_SAMPLE = ("hidden0", "cell0", "mask"), ("weight", "bias")


class _Part:
    """A pass over time of some rows, samples of the batch, with temporaries of its own: no row depends on another."""

    def __init__(self, steps: _AllSteps, index: int, rows: slice) -> None:
        self.steps, self.index, self.rows = steps, index, rows
        work, tensors = steps.work, steps.tensors
        gates, weight = _gates(tensors), (0, 0) if tensors["weight"] is None else tensors["weight"].shape
        count, masked = rows.stop - rows.start, tensors["mask"] is not None
        specs = steps.kind.buffers(weight, count, gates.dtype, masked)
        self.buffers = {name: work.temporary(shape, dtype) for name, (shape, dtype) in specs.items()}
        sizing = RecurrentArithmetic(work)
        nowhere = {name: None if spec is None else placeholder(spec) for name, spec in tensors.items()}
        self._made(nowhere, {name: placeholder(t) for name, t in self.buffers.items()}, sizing)
        self.temporaries, self.space = sizing.temporaries, work.temporary(sizing.most)

    def bind(self, binding: Arrays) -> Pass:
        """The pass over these arrays."""
        tensors = {name: binding[spec] for name, spec in self.steps.tensors.items()}
        buffers = {name: binding.array(temporary) for name, temporary in self.buffers.items()}
        with memories.current().of_slot(self.index):
            space = binding.array(self.space)
            return self._made(tensors, buffers, RecurrentArithmetic(self.steps.work, self.temporaries, binding, space))

    def _made(
        self, tensors: Mapping[str, Array | None], buffers: dict[str, Array], arithmetic: RecurrentArithmetic
    ) -> Pass:
        last = bool(self.steps.settings.get("last"))
        own = {name: _rows(name, array, self.rows, last) for name, array in tensors.items()}
        return self.steps.kind(Call(own, self.steps.settings, buffers), arithmetic)


class _AllSteps(Step[Arrays]):
    """A pass over time, in one step of the routine, in so many parts of about as many rows."""

    def __init__(
        self,
        kind: type[Pass],
        work: Work,
        tensors: dict[str, TensorSpec | None],
        settings: dict[str, object],
        parts: int,
    ) -> None:
        self.kind, self.work, self.tensors, self.settings = kind, work, tensors, settings
        n = _gates(tensors).shape[1]
        ends = [n * part // parts for part in range(parts + 1)]
        self.parts = [_Part(self, index, slice(*ends[index : index + 2])) for index in range(parts)]

    def bind(self, binding: Arrays) -> Launch:
        """The parts over these arrays, beside one another."""
        passes = [part.bind(binding) for part in self.parts]
        if len(passes) == 1:
            return passes[0]

        def work(pieces: Iterator[int]) -> None:
            for piece in pieces:
                passes[piece]()

        return workers.sharing(len(passes), [one_thread.working(work)] * len(passes))


def _rows(name: str, array: Array | None, rows: slice, last: bool) -> Array | None:
    """These rows of a tensor of the call; what belongs to no sample whole. last: dy is of the last step alone."""
    if array is None or name in _OF_NO_SAMPLE:
        return array
    return array[rows] if name in _BY_SAMPLE or (name == "dy" and last) else array[:, rows]


def _gates(tensors: dict[str, TensorSpec | None]) -> TensorSpec:
    found = tensors.get("gates_in") or tensors["dgates"]
    if found is None:
        raise LookupError("wanted gates_in or dgates")
    return found


def routine_of(kind: type[Pass], name: str, specs: Sequence[TensorSpec | None], **settings: object) -> Routine | None:
    """None for other types than float32, and where the library has no fast code."""
    tensors = dict(zip(SIGNATURES[name].tensors, specs, strict=True))
    mask = tensors["mask"]
    if not layouts.are_floats(*(spec for spec in specs if spec is not mask)):
        return None
    (_, n, width), weight = _gates(tensors).shape, tensors["weight"]
    if weight is None or min(weight.strides) <= 0 or weight.strides[1] != weight.dtype.itemsize:
        return None
    size = n * width * weight.shape[0] // _A_STEP
    parts = max(min(one_thread.slots(), n // _LEAST_ROWS), 1) if size > one_thread.SMALL else 1
    work = Work(0 if parts > 1 else size)
    try:
        work.steps.append(_AllSteps(kind, work, tensors, settings, parts))
    except NoFastCode:
        return None
    return work
