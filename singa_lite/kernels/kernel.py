"""A kernel: what is asked of one implementation, and those that are plain functions, or users' own operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.specs import TensorSpecs

#: Scratch bytes from the specs of the kernel's tensors and its settings.
ScratchRule = Callable[..., int]
Launch = Callable[[], object]
Settings = Mapping[str, object]
#: An array over a device's memory, NumPy's or CuPy's: CuPy, which few have, states no types.
DeviceArray: TypeAlias = Any
#: Those of a call in the interface's order, None where one is left out.
CallArrays = tuple[DeviceArray | None, ...]


class Kernel(Protocol):
    """One implementation of a kernel of the interface."""

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """Whether it can do a call of these tensors; if not, the set below is asked."""

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """Bytes of scratch that `prepare` must be given."""

    def prepare(self, arrays: CallArrays, scratch: DeviceArray | None, settings: Settings) -> Launch:
        """Bind it to its arrays and scratch; the result runs it, as often as wanted."""


@runtime_checkable
class Naming(Protocol):
    """A kernel that says in which of several ways it does a call."""

    def variant(self, specs: TensorSpecs, settings: Settings) -> str:
        """The name of the way; "" where there is but one."""


@runtime_checkable
class Leveled(Protocol):
    """A kernel that does calls in one way or another by the scratch that it is given."""

    def levels(self, specs: TensorSpecs, settings: Settings) -> tuple[int, ...]:
        """Bytes of scratch with which another way begins, from the least on; () where there is but one way."""


@dataclass(frozen=True)
class FunctionKernel:
    """A plain function: `function(*arrays, **settings)`, with `scratch=` (uint8 array) if it states a rule."""

    function: Callable[..., object]
    scratch: ScratchRule | None = None

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """It can do every call."""
        return True

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """What the rule says."""
        return 0 if self.scratch is None else self.scratch(*specs, **settings)

    def prepare(self, arrays: CallArrays, scratch: DeviceArray | None, settings: Settings) -> Launch:
        """The function with all its arguments."""
        if self.scratch is not None:
            return partial(self.function, *arrays, scratch=scratch, **settings)
        return partial(self.function, *arrays, **settings)


def collect(
    modules: Iterable[ModuleType], rules: Mapping[Callable[..., object], ScratchRule]
) -> dict[str, FunctionKernel]:
    """The kernels that modules define: functions named in the interface, and those of their tables `KERNELS`.

    rules: their scratch rules.
    """
    functions = dict[str, Callable[..., object]]()
    for module in modules:
        functions |= functions_of(module) | getattr(module, "KERNELS", {})
    return {name: FunctionKernel(function, rules.get(function)) for name, function in functions.items()}


def functions_of(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """The functions named in the interface that a module defines."""
    return {
        name: function
        for name, function in vars(module).items()
        if name in SIGNATURES and getattr(function, "__module__", None) == module.__name__
    }


class OwnCall(Protocol):
    """What a call of a user's own operation is done by: the one setting of its kernel, "call"."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch that `prepare` must be given."""

    def prepare(self, arrays: CallArrays, scratch: DeviceArray | None) -> Launch:
        """Bind it to its arrays, which are NumPy's, and its scratch."""


class OwnKernel:
    """Every kernel of users' own operations: what it does, the call says."""

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """It can do every call."""
        return True

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """What the call states."""
        return _own_call(settings).scratch_bytes

    def prepare(self, arrays: CallArrays, scratch: DeviceArray | None, settings: Settings) -> Launch:
        """The call over its arrays."""
        return _own_call(settings).prepare(arrays, scratch)


def _own_call(settings: Settings) -> OwnCall:
    return cast(OwnCall, settings["call"])


OWN_KERNEL = OwnKernel()
