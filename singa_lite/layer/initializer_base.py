"""The base of initializers, and random numbers that are the same on every device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from singa_lite.common.keywords import check_keywords
from singa_lite.device import cpu, device_of
from singa_lite.tensor import Tensor, from_numpy, to_numpy


class Initializer(ABC):
    """The base of all initializers. A subclass gives `__call__`.

    >>> class Identity(initializer.Initializer):
    ...     def __call__(self, value, key, fan_in, fan_out):
    ...         value.copy_from_numpy(np.eye(*value.shape, dtype=value.dtype))
    >>> net = Sequential([layers.Dense(3, input_shape=(2,), weight_init=Identity())])
    >>> print(net.parameters()["dense/weight"])
    [[1. 0. 0.]
     [0. 1. 0.]]
    """

    def __new__(cls, *args: object, **named: object) -> Self:
        if named:
            check_keywords(cls.__name__, named, cls.__init__)
        return super().__new__(cls)

    @abstractmethod
    def __call__(self, value: Tensor, key: Tensor, fan_in: int, fan_out: int) -> None:
        """Fill `value`, a float tensor of any shape.

        key: uint64 (3,) on the same device, (seed, stream, counter); equal keys give equal numbers. fan_in,
        fan_out: how many inputs an output element depends on, and the reverse; 0 where it makes no sense.
        """

    def check(self, value: Tensor, fan_in: int, fan_out: int) -> None:
        """The errors of the call that shape and fans alone tell; asked before it, and alone on an abstract device.

        For a subclass that does not serve all tensors.
        """
        return None


def draw_on_host(kernel: str, value: Tensor, key: Tensor, **settings: float) -> None:
    """Fill `value` with random numbers of a CPU's kernel, and copy them where it lies on a GPU.

    A GPU draws other normal numbers, and equal seeds give equal weights on all devices. kernel: "normal" or
    "truncated_normal"; key: uint64 (3,), on the device of `value`.
    """
    device = device_of(value)
    if device.runtime.reads_host:
        device.run(kernel, key, value, **settings)
        return
    host = cpu()
    drawn = host.empty(value.shape, value.dtype)
    host.run(kernel, from_numpy(to_numpy(key), host), drawn, **settings)
    value.copy_from_numpy(to_numpy(drawn))
