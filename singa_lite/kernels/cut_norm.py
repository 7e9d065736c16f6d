"""The derivative of batch normalisation over 16 bits, by pieces of the batch: converted whole, it would be the peak.

    sums:   dgamma, dbeta += those of dy[0:2], x[0:2];  of dy[2:4], x[2:4];  ...
    then:   dx[0:2] = gamma * inv_std * (dy - dbeta / m - xhat * dgamma / m)  (+ other[0:2]);  ...

dx is two normalisations, by vectors that are worked out in between, so float32 kernels of the set do all of it: dy by
the mean 0, and x by its own with the dgamma in the place of gamma. Each piece is converted twice; dx is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import prod
from typing import NamedTuple, Protocol

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.strides import laid_out, memory_order
from singa_lite.kernels.kernel_set import Launch, Settings, TensorSpec, TensorSpecs, specs_of
from singa_lite.kernels.routine import in_order

#: The kernel that is done so, where no activation is behind it.
CUT = "batch_norm_derivative"
#: What the buffers of a piece take together, where its samples take less, and what a call takes that is not cut.
PIECE_BYTES, LEAST_BYTES = 4 << 20, 16 << 20
#: Tensors of a piece that there are in float32 at a time.
_BUFFERS = 2
_ALIGNMENT = 64
_WIDE = np.dtype(np.float32)


class Converting(Protocol):
    """What is asked of a kernel set."""

    def scratch_bytes(self, name: str, tensors: Sequence[TensorSpec | None], settings: Settings) -> int: ...

    def prepare(
        self, name: str, arrays: tuple[Array | None, ...], scratch: Array | None, settings: Settings
    ) -> Launch: ...

    def converted(self, source: Array, target: Array) -> Launch: ...


class _Vectors(NamedTuple):
    """Of channels. scale, shift: of x in dx, in the place of gamma and beta; sums: float64, of dgamma and dbeta."""

    dgamma: Array
    dbeta: Array
    scale: Array
    shift: Array
    zeros: Array
    sums: Array


class _Call(NamedTuple):
    """The tensors of a call; other: None where nothing is added."""

    dy: Array
    x: Array
    gamma: Array
    beta: Array | None
    mean: Array
    inv_std: Array
    other: Array | None
    dx: Array
    dgamma: Array
    dbeta: Array


def pieces_of(name: str, specs: TensorSpecs, settings: Settings) -> list[slice]:
    """The samples of each piece, as even as can be; [] where the call is better done as a whole, or cannot be cut."""
    if name != CUT or settings.get("activation"):
        return []
    activations = [spec for spec in specs if spec is not None and len(spec.shape) > 1]
    shape, whole = activations[0].shape, _buffer_bytes(activations[0].shape) * _BUFFERS
    orders = {memory_order(spec.shape, spec.strides) for spec in activations}
    if whole <= LEAST_BYTES or shape[0] < 2 or len(orders) > 1:
        return []
    number = min(shape[0], -(-whole // PIECE_BYTES))
    ends = [shape[0] * at // number for at in range(number + 1)]
    return [slice(start, stop) for start, stop in pairwise(ends)]


class CutNorm:
    """Such a kernel. kernels: whose float32 ones do it."""

    def __init__(self, name: str, kernels: Converting) -> None:
        self.name, self.kernels = name, kernels

    def serves(self, specs: TensorSpecs, settings: Settings) -> bool:
        """Every call that `pieces_of` cuts."""
        return True

    def variant(self, specs: TensorSpecs, settings: Settings) -> str:
        """That it is done over converted copies, as others are."""
        return "widened"

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """Of the largest piece, with the vectors."""
        shape = _shape(specs)
        of = {piece.stop - piece.start for piece in pieces_of(self.name, specs, settings)}
        return _vector_bytes(shape[1]) + max(self._piece_bytes((count, *shape[1:]), specs) for count in of)

    def _piece_bytes(self, shape: tuple[int, ...], specs: TensorSpecs) -> int:
        piece, vector = _spec(shape, specs[0]), TensorSpec((shape[1],), _WIDE, (_WIDE.itemsize,))
        sums = self.kernels.scratch_bytes("batch_norm_gradient", (piece, piece, *(vector,) * 4), {})
        normalized = self.kernels.scratch_bytes("batch_normalize", (piece, *(vector,) * 4, None, piece), {})
        summed = self.kernels.scratch_bytes("batch_normalize", (piece, *(vector,) * 4, piece, piece), {})
        added = self.kernels.scratch_bytes("add", (piece, piece, piece), {})
        return _BUFFERS * _buffer_bytes(shape) + max(sums, normalized, summed, added)

    def prepare(self, arrays: tuple[Array | None, ...], scratch: Array | None, settings: Settings) -> Launch:
        """Both passes over all pieces."""
        call = _Call(*arrays)  # type: ignore[arg-type]  # those that may be None are so there too
        if scratch is None:
            raise ValueError(f"{self.name}: wanted scratch, received none")
        vectors, rest = _vectors(scratch, call.x.shape[1])
        cuts = pieces_of(self.name, specs_of(arrays), settings)
        launches: list[Launch] = [partial(_begin, vectors)]
        for piece in cuts:
            launches += self._sums(call, vectors, rest, piece)
        launches.append(partial(_finish_sums, call, vectors, call.x.size // call.x.shape[1]))
        for piece in cuts:
            launches += self._derivative(call, vectors, rest, piece)
        return in_order(launches)

    def _wide(self, call: _Call, scratch: Array, piece: slice) -> tuple[list[Array], Array]:
        """Buffers for the samples of a piece, lying as dy does, and the scratch behind them."""
        like = call.dy[piece]
        each = _buffer_bytes(like.shape)
        spec = _spec(like.shape, TensorSpec(call.dy.shape, call.dy.dtype, call.dy.strides))
        made = [np.ndarray(spec.shape, _WIDE, scratch, each * at, spec.strides) for at in range(_BUFFERS)]
        return made, scratch[each * _BUFFERS :]

    def _converted(self, source: Array, target: Array) -> Launch:
        return partial(np.copyto, target, source) if source.dtype == _WIDE else self.kernels.converted(source, target)

    def _sums(self, call: _Call, vectors: _Vectors, scratch: Array, piece: slice) -> Iterator[Launch]:
        (dy, x), rest = self._wide(call, scratch, piece)
        yield self._converted(call.dy[piece], dy)
        yield self._converted(call.x[piece], x)
        operands = dy, x, call.mean, call.inv_std, vectors.dgamma, vectors.dbeta
        yield self.kernels.prepare("batch_norm_gradient", operands, rest, {})
        yield partial(_add, vectors)

    def _derivative(self, call: _Call, vectors: _Vectors, scratch: Array, piece: slice) -> Iterator[Launch]:
        (dy, x), rest = self._wide(call, scratch, piece)
        run: Callable[..., Launch] = self.kernels.prepare
        yield self._converted(call.dy[piece], dy)
        yield self._converted(call.x[piece], x)
        yield run("batch_normalize", (dy, call.gamma, vectors.shift, vectors.zeros, call.inv_std, None, dy), rest, {})
        operands = x, vectors.scale, vectors.zeros, call.mean, call.inv_std, dy, x
        yield run("batch_normalize", operands, rest, {})
        if call.other is not None:
            yield self._converted(call.other[piece], dy)
            yield run("add", (x, dy, x), rest, {})
        target = call.dx[piece]
        yield partial(np.copyto, target, x) if target.dtype == _WIDE else self.kernels.converted(x, target)


def _begin(vectors: _Vectors) -> None:
    vectors.sums.fill(0)
    vectors.zeros.fill(0)


def _add(vectors: _Vectors) -> None:
    """A piece's sums to those of all."""
    np.add(vectors.sums[0], vectors.dgamma, out=vectors.sums[0])
    np.add(vectors.sums[1], vectors.dbeta, out=vectors.sums[1])


