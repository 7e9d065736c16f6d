"""Optimizer updates: one pass over the tensors in blocks, in place, the arithmetic in the value's dtype."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite, isnan, nan, sqrt

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface.update import AdaGradHyper, AdamHyper, LionHyper, MuonHyper, RmsPropHyper, SgdHyper
from singa_lite.kernels.numpy_kernels.boxes import shaped
from singa_lite.kernels.numpy_kernels.opened_state import StateSlot, opened, scratch_bytes
from singa_lite.kernels.numpy_kernels.scratch import BLOCK, BufferSpec, Bytes, Shaped, blocks, bytes_for, carve, scratch
from singa_lite.kernels.numpy_kernels.temporaries import by_blocks

#: Elements that are squared at a time: few enough for BLAS to do it in one thread, whatever their number is.
_WIDE = 4096
#: Slices whose squares are added up at a time.
_SLICES = 256
#: Columns that a product of `muon` makes at a time, at least.
_COLUMNS = 256
#: Of a loss: the smallest normal number of float32.
_LEAST_SCALE = 2.0**-126


@scratch(scratch_bytes)
def sgd(
    gradient: Array, rate: Array, value: Array, velocity: Array | None, count: Array, *, hyper: SgdHyper, scratch: Bytes
) -> None:
    """torch.optim.SGD's step."""
    if isnan(rate):
        return
    is_first, lr = _count_up(count) == 1, float(rate) * hyper.lr_mult
    kept = () if velocity is None else (StateSlot(velocity),)
    for piece, target, *state, decayed, temporary in opened(scratch, int(count), gradient, value, *kept):
        step = _decayed(piece, target, hyper.weight_decay, decayed)
        for moving in state:
            if is_first:
                np.copyto(moving, step)
            else:
                np.multiply(moving, hyper.momentum, out=moving)
                _add_scaled(moving, step, 1 - hyper.dampening, temporary)
            if hyper.nesterov:
                np.multiply(moving, hyper.momentum, out=temporary)
                step = np.add(temporary, step, out=decayed)
            else:
                step = moving
        _add_scaled(target, step, -lr, temporary)


@scratch(scratch_bytes)
def rms_prop(
    gradient: Array,
    rate: Array,
    value: Array,
    square_average: Array,
    count: Array,
    *,
    hyper: RmsPropHyper,
    scratch: Bytes,
) -> None:
    """torch.optim.RMSprop's step, alpha called rho."""
    if isnan(rate):
        return
    t, kept = _count_up(count), StateSlot(square_average, squares=True)
    for piece, target, average, decayed, temporary in opened(scratch, t, gradient, value, kept):
        g = _decayed(piece, target, hyper.weight_decay, decayed)
        np.multiply(average, hyper.rho, out=average)
        _add_scaled_square(average, g, 1 - hyper.rho, temporary)
        _subtract_ratio(target, g, average, float(rate) * hyper.lr_mult, 1.0, hyper.epsilon, temporary)


@scratch(scratch_bytes)
def ada_grad(
    gradient: Array, rate: Array, value: Array, square_sum: Array, count: Array, *, hyper: AdaGradHyper, scratch: Bytes
) -> None:
    """torch.optim.Adagrad's step."""
    if isnan(rate):
        return
    t, kept = _count_up(count), StateSlot(square_sum, squares=True)
    for piece, target, total, decayed, temporary in opened(scratch, t, gradient, value, kept):
        g = _decayed(piece, target, hyper.weight_decay, decayed)
        _add_scaled_square(total, g, 1.0, temporary)
        _subtract_ratio(target, g, total, float(rate) * hyper.lr_mult, 1.0, hyper.epsilon, temporary)


