"""Arithmetic of recurrent layers: the library's products and activations of a step, and NumPy's functions between them.

A weight is laid out once a call as the products read it fastest, in the scratch. What the library has fast code for are
matrices without gaps; others are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.kernel_set import Launch, TensorSpec
from singa_lite.kernels.onednn_kernels.library import algorithms, memories, memory_descs
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.primitive import Primitive
from singa_lite.kernels.onednn_kernels.views import Arrays
from singa_lite.kernels.onednn_kernels.work import Work
from singa_lite.kernels.recurrence import Product
from singa_lite.kernels.recurrence.activations import APPLY
from singa_lite.kernels.routine import Temporary

#: The library's own activations.
_ALGORITHMS = {"sigmoid": algorithms.LOGISTIC, "tanh": algorithms.TANH, "relu": algorithms.RELU}
_INTO: p.PostOp = ("sum", 1.0, 0, 0)

StepCall = Callable[[int], object]


class NoFastCode(Exception):
    """The library has plain loops alone for a product."""


@dataclass
class RecurrentArithmetic:
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
                *(memory_descs.any_layout((m, k)), None, memory_descs.dense((n, m))),
                post_ops=post_ops,
            )
            wanted = made.memory_desc(f.WEIGHTS)
            lay_out = p.Reorder(rows, wanted)
        if "ref" in made.implementation:
            raise NoFastCode
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
            return placeholder(self.temporaries[-1])
        self._taken += 1
        return self.binding.array(self.temporaries[self._taken - 1])

    def _bound(self, made: Primitive, arrays: dict[int, Array]) -> Launch:
        self.most = max(self.most, made.scratch_bytes)
        return _no_op if self.binding is None else made.bind(arrays, self.space)

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


def _no_op() -> None:
    pass


def _skip(index: int) -> None:
    pass


def placeholder(form: TensorSpec | Temporary) -> Array:
    """An array of this form over no memory of its own: whatever is made of it goes by shapes and strides alone."""
    strides = ordered_strides(form.shape, range(len(form.shape)), form.dtype.itemsize)
    own = form.strides if isinstance(form, TensorSpec) else strides
    return np.lib.stride_tricks.as_strided(np.empty(1, form.dtype), form.shape, own)
