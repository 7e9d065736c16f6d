"""Tensor: shape, dtype and strides over a Block of bytes, and what both ask of the device that holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from singa_lite.common.array_types import Array, DeviceArray, DeviceMemory, DType
from singa_lite.common.arrays import numbers
from singa_lite.common.checks import integer
from singa_lite.common.errors import GraphError, ShapeError
from singa_lite.common.option_version import VERSION
from singa_lite.common.strides import memory_order
from singa_lite.common.unique import Unique
from singa_lite.tensor.devices import found_device
from singa_lite.tensor.geometry import Shape, check_within, checked_dtype, checked_shape, contiguous_strides
from singa_lite.tensor.reading import Readable


class TensorDevice(Protocol):
    """What a tensor asks of the device that holds it; `device.Device`, which lies above, says what each does.

    >>> tensor.zeros((2, 3)).device.name
    'cpu'
    """

    name: str

    @property
    def graph(self) -> object | None: ...

    @property
    def is_abstract(self) -> bool: ...

    def empty(
        self, shape: Sequence[int], dtype: DTypeLike = np.float32, layout: str | Sequence[int] = ""
    ) -> Tensor: ...

    def frozen(self, shape: Sequence[int]) -> Tensor: ...

    def freeze(self, tensor: Tensor, array: Array) -> None: ...

    def first_values(self) -> AbstractContextManager[object]: ...

    def check_bytes(self, doing: str) -> None: ...

    def array(self, tensor: Tensor) -> DeviceArray: ...

    def copy_in(self, tensor: Tensor, array: Array) -> None: ...

    def copy_out(self, tensor: Tensor) -> Array: ...

    def export(self, tensor: Tensor) -> DeviceArray: ...

    def adopt(self, given: object) -> Tensor | None: ...

    def run(self, kernel: str, /, *tensors: Tensor | None, **settings: object) -> None: ...


#: What a function takes for a device: a Device, "cpu" or "cuda:0", or None for the default one.
DeviceSpec = TensorDevice | str | None


class Block(Unique):
    """A span of bytes on a device, over which tensors lie. `memory` is None until the block is bound.

    A block lives as long as a Tensor lies over it. When the last one dies, it calls `give`, which takes the bytes.
    frozen: of bytes that nobody writes, "frozen" for those in memory and "frozen, mapped" for those of a mapped file;
    "" of all others.

    >>> x = tensor.zeros((2, 3))
    >>> x.block.nbytes, x.view((6,)).block is x.block
    (24, True)
    """

    __slots__ = ("__weakref__", "_give", "device", "frozen", "memory", "nbytes")

    def __init__(
        self, device: TensorDevice, nbytes: int, memory: DeviceMemory = None, give: Callable[[], None] | None = None
    ) -> None:
        self.device = device
        self.nbytes = nbytes
        self.memory = memory
        self.frozen = ""
        self._give = give

    def set_give(self, give: Callable[[], None]) -> None:
        """Sets what is called when the block dies, in the place of what was set before."""
        self._give = give

    def __del__(self) -> None:
        give = getattr(self, "_give", None)  # there is none where an interrupt ended __init__
        if give is not None:
            give()


class Tensor(Readable):
    """An n-dimensional array over a Block.

    shape: tuple of int; dtype: NumPy dtype; strides and offset: bytes, as in NumPy, multiples of an element's. A view
    is within its block: ShapeError for one that would read beside it, or backwards.
    stores_grad: a parameter, whose gradient `autograd.backward` yields; is_parameter: one that does, or did before it
    was frozen. requires_grad: derivatives pass through.
    creator, output_index: the operation of the tape that made it, and which of its outputs it is.
    layout: the kind of tensor ("image", "filters") that its device lays out as its kernels like best; "": C order.
    mask: of a layer's output, which positions (n, time) are text, 1, and which padding, 0; None: not said.

    >>> x = tensor.from_numpy(np.arange(6, dtype="float32").reshape(2, 3))
    >>> print(x * 2.0 + 1.0)
    [[ 1.  3.  5.]
     [ 7.  9. 11.]]
    """

    #: Above NumPy's, so that `array + tensor` asks the tensor and stays on the tape.
    __array_priority__ = 1000

    __slots__ = (
        "__weakref__",
        "_block",
        "_stores_grad",
        "creator",
        "dtype",
        "is_parameter",
        "layout",
        "mask",
        "name",
        "offset",
        "output_index",
        "requires_grad",
        "shape",
        "strides",
    )

    instead = "tensor.to_numpy(t) is an array that can be"

    def __init__(
        self,
        block: Block,
        shape: Sequence[int],
        dtype: DTypeLike = np.float32,
        strides: Sequence[int] | None = None,
        offset: int = 0,
        name: str = "",
    ) -> None:
        shape, dtype = checked_shape("view", shape), checked_dtype("view", dtype)
        offset = offset if type(offset) is int else integer("view offset", offset, 0)
        steps = contiguous_strides(shape, dtype) if strides is None else checked_shape("view", strides, "strides")
        check_within(block.nbytes, shape, dtype, steps, offset)
        self._set(block, shape, dtype, steps, offset, name)

    @classmethod
    def trusted(
        cls,
        block: Block,
        shape: Shape,
        dtype: DType,
        strides: Shape | None = None,
        offset: int = 0,
        name: str = "",
    ) -> Tensor:
        """As the constructor, for a view that is known to be within the block: nothing is checked."""
        made = cls.__new__(cls)
        made._set(block, shape, dtype, contiguous_strides(shape, dtype) if strides is None else strides, offset, name)
        return made

    def _set(self, block: Block, shape: Shape, dtype: DType, strides: Shape, offset: int, name: str) -> None:
        self._block: Block | None = block
        self.shape: Shape = shape
        self.dtype: DType = dtype
        self.strides: Shape = strides
        self.offset = offset
        self.name = name
        self.layout = ""
        self.mask: Tensor | None = None
        self.requires_grad = self._stores_grad = self.is_parameter = False
        self.creator: Any = None  # an ops.op.Op, of a floor above this one
        self.output_index = 0

    @property
    def block(self) -> Block:
        """The bytes. GraphError once the tensor was given back (a gradient after its turn)."""
        if self._block is None:
            raise GraphError(
                f"tensor {self.name or 'without a name'} of shape {self.shape} was given back: a gradient "
                "is valid until backward() is asked for the next one; copy it inside the loop to keep it"
            )
        return self._block

    @property
    def device(self) -> TensorDevice:
        """The device whose memory this is."""
        return self.block.device

    @property
    def stores_grad(self) -> bool:
        """Whether this tensor is a parameter. Setting it sets `requires_grad` too."""
        return self._stores_grad

    @stores_grad.setter
    def stores_grad(self, value: bool) -> None:
        if self._stores_grad != bool(value):
            VERSION.rise()
        self._stores_grad = self.requires_grad = bool(value)
        self.is_parameter |= self._stores_grad

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements (a view's own, not its block's)."""
        return self.size() * self.dtype.itemsize

    @property
    def array(self) -> DeviceArray:
        """The device's array over these bytes, no copy: for kernels. To read values, use `to_numpy`."""
        return self.block.device.array(self)

    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def is_contiguous(self) -> bool:
        """Whether the elements lie one behind the other in C order. An axis of extent 1 may have any stride."""
        wanted = contiguous_strides(self.shape, self.dtype)
        return self.strides == wanted or all(
            extent == 1 or a == b for extent, a, b in zip(self.shape, self.strides, wanted, strict=True)
        )

    def memory_order(self) -> Shape:
        """The axes from the outermost to the innermost: `empty` makes a tensor in this order."""
        return memory_order(self.shape, self.strides)

    def detach(self) -> Tensor:
        """A new tensor over the same bytes, which is not on the tape."""
        return Tensor.trusted(self.block, self.shape, self.dtype, self.strides, self.offset, self.name)

    def view(self, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0) -> Tensor:
        """A tensor over the same block: new shape and strides, offset in bytes counted from this tensor's."""
        offset = self.offset + (offset if type(offset) is int else integer("view offset", offset, 0))
        return Tensor(self.block, shape, self.dtype, strides, offset, self.name)

    def release(self) -> None:
        """Lets go of the bytes: this tensor has no values from now on. Others over the same block keep theirs."""
        self._block = None
        self.creator = None

    def copy_from_numpy(self, array: ArrayLike) -> None:
        """Overwrite the values. array: exactly this shape, a dtype that converts without changing kind."""
        given = numbers("copy_from_numpy", array)
        if self.block.frozen:
            raise GraphError(f"copy_from_numpy: wanted a tensor whose values may change, received {self!r}, frozen")
        if given.shape != self.shape:
            raise ShapeError(f"copy_from_numpy: wanted shape {self.shape}, received {given.shape}")
        if not np.can_cast(given.dtype, self.dtype, "same_kind"):
            raise TypeError(f"copy_from_numpy: wanted {self.dtype}, received {given.dtype}")
        self.device.copy_in(self, given)

    def to_device(self, device: TensorDevice | str) -> Tensor:
        """This tensor on `device` (a Device, "cpu" or "cuda:0"): itself if it is there already, else a copy."""
        there: TensorDevice = found_device(device)
        if there is self.device:
            return self
        there.check_bytes(f"to_device of a tensor of shape {self.shape}")
        if self.block.frozen:
            moved = there.frozen(self.shape)
            moved.name = self.name
            if self.block.memory is not None:
                array = self.array
                there.freeze(moved, array if isinstance(array, np.ndarray) else self.device.copy_out(self))
            return moved
        moved = there.empty(self.shape, self.dtype, self.layout)
        there.copy_in(moved, self.device.copy_out(self))
        moved.name, moved.stores_grad, moved.is_parameter = self.name, self.stores_grad, self.is_parameter
        return moved

    def __copy__(self) -> Tensor:
        """A further tensor over the same bytes."""
        made = self._mark(self.detach())
        made.creator, made.output_index = self.creator, self.output_index
        return made

    def __deepcopy__(self, memo: dict[int, object]) -> Tensor:
        """The values in bytes of their own, on the same device. GraphError for what an operation on the tape made."""
        if self.creator is not None:
            raise GraphError(
                f"deepcopy: wanted a tensor that no operation on the tape made, received {self!r}; detach() it first"
            )
        if self.block.frozen:
            return self._mark(self.detach())
        made = self.device.empty(self.shape, self.dtype, self.memory_order())
        self.device.copy_in(made, self.device.copy_out(self))
        memo[id(self)] = made
        return self._mark(made)

    def _mark(self, made: Tensor) -> Tensor:
        """A copy with this tensor's name, layout and marks."""
        made.name, made.layout, made.is_parameter = self.name, self.layout, self.is_parameter
        made.stores_grad, made.requires_grad = self.stores_grad, self.requires_grad
        return made

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a tensor's values come as a copy; numpy.from_dlpack(tensor) shows them without one")
        return self.device.copy_out(self).astype(dtype or self.dtype, copy=False)

    def __dlpack__(self, **options: object) -> object:
        return self.device.export(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        found: tuple[int, int] = self.device.export(self).__dlpack_device__()
        return found

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        if self._block is None:
            return f"<Tensor{name} given back>"
        return f"<Tensor{name} {self.shape} {self.dtype} on {self.device.name}>"

    # Operators are operations, which lie above: `ops/operators.py` puts them here.
    __add__: ClassVar[Operator]
    __radd__: ClassVar[Operator]
    __sub__: ClassVar[Operator]
    __rsub__: ClassVar[Operator]
    __mul__: ClassVar[Operator]
    __rmul__: ClassVar[Operator]
    __truediv__: ClassVar[Operator]
    __rtruediv__: ClassVar[Operator]
    __matmul__: ClassVar[Operator]
    __rmatmul__: ClassVar[Operator]
    __pow__: ClassVar[Operator]
    __neg__: ClassVar[Callable[[Tensor], Tensor]]
    __abs__: ClassVar[Callable[[Tensor], Tensor]]
    abs: ClassVar[Callable[[Tensor], Tensor]]
    sqrt: ClassVar[Callable[[Tensor], Tensor]]
    square: ClassVar[Callable[[Tensor], Tensor]]
    clip: ClassVar[Callable[..., Tensor]]
    maximum: ClassVar[Operator]
    minimum: ClassVar[Operator]


#: An operator: a tensor and another one, a number, or an array.
Operator = Callable[[Tensor, object], Tensor]
