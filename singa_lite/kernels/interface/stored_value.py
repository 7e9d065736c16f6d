"""Parameters that are stored in bfloat16: what an update left of them in float32 is rounded to 16 bits.

Rounded to nearest, a value would not move by updates of less than half of its last place. So it is rounded by chance
(Gupta and others, "Deep Learning with Limited Numerical Precision", arXiv 1502.02551), or what rounding leaves over is
stored beside it (Zamirai and others, "Revisiting BFloat16 Training", arXiv 2010.06192). bfloat16 is ml_dtypes' own.
"""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Update, Write, kernel


@kernel()
def round_by_chance(x: Read, count: Read, value: Write, *, start: int) -> None:
    """value = x, rounded up with the probability that the 16 bits cut off give, else down; NaN becomes the quiet one.

    x: float32; value: bfloat16 of x's shape. count: int64 (3,): updates so far, seed, stream. start: how many elements
    of the parameter lie before these. The chance of a number is a mix of its own bits, of its place in memory, and of
    one word of Philox by the key (seed, stream) and the count of updates. So a value may be rounded piece by piece.
    """


@kernel()
def split_error(x: Read, value: Write, error: Write) -> None:
    """value = x in bfloat16, rounded to nearest, up in between; error = what is left over.

    error: int8, in 1/256 of the distance to the next number there, above 0 where x is farther from 0. x: float32, and
    rounded to 24 bits first, to even in between. NaN has no error.
    """


@kernel()
def add_error(value: Read, error: Read, y: Write) -> None:
    """y = value + error as `split_error` gave them, in float32, exactly."""


@kernel(Facts(by_elements=True))
def add_stored(value: Read, error: Read, y: Update, *, alpha: float) -> None:
    """y += alpha * x, with x as of `add_error`. Equal shapes; y: float32."""
