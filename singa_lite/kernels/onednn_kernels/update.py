"""Optimizer updates along memory, in place: primitives with two operands, each with a row of post-ops.

What changes from run to run is an operand of one element, written by a step on the host. The gradient with weight
decay is never stored: where it is wanted it is made again, or the decay's share of a step is a step of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.interface.update import AdaGradHyper, AdamHyper, RmsPropHyper, SgdHyper
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.library import algorithms as a
from singa_lite.kernels.onednn_kernels.library import layouts
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.onednn_kernels.sums.line import AddOld, Binary, Eltwise, Line, Link, Steps
from singa_lite.kernels.routine import Temporary

_SQUARE, _ADDED = Eltwise(a.SQUARE), AddOld(1.0)


def _times(factor: BufferView) -> Binary:
    return Binary(a.MULTIPLY, factor)


def sgd(
    gradient: TensorSpec,
    rate: TensorSpec,
    value: TensorSpec,
    velocity: TensorSpec | None,
    count: TensorSpec,
    *,
    hyper: SgdHyper,
) -> Routine | None:
    """At the first update the velocity starts from zeros, whatever it held, and takes the whole gradient."""
    if not layouts.same_layout(value, gradient, *(() if velocity is None else (velocity,))):
        return None
    line = Line(value.size)
    numbers = step, share, decay, ahead = line.numbers(4)
    is_done = line.temporary((1,), "bool")

    def begin(rate: Array, count: Array, velocity: Array | None, is_done: Array, *numbers: Array) -> None:
        if not _begins(rate, is_done):
            return
        is_first, lr = _count_up(count) == 1, float(rate) * hyper.lr_mult
        if is_first and velocity is not None:
            velocity.fill(0)
        _write(numbers, -lr, 1.0 if is_first else 1 - hyper.dampening, hyper.weight_decay, -lr * hyper.momentum)

    def add(steps: Steps) -> None:
        source, decayed = _decayed(gradient, value, decay, hyper.weight_decay)
        if velocity is not None:
            steps.chain(velocity, source, *decayed, _times(share), AddOld(hyper.momentum))
        if velocity is None or hyper.nesterov:
            steps.chain(value, source, *decayed, _times(step), _ADDED)
        if velocity is not None:
            steps.chain(value, velocity, _times(ahead if hyper.nesterov else step), _ADDED)

    line.call(begin, rate, count, velocity, is_done, *numbers)
    return _each_if(line, is_done, add)


def rms_prop(
    gradient: TensorSpec,
    rate: TensorSpec,
    value: TensorSpec,
    square_average: TensorSpec,
    count: TensorSpec,
    *,
    hyper: RmsPropHyper,
) -> Routine | None:
    """Two steps, or three with weight decay."""
    return _scaled_by_squares(gradient, rate, value, square_average, count, hyper, hyper.rho, 1 - hyper.rho)


def ada_grad(
    gradient: TensorSpec,
    rate: TensorSpec,
    value: TensorSpec,
    square_sum: TensorSpec,
    count: TensorSpec,
    *,
    hyper: AdaGradHyper,
) -> Routine | None:
    """The squares add up; else as `rms_prop`."""
    return _scaled_by_squares(gradient, rate, value, square_sum, count, hyper, 1.0, 1.0)


def _scaled_by_squares(
    gradient: TensorSpec,
    rate: TensorSpec,
    value: TensorSpec,
    square: TensorSpec,
    count: TensorSpec,
    hyper: RmsPropHyper | AdaGradHyper,
    kept: float,
    share: float,
) -> Routine | None:
    """square = kept * square + share * g**2; value -= lr * g / (sqrt(square) + epsilon)."""
    if not layouts.same_layout(value, gradient, square):
        return None
    line = Line(value.size)
    numbers = step, decay, decay_step, correction = line.numbers(4)
    is_done = line.temporary((1,), "bool")

    def begin(rate: Array, count: Array, is_done: Array, *numbers: Array) -> None:
        if not _begins(rate, is_done):
            return
        _count_up(count)
        lr = float(rate) * hyper.lr_mult
        _write(numbers, -lr, hyper.weight_decay, -lr * hyper.weight_decay, 1.0)

    def add(steps: Steps) -> None:
        source, squared = _squared(gradient, value, decay, hyper.weight_decay)
        steps.chain(square, source, *squared, _share(share), AddOld(kept))
        if hyper.weight_decay != 0:
            _add_ratio(steps, value, decay_step, value, square, correction, hyper.epsilon)
        _add_ratio(steps, value, step, gradient, square, correction, hyper.epsilon)

    line.call(begin, rate, count, is_done, *numbers)
    return _each_if(line, is_done, add)


def adam(
    gradient: TensorSpec,
    rate: TensorSpec,
    value: TensorSpec,
    first_moment: TensorSpec,
    second_moment: TensorSpec,
    max_second_moment: TensorSpec | None,
    count: TensorSpec,
    *,
    hyper: AdamHyper,
) -> Routine | None:
    """See `_adam`."""
    largest = () if max_second_moment is None else (max_second_moment,)
    return _adam(gradient, rate, value, (first_moment, second_moment, *largest), count, hyper)


def _adam(
    gradient: TensorSpec,
    rate: TensorSpec,
    value: TensorSpec,
    moments: tuple[TensorSpec, ...],
    count: TensorSpec,
    hyper: AdamHyper,
) -> Routine | None:
    """The moments, AdamW's decay if decoupled, then the step, by the last of the moments."""
    if not layouts.same_layout(value, gradient, *moments):
        return None
    first_moment, second_moment, *largest = moments
    line = Line(value.size)
    numbers = step, correction, share, decay, kept = line.numbers(5)
    is_done = line.temporary((1,), "bool")

    def begin(rate: Array, count: Array, is_done: Array, *numbers: Array) -> None:
        if not _begins(rate, is_done):
            return
        t, lr = _count_up(count), float(rate) * hyper.lr_mult
        top, bottom = 1 - hyper.beta_1**t, 1 - hyper.beta_2**t
        _write(numbers, -lr / top, 1 / bottom, 1 - hyper.beta_1, hyper.coupled_decay, 1 - lr * hyper.weight_decay)

    def add(steps: Steps) -> None:
        source, decayed = _decayed(gradient, value, decay, hyper.coupled_decay)
        steps.chain(first_moment, source, *decayed, _times(share), AddOld(hyper.beta_1))
        source, squared = _squared(gradient, value, decay, hyper.coupled_decay)
        steps.chain(second_moment, source, *squared, _share(1 - hyper.beta_2), AddOld(hyper.beta_2))
        if hyper.weight_decay != hyper.coupled_decay:
            steps.chain(value, value, _times(kept))
        for maximum in largest:  # of two of which one is NaN the library takes the second
            steps.chain(maximum, maximum, Binary(a.MAXIMUM, second_moment))
        _add_ratio(steps, value, step, first_moment, moments[-1], correction, hyper.epsilon)

    line.call(begin, rate, count, is_done, *numbers)
    return _each_if(line, is_done, add)


