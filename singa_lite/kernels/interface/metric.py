"""Metrics, one value a sample. x: scores (n, c, ...), classes along axis 1; ties go to the lower class."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Write, kernel

# values: (n,), x's dtype, the mean over the sample's positions. A NaN score never counts as a hit.
# An id that names no class is what it is for losses.


@kernel(Facts(by_samples=("x", "target", "values")))
def in_top_k(x: Read, target: Read, values: Write, *, k: int) -> None:
    """1 where the target's class is among the k highest scores, else 0.

    target: integer class ids (n, ...), or rows of x's shape whose largest entry names the class.
    """


@kernel()
def precision_at_k(x: Read, target: Read, values: Write, *, k: int) -> None:
    """How many of the k highest scores are labels, divided by k. target: rows of x's shape, label where > 0."""


@kernel()
def recall_at_k(x: Read, target: Read, values: Write, *, k: int) -> None:
    """How many labels are among the k highest scores, divided by the number of labels (0 where there are none)."""
