"""Element by element, where it pays: two threads have up to twice the memory bandwidth of the NumPy set's one.

Sums, products, copies and comparisons give the same bits everywhere, so those that fit into a core's own cache are left
to the next set. So are logarithms and most powers: NumPy's take a third of the library's time on each core. And the
larger or smaller of two tensors: where one of two numbers is NaN the library takes the second, whichever that is.
"""

from __future__ import annotations

from singa_lite.common.strides import ordered_strides
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.onednn_kernels.along import can_reorder, fill_line, in_one_order
from singa_lite.kernels.onednn_kernels.library import algorithms, layouts, memory_descs
from singa_lite.kernels.onednn_kernels.library import functions as f
from singa_lite.kernels.onednn_kernels.library import primitive as p
from singa_lite.kernels.onednn_kernels.routine import BufferView, Routine
from singa_lite.kernels.onednn_kernels.sums.line import Binary, Eltwise, Steps

#: Elements from which on sums, products and copies are served: they move 2 MiB and more.
_LARGE = 1 << 18
#: What is done in one go.
FUSIONS = [("add", "relu")]
#: Powers that the library has instructions for: (algorithm, alpha, beta).
_POWERS = {0.5: (algorithms.SQRT, 0.0, 0.0), 2.0: (algorithms.SQUARE, 0.0, 0.0), -1.0: (algorithms.POWER, 1.0, -1.0)}

_RELATIONS = {
    "equal": algorithms.EQUAL,
    "not_equal": algorithms.NOT_EQUAL,
    "less": algorithms.LESS,
    "less_equal": algorithms.LESS_EQUAL,
}


def copy(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """Large tensors of one shape, whatever their strides."""
    if y.size < _LARGE or x.shape != y.shape or not can_reorder(x, y):
        return None
    if layouts.lie_alike(y, x):
        return fill_line(y, x, add=lambda steps, x: steps.chain(y, x, Binary(algorithms.MAXIMUM, x)))
    reorder = p.Reorder(memory_descs.desc_of(x), memory_descs.desc_of(y))
    # What is called "simple" is a plain copy of rows, or loops over single elements where the order of axes changes.
    if "jit" not in reorder.implementation and layouts.order_of(x) != layouts.order_of(y):
        return None
    return _one_step(reorder, {f.SRC: x, f.DST: y})


def add(a: TensorSpec, b: TensorSpec, y: TensorSpec, *, activation: str = "") -> Routine | None:
    """Large tensors; a or b may broadcast, where there is no activation."""
    if activation:
        return _add_activation(a, b, y, activation)
    return _two_operands(algorithms.ADD, a, b, y) or _two_operands(algorithms.ADD, b, a, y)


def _add_activation(a: TensorSpec, b: TensorSpec, y: TensorSpec, activation: str) -> Routine | None:
    """Large tensors that lie alike: the larger of a and -b, and b added, which is a + b rounded once, or 0.

    So NaN stays NaN: of two numbers of which one is NaN the library takes the second, and its own relu gives 0. The
    last link makes 0.0 of -0.0.
    """
    if activation != "relu" or y.size < _LARGE or not in_one_order(y, a, b):
        return None

    def fill(steps: Steps, b: TensorSpec) -> None:
        minus, same = (Eltwise(algorithms.LINEAR, factor) for factor in (-1.0, 1.0))
        larger, sum_ = Binary(algorithms.MAXIMUM, a), Binary(algorithms.ADD, b)
        steps.chain(y, b, Binary(algorithms.MAXIMUM, b), minus, larger, sum_, same)

    return fill_line(y, b, a, add=fill)


def subtract(a: TensorSpec, b: TensorSpec, y: TensorSpec) -> Routine | None:
    """Large tensors; b may broadcast."""
    return _two_operands(algorithms.SUBTRACT, a, b, y)


def multiply(a: TensorSpec, b: TensorSpec, y: TensorSpec) -> Routine | None:
    """Large tensors; a or b may broadcast."""
    return _two_operands(algorithms.MULTIPLY, a, b, y) or _two_operands(algorithms.MULTIPLY, b, a, y)


def divide(a: TensorSpec, b: TensorSpec, y: TensorSpec) -> Routine | None:
    """Large tensors; b may broadcast."""
    return _two_operands(algorithms.DIVIDE, a, b, y)


def scale(x: TensorSpec, y: TensorSpec, *, alpha: float, beta: float) -> Routine | None:
    """Rounded once, not twice."""
    return fill_line(y, x, add=lambda steps, x: steps.eltwise(y, x, algorithms.LINEAR, alpha, beta))


def power(x: TensorSpec, y: TensorSpec, *, exponent: float) -> Routine | None:
    """Square roots, squares and reciprocals."""
    if exponent not in _POWERS:
        return None
    return fill_line(y, x, add=lambda steps, x: steps.eltwise(y, x, *_POWERS[exponent]))


def exp(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """max(e**x, x): that is e**x, but NaN for NaN, for which the library's e**x alone gives inf."""

    def fill(steps: Steps, x: TensorSpec) -> None:
        same, larger = (Binary(algorithms.MAXIMUM, x),) * 2
        steps.chain(y, x, same, Eltwise(algorithms.EXP), larger)

    return fill_line(y, x, add=fill)


def absolute(x: TensorSpec, y: TensorSpec) -> Routine | None:
    """The library's; its derivative takes NaN for a number above 0, and is left to the next set."""
    return fill_line(y, x, add=lambda steps, x: steps.eltwise(y, x, algorithms.ABS))


def clip(x: TensorSpec, y: TensorSpec, *, low: float, high: float) -> Routine | None:
    """Bounded from above, then from below, so that NaN stays NaN."""
    return fill_line(y, x, add=lambda steps, x: steps.clip(y, x, low, high))


def compare(a: TensorSpec, b: TensorSpec, y: TensorSpec, *, relation: str) -> Routine | None:
    """Large tensors of floats; b may broadcast."""
    return _two_operands(_RELATIONS[relation], a, b, y)


def _two_operands(algorithm: int, a: TensorSpec, b: TensorSpec, y: TensorSpec) -> Routine | None:
    """y = algorithm(a, b), where the axes of a and of b lie in the order of those of y, or b broadcasts."""
    if y.size < _LARGE or not layouts.are_of_one_type(y, a, b):
        return None
    if in_one_order(y, a, b):
        return fill_line(y, a, b, add=lambda steps, a: steps.chain(y, a, Binary(algorithm, b)))
    if not layouts.lie_alike(y, a):
        return None
    second = _broadcast(b, y)
    if second is None:
        return None
    desc = memory_descs.desc_of(y)
    primitive = p.Primitive("binary", algorithm, desc, second, desc)
    if "jit" not in primitive.implementation:
        return None
    return _one_step(primitive, {f.SRC: a, f.SRC_1: b, f.DST: y})


def _broadcast(b: TensorSpec, y: TensorSpec) -> p.MemoryDesc | None:
    """The descriptor of b with leading axes of extent 1, if it lies in y's order of axes without gaps."""
    shape = (1,) * (y.ndim - b.ndim) + b.shape
    strides = ordered_strides(shape, layouts.order_of(y))
    own = (0,) * (y.ndim - b.ndim) + tuple(stride // b.dtype.itemsize for stride in b.strides)
    if any(extent > 1 and stride != wanted for extent, stride, wanted in zip(shape, own, strides, strict=True)):
        return None
    return p.memory_desc(shape, strides, str(b.dtype))


def _one_step(primitive: p.Primitive, operands: dict[int, BufferView | None]) -> Routine:
    routine = Routine()
    routine.run(primitive, operands)
    return routine
