"""A kernel set: the kernels of one library by name, and the set that serves where it lacks one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from types import ModuleType
from typing import Any

from singa_lite.kernels.interface import SIGNATURES

#: Scratch bytes from the forms of the kernel's tensors and its settings.
ScratchRule = Callable[..., int]
Launch = Callable[[], Any]


class Form:
    """Shape and dtype of a tensor: all that a scratch rule may go by, so that it can be asked beforehand."""

    __slots__ = ("dtype", "ndim", "shape", "size")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = shape
        self.dtype = dtype
        self.ndim = len(shape)
        self.size = prod(shape)


@dataclass(frozen=True)
class Kernel:
    """One implementation: `function(*arrays, **settings)`, with `scratch=` (uint8 array) if it states a rule."""

    function: Callable[..., None]
    scratch: ScratchRule | None = None


class KernelSet:
    """Kernels by name. `fallback` serves for names this set lacks."""

    def __init__(self, name: str, kernels: Mapping[str, Kernel], fallback: KernelSet | None = None) -> None:
        self.name = name
        self.kernels = dict(kernels)
        self.fallback = fallback

    def __getitem__(self, name: str) -> Kernel:
        """The kernel of that name, here or further down. KeyError names it."""
        if name in self.kernels:
            return self.kernels[name]
        if self.fallback is None:
            raise KeyError(f"kernel set {self.name!r} has no kernel {name!r}")
        return self.fallback[name]

    def scratch_bytes(self, name: str, tensors: tuple[Any, ...], settings: Mapping[str, Any]) -> int:
        """Bytes of scratch that `prepare` must be given for tensors of these shapes and dtypes."""
        rule = self[name].scratch
        if rule is None:
            return 0
        return rule(*(None if t is None else Form(t.shape, t.dtype) for t in tensors), **settings)

    def prepare(self, name: str, arrays: tuple[Any, ...], scratch: Any, settings: Mapping[str, Any]) -> Launch:
        """Bind the kernel to its arrays and scratch; the result runs it, as often as wanted."""
        kernel = self[name]
        if kernel.scratch is not None:
            return partial(kernel.function, *arrays, scratch=scratch, **settings)
        return partial(kernel.function, *arrays, **settings)


def collect(modules: tuple[ModuleType, ...], rules: Mapping[Callable[..., None], ScratchRule]) -> dict[str, Kernel]:
    """The kernels that the modules define: functions named in the interface. rules: their scratch rules."""
    kernels = {}
    for module in modules:
        for name, function in vars(module).items():
            if name in SIGNATURES and getattr(function, "__module__", None) == module.__name__:
                kernels[name] = Kernel(function, rules.get(function))
    return kernels
