"""Operators and methods of Tensor that are operations: put on the class here, and what they do on the tape.

What only reads values (`tensor/reading.py`) is an operation where a derivative passes or the device records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from singa_lite.autograd.ops.arithmetic import add, divide, multiply, power, sqrt, square, subtract
from singa_lite.autograd.ops.indexing import check_basic, index, reads_values
from singa_lite.autograd.ops.linear import matmul
from singa_lite.autograd.ops.ordering import abs, clip, greater, greater_equal, less, less_equal, maximum, minimum
from singa_lite.autograd.ops.reduction import reduce_max, reduce_mean, reduce_min, reduce_sum
from singa_lite.autograd.ops.shape import copied
from singa_lite.tensor import Tensor, operand
from singa_lite.tensor.reading import Readable

Operation = Callable[..., Tensor]
Operator = Callable[[Tensor, object], Tensor]

#: {name of the operator: operation}; each stands also to the right of an array or a number.
_BETWEEN: dict[str, Operation] = {"add": add, "sub": subtract, "mul": multiply, "truediv": divide, "matmul": matmul}

_COMPARING: dict[str, Operation] = {"__lt__": less, "__le__": less_equal, "__gt__": greater, "__ge__": greater_equal}
_METHODS = {"abs": abs, "sqrt": sqrt, "square": square, "clip": clip, "maximum": maximum, "minimum": minimum}
_STATISTICS: dict[str, Operation] = {"mean": reduce_mean, "sum": reduce_sum, "min": reduce_min, "max": reduce_max}


def _operator(operation: Operation, from_right: bool = False) -> Operator:
    def operator(self: Tensor, other: object) -> Tensor:
        given = operand(other, self)
        return operation(given, self) if from_right else operation(self, given)

    return operator


def _is_expression(x: Tensor) -> bool:
    """Whether what is done with the tensor is an operation: a derivative passes through it, or its device records."""
    return x.requires_grad or x.device.graph is not None


def _item(self: Tensor, at: Any) -> Any:
    """self[at], a tensor: a view where a derivative passes, else a copy, as what is read must stay what it was.

    Recorded or done at once, whatever is written to the tensor afterwards does not show in a copy. Lists, arrays and
    masks read NumPy's values, outside expressions.
    """
    if _is_expression(self):
        check_basic(self, at)
    elif reads_values(at):
        return Readable.__getitem__(self, at)
    found = index(self, at)
    return copied(found) if found.block is self.block and not self.requires_grad else found


def _items(self: Tensor) -> Iterator[Any]:
    """self[0], self[1], ...: in an expression tensors, elsewhere NumPy's values, read at once."""
    if not self.shape or not _is_expression(self):
        return Readable.__iter__(self)
    return (_item(self, at) for at in range(self.shape[0]))


def _comparison(name: str, operation: Operation) -> Operator:
    """While recording an operation; elsewhere NumPy's answer, as a comparison has no derivative to lose."""
    read = getattr(Readable, name)

    def operator(self: Tensor, other: object) -> Any:
        return read(self, other) if self.device.graph is None else operation(self, other)

    return operator


def _statistic(name: str, operation: Operation) -> Operation:
    """In an expression an operation; elsewhere NumPy's answer. dtype, out: `numpy.sum(tensor)` gives these, as None."""
    read = getattr(Readable, name)

    def method(self: Tensor, axis: Any = None, keepdims: bool = False, *, dtype: None = None, out: None = None) -> Any:
        if dtype is not None or out is not None:
            raise TypeError(
                f"{name}(): wanted no dtype and no out, received one; numpy.asarray(tensor).{name} takes both"
            )
        return operation(self, axis, keepdims) if _is_expression(self) else read(self, axis, keepdims)

    method.__name__, method.__doc__ = name, read.__doc__
    return method


def put_on_tensor() -> None:
    """Let expressions of tensors be operations on the tape."""
    for name, operation in _BETWEEN.items():
        setattr(Tensor, f"__{name}__", _operator(operation))
        setattr(Tensor, f"__r{name}__", _operator(operation, from_right=True))
    for name, operation in _COMPARING.items():
        setattr(Tensor, name, _comparison(name, operation))
    for name, operation in _STATISTICS.items():
        setattr(Tensor, name, _statistic(name, operation))
    Tensor.__pow__ = _operator(power)
    Tensor.__neg__ = lambda self: multiply(self, operand(-1, self))
    Tensor.__abs__ = abs
    for name, method in {**_METHODS, "__getitem__": _item, "__iter__": _items}.items():
        setattr(Tensor, name, method)