def add_scaled(x: TensorSpec, y: TensorSpec, *, alpha: float) -> Routine | None:
    """One primitive."""
    if not layouts.same_layout(y, x):
        return None
    line = Line(y.size)
    (factor,) = line.numbers(1)
    line.call(lambda number: _write((number,), alpha), factor)
    return line.each(lambda steps: steps.chain(y, x, _times(factor), _ADDED))


def clip_elements(y: TensorSpec, *, threshold: float) -> Routine | None:
    """NaN stays NaN."""
    if not layouts.same_layout(y):
        return None
    return Line(y.size).each(lambda steps: steps.clip(y, y, -threshold, threshold))


def _begins(rate: Array, is_done: Array) -> bool:
    """Whether there is an update at all, which the steps behind are told."""
    is_done[0] = not isnan(rate)
    return bool(is_done[0])


def _each_if(line: Line, is_done: Temporary, add: Callable[[Steps], None]) -> Line:
    with line.only_if(is_done, likely=True):
        line.each(add)
    return line


def _count_up(count: Array) -> int:
    """Add one to the count of updates and return it."""
    np.add(count, 1, out=count)
    return int(count)


def _write(targets: tuple[Array, ...], *numbers: float) -> None:
    for target, number in zip(targets, numbers, strict=True):
        target[0] = number


def _share(factor: float) -> Eltwise:
    return Eltwise(a.LINEAR, factor)


#: Where a chain begins, and its first links.
_Begun = tuple[TensorSpec, list[Link]]


def _decayed(gradient: TensorSpec, value: TensorSpec, decay: BufferView, weight_decay: float) -> _Begun:
    """A chain that gives gradient + weight_decay * value."""
    if weight_decay == 0:
        return gradient, []
    return value, [_times(decay), Binary(a.ADD, gradient)]


def _squared(gradient: TensorSpec, value: TensorSpec, decay: BufferView, weight_decay: float) -> _Begun:
    """A chain that gives the square of gradient + weight_decay * value."""
    if weight_decay == 0:
        return gradient, [_times(gradient)]
    source, links = _decayed(gradient, value, decay, weight_decay)
    return source, [*links, _SQUARE]


def _add_ratio(
    steps: Steps,
    value: TensorSpec,
    factor: BufferView,
    top: TensorSpec,
    square: TensorSpec,
    correction: BufferView,
    epsilon: float,
) -> None:
    """value += factor * top / (sqrt(correction * square) + epsilon)."""
    root = Eltwise(a.SQRT), Eltwise(a.LINEAR, 1.0, epsilon), Eltwise(a.POWER, 1.0, -1.0)
    steps.chain(value, square, _times(correction), *root, _times(top), _times(factor), _ADDED)
