"""Two operations in one, put in the place of two by `fuse`, `norm_derivative` and `linear_gradient`.

activation: the name of an activation without settings, such as "relu". y is the activation's result.
"""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Update, Write, kernel
from singa_lite.kernels.interface.window import Window


@kernel(Facts(inner_strides_matter=True, multiplies="patches", by_samples=("x", "y")))
def conv2d_activation(
    x: Read, weight: Read, bias: Read | None, y: Write, *, window: Window, groups: int, activation: str
) -> None:
    """y = activation(conv2d)."""


@kernel(Facts(strides_matter=True, multiplies="tensors", by_samples=("x", "y")))
def linear_activation(x: Read, weight: Read, bias: Read | None, y: Write, *, activation: str) -> None:
    """y = activation(x @ weight + bias)."""


@kernel(Facts(strides_matter=True, multiplies="tensors"))
def linear_gradient(x: Read, dy: Read, dweight: Write, dbias: Write) -> None:
    """dweight = x^T @ dy; dbias = sum of dy over its rows.

    x: (n, in); dy: (n, out); dweight: (in, out); dbias: (out,).
    """


# Batch normalisation with the activation behind it, "relu" or "relu6": shapes as in `normalization.py`. What the two
# kernels do one after the other, to the bit, with NaN, infinities and at kinks too. The result before the activation is
# stored nowhere: going back it is worked out again, from x, which is read anyway. x, y, dy and dx lie alike, as a set
# may normalise images that lie otherwise by other arithmetic.


@kernel(Facts(again="batch_normalize_activation"), y="x")
def batch_norm_activation(
    x: Read,
    gamma: Read,
    beta: Read,
    running_mean: Update,
    running_var: Update,
    y: Write,
    mean: Write,
    inv_std: Write,
    *,
    momentum: float,
    epsilon: float,
    activation: str,
) -> None:
    """y = activation(batch_norm)."""


@kernel(Facts(by_samples=("x", "y")), y="x")
def batch_normalize_activation(
    x: Read, gamma: Read, beta: Read, mean: Read, inv_std: Read, y: Write, *, activation: str
) -> None:
    """y of `batch_norm_activation` by the statistics that it kept, to the bit."""


@kernel(dx="dy")
def batch_norm_activation_derivative(
    dy: Read,
    x: Read,
    gamma: Read,
    beta: Read,
    mean: Read,
    inv_std: Read,
    dx: Write,
    dgamma: Write,
    dbeta: Write,
    *,
    activation: str,
) -> None:
    """dx, dgamma and dbeta of `batch_norm_derivative`, given the activation's derivative of dy."""


# Batch normalisation with the sum behind it, and the activation behind that, "relu" or "relu6", or none: "". So ends a
# block of a residual net. other, y: as x, and lying as it does. To the bit what the kernels do one after the other; of
# two numbers that are added, minus infinity and no NaN, a set may give NaN for what an activation bounds. In 16 bits
# the sum is rounded once, not twice.


@kernel(Facts(again="batch_normalize_add"), y="x other")
def batch_norm_add(
    x: Read,
    gamma: Read,
    beta: Read,
    running_mean: Update,
    running_var: Update,
    other: Read,
    y: Write,
    mean: Write,
    inv_std: Write,
    *,
    momentum: float,
    epsilon: float,
    activation: str,
) -> None:
    """y = activation(batch_norm + other)."""


@kernel(Facts(by_samples=("x", "other", "y")), y="x other")
def batch_normalize_add(
    x: Read, gamma: Read, beta: Read, mean: Read, inv_std: Read, other: Read, y: Write, *, activation: str
) -> None:
    """y of `batch_norm_add` by the statistics that it kept, to the bit."""


@kernel(dx="dy x")
def batch_norm_derivative_add(
    dy: Read,
    x: Read,
    gamma: Read,
    mean: Read,
    inv_std: Read,
    other: Read,
    dx: Write,
    dgamma: Write,
    dbeta: Write,
) -> None:
    """dx of `batch_norm_derivative` + other, and dgamma and dbeta, to the bit. other: may have gaps."""
