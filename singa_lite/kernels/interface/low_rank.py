"""Products with two factors of low rank, added to what a layer's weight gives."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Update, Write, kernel


@kernel(Facts(strides_matter=True, multiplies="tensors", by_samples=("x", "h", "y")))
def low_rank_add(x: Read, a: Read, b: Read, h: Write, y: Update, *, scale: float) -> None:
    """h = scale * (x @ a); y += h @ b. x: (n, in); a: (in, rank); b: (rank, out); h: (n, rank); y: (n, out)."""


@kernel(Facts(strides_matter=True, multiplies="tensors"))
def low_rank_add_derivative(
    dy: Read,
    x: Read,
    a: Read,
    b: Read,
    h: Read,
    dh: Write,
    da: Write,
    db: Write,
    dx: Update | None,
    *,
    scale: float,
) -> None:
    """dh = scale * (dy @ b^T); da = x^T @ dh; db = h^T @ dy; dx += dh @ a^T. Shapes as of `low_rank_add`."""
