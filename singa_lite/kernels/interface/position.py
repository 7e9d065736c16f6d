"""Where in a sequence something stands, told to what stands there."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Update, Write, kernel


@kernel(Facts(by_samples=("x", "y")), y="x")
def rotary(x: Read, table: Read, y: Write, *, axis: int, inverse: bool) -> None:
    """Pairs (a, b) = (x[..., i], x[..., i + half]) turned by an angle: y = (a * c - b * s, b * c + a * s).

    c, s = table[0, t, i], table[1, t, i], t the index along `axis` of x, neither the first nor the last axis. x, y:
    (n, ..., 2 * half); table: (2, x.shape[axis], half), x's dtype. inverse: with -s in the place of s, which turns
    back, and is the derivative (Su and others, arXiv 2104.09864, with the pairs of Llama).
    """


# position: int64 (1,), how many places of axis 1 lie before; with what is read or written there they are at most
# `length`: an IndexError where a kernel can raise one; elsewhere NaN is read, of integers 0, and nothing is written.
# m: at least 1.


@kernel()
def read_at(x: Read, position: Read, y: Write) -> None:
    """y = x[:, position : position + m]. x: (n, length, ...); y: (n, m, ...), x's dtype."""


@kernel()
def write_at(x: Read, position: Read, y: Update) -> None:
    """y[:, position : position + m] = x, and all else stays. x: (n, m, ...); y: (n, length, ...), x's dtype."""
