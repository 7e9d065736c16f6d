"""Attention by tiles: the library's batched products, with what follows each of them applied before it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.strides import ordered_strides
from singa_lite.kernels import workers
from singa_lite.kernels.kernel_set import Launch, TensorSpec
from singa_lite.kernels.onednn_kernels import one_thread
from singa_lite.kernels.onednn_kernels.library import algorithms, layouts, memories
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.library.primitive import PostOp
from singa_lite.kernels.onednn_kernels.routine import Arrays, Routine
from singa_lite.kernels.onednn_kernels.work import Work
from singa_lite.kernels.routine import Step, Temporary
from singa_lite.kernels.tiled_attention import Backward, BufferSpecs, Call, Drop, Forward, Tiling, tiling

#: Rows of a tile, and where short sequences are cut along the diagonal, of which larger blocks leave out less.
_ROWS, _CAUSAL_ROWS, _SHORT = 256, 128, 1024
#: Keys of a tile, forward, and backward, which has two matrices of scores and transposed products, slower of more keys.
_KEYS, _KEYS_BACK = 512, 256
#: Scores of a tile are of as many heads as give so many rows, fewer where each of several threads has tiles of its own,
#: and elements of their keys that are copied at most.
_TOGETHER, _TOGETHER_SHARED, _COPIED = 1024, 512, 1 << 19

_EXP: PostOp = ("eltwise", algorithms.EXP, 0.0, 0.0)
_INTO: PostOp = ("sum", 1.0, 0, 0)


@dataclass
class _Arithmetic:
    """`Arithmetic`, by primitives. workspace: None where only its size is asked for, which is then `most`."""

    work: Work
    workspace: Array | None = None
    sizing: bool = False
    most: int = field(default=0)

    def scores(self, a: Array, b: Array, offsets: Array | None, y: Array) -> Launch:
        """y = a @ b^T + offsets."""
        return self._product(a, b.swapaxes(1, 2), offsets, y, [])

    def powers(self, x: Array, rows: Array) -> Launch:
        """x = e**(x - rows), of two axes: for three the library takes a fifth longer."""
        flat = x.reshape(-1, x.shape[2])
        whole, line = _desc(flat), _desc(rows.reshape(-1, 1))
        made = self.work.make("binary", algorithms.SUBTRACT, whole, line, whole, post_ops=[_EXP])
        return self._bound(made, {f.SRC: flat, f.SRC_1: rows, f.DST: flat})

    def score_powers(self, a: Array, b: Array, offsets: Array | None, rows: Array, y: Array) -> Launch:
        """y = e**(a @ b^T + offsets - rows)."""
        return _both(self.scores(a, b, offsets, y), self.powers(y, rows))

    def slopes(self, a: Array, b: Array, rows: Array, p: Array, y: Array) -> Launch:
        """y = p * (a @ b^T - rows)."""
        return _both(self.scores(a, b, None, y), self._slopes(rows, p, y))

    def _slopes(self, rows: Array, p: Array, y: Array) -> Launch:
        """y = p * (y - rows)."""
        whole, line = _desc(y), _desc(rows[..., None])
        made = self.work.make(
            "binary", algorithms.SUBTRACT, whole, line, whole, post_ops=[("binary", algorithms.MULTIPLY, whole)]
        )
        return self._bound(made, {f.SRC: y, f.SRC_1: rows, f.post_op(0): p, f.DST: y})

    def largest(self, x: Array, y: Array) -> Launch:
        """y = the largest of each row of x; on one core NumPy takes half the time of the library's reduction."""
        return partial(np.maximum.reduce, x, axis=2, out=y)

    def total(self, x: Array, y: Array) -> Launch:
        """y = the sum of each row of x."""
        return partial(np.add.reduce, x, axis=2, out=y)

    def add_product(self, a: Array, b: Array, y: Array, product: Array) -> Launch:
        """y += a @ b."""
        return self._product(a, b, None, y, [_INTO])

    def _product(self, a: Array, b: Array, offsets: Array | None, y: Array, post_ops: list[PostOp]) -> Launch:
        bias = None if offsets is None else _desc(offsets[None, None])
        made = self.work.make("matmul", _desc(a), _desc(b), bias, _desc(y), post_ops=post_ops)
        arrays = {f.SRC: a, f.WEIGHTS: b, f.DST: y}
        return self._bound(made, arrays if offsets is None else {**arrays, f.BIAS: offsets})

    def _bound(self, made: p.Primitive, arrays: Mapping[int, Array]) -> Launch:
        self.most = max(self.most, made.scratch_bytes)
        return _no_op if self.sizing else made.bind(arrays, self.workspace)


