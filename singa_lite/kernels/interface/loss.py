"""Losses and their derivatives."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Update, Write, kernel

# Classes lie along axis 1 of x: (n, c, ...). A target of class ids is an integer tensor of shape (n, ...), one
# of rows has the shape of x and any dtype: non-negative weights, normalised to sum 1 along axis 1.
# losses, dlosses: (n,), one value a sample, the mean over its positions. An id that names no class is an IndexError
# where a kernel can raise one; elsewhere the loss of its sample and the derivative of its position are NaN.


@kernel(Facts(by_samples=("x", "target", "losses", "p")), p="x")
def softmax_cross_entropy(x: Read, target: Read, losses: Write, p: Write) -> None:
    """losses = -sum of t * log p along axis 1, p = softmax of x along axis 1 (x: raw scores), without overflow.

    A position whose largest score is NaN or infinite has p of NaN, its sample a loss of NaN, and no other. A class of
    minus infinity has p = 0; the loss is infinite where it is the target's.
    """


@kernel(Facts(by_samples=("dlosses", "p", "target", "dx")), dx="p")
def softmax_cross_entropy_derivative(dlosses: Read, p: Read, target: Read, dx: Write) -> None:
    """dx = dlosses / positions * (p - t), 0 of a sample whose dlosses is 0, whatever p is there."""


@kernel()
def sigmoid_cross_entropy(x: Read, target: Read, losses: Write) -> None:
    """losses = mean over the sample of max(x, 0) - x * t + log(1 + e**-|x|) (x: raw scores; t: x's shape).

    Without overflow for any finite x; NaN for infinity, which is infinity less infinity.
    """


@kernel(dx="x")
def sigmoid_cross_entropy_derivative(dlosses: Read, x: Read, target: Read, dx: Write) -> None:
    """dx = dlosses / elements of a sample * (sigmoid(x) - t)."""


@kernel(y="x target")
def squared_error(x: Read, target: Read, y: Write) -> None:
    """y = (x - target)**2 / 2, element by element."""


@kernel(dx="dy x target")
def squared_error_derivative(dy: Read, x: Read, target: Read, dx: Write) -> None:
    """dx = dy * (x - target)."""


@kernel()
def huber(x: Read, target: Read, losses: Write, *, delta: float) -> None:
    """losses = mean over the sample of r**2 / 2 where |r| <= delta, else delta * (|r| - delta / 2); r = x - t."""


@kernel(dx="x target")
def huber_derivative(dlosses: Read, x: Read, target: Read, dx: Write, *, delta: float) -> None:
    """dx = dlosses / elements of a sample * clip(x - t, -delta, delta)."""


# Cross entropy of rows of scores (rows, c) of which only some classes are there at a time (`compiler/rewrite/head.py`).


@kernel(Facts(by_samples=("x", "y")))
def log_sum_exp(x: Read, y: Write) -> None:
    """y = log of the sum of e**x over the classes, without overflow. x: (rows, c); y: (rows,).

    NaN where the largest score is NaN or infinite.
    """


@kernel(Facts(by_samples=("dlosses", "x", "lse", "target", "dx")), dx="x")
def softmax_classes_derivative(
    dlosses: Read, x: Read, lse: Read, target: Read, dx: Write, *, first: int, classes: int, share: float
) -> None:
    """dx = dlosses * (e**(x - lse) - (1 - share) * t - share / classes), some columns of the derivative. It is 0 in a
    row whose dlosses is 0, whatever x is there.

    It is that of `softmax_cross_entropy` with labels smoothed by `share`, 0 for none. x: (rows, c), the scores of the
    classes from `first` on, of `classes` in all; lse: (rows,), `log_sum_exp` of all scores; target: ids (rows,);
    t: 1 at the target's class, else 0.
    """


# What is beside a loss over rows of scores (rows, c) with ids (rows,).


@kernel()
def target_weights(target: Read, ids: Write, weights: Write, *, ignored: int) -> None:
    """ids = target, 0 where it is `ignored`; weights = rows / rows that are not ignored, 0 where it is.

    So the mean over all rows of weights * numbers is the mean of those that are not ignored; 0 where all are. target,
    ids: (rows,), one integer dtype; weights: (rows,).
    """


@kernel(Facts(by_samples=("x", "weights", "y")), y="x weights")
def weigh(x: Read, weights: Read, y: Write) -> None:
    """y = x * weights, 0 where the weight is 0, whatever x is there. Equal shapes."""


@kernel(Facts(by_samples=("x", "target", "losses")))
def smooth_labels(x: Read, target: Read, losses: Update, *, share: float) -> None:
    """losses += share * (x at the target's class - mean of x over the classes).

    Makes of a cross entropy that of the smoothed target (1 - share) * t + share / c (Szegedy and others, arXiv
    1512.00567). x: (rows, c); target: ids (rows,); losses: (rows,).
    """


@kernel(Facts(by_samples=("dlosses", "target", "dx")))
def smooth_labels_derivative(dlosses: Read, target: Read, dx: Update, *, share: float) -> None:
    """dx += dlosses * share * (t - 1 / c). dx: (rows, c); the rest (rows,)."""