@scratch(scratch_bytes)
def adam(
    gradient: Array,
    rate: Array,
    value: Array,
    first_moment: Array,
    second_moment: Array,
    max_second_moment: Array | None,
    count: Array,
    *,
    hyper: AdamHyper,
    scratch: Bytes,
) -> None:
    """torch.optim.Adam's step, or AdamW's if decoupled; with a maximum that of amsgrad=True."""
    if isnan(rate):
        return
    t, lr = _count_up(count), float(rate) * hyper.lr_mult
    shrink = 1 - lr * hyper.weight_decay if hyper.decoupled else 1.0
    squares = [second_moment] if max_second_moment is None else [second_moment, max_second_moment]
    kept = [StateSlot(first_moment), *(StateSlot(moment, squares=True) for moment in squares)]
    for piece, target, first, second, *largest, decayed, temporary in opened(scratch, t, gradient, value, *kept):
        if shrink != 1:
            np.multiply(target, shrink, out=target)
        g = _decayed(piece, target, hyper.coupled_decay, decayed)
        np.multiply(first, hyper.beta_1, out=first)
        _add_scaled(first, g, 1 - hyper.beta_1, temporary)
        np.multiply(second, hyper.beta_2, out=second)
        _add_scaled_square(second, g, 1 - hyper.beta_2, temporary)
        divisor = np.maximum(largest[0], second, out=largest[0]) if largest else second
        step = lr / (1 - hyper.beta_1**t)
        _subtract_ratio(target, first, divisor, step, sqrt(1 - hyper.beta_2**t), hyper.epsilon, temporary)


@scratch(scratch_bytes)
def lion(
    gradient: Array, rate: Array, value: Array, momentum: Array, count: Array, *, hyper: LionHyper, scratch: Bytes
) -> None:
    """The step of the authors' code."""
    if isnan(rate):
        return
    t, lr = _count_up(count), float(rate) * hyper.lr_mult
    shrink = 1 - lr * hyper.weight_decay
    for piece, target, moving, step, temporary in opened(scratch, t, gradient, value, StateSlot(momentum)):
        if shrink != 1:
            np.multiply(target, shrink, out=target)
        np.multiply(moving, hyper.beta_1, out=step)
        _add_scaled(step, piece, 1 - hyper.beta_1, temporary)
        _add_scaled(target, np.sign(step, out=step), -lr, temporary)
        np.multiply(moving, hyper.beta_2, out=moving)
        _add_scaled(moving, piece, 1 - hyper.beta_2, temporary)


def _muon_scratch(gradient: Shaped, rate: Shaped, value: Shaped, *others: Shaped | None, hyper: MuonHyper) -> int:
    direction, *rest = _muon_buffers(value)
    return bytes_for(direction) + max(bytes_for(*rest), scratch_bytes(gradient, rate, value, *others))


@scratch(_muon_scratch)
def muon(
    gradient: Array, rate: Array, value: Array, momentum: Array, count: Array, *, hyper: MuonHyper, scratch: Bytes
) -> None:
    """torch.optim.Muon's step, whose products are in bfloat16, in float32."""
    if isnan(rate):
        return
    t, lr = _count_up(count), float(rate) * hyper.lr_mult
    buffers = _muon_buffers(value)
    (direction,) = carve(scratch, buffers[0])
    rest = scratch[bytes_for(buffers[0]) :]
    for piece, target, moving, share, _ in opened(rest, t, gradient, direction, StateSlot(momentum)):
        np.multiply(moving, hyper.momentum, out=moving)
        np.multiply(piece, 1 - hyper.momentum, out=share)
        np.add(moving, share, out=moving)
        np.copyto(target, moving)
        if hyper.nesterov:
            np.multiply(target, hyper.momentum, out=target)
            np.add(target, share, out=target)
    matrix = direction.reshape(len(direction), -1)
    orthogonalize(matrix.T if len(matrix) > matrix.shape[1] else matrix, hyper, carve(rest, *buffers[1:]))
    np.multiply(direction, -lr * hyper.scale, out=direction)
    for target, step in blocks(value, direction):
        if lr * hyper.weight_decay:
            np.multiply(target, 1 - lr * hyper.weight_decay, out=target)
        np.add(target, step, out=target)


