"""Block (bytes, perhaps not yet bound) and Tensor (shape, dtype and strides over a Block)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from singa_lite.array_types import Array as Array
from singa_lite.arrays import KINDS, check_detached, numbers, on_host
from singa_lite.checks import is_int, real, whole
from singa_lite.errors import GraphError, ShapeError
from singa_lite.strides import memory_order, ordered_strides
from singa_lite.unique import Unique

Shape = tuple[int, ...]


#: Kinds of tensors that a device lays out as its kernels like best; "": C order.
LAYOUTS = ("", "image", "filters")


class DeviceLike(Protocol):
    """What a tensor needs of the device that holds it (`device.Device` has it)."""

    name: str

    def empty(
        self, shape: Sequence[int], dtype: DTypeLike = np.float32, layout: str | Sequence[int] = ""
    ) -> Tensor: ...

    def array(self, tensor: Tensor) -> Any: ...

    def copy_in(self, tensor: Tensor, array: Array) -> None: ...

    def copy_out(self, tensor: Tensor) -> Array: ...

    def adopt(self, given: Any) -> Tensor | None: ...

    def run(self, kernel: str, /, *tensors: Tensor | None, **settings: Any) -> None: ...


#: What a function takes for a device: a Device, "cpu" or "cuda:0", or None for the default one.
Placement = DeviceLike | str | None

#: What finds the device that is named, or the default one: `device.get`, which the devices set.
_find: Callable[[DeviceLike | str | None], DeviceLike] | None = None


def find_devices_by(find: Callable[[DeviceLike | str | None], DeviceLike]) -> None:
    """Say how a placement is found, as devices are made of floors above this one."""
    global _find
    _find = find


class Block(Unique):
    """Bytes on a device. `memory` is None until the block is bound; `give` takes the bytes back at the end.

    A block lives as long as a Tensor lies over it: when the last one dies, the bytes go back to where they
    came from.
    """

    __slots__ = ("__weakref__", "_give", "device", "memory", "nbytes")

    def __init__(
        self, device: DeviceLike, nbytes: int, memory: Any = None, give: Callable[[], None] | None = None
    ) -> None:
        self.device = device
        self.nbytes = nbytes
        self.memory = memory
        self._give = give

    def set_give(self, give: Callable[[], None]) -> None:
        """What to call when the block dies, in the place of what was set before."""
        self._give = give

    def __del__(self) -> None:
        give = getattr(self, "_give", None)  # none in one whose making an interrupt ended
        if give is not None:
            give()


class Tensor(Unique):
    """An n-dimensional array over a Block.

    shape: tuple of int; dtype: NumPy dtype; strides and offset: bytes, as in NumPy, multiples of an element's. A view
    is within its block: ShapeError for one that would read beside it, or backwards.
    stores_grad: a parameter, whose gradient `autograd.backward` yields. requires_grad: derivatives pass through.
    creator, output_index: the operation of the tape that made it, and which of its outputs it is.
    layout: the kind of tensor ("image", "filters") that its device lays out as its kernels like best; "": C order.
    """

    #: Above NumPy's, so that `array + tensor` asks the tensor and stays on the tape.
    __array_priority__ = 1000

    __slots__ = (
        "__weakref__",
        "_block",
        "_stores_grad",
        "creator",
        "dtype",
        "layout",
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
        offset = offset if type(offset) is int else whole("view offset", offset, 0)
        steps = contiguous_strides(shape, dtype) if strides is None else checked_shape("view", strides, "strides")
        _check_within(block.nbytes, shape, dtype, steps, offset)
        self._set(block, shape, dtype, steps, offset, name)

    @classmethod
    def trusted(
        cls,
        block: Block,
        shape: Shape,
        dtype: np.dtype[Any],
        strides: Shape | None = None,
        offset: int = 0,
        name: str = "",
    ) -> Tensor:
        """As the constructor, for a view that is known to be within the block: nothing is checked."""
        made = cls.__new__(cls)
        made._set(block, shape, dtype, contiguous_strides(shape, dtype) if strides is None else strides, offset, name)
        return made

    def _set(self, block: Block, shape: Shape, dtype: np.dtype[Any], strides: Shape, offset: int, name: str) -> None:
        self._block: Block | None = block
        self.shape: Shape = shape
        self.dtype: np.dtype[Any] = dtype
        self.strides: Shape = strides
        self.offset = offset
        self.name = name
        self.layout = ""
        self.requires_grad = False
        self._stores_grad = False
        self.creator: Any = None
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
    def device(self) -> Any:
        """The device whose memory this is."""
        return self.block.device

    @property
    def stores_grad(self) -> bool:
        """Whether this tensor is a parameter. Setting it sets `requires_grad` too."""
        return self._stores_grad

    @stores_grad.setter
    def stores_grad(self, value: bool) -> None:
        self._stores_grad = bool(value)
        self.requires_grad = bool(value)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements (a view's own, not its block's)."""
        return self.size() * self.dtype.itemsize

    @property
    def array(self) -> Any:
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
        """The axes from the outermost to the innermost: what to give to `empty` for a tensor that lies like this."""
        return memory_order(self.shape, self.strides)

    def detach(self) -> Tensor:
        """The same bytes under a new handle that the tape does not know."""
        return Tensor.trusted(self.block, self.shape, self.dtype, self.strides, self.offset, self.name)

    def view(self, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0) -> Tensor:
        """A tensor over the same block: new shape and strides, offset in bytes counted from this tensor's."""
        offset = self.offset + (offset if type(offset) is int else whole("view offset", offset, 0))
        return Tensor(self.block, shape, self.dtype, strides, offset, self.name)

    def release(self) -> None:
        """Let go of the bytes: this handle is dead from now on, others over the same block are not."""
        self._block = None
        self.creator = None

    def copy_from_numpy(self, array: ArrayLike) -> None:
        """Overwrite the values. array: exactly this shape, a dtype that converts without changing kind."""
        given = numbers("copy_from_numpy", array)
        if given.shape != self.shape:
            raise ShapeError(f"copy_from_numpy: wanted shape {self.shape}, received {given.shape}")
        if not np.can_cast(given.dtype, self.dtype, "same_kind"):
            raise TypeError(f"copy_from_numpy: wanted {self.dtype}, received {given.dtype}")
        self.device.copy_in(self, given)

    def to_device(self, device: DeviceLike | str) -> Tensor:
        """This tensor on `device` (a Device, "cpu" or "cuda:0"): itself if it is there already, else a copy."""
        device = _holder(device)
        if device is self.device:
            return self
        moved = device.empty(self.shape, self.dtype, self.layout)
        device.copy_in(moved, to_numpy(self))
        moved.name, moved.stores_grad = self.name, self.stores_grad
        return moved

    def __copy__(self) -> Tensor:
        """A further handle over the same bytes."""
        made = self._mark(self.detach())
        made.creator, made.output_index = self.creator, self.output_index
        return made

    def __deepcopy__(self, memo: Any) -> Tensor:
        """The values in bytes of their own, on the same device. GraphError for what an operation on the tape made."""
        if self.creator is not None:
            raise GraphError(
                f"deepcopy: wanted a tensor that no operation on the tape made, received {self!r}; detach() it first"
            )
        made: Tensor = self.device.empty(self.shape, self.dtype, self.memory_order())
        self.device.copy_in(made, to_numpy(self))
        memo[id(self)] = made
        return self._mark(made)

    def _mark(self, made: Tensor) -> Tensor:
        """A copy with this tensor's name, layout and marks."""
        made.name, made.layout = self.name, self.layout
        made.stores_grad, made.requires_grad = self.stores_grad, self.requires_grad
        return made

    def item(self) -> float | int | bool:
        """The value of a tensor with one element, as a Python number; waits for the device."""
        if self.size() != 1:
            raise ShapeError(f"item(): wanted a tensor with one element, received shape {self.shape}")
        value: float | int | bool = to_numpy(self).reshape(()).item()
        return value

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a tensor's values come as a copy; numpy.from_dlpack(tensor) shows them without one")
        return to_numpy(self).astype(dtype or self.dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        return self.device.export(self).__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.device.export(self).__dlpack_device__()

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        if self._block is None:
            return f"<Tensor{name} given back>"
        return f"<Tensor{name} {self.shape} {self.dtype} on {self.device.name}>"

    # Operators are operations, a floor above: `ops/operators.py` puts them here.
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


#: What stands between a tensor and another one, a number, or an array.
Operator = Callable[[Tensor, Any], Tensor]


def operand(given: Any, beside: Tensor) -> Any:
    """What the operations take: tensors, numbers beside floats, and anything else as a tensor like `beside`.

    TypeError for values that its dtype would cut off, such as fractions beside integers.
    """
    if isinstance(given, Tensor) or (isinstance(given, int | float) and beside.dtype.kind == "f"):
        return given
    array = np.asarray(given, beside.dtype) if isinstance(given, int) else numbers("arithmetic", given)
    if not np.can_cast(array.dtype, beside.dtype, "same_kind"):
        raise TypeError(f"wanted values that fit {beside!r}, received {array.dtype}")
    return from_numpy(array.astype(beside.dtype), beside.device)


def contiguous_strides(shape: Shape, dtype: np.dtype[Any]) -> Shape:
    """Strides in bytes of C order."""
    return ordered_strides(shape, range(len(shape)), dtype.itemsize)


def _check_within(nbytes: int, shape: Shape, dtype: np.dtype[Any], strides: Shape, offset: int) -> None:
    """ShapeError unless the elements lie in a block of so many bytes, which may have slack behind it."""
    size = dtype.itemsize
    end, fits = offset + size, offset >= 0 and not offset % size and len(strides) == len(shape)
    for extent, stride in zip(shape, strides, strict=False):
        end += (extent - 1) * stride
        fits = fits and not stride % size
    if not fits or (end > nbytes and 0 not in shape):
        raise ShapeError(
            f"wanted a view within a block of {nbytes} bytes, a stride for each axis, multiples of {dtype}'s {size} "
            f"bytes, received shape {shape}, strides {strides}, offset {offset}"
        )


def checked_dtype(where: str, given: Any) -> np.dtype[Any]:
    """The dtype. TypeError for one that a tensor cannot have, such as object, and for what is none."""
    try:
        dtype = given if isinstance(given, np.dtype) else np.dtype(given)
    except (TypeError, ValueError):
        pass
    else:
        if given is not None and (dtype.kind in KINDS or dtype.name == "bfloat16"):
            return dtype
    raise TypeError(f"{where}: wanted a bool, integer or float dtype, received {given!s:.100}")


def checked_shape(where: str, given: Any, what: str = "shape") -> Shape:
    """The shape, or the strides, as a tuple of Python's ints. TypeError or ShapeError for anything else."""
    if type(given) is tuple:  # as nearly always
        for extent in given:
            if type(extent) is not int or extent < 0:
                break
        else:
            return given
    try:
        shape: Shape | None = tuple(given)
    except TypeError:
        shape = None
    if shape is None or isinstance(given, str | bytes) or not all(map(is_int, shape)):
        raise TypeError(f"{where}: wanted {what}, a tuple of whole numbers such as (5,), received {given!r}")
    if any(extent < 0 for extent in shape):
        raise ShapeError(f"{where}: wanted extents of at least 0, received {what} {shape}")
    return tuple(int(extent) for extent in shape)


def _holder(device: Placement) -> DeviceLike:
    """The device that a placement stands for."""
    if _find is None:
        raise GraphError("wanted the package singa_lite to be imported, which says what devices there are")
    return _find(device)


def empty(shape: Sequence[int], dtype: DTypeLike = np.float32, device: Placement = None) -> Tensor:
    """A tensor whose values are whatever the memory held."""
    return _holder(device).empty(shape, dtype)


def full(shape: Sequence[int], value: float, dtype: DTypeLike = np.float32, device: Placement = None) -> Tensor:
    """A tensor with `value` everywhere."""
    made = empty(shape, dtype, device)
    _check_fits(value, made.dtype)
    made.device.run("fill", made, value=value)
    return made


def _check_fits(value: Any, dtype: np.dtype[Any]) -> None:
    """TypeError for what is no number, ValueError for an integer that the dtype does not hold."""
    if isinstance(value, bool | np.bool_):
        return
    if real(value) is None:
        raise TypeError(f"full: wanted a number, received {value!r}")
    low, high = (np.iinfo(dtype).min, np.iinfo(dtype).max) if dtype.kind in "iu" else (-(2**63), 2**64)
    if (dtype.kind in "iu" or is_int(value)) and not low <= value <= high:
        raise ValueError(f"full: wanted a number that {dtype} holds, received {value!r:.50}")


def zeros(shape: Sequence[int], dtype: DTypeLike = np.float32, device: Placement = None) -> Tensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype, device)


