"""Losses of scores against targets: one value a sample (squared error: one an element).

Cross entropy of softmax goes by ids or rows, along any axis, with ids that do not count.
"""

from __future__ import annotations

from singa_lite.autograd.ops.arithmetic import divide, scale, shift
from singa_lite.autograd.ops.broadcasting import cast
from singa_lite.autograd.ops.op import KernelOp, LinearOp, Op, checked_tensor
from singa_lite.autograd.ops.reduction import reduce_mean, reduce_sum
from singa_lite.autograd.ops.shape import reshape, transpose
from singa_lite.common.checks import above_zero, axis_of, is_int, share
from singa_lite.common.errors import ShapeError
from singa_lite.tensor import Tensor


class ElementLoss(KernelOp):
    """A loss of x against a target of its shape; kernel and kernel_derivative do it."""

    def __init__(self, kernel: str, per_element: bool = False, **settings: object) -> None:
        super().__init__(kernel, **settings)
        self.per_element = per_element

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        check_same_shape_and_dtype(self.kernel, x, target)
        losses = self.device.empty(x.shape if self.per_element else x.shape[:1], x.dtype)
        self.device.run(self.kernel, x, target, losses, **self.settings)
        self.save(x, target)
        return losses

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index:
            return super().backward(index, *dys)
        x, target = map(self.kept, range(2))
        dx = self.empty_like(x)
        self.device.run(f"{self.kernel}_derivative", dys[0], x, target, dx, **self.settings)
        return dx


def check_same_shape_and_dtype(where: str, x: Tensor, target: Tensor) -> None:
    """ShapeError or TypeError unless the target has the shape and dtype of x."""
    if target.shape != x.shape:
        raise ShapeError(f"{where}: wanted a target of the scores' shape {x.shape}, received {target.shape}")
    if target.dtype != x.dtype:
        raise TypeError(f"{where}: wanted a target of the scores' dtype {x.dtype}, received {target.dtype}")


def sigmoid_cross_entropy_values(x: Tensor, target: Tensor) -> Tensor:
    """Returns the binary cross entropy of sigmoid(x), the mean over each sample. x: raw scores (n, ...); target: x's
    shape.

    >>> x, target = tensor.as_tensor([[0.0, 2.0], [-3.0, 1.0]]), tensor.as_tensor([[1.0, 1.0], [0.0, 0.0]])
    >>> print(autograd.sigmoid_cross_entropy_values(x, target).round(3))
    [0.41  0.681]
    """
    return ElementLoss("sigmoid_cross_entropy")(x, target)


def sigmoid_cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    """Returns the mean over the batch of `sigmoid_cross_entropy_values`, of shape ().

    >>> x, target = tensor.as_tensor([[0.0, 2.0], [-3.0, 1.0]]), tensor.as_tensor([[1.0, 1.0], [0.0, 0.0]])
    >>> round(autograd.sigmoid_cross_entropy(x, target).item(), 3)
    0.545
    """
    return reduce_mean(sigmoid_cross_entropy_values(x, target))


def squared_error_values(x: Tensor, target: Tensor) -> Tensor:
    """Returns (x - target)**2 / 2, element by element. target: x's shape.

    >>> x, target = tensor.as_tensor([1.0, 2.0, 5.0]), tensor.as_tensor([1.0, 3.0, 3.0])
    >>> print(autograd.squared_error_values(x, target))
    [0.  0.5 2. ]
    """
    return ElementLoss("squared_error", per_element=True)(x, target)


def squared_error(x: Tensor, target: Tensor) -> Tensor:
    """Returns the mean over all elements of `squared_error_values`, of shape ().

    >>> x, target = tensor.as_tensor([1.0, 2.0, 5.0]), tensor.as_tensor([1.0, 3.0, 4.0])
    >>> autograd.squared_error(x, target).item()
    0.3333333333333333
    """
    return reduce_mean(squared_error_values(x, target))


def huber_values(x: Tensor, target: Tensor, delta: float = 1.0) -> Tensor:
    """Returns the mean over each sample of r**2 / 2 where |r| <= delta, else delta * (|r| - delta / 2), with r = x -
    target.

    >>> x, target = tensor.as_tensor([[1.0], [2.0], [5.0]]), tensor.as_tensor([[1.0], [3.0], [3.0]])
    >>> print(autograd.huber_values(x, target))
    [0.  0.5 1.5]
    """
    return ElementLoss("huber", delta=above_zero("huber delta", delta))(x, target)


def huber(x: Tensor, target: Tensor, delta: float = 1.0) -> Tensor:
    """Returns the mean over the batch of `huber_values`, of shape ().

    >>> x, target = tensor.as_tensor([[2.0], [5.0]]), tensor.as_tensor([[3.0], [3.0]])
    >>> autograd.huber(x, target).item()
    1.0
    """
    return reduce_mean(huber_values(x, target, delta))