def _finish_sums(call: _Call, vectors: _Vectors, count: int) -> None:
    """All sums are there. count: how many elements a channel has."""
    dgamma, dbeta = vectors.sums
    np.copyto(call.dgamma, dgamma, casting="same_kind")
    np.copyto(call.dbeta, dbeta, casting="same_kind")
    for sums, target in ((dgamma, vectors.scale), (dbeta, vectors.shift)):
        np.divide(sums, -count, out=sums)
        np.multiply(sums, call.gamma, out=sums)
        np.multiply(sums, call.inv_std, out=target, casting="same_kind")


def _shape(specs: TensorSpecs) -> tuple[int, ...]:
    if specs[0] is None:
        raise ValueError(f"{CUT}: wanted dy, received none")
    return specs[0].shape


def _spec(shape: tuple[int, ...], like: TensorSpec | None) -> TensorSpec:
    """float32 without gaps, axes in memory in the order of the other's."""
    axes = range(len(shape)) if like is None else memory_order(like.shape, like.strides)
    return TensorSpec(shape, _WIDE, laid_out(shape, tuple(axes), _WIDE.itemsize))


def _buffer_bytes(shape: Sequence[int]) -> int:
    return -(-prod(shape) * _WIDE.itemsize // _ALIGNMENT) * _ALIGNMENT


def _vector_bytes(channels: int) -> int:
    return 5 * _buffer_bytes((channels,)) + 2 * _buffer_bytes((2 * channels,))


def _vectors(scratch: Array, channels: int) -> tuple[_Vectors, Array]:
    """The vectors at the beginning of the scratch, and what lies behind them."""
    each = _buffer_bytes((channels,))
    dgamma, dbeta, scale, shift, zeros = (np.ndarray((channels,), _WIDE, scratch, each * at) for at in range(5))
    sums = np.ndarray((2, channels), np.float64, scratch, 5 * each)
    return _Vectors(dgamma, dbeta, scale, shift, zeros, sums), scratch[_vector_bytes(channels) :]