def ones(shape: Sequence[int], dtype: DTypeLike = np.float32, device: Placement = None) -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype, device)


def from_numpy(array: ArrayLike, device: Placement = None) -> Tensor:
    """A copy of `array` on `device` (default: `device.default()`), same shape and dtype.

    TypeError for dtypes without numbers in them (object, text, complex), masked arrays, and what is no array.
    """
    given = numbers("from_numpy", array)
    made = empty(given.shape, given.dtype.newbyteorder("="), device)
    made.device.copy_in(made, given)
    return made


def to_numpy(tensor: Tensor | Array) -> Array:
    """A NumPy array with a copy of the values, C order. Waits for the device."""
    if isinstance(tensor, np.ndarray):
        return np.array(tensor)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"to_numpy: wanted a Tensor or an array, received {type(tensor).__name__}")
    array: Array = tensor.device.copy_out(tensor)
    return array


def as_tensor(given: Any, device: Placement = None) -> Tensor:
    """A tensor of anything that holds an array: Tensor (moved only if it must), NumPy, CuPy, DLPack, numbers."""
    if isinstance(given, Tensor):
        return given if device is None else given.to_device(device)
    if hasattr(given, "__dlpack__") and not isinstance(given, np.ndarray):
        return from_dlpack(given, device)
    return from_numpy(given, device)


def from_dlpack(given: Any, device: Placement = None) -> Tensor:
    """A copy of any array that speaks DLPack (PyTorch, JAX, CuPy, NumPy, Tensor), on `device`.

    The values are copied, on the GPU where both are there: a tensor's bytes belong to its device's pool, and foreign
    arrays may be read-only. TypeError for a tensor that requires grad, and for a dtype that NumPy has not.
    """
    if not hasattr(given, "__dlpack__") or isinstance(given, type):
        raise TypeError(f"from_dlpack: wanted an array that speaks DLPack, received {type(given).__name__}")
    holder = _holder(device)
    if not isinstance(given, Tensor):
        check_detached("from_dlpack", given)
    here = holder.adopt(given)
    if here is not None:
        made = holder.empty(here.shape, here.dtype)
        holder.run("copy", here, made)
        return made
    if isinstance(given, np.ndarray):  # which DLPack has not all dtypes of
        return from_numpy(given, holder)
    if not on_host(given) and hasattr(given, "get"):  # CuPy: NumPy cannot read device memory
        return from_numpy(given.get(), holder)
    return from_numpy(given, holder)
