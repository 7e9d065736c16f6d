"""Recurrent layers: the library's products and activations, step by step, and NumPy's functions between them.

A weight is laid out once a call as the products read it fastest, in the scratch. What the library has fast code for are
matrices without gaps; others are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.strides import ordered_strides
from singa_lite.kernels import workers
from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.kernel_set import Launch, TensorSpec
from singa_lite.kernels.onednn_kernels import algorithms, layouts, memories, memory_descs, one_thread
from singa_lite.kernels.onednn_kernels import functions as f
from singa_lite.kernels.onednn_kernels import primitive as p
from singa_lite.kernels.onednn_kernels.primitive import Primitive
from singa_lite.kernels.onednn_kernels.routine import Routine
from singa_lite.kernels.onednn_kernels.views import Arrays
from singa_lite.kernels.onednn_kernels.work import Work
from singa_lite.kernels.recurrence import (
    Call,
    GruBackward,
    GruForward,
    LstmBackward,
    LstmForward,
    Pass,
    Product,
    SimpleRnnBackward,
    SimpleRnnForward,
)
from singa_lite.kernels.recurrence.activations import APPLY
from singa_lite.kernels.routine import Step, Temporary

#: Multiply-adds of a step that take as long as an element of the work that one thread does as fast as several.
_A_STEP = 16
#: The library's own activations.
_ALGORITHMS = {"sigmoid": algorithms.LOGISTIC, "tanh": algorithms.TANH, "relu": algorithms.RELU}
_INTO: p.PostOp = ("sum", 1.0, 0, 0)

#: Samples of a part that a worker does, at least: of fewer, reading the weight takes longer than what is shared.
_LEAST_ROWS = 8
#: Tensors whose first axis is the sample's, and those that have none. In all others it is the second, behind time.
_BY_SAMPLE, _OF_NO_SAMPLE = ("hidden0", "cell0", "mask"), ("weight", "bias")

StepCall = Callable[[int], object]


class _NoFastCode(Exception):
    """The library has plain loops alone for a product."""


@dataclass
class _Arithmetic:
    """`Arithmetic`, by primitives. binding: None where only sizes are asked for: the bytes of temporaries, in the order
    in which they are wanted, and `most` of a workspace, which is `space`.
    """

    work: Work
    temporaries: list[Temporary] = field(default_factory=list)
    binding: Arrays | None = None
    space: Array | None = None
    most: int = 0
    _taken: int = 0

    def product(self, a: Sequence[Array], weight: Array, y: Sequence[Array], add: bool = False) -> Product:
        """y[i] = a[i] @ weight, and y[i] before it if add."""
        given, before = self._dense(a)
        result, behind = self._result(y, add)
        (n, k), m = a[0].shape, weight.shape[1]
        rows = p.memory_desc((m, k), (weight.strides[1] // 4, weight.strides[0] // 4))
        post_ops = [_INTO] if add and behind is None else []
        with self.work.making():
            made = Primitive(
                *("inner_product_forward", f.FORWARD_TRAINING, memory_descs.dense((n, k))),
                *(memory_descs.chosen((m, k)), None, memory_descs.dense((n, m))),
                post_ops=post_ops,
            )
            wanted = made.memory_desc(f.WEIGHTS)
            lay_out = p.Reorder(rows, wanted)
        if "ref" in made.implementation:
            raise _NoFastCode
        packed = self._temporary((wanted.nbytes,), "uint8")
        rounds = [{f.SRC: x, f.WEIGHTS: packed, f.DST: z} for x, z in zip(given, result, strict=True)]
        begin = self._bound(lay_out, {f.SRC: weight, f.DST: packed})
        return Product(begin, _in_turn(before, self._each(made, rounds), behind))

    def apply(self, kind: str, x: Sequence[Array], y: Sequence[Array]) -> StepCall:
        """y[i] = kind(x[i])."""
        if kind not in _ALGORITHMS:
            return _in_turn(
                lambda index: np.copyto(y[index], x[index]) if x is not y else None, lambda index: APPLY[kind](y[index])
            )
        given, before = self._dense(x)
        result, behind = self._result(y, False)
        desc = memory_descs.dense(x[0].shape)
        made = self.work.make("eltwise_forward", f.FORWARD_TRAINING, _ALGORITHMS[kind], desc, desc, 0.0, 0.0)
        rounds = [{f.SRC: a, f.DST: b} for a, b in zip(given, result, strict=True)]
        return _in_turn(before, self._each(made, rounds), behind)

    def gates(self, steps: Sequence[Array], kinds: Sequence[str]) -> StepCall:
        """The activation of each gate in place: all at once by tanh(x) = 2 s(2 x) - 1, of matrices without gaps."""
        size = steps[0].shape[1] // len(kinds)
        if not _is_dense(steps[0]) or not set(kinds) <= {"sigmoid", "tanh"}:
            columns = [[step[:, at * size : (at + 1) * size] for step in steps] for at in range(len(kinds))]
            return _in_turn(*(self.apply(kind, part, part) for kind, part in zip(kinds, columns, strict=True)))
        bent = [at for at, kind in enumerate(kinds) if kind == "tanh"]
        halves = [[step[:, at * size : (at + 1) * size] for step in steps] for at in bent]
        sigmoids = self.apply("sigmoid", steps, steps)

        def run(index: int) -> None:
            for part in halves:
                np.multiply(part[index], 2, out=part[index])
            sigmoids(index)
            for part in halves:
                np.multiply(part[index], 2, out=part[index])
                np.subtract(part[index], 1, out=part[index])

        return run

    def _dense(self, arrays: Sequence[Array]) -> tuple[Sequence[Array], StepCall | None]:
        """Matrices without gaps to read, and what fills them before, None where they are what was given."""
        if _is_dense(arrays[0]):
            return arrays, None
        copy = self._temporary(arrays[0].shape, "float32")
        return [copy] * len(arrays), lambda index: np.copyto(copy, arrays[index])

    def _result(self, arrays: Sequence[Array], add: bool) -> tuple[Sequence[Array], StepCall | None]:
        """Matrices without gaps to write, and what is done with them behind."""
        if _is_dense(arrays[0]):
            return arrays, None
        made = self._temporary(arrays[0].shape, "float32")
        if add:
            return [made] * len(arrays), lambda index: np.add(arrays[index], made, out=arrays[index])
        return [made] * len(arrays), lambda index: np.copyto(arrays[index], made)

    def _temporary(self, shape: tuple[int, ...], dtype: str) -> Array:
        if self.binding is None:
            self.temporaries.append(self.work.temporary(shape, dtype))
            return _nowhere(self.temporaries[-1])
        self._taken += 1
        return self.binding.array(self.temporaries[self._taken - 1])

    def _bound(self, made: Primitive, arrays: dict[int, Array]) -> Launch:
        self.most = max(self.most, made.scratch_bytes)
        return _nothing if self.binding is None else made.bind(arrays, self.space)

    def _each(self, made: Primitive, rounds: Sequence[dict[int, Array]]) -> StepCall:
        self.most = max(self.most, made.scratch_bytes)
        if self.binding is None:
            return _skip
        addresses = {number: [p.address_of(each[number]) for each in rounds] for number in rounds[0]}
        moved = {number: found for number, found in addresses.items() if len(set(found)) > 1}
        return memories.of_rounds(made.execution(rounds[0], self.space, moved))


def _is_dense(array: Array) -> bool:
    return array.flags.c_contiguous


def _in_turn(*calls: StepCall | None) -> StepCall:
    several = [call for call in calls if call is not None]
    if len(several) == 1:
        return several[0]

    def run(index: int) -> None:
        for call in several:
            call(index)

    return run


def _nothing() -> None:
    pass


def _skip(index: int) -> None:
    pass


def _nowhere(form: TensorSpec | Temporary) -> Array:
    """An array of this form over no memory of its own: whatever is made of it goes by shapes and strides alone."""
    strides = ordered_strides(form.shape, range(len(form.shape)), form.dtype.itemsize)
    own = form.strides if isinstance(form, TensorSpec) else strides
    return np.lib.stride_tricks.as_strided(np.empty(1, form.dtype), form.shape, own)


class _Part:
    """A pass over time of some rows, samples of the batch, with temporaries of its own: no row depends on another."""

    def __init__(self, steps: _AllSteps, index: int, rows: slice) -> None:
        self.steps, self.index, self.rows = steps, index, rows
        work, tensors = steps.work, steps.tensors
        gates, weight = _gates(tensors), (0, 0) if tensors["weight"] is None else tensors["weight"].shape
        count, masked = rows.stop - rows.start, tensors["mask"] is not None
        specs = steps.kind.buffers(weight, count, gates.dtype, masked)
        self.buffers = {name: work.temporary(shape, dtype) for name, (shape, dtype) in specs.items()}
        sizing = _Arithmetic(work)
        nowhere = {name: None if spec is None else _nowhere(spec) for name, spec in tensors.items()}
        self._made(nowhere, {name: _nowhere(t) for name, t in self.buffers.items()}, sizing)
        self.temporaries, self.space = sizing.temporaries, work.temporary(sizing.most)

    def bind(self, binding: Arrays) -> Pass:
        """The pass over these arrays."""
        tensors = {name: binding[spec] for name, spec in self.steps.tensors.items()}
        buffers = {name: binding.array(temporary) for name, temporary in self.buffers.items()}
        with memories.current().of_slot(self.index):
            space = binding.array(self.space)
            return self._made(tensors, buffers, _Arithmetic(self.steps.work, self.temporaries, binding, space))

    def _made(self, tensors: Mapping[str, Array | None], buffers: dict[str, Array], arithmetic: _Arithmetic) -> Pass:
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


def _routine(kind: type[Pass], name: str, specs: Sequence[TensorSpec | None], **settings: object) -> Routine | None:
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
    except _NoFastCode:
        return None
    return work


def lstm(
    gates_in: TensorSpec,
    weight: TensorSpec,
    hidden0: TensorSpec | None,
    cell0: TensorSpec | None,
    mask: TensorSpec | None,
    gates: TensorSpec,
    hidden: TensorSpec,
    cell: TensorSpec,
    *,
    reverse: bool,
    recurrent_activation: str,
) -> Routine | None:
    """gates, hidden and cell."""
    specs = gates_in, weight, hidden0, cell0, mask, gates, hidden, cell
    return _routine(LstmForward, "lstm", specs, reverse=reverse, recurrent_activation=recurrent_activation)


def lstm_derivative(
    dy: TensorSpec,
    weight: TensorSpec,
    mask: TensorSpec | None,
    gates: TensorSpec,
    cell: TensorSpec,
    dgates: TensorSpec,
    *,
    reverse: bool,
    last: bool,
    recurrent_activation: str,
) -> Routine | None:
    """dgates."""
    settings = {"reverse": reverse, "last": last, "recurrent_activation": recurrent_activation}
    return _routine(LstmBackward, "lstm_derivative", (dy, weight, mask, gates, cell, dgates), **settings)


def gru(
    gates_in: TensorSpec,
    weight: TensorSpec,
    bias: TensorSpec | None,
    hidden0: TensorSpec | None,
    mask: TensorSpec | None,
    gates: TensorSpec,
    products: TensorSpec,
    hidden: TensorSpec,
    *,
    reverse: bool,
    reset_after: bool,
    recurrent_activation: str,
) -> Routine | None:
    """gates, products and hidden."""
    specs = gates_in, weight, bias, hidden0, mask, gates, products, hidden
    settings = {"reverse": reverse, "reset_after": reset_after, "recurrent_activation": recurrent_activation}
    return _routine(GruForward, "gru", specs, **settings)


def gru_derivative(
    dy: TensorSpec,
    weight: TensorSpec,
    mask: TensorSpec | None,
    gates: TensorSpec,
    products: TensorSpec,
    hidden: TensorSpec,
    dgates: TensorSpec,
    dproducts: TensorSpec | None,
    *,
    reverse: bool,
    last: bool,
    reset_after: bool,
    recurrent_activation: str,
) -> Routine | None:
    """dgates and dproducts."""
    specs = dy, weight, mask, gates, products, hidden, dgates, dproducts
    settings = {"reset_after": reset_after, "recurrent_activation": recurrent_activation}
    return _routine(GruBackward, "gru_derivative", specs, reverse=reverse, last=last, **settings)


def simple_rnn(
    gates_in: TensorSpec,
    weight: TensorSpec,
    hidden0: TensorSpec | None,
    mask: TensorSpec | None,
    hidden: TensorSpec,
    *,
    reverse: bool,
    activation: str,
) -> Routine | None:
    """hidden."""
    specs = gates_in, weight, hidden0, mask, hidden
    return _routine(SimpleRnnForward, "simple_rnn", specs, reverse=reverse, activation=activation)


def simple_rnn_derivative(
    dy: TensorSpec,
    weight: TensorSpec,
    mask: TensorSpec | None,
    hidden: TensorSpec,
    dgates: TensorSpec,
    *,
    reverse: bool,
    last: bool,
    activation: str,
) -> Routine | None:
    """dgates."""
    specs = dy, weight, mask, hidden, dgates
    settings = {"reverse": reverse, "last": last, "activation": activation}
    return _routine(SimpleRnnBackward, "simple_rnn_derivative", specs, **settings)
