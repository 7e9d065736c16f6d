"""Where in a sequence something stands, told to what stands there."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Write, kernel


@kernel(Facts(by_samples=("x", "y")), y="x")
def rotary(x: Read, table: Read, y: Write, *, axis: int, inverse: bool) -> None:
    """Pairs (a, b) = (x[..., i], x[..., i + half]) turned by an angle: y = (a * c - b * s, b * c + a * s).

    c, s = table[0, t, i], table[1, t, i], t the index along `axis` of x, neither the first nor the last axis. x, y:
    (n, ..., 2 * half); table: (2, x.shape[axis], half), x's dtype. inverse: with -s in the place of s, which turns
    back, and is the derivative (Su and others, arXiv 2104.09864, with the pairs of Llama).
    """
