"""A kernel set: the kernels of one library by name, and the set that serves where it lacks one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, TypeVar

from singa_lite.common.errors import DeviceError
from singa_lite.kernels.interface import SIGNATURES, Facts, is_user_kernel, joined_of
from singa_lite.kernels.kernel import OWN_KERNEL
from singa_lite.kernels.kernel import CallArrays as CallArrays
from singa_lite.kernels.kernel import DeviceArray as DeviceArray
from singa_lite.kernels.kernel import FunctionKernel as FunctionKernel
from singa_lite.kernels.kernel import Kernel as Kernel
from singa_lite.kernels.kernel import Launch as Launch
from singa_lite.kernels.kernel import Leveled as Leveled
from singa_lite.kernels.kernel import Naming as Naming
from singa_lite.kernels.kernel import Settings as Settings
from singa_lite.kernels.kernel import collect as collect
from singa_lite.kernels.specs import Described as Described
from singa_lite.kernels.specs import SpecKey as SpecKey
from singa_lite.kernels.specs import TensorSpec as TensorSpec
from singa_lite.kernels.specs import TensorSpecs as TensorSpecs
from singa_lite.kernels.specs import specs_of as specs_of

Axes = tuple[int, ...]
Operand = TypeVar("Operand")
#: Gives a context while which launches are bound.
Turns = Callable[[], AbstractContextManager[object]]


class SequentialCalls:
    """Joined calls of a kernel, done one after the other. kernels: the set that does them."""

    def __init__(self, kernels: KernelSet, kernel: str) -> None:
        self._kernels = kernels
        self._kernel = kernel

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """Whether the set has a kernel for each."""
        calls = split_operands(self._kernel, specs)
        return all(self._kernels.choose(self._kernel, call, settings).supports(call, settings) for call in calls)

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """Of the call that needs most."""
        return max(
            self._kernels.scratch_bytes(self._kernel, call, settings) for call in split_operands(self._kernel, specs)
        )

    def prepare(self, arrays: CallArrays, scratch: DeviceArray | None, settings: Settings) -> Launch:
        """Bind all of them."""
        calls = [
            self._kernels.prepare(self._kernel, call, scratch, settings)
            for call in split_operands(self._kernel, arrays)
        ]

        def run() -> None:
            for call in calls:
                call()

        return run


def split_operands(kernel: str, operands: Sequence[Operand]) -> list[tuple[Operand, ...]]:
    """The operands of each of joined calls of a kernel."""
    width = len(SIGNATURES[kernel].tensors)
    return [tuple(operands[start : start + width]) for start in range(0, len(operands), width)]


class Join(NamedTuple):
    """What does joined calls of a kernel at once. most: of how many calls such as this one; 0: of none."""

    kernel: Kernel
    most: Callable[[TensorSpecs, Settings], int]


class _WithUserKernels(frozenset[str]):
    """Names of kernels, and of every own one besides: of these nothing is known."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and is_user_kernel(name))


