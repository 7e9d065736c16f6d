"""Random numbers by counter: NumPy's Philox 4x64-10, so replay and recompute give the same numbers."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Read, Update, Write, kernel

# A key is uint64 (3,): (seed, stream, counter). It stands for np.random.Philox(key=[seed, stream],
# counter=[0, 0, 0, counter]), from which a kernel draws in C order of the elements. All sets draw the same numbers, but
# for normal ones.


@kernel()
def draw_key(state: Update, key: Write) -> None:
    """key = state; then state's counter goes up by one, from its largest to 0. state, key: uint64 (3,)."""


@kernel(y="x")
def dropout(x: Read, key: Read, y: Write, *, p: float) -> None:
    """y = x / (1 - p) where the element's uniform number is at least p, else 0.

    Each element takes one float32 uniform number in [0, 1) (`Generator.random`, dtype float32), whatever its
    dtype, and p is rounded to float32 for the comparison. What is dropped is 0 even if x is NaN or infinite. Called
    with dy and the same key it gives dx, so that no mask is kept.
    """


@kernel()
def uniform(key: Read, y: Write, *, low: float, high: float) -> None:
    """y = uniform numbers in [low, high), high never among them, however they are rounded.

    In bfloat16 they are those of float32, rounded to nearest, and may be high.
    """


@kernel()
def normal(key: Read, y: Write, *, mean: float, std: float) -> None:
    """y = normal numbers.

    On the host those of NumPy's ziggurat (`Generator.standard_normal`), on a GPU others: two for each two uniform
    numbers (Box and Muller, 1958), so that an element's number depends on the key and its index alone.
    """


@kernel()
def truncated_normal(key: Read, y: Write, *, mean: float, std: float) -> None:
    """y = normal numbers within 2 std of the mean.

    On the host those of `normal`, the ones further away drawn again; on a GPU each is made of the element's uniform
    number by the inverse of the cumulative distribution.
    """
