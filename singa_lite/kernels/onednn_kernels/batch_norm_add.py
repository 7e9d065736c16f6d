"""Batch normalization with the sum behind it and the activation behind that, in one pass over activations.

    x -> statistics;  x, other, statistics -> normalised, summed, activated -> y
    dy, x -> sums;    dy, x, other, sums -> dx

What the kernels do one after the other, element by element: the bits are theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.batch_norm import add_scale
from singa_lite.kernels.onednn_kernels.batch_norm_activation import one_after_the_other
from singa_lite.kernels.onednn_kernels.batch_norm_gradients import derivative
from singa_lite.kernels.onednn_kernels.images import Images
from singa_lite.kernels.onednn_kernels.library import algorithms as a
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.onednn_kernels.sums.batch_statistics import add_statistics, columns_of, fit, images_of
from singa_lite.kernels.onednn_kernels.sums.columns import SHORT, Activations
from singa_lite.kernels.onednn_kernels.sums.normalized import End, Normalized

#: What is done behind the normalised element. Relu is the larger of it and -other, and other added, as in
#: `elementwise.add_activation`, with all signs turned: of two numbers of which one is NaN the library takes the second.
_ENDS: dict[str, tuple[End, ...]] = {"": (a.ADD,), "relu": (a.MINIMUM, a.SUBTRACT, (a.LINEAR, -1.0, 0.0))}

#: What is done in one go.
FUSIONS = [*(("batch_norm_add", activation) for activation in _ENDS), ("batch_norm_derivative_add", "")]


def batch_norm_add(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    running_mean: TensorSpec,
    running_var: TensorSpec,
    other: TensorSpec,
    y: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    *,
    momentum: float,
    epsilon: float,
    activation: str,
) -> Routine | None:
    """The statistics, then y by them. Pieces of x are not left in y, which may be the other tensor."""
    if activation not in _ENDS or not fit((x, other, y), gamma, beta, running_mean, running_var, mean, inv_std):
        return None
    images = images_of(x, other, y)
    source, theirs = images.source(x), images.source(other)
    vectors = gamma, running_mean, running_var, mean, inv_std
    scale = add_statistics(images, x, source, vectors, momentum, epsilon)
    return _added(images, source, theirs, y, (mean, scale, beta), inv_std, activation)


def batch_normalize_add(
    x: TensorSpec,
    gamma: TensorSpec,
    beta: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    other: TensorSpec,
    y: TensorSpec,
    *,
    activation: str,
) -> Routine | None:
    """The last step of `batch_norm_add`."""
    if activation not in _ENDS or not fit((x, other, y), gamma, beta, mean, inv_std):
        return None
    images = images_of(x, other, y)
    scale = add_scale(images, gamma, inv_std)
    return _added(images, images.source(x), images.source(other), y, (mean, scale, beta), inv_std, activation)


def batch_norm_derivative_add(
    dy: TensorSpec,
    x: TensorSpec,
    gamma: TensorSpec,
    mean: TensorSpec,
    inv_std: TensorSpec,
    other: TensorSpec,
    dx: TensorSpec,
    dgamma: TensorSpec,
    dbeta: TensorSpec,
) -> Routine | None:
    """One more post-op of the derivative's last pass."""
    return derivative(dy, x, (gamma, mean, inv_std), (dgamma, dbeta), other, dx)


def _added(
    images: Images,
    source: Activations,
    theirs: Activations,
    y: TensorSpec,
    vectors: tuple[BufferView, BufferView, BufferView],
    inv_std: TensorSpec,
    activation: str,
) -> Images:
    """Add steps: y = the activation of (source - mean) * scale + shift + theirs. vectors: mean, scale, shift.

    With an activation at once only where what is normalised is no NaN.
    """
    columns = columns_of(images, y, SHORT)
    normalized = Normalized(columns, *vectors)
    with images.sink(y) as target:
        if not activation:
            _add_in_one_pass(normalized, source, theirs, target, activation)
            return images
        calm, other = normalized.find_calm(inv_std)
        with images.only_if(calm, likely=True):
            _add_in_one_pass(normalized.turned(), source, theirs, target, activation)
        with images.only_if(other):
            one_after_the_other(normalized, [source, theirs], target, activation)
    return images


def _add_in_one_pass(
    normalized: Normalized, source: Activations, theirs: Activations, target: Activations, activation: str
) -> None:
    ends = _ENDS[activation]
    taking = sum(isinstance(end, int) for end in ends)

    def add(pixels: int, reads: Sequence[BufferView], target: BufferView) -> None:
        normalized.add(pixels, reads[0], target, ends, [*reads[1:]] * taking)

    normalized.columns.each([source, theirs], target, add)
