"""The operators of Tensor, +, -, *, /, ** and @, which are operations: put on the class here, and on the tape."""

from __future__ import annotations

from collections.abc import Callable

from singa_lite.ops.arithmetic import add, divide, multiply, power, subtract
from singa_lite.ops.linear import matmul
from singa_lite.tensor import Tensor, operand

Operation = Callable[..., Tensor]
Operator = Callable[[Tensor, object], Tensor]

#: {name of the operator: operation}; each stands also to the right of an array or a number.
_BETWEEN: dict[str, Operation] = {"add": add, "sub": subtract, "mul": multiply, "truediv": divide, "matmul": matmul}


def _from_left(operation: Operation) -> Operator:
    def operator(self: Tensor, other: object) -> Tensor:
        return operation(operand(self, self), operand(other, self))

    return operator


def _from_right(operation: Operation) -> Operator:
    def operator(self: Tensor, other: object) -> Tensor:
        return operation(operand(other, self), operand(self, self))

    return operator


def _negative(self: Tensor) -> Tensor:
    return multiply(self, operand(-1, self))


def put_on_tensor() -> None:
    """Let expressions of tensors be operations on the tape."""
    for name, operation in _BETWEEN.items():
        setattr(Tensor, f"__{name}__", _from_left(operation))
        setattr(Tensor, f"__r{name}__", _from_right(operation))
    Tensor.__pow__ = _from_left(power)
    Tensor.__neg__ = _negative