def orthogonalize(x: Array, hyper: MuonHyper, buffers: list[Array]) -> None:
    """Newton and Schulz's iteration in place; x has no more rows than columns. buffers: as `_muon_buffers` says."""
    gram, factor, columns, squares = buffers
    total = 0.0
    for (piece,) in blocks(x):
        found = np.multiply(piece, piece, dtype=np.float64, out=shaped(squares, piece.shape))
        total += float(np.add.reduce(found, axis=None))
    np.divide(x, max(sqrt(total), hyper.epsilon), out=x)
    width = columns.size // len(x)
    for _ in range(hyper.ns_steps):
        np.matmul(x, x.T, out=gram)
        np.matmul(gram, gram, out=factor)
        np.multiply(factor, hyper.c, out=factor)
        np.multiply(gram, hyper.b, out=gram)
        np.add(factor, gram, out=factor)
        np.add(factor.reshape(-1)[:: len(x) + 1], hyper.a, out=factor.reshape(-1)[:: len(x) + 1])
        for start in range(0, x.shape[1], width):
            some = x[:, start : start + width]
            np.copyto(some, np.matmul(factor, some, out=columns[: some.size].reshape(some.shape)))


def _muon_buffers(value: Shaped) -> list[BufferSpec]:
    """Of the direction, two squares of the shorter side, some columns of the product, and squares of a block."""
    rows, columns = sorted((value.shape[0], value.size // max(value.shape[0], 1)))
    dtype, width = np.result_type(value.dtype, np.float32), min(columns, max(_COLUMNS, BLOCK // max(rows, 1)))
    square = (rows, rows), dtype
    return [(value.shape, dtype), square, square, ((rows * width,), dtype), ((min(BLOCK, value.size),), np.float64)]


@by_blocks(floats=1)
def add_scaled(x: Array, y: Array, temporary: Array, *, alpha: float) -> None:
    """y += alpha * x."""
    _add_scaled(y, x, alpha, temporary)


@scratch(lambda y, **_: bytes_for(_squares_buffer(y)))
def clip_norm(y: Array, *, threshold: float, scratch: Bytes) -> None:
    """The sum of squares is float64: in float32 it would overflow at elements of 1e19 and lose small ones."""
    (buffer,) = carve(scratch, _squares_buffer(y))
    total = 0.0
    for (piece,) in blocks(y):
        squares = np.multiply(piece, piece, dtype=np.float64, out=shaped(buffer, piece.shape))
        total += float(np.add.reduce(squares, axis=None))
    norm = sqrt(total)
    if norm > threshold:
        np.multiply(y, threshold / norm, out=y)


@scratch(lambda x, total, **_: bytes_for(*_wide_buffers(x)))
def add_squares(x: Array, total: Array, *, scratch: Bytes) -> None:
    """In float64, which holds every square of float32 as it is; slice by slice along the outermost axis in memory.

    The total takes in one slice's sum after the other, so that pieces of slices give equal bits, call by call.
    """
    buffer, sums = carve(scratch, *_wide_buffers(x))
    along = x.transpose(sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis])))
    rows = along if along.ndim > 1 else along.reshape(1, -1)
    width = x.size // len(rows)
    found = float(total)
    for start in range(0, len(rows), count := min(_SLICES, max(1, _WIDE // width))):
        some = rows[start : start + count]
        if width > _WIDE:
            found += _sum_in_turn(_squares(piece, buffer) for (piece,) in blocks(some[0], limit=_WIDE))
            continue
        wide, each = buffer[: len(some) * width], sums[: len(some)]
        np.copyto(wide.reshape(some.shape), some)
        wide = wide.reshape(len(some), width)
        np.vecdot(wide, wide, out=each)
        found = _sum_in_turn(each.tolist(), found)
    total[...] = found


def _sum_in_turn(numbers: Iterable[float], found: float = 0.0) -> float:
    """One after the other, which Python's own `sum` does not."""
    for number in numbers:
        found += number
    return found


def _squares(piece: Array, buffer: Array) -> float:
    wide = shaped(buffer, piece.shape)
    np.copyto(wide, piece)
    line = wide.reshape(-1)
    return float(np.dot(line, line))


def _wide_buffers(x: Shaped) -> list[BufferSpec]:
    return [((min(_WIDE, x.size),), np.float64), ((min(_SLICES, x.size),), np.float64)]


def clip_factor(total: Array, norm: Array, factor: Array, *, limit: float) -> None:
    """torch.nn.utils.clip_grad_norm_'s factor."""
    np.sqrt(total, out=norm)
    np.add(norm, 1e-6, out=factor)
    with np.errstate(invalid="ignore"):  # infinity by infinity
        np.divide(limit, factor, out=factor)
    np.minimum(factor, 1.0, out=factor)


def scale_by(factor: Array, y: Array) -> None:
    """A factor of 1 costs no way through memory."""
    if factor != 1:
        number = np.float64(factor) if y.dtype == np.float64 else np.float32(factor)
        np.multiply(y, number, out=y, casting="same_kind")


def unscale_factor(
    total: Array, rate: Array, scale: Array, norm: Array, factor: Array, applied: Array, *, limit: float
) -> None:
    """On the numbers."""
    norm[...] = sqrt(total) / scale
    is_finite = isfinite(total)
    applied[...] = rate if is_finite else nan
    clip = 1.0 if limit == inf or not is_finite else min(1.0, limit / (float(norm) + 1e-6))
    factor[...] = clip / float(scale) if is_finite else 1.0


def next_loss_scale(applied: Array, scale: Array, good: Array, skipped: Array, *, interval: int) -> None:
    """As torch.amp.GradScaler's update, within bounds."""
    if isnan(applied):
        skipped += 1
        good[...] = 0
        if interval:
            scale[...] = max(_LEAST_SCALE, float(scale) / 2)
        return
    good += 1
    if interval and good >= interval:
        scale[...] = min(1 / _LEAST_SCALE, float(scale) * 2)
        good[...] = 0


def take_back(applied: Array, before: Array, y: Array) -> None:
    """Costs no way through memory but where it is needed."""
    if isnan(applied):
        np.copyto(y, before)


def _squares_buffer(y: Shaped) -> BufferSpec:
    return (min(BLOCK, y.size),), np.float64


def _count_up(count: Array) -> int:
    """Add one to the count of updates and return it."""
    np.add(count, 1, out=count)
    return int(count)


def _decayed(gradient: Array, value: Array, weight_decay: float, out: Array) -> Array:
    """gradient + weight_decay * value, in `out` if there is anything to add."""
    if weight_decay == 0:
        return gradient
    np.multiply(value, weight_decay, out=out)
    return np.add(gradient, out, out=out)


def _add_scaled(y: Array, x: Array, alpha: float, temporary: Array) -> None:
    """y += alpha * x."""
    np.add(y, np.multiply(x, alpha, out=temporary), out=y)


def _add_scaled_square(y: Array, x: Array, alpha: float, temporary: Array) -> None:
    """y += alpha * x**2."""
    np.multiply(x, x, out=temporary)
    if alpha != 1:
        np.multiply(temporary, alpha, out=temporary)
    np.add(y, temporary, out=y)


def _subtract_ratio(
    value: Array, top: Array, square: Array, step: float, correction: float, epsilon: float, temporary: Array
) -> None:
    """value -= step * top / (sqrt(square) / correction + epsilon)."""
    np.sqrt(square, out=temporary)
    if correction != 1:
        np.divide(temporary, correction, out=temporary)
    np.add(temporary, epsilon, out=temporary)
    np.divide(top, temporary, out=temporary)
    _add_scaled(value, temporary, -step, temporary)