class KernelSet:
    """Kernels by name. fallback: serves for names and calls that this set lacks.

    layouts: {kind of tensor: its axes from the outermost to the innermost}, as the kernels like them best; C order
    where a kind is not named. Kinds: "image" (n, c, h, w), "filters" (k, c / groups, kh, kw). fusions: (kernel,
    option) that this set does in one go: an activation, or "other", the sum that a kernel takes in.
    strides_matter: kernels of this set whose results any stride may change, beside those of which the interface says so
    and those of the fallback. any_strides: {kernel of this set: those of its tensors that may lie with gaps all the
    same}. tile_bytes: of the gradient of a large weight that is made and applied at a time, what a
    cache of the processor holds. row_bytes: what divides the distance of the rows of a matrix that passes make, as
    products are faster so; 1: rows have no gaps. one_pass: whether its fused calls go over memory less often than the
    calls apart.
    """

    #: Whether products in bfloat16 are made by instructions of the processor for them.
    has_bfloat16: bool = False
    #: Bytes of the process's memory that a call of its own kernels takes for its code, where no equal one was made.
    code_bytes: int = 0

    def __init__(
        self,
        name: str,
        kernels: Mapping[str, Kernel],
        fallback: KernelSet | None = None,
        layouts: Mapping[str, Axes] | None = None,
        fusions: Collection[tuple[str, str]] = (),
        strides_matter: Collection[str] = (),
        any_strides: Mapping[str, Collection[str]] | None = None,
        tile_bytes: int = 1 << 20,
        row_bytes: int = 1,
        one_pass: bool = False,
    ) -> None:
        self.name = name
        self.kernels = dict(kernels)
        self.fallback = fallback
        self.layouts = dict(layouts or {})
        self.fusions = frozenset(fusions)
        below: frozenset[str] = frozenset() if fallback is None else fallback.strides_matter
        named = below.union(strides_matter, _named(lambda facts: facts.strides_matter))
        self.strides_matter: frozenset[str] = _WithUserKernels(named)
        self.inner_strides_matter: frozenset[str] = _WithUserKernels(
            named | _named(lambda facts: facts.inner_strides_matter)
        )
        self.any_strides = {name: frozenset(tensors) for name, tensors in (any_strides or {}).items()}
        self.tile_bytes = tile_bytes
        self.row_bytes = row_bytes
        self.one_pass = one_pass
        #: Whether some of its kernels are done in one way or another by their scratch.
        self.has_levels = False
        #: {kernel: what does several calls of it at once}, where that is faster than one call after the other.
        self.joins: dict[str, Join] = {}
        #: Gives the same set with float32 factors of products and convolutions rounded to 10 bits; None: there is none.
        self.in_tf32: Callable[[], KernelSet] | None = None

    def __getitem__(self, name: str) -> Kernel:
        """The kernel of that name, here or further down. KeyError names it."""
        if name in self.kernels:
            return self.kernels[name]
        joined, _ = joined_of(name)
        if joined in self.joins:
            return self.joins[joined].kernel
        if joined in self.kernels:
            return SequentialCalls(self, joined)
        if self.fallback is not None:
            return self.fallback[name]
        if is_user_kernel(name):
            return self.own_kernel(name)
        raise KeyError(f"kernel set {self.name!r} has no kernel {name!r}")

    def own_kernel(self, name: str) -> Kernel:
        """What does the calls of this kernel of a user's own operation, in the last of the sets."""
        return OWN_KERNEL

    def choose(self, name: str, specs: TensorSpecs, settings: Settings) -> Kernel:
        """The first kernel of that name, here or further down, that can do a call of these tensors."""
        kernel = self[name]
        if self.fallback is None or kernel.supports(specs, settings):
            return kernel
        return self.fallback.choose(name, specs, settings)

    def scratch_bytes(self, name: str, tensors: Sequence[Described | None], settings: Settings) -> int:
        """Bytes of scratch that `prepare` must be given for tensors of these shapes, dtypes and strides."""
        specs = specs_of(tensors)
        return self.choose(name, specs, settings).scratch_bytes(specs, settings)

    def scratch_levels(self, name: str, tensors: Sequence[Described | None], settings: Settings) -> tuple[int, ...]:
        """Returns sizes of scratch in bytes, rising, at which a call switches to a faster algorithm. `prepare` may be
        given any number of bytes from the first on. () where `scratch_bytes` is all there is.
        """
        specs = specs_of(tensors)
        kernel = self.choose(name, specs, settings)
        return kernel.levels(specs, settings) if isinstance(kernel, Leveled) else ()

    def variant(self, name: str, tensors: Sequence[Described | None], settings: Settings) -> str:
        """In which of several ways a call of these tensors is done; "" where there is but one."""
        specs = specs_of(tensors)
        kernel = self.choose(name, specs, settings)
        return kernel.variant(specs, settings) if isinstance(kernel, Naming) else ""

    def code_of(self, name: str) -> int:
        """Bytes of the process's memory that a call of this kernel takes for its code, see `code_bytes`."""
        if name in self.kernels or self.fallback is None:
            return self.code_bytes
        return self.fallback.code_of(name)

    def most_joined(self, name: str, tensors: Sequence[Described | None], settings: Settings) -> int:
        """How many calls such as this one may be done as one (`joined_name`), and are faster so; 0: none."""
        if name in self.joins:
            return self.joins[name].most(specs_of(tensors), settings)
        return 0 if self.fallback is None else self.fallback.most_joined(name, tensors, settings)

    def in_one_pass(self, name: str, tensors: Sequence[Described | None], settings: Settings) -> bool:
        """Whether a fused call of these tensors goes over memory less often than the calls apart."""
        below = self.fallback
        if below is None or (name in self.kernels and self.kernels[name].supports(specs_of(tensors), settings)):
            return self.one_pass
        return below.in_one_pass(name, tensors, settings)

    def free_of_strides(self, name: str, tensors: Sequence[Described | None], settings: Settings) -> Collection[str]:
        """Those of a call's tensors that may get gaps without changing a bit, of a kernel whose strides matter here."""
        specs, below = specs_of(tensors), self.fallback
        if below is None or (name in self.kernels and self.kernels[name].supports(specs, settings)):
            return self.any_strides.get(name, ())
        if name not in below.inner_strides_matter:
            return SIGNATURES[name].tensors
        return below.free_of_strides(name, specs, settings)

    def prepare(self, name: str, arrays: CallArrays, scratch: DeviceArray | None, settings: Settings) -> Launch:
        """Bind the kernel to its arrays and scratch; the result runs it, as often as wanted."""
        return self.choose(name, specs_of(arrays), settings).prepare(arrays, scratch, settings)

    def turns(self) -> Turns:
        """A context for binding launches of which never two run at a time. What is bound inside may share its memory,
        other than its arrays, with all that is bound in the other such contexts.
        """
        return nullcontext if self.fallback is None else self.fallback.turns()

    def forget(self) -> None:
        """Let go of what was built for calls to come, here and further down. Launches keep what they need."""
        for kernel in self.kernels.values():
            forget: Callable[[], None] | None = getattr(kernel, "forget", None)  # of those that keep something
            if forget is not None:
                forget()
        if self.fallback is not None:
            self.fallback.forget()


def tf32_of(kernels: KernelSet) -> KernelSet:
    """The same set with float32 factors rounded to 10 bits. DeviceError for one that has none."""
    if kernels.in_tf32 is None:
        raise DeviceError(
            "compile precision='tf32': wanted an NVIDIA GPU with cuBLASLt or cuDNN, whose tensor cores round float32 "
            f"factors to 10 bits, received kernels {kernels.name!r}; wherever there is none, precision='float32'"
        )
    return kernels.in_tf32()


def _named(has: Callable[[Facts], bool]) -> frozenset[str]:
    """The kernels of the interface of which that holds."""
    return frozenset(name for name, signature in SIGNATURES.items() if has(signature.facts))
