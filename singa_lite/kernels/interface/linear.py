"""Matrix products and biases. NaN and infinities reach the sums that they are added to, and no other."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Update, Write, kernel


@kernel(Facts(strides_matter=True, multiplies="tensors"))
def matmul(a: Read, b: Read, y: Write, *, transpose_a: bool, transpose_b: bool) -> None:
    """y = op(a) @ op(b), op transposing the last two axes if asked. y: (..., rows, columns), contiguous.

    Leading axes of a and b are equal, or one of the two is a plain matrix.
    """


@kernel(Facts(strides_matter=True, multiplies="tensors"))
def matmul_add(a: Read, b: Read, y: Update, *, transpose_a: bool, transpose_b: bool) -> None:
    """y += op(a) @ op(b), of matrices (rows, columns); what is added is summed up first."""


@kernel(Facts(strides_matter=True, multiplies="tensors", by_samples=("x", "y")))
def linear(x: Read, weight: Read, bias: Read | None, y: Write, *, activation: str = "") -> None:
    """y = activation(x @ weight + bias). x: (n, in); weight: (in, out); bias: (out,); y: (n, out).

    activation: one without settings, such as "relu".
    """


@kernel(Facts(strides_matter=True, multiplies="tensors"))
def linear_gradient(x: Read, dy: Read, dweight: Write, dbias: Write) -> None:
    """dweight = x^T @ dy; dbias = sum of dy over its rows.

    x: (n, in); dy: (n, out); dweight: (in, out); dbias: (out,).
    """


@kernel(y="x")
def add_bias(x: Read, bias: Read, y: Write, *, axis: int) -> None:
    """y = x + bias along `axis`. bias: (x.shape[axis],); y: x's shape."""