def _desc(array: Array) -> p.MemoryDesc:
    """With strides for extents of 1 too, where NumPy's may be 0: for these the library has plain loops alone."""
    plain = ordered_strides(array.shape, range(array.ndim))
    strides = zip(array.shape, array.strides, plain, strict=True)
    return p.memory_desc(array.shape, tuple(own if extent == 1 else s // array.itemsize for extent, s, own in strides))


def _both(first: Launch, second: Launch) -> Launch:
    def run() -> None:
        first()
        second()

    return run


def _no_op() -> None:
    pass


class _AttentionCall(NamedTuple):
    """What one call is to do. tensors: by name; mask, key: None where there is none; p: the share that is dropped."""

    direction: type[Forward | Backward]
    tensors: Mapping[str, TensorSpec]
    mask: TensorSpec | None
    key: TensorSpec | None
    scale: float
    p: float


class _Tiled(Step[Arrays]):
    """All tiles, in one step. buffers: its own temporaries, of each slot that pieces are done in."""

    def __init__(self, wanted: _AttentionCall, tiles: Tiling, work: Work, specs: BufferSpecs, slots: int) -> None:
        self.wanted, self.tiles, self.work = wanted, tiles, work
        self.buffers = [
            {name: work.temporary(shape, dtype) for name, (shape, dtype) in specs.items()} for _ in range(slots)
        ]
        sizing = _Arithmetic(work, sizing=True)
        nowhere = {name: _placeholder(temporary) for name, temporary in self.buffers[0].items()}
        drop = None if wanted.key is None else Drop(np.zeros(3, np.uint64), wanted.p)
        mask = None if wanted.mask is None else np.zeros(0)
        wanted.direction(tiles, Call({}, mask, drop, wanted.scale, nowhere), sizing)
        #: What primitives work in, of each slot.
        self.spaces = [work.temporary(sizing.most) for _ in range(slots)]

    def bind(self, binding: Arrays) -> Launch:
        """The call over these arrays."""
        passes = [self._slot(binding, slot) for slot in range(len(self.buffers))]
        if len(passes) == 1:
            return passes[0]
        return workers.sharing(self.tiles.pieces, [one_thread.working(one.work) for one in passes])

    def _slot(self, binding: Arrays, slot: int) -> Forward | Backward:
        """What does pieces over these arrays in this slot, maybe while others do."""
        wanted = self.wanted
        tensors = {name: binding.array(spec) for name, spec in wanted.tensors.items()}
        drop = None if wanted.key is None else Drop(binding.array(wanted.key), wanted.p)
        buffers = {name: binding.array(temporary) for name, temporary in self.buffers[slot].items()}
        call = Call(tensors, binding[wanted.mask], drop, wanted.scale, buffers)
        with memories.current().of_slot(slot):
            return wanted.direction(self.tiles, call, _Arithmetic(self.work, binding.array(self.spaces[slot])))


def _placeholder(temporary: Temporary) -> Array:
    """An array of this form over no memory of its own: whatever is made of it goes by shapes and strides alone."""
    strides = ordered_strides(temporary.shape, range(len(temporary.shape)), temporary.dtype.itemsize)
    return np.lib.stride_tricks.as_strided(np.empty(1, temporary.dtype), temporary.shape, strides)


def _tiling(q: TensorSpec, k: TensorSpec, causal: bool, keys: int) -> Tiling:
    """Large enough that a tile's calls are few beside its work: the fastest of some, on one core with AVX2."""
    rows = _CAUSAL_ROWS if causal and k.shape[1] <= _SHORT else _ROWS
    scores = _TOGETHER if one_thread.slots() == 1 else _TOGETHER_SHARED
    together = min(max(scores // rows, 1), max(_COPIED // (k.shape[1] * k.shape[3]), 1))
    return tiling(q, k, causal, together, rows, keys)


def _routine(wanted: _AttentionCall, causal: bool) -> Routine | None:
    tensors = wanted.tensors
    if not layouts.are_floats(*tensors.values()):
        return None
    tiles = _tiling(tensors["q"], tensors["k"], causal, _KEYS if wanted.direction is Forward else _KEYS_BACK)
    is_small = tiles.samples * tiles.heads * tiles.rows * tiles.keys <= one_thread.SMALL
    slots = 1 if is_small else min(one_thread.slots(), tiles.pieces)
    work = Work(0 if slots > 1 else tiles.together * tiles.share * tiles.row_step * tiles.key_step)
    buffers = tiles.forward_buffers if wanted.direction is Forward else tiles.backward_buffers
    work.steps.append(_Tiled(wanted, tiles, work, buffers(wanted.mask is not None, wanted.key is not None), slots))
    return work


def attention(
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    mask: TensorSpec | None,
    key: TensorSpec | None,
    y: TensorSpec,
    lse: TensorSpec,
    *,
    causal: bool,
    scale: float,
    p: float = 0.0,
) -> Routine | None:
    """All tiles, in one step."""
    tensors = {"q": q, "k": k, "v": v, "y": y, "lse": lse}
    return _routine(_AttentionCall(Forward, tensors, mask, key, scale, p), causal)


def attention_derivative(
    dy: TensorSpec,
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    mask: TensorSpec | None,
    key: TensorSpec | None,
    y: TensorSpec,
    lse: TensorSpec,
    dq: TensorSpec,
    dk: TensorSpec,
    dv: TensorSpec,
    *,
    causal: bool,
    scale: float,
    p: float = 0.0,
) -> Routine | None:
    """All tiles, in one step."""
    tensors = {"dy": dy, "q": q, "k": k, "v": v, "y": y, "lse": lse, "dq": dq, "dk": dk, "dv": dv}
    return _routine(_AttentionCall(Backward, tensors, mask, key, scale, p), causal)