class SoftmaxCrossEntropy(Op):
    """losses = -sum of t * log softmax(x) over the classes, axis 1, mean over a sample's positions.

    ignored, smoothing: of rows of scores (rows, c) with ids (rows,) only; what the mean of the losses is then, see
    `softmax_cross_entropy_values`.
    """

    def __init__(self, ignored: int | None = None, smoothing: float = 0.0) -> None:
        self.ignored, self.smoothing = ignored, smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        check_classes(x, target)
        losses = self.device.empty(x.shape[:1], x.dtype)
        p, weights = self.empty_like(x), None
        if self.ignored is not None:
            ids, weights = self.empty_like(target), self.device.empty(target.shape, x.dtype)
            self.device.run("target_weights", target, ids, weights, ignored=self.ignored)
            target = ids
        self.device.run("softmax_cross_entropy", x, target, losses, p)
        if self.smoothing:
            self.device.run("smooth_labels", x, target, losses, share=self.smoothing)
        if weights is not None:
            self.device.run("weigh", losses, weights, losses)
        self.save(p, target, weights)
        return losses

    def backward(self, index: int, *dys: Tensor) -> Tensor:
        if index:
            return super().backward(index, *dys)
        p, target, weights, dlosses = self.kept(0), self.kept(1), self.saved[2], dys[0]
        if weights is not None:
            dlosses = self.computed("weigh", dys[0], weights)
        # p is used here for the last time, so the derivative is written over it.
        self.device.run("softmax_cross_entropy_derivative", dlosses, p, target, p)
        if self.smoothing:
            self.device.run("smooth_labels_derivative", dlosses, target, p, share=self.smoothing)
        return p


def weigh(x: Tensor, weights: Tensor) -> Tensor:
    """x * weights, 0 where the weight is 0, whatever x is there. Equal shapes; no derivative by the weights."""
    return LinearOp("weigh")(x, weights.detach())


def check_classes(x: Tensor, target: Tensor) -> None:
    """ShapeError unless target holds class ids (n, ...) or rows of x's shape (n, c, ...)."""
    ids = x.ndim >= 2 and target.shape == (x.shape[0], *x.shape[2:]) and target.dtype.kind in "iu"
    if x.ndim < 2 or not (ids or target.shape == x.shape):
        raise ShapeError(
            f"softmax_cross_entropy: wanted integer class ids of shape {(x.shape[:1] + x.shape[2:])} or rows of the "
            f"scores' shape {x.shape}, received {target.shape} {target.dtype}"
        )


def softmax_cross_entropy_values(
    x: Tensor, target: Tensor, axis: int = 1, ignore_index: int | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """Returns the cross entropy of softmax(x), one value a sample.

    x: raw scores (n, ...), the classes along `axis`, not the first; target: integer class ids of x's shape without that
    axis, or rows of x's shape of weights, normalised to sum 1 over the classes; result (n,), the mean over a sample's
    positions.

    ignore_index: an id whose positions do not count: they give no loss and no derivative, and each value is the sum
    over the sample's other positions times n / (positions of the whole batch that count). So the mean of the values is
    the mean over the positions that count, as of torch.nn.functional.cross_entropy; 0 where none does.
    label_smoothing: from 0 to 1, this share of the target goes to all classes alike, as there.

    >>> scores = tensor.as_tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 4.0]])
    >>> print(autograd.softmax_cross_entropy_values(scores, tensor.as_tensor([0, 1])).round(3))
    [0.24  4.036]
    """
    smoothing = share("softmax_cross_entropy label_smoothing", label_smoothing)
    axis = axis_of("softmax_cross_entropy", axis, checked_tensor("softmax_cross_entropy", x).shape)
    if ignore_index is not None and not is_int(ignore_index):
        raise TypeError(f"softmax_cross_entropy ignore_index: wanted an integer or None, received {ignore_index!r}")
    if axis == 1 and ignore_index is None and not smoothing:
        return SoftmaxCrossEntropy()(x, target)
    rows, flat = by_rows(x, checked_tensor("softmax_cross_entropy", target), axis)
    if flat.ndim == 2:
        if ignore_index is not None:
            raise ShapeError(
                f"softmax_cross_entropy ignore_index: wanted class ids, received rows of weights {target.shape}"
            )
        losses = SoftmaxCrossEntropy()(rows, _smoothed(flat, rows, smoothing))
    else:
        losses = SoftmaxCrossEntropy(None if ignore_index is None else int(ignore_index), smoothing)(rows, flat)
    return losses if x.ndim == 2 else reduce_mean(reshape(losses, (x.shape[0], -1)), axes=1)


def by_rows(x: Tensor, target: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Scores as (rows, c), and ids as (rows,) or rows of weights as (rows, c)."""
    beside = [other for other in range(x.ndim) if other != axis]
    shape = tuple(x.shape[other] for other in beside)
    if axis == 0 or target.shape not in (shape, x.shape):
        raise ShapeError(
            f"softmax_cross_entropy: wanted classes along another axis than the first, and class ids of shape {shape} "
            f"or rows of the scores' shape {x.shape}, received axis {axis} and {target.shape} {target.dtype}"
        )
    rows = reshape(transpose(x, (*beside, axis)), (-1, x.shape[axis]))
    if target.shape == shape:
        return rows, reshape(target, (-1,))
    return rows, reshape(transpose(target, (*beside, axis)), (-1, x.shape[axis]))


def _smoothed(weights: Tensor, x: Tensor, smoothing: float) -> Tensor:
    """(1 - smoothing) * weights / their sums + smoothing / c; the weights themselves without smoothing."""
    if not smoothing:
        return weights
    given = cast(weights, x.dtype)
    normalized = divide(given, reduce_sum(given, axes=1, keepdims=True))
    return shift(scale(normalized, 1 - smoothing), smoothing / x.shape[1])


def softmax_cross_entropy(
    x: Tensor, target: Tensor, axis: int = 1, ignore_index: int | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """Returns the mean over the batch of `softmax_cross_entropy_values`, of shape ().

    >>> scores = tensor.as_tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 4.0]])
    >>> round(autograd.softmax_cross_entropy(scores, tensor.as_tensor([0, 1])).item(), 3)
    2.138
    """
    return reduce_mean(softmax_cross_entropy_values(x, target, axis, ignore_index, label_smoothing))
