"""Rows of a table by their ids, and the gradients of those rows."""

from __future__ import annotations

from singa_lite.kernels.interface.signature import Facts, Read, Update, Write, kernel
from singa_lite.kernels.interface.update import SgdHyper

# ids: integers of any dtype and shape (...), from 0 to below the table's rows; y, dy: (..., features), rows of the
# weight's dtype. An id that names no row is an IndexError where a kernel can raise one; elsewhere its row of y is NaN,
# and its gradient goes nowhere. padding: the id whose row gets no gradient, -1 for none. Sums of equal ids go in the
# order of the ids, so that the rows of a gradient are the same to the bit however they are cut or applied.


@kernel(Facts(by_samples=("ids", "y")))
def embedding(ids: Read, weight: Read, y: Write) -> None:
    """y = weight[ids]. weight: (rows, features)."""


@kernel()
def embedding_gradient(ids: Read, dy: Read, dweight: Write, *, first: int, padding: int) -> None:
    """dweight[i] = sum of dy over the places where ids is first + i, 0 where there is none. dweight: (rows, features).

    first: the table's row that dweight begins with; ids of other rows than dweight's are passed over.
    """


@kernel()
def embedding_gradient_add(ids: Read, dy: Read, dweight: Update, *, first: int, padding: int) -> None:
    """dweight += what `embedding_gradient` gives: the sum for each row that occurs, and no other row is touched."""


@kernel()
def sgd_rows(ids: Read, dy: Read, rate: Read, value: Update, count: Update, *, hyper: SgdHyper, padding: int) -> None:
    """`sgd` without momentum and decay, by the gradient that `embedding_gradient` makes, of the rows that occur.

    To the bit what the two give, but for zeros' signs, and no other row is touched. value: (rows, features).
    """
