"""Call: one call of a kernel as builders take it, whose operands are asked for by their names in the interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.kernels.specs import TensorSpec, TensorSpecs


@dataclass(frozen=True)
class Call:
    """One call of a kernel: its operands by their names in the interface, and its settings.

    The names of the interface are asked for: `call["x"]`, or `call.optional("other")` for what a kernel may lack.
    """

    kernel: str
    operands: Mapping[str, TensorSpec]
    settings: Mapping[str, object]

    @classmethod
    def from_specs(cls, kernel: str, specs: TensorSpecs, settings: Mapping[str, object]) -> Call:
        """The call by the specs of its tensors, in the interface's order."""
        named = zip(SIGNATURES[kernel].tensors, specs, strict=True)
        return cls(kernel, {name: spec for name, spec in named if spec is not None}, settings)

    def __getitem__(self, name: str) -> TensorSpec:
        """The operand. KeyError where it is left out."""
        return self.operands[name]

    def optional(self, name: str) -> TensorSpec | None:
        """The operand; None where it is left out, or where the kernel has none of this name."""
        return self.operands.get(name)

    def all(self, *names: str) -> list[TensorSpec]:
        """Those of the operands that are given."""
        return [self.operands[name] for name in names if name in self.operands]

    def role(self, operand: TensorSpec) -> str:
        """Returns "Read", "Update" or "Write", as the interface has it. KeyError for what is no operand."""
        signature = SIGNATURES[self.kernel]
        roles = {
            id(self.operands.get(name)): role for name, role in zip(signature.tensors, signature.roles, strict=True)
        }
        return roles[id(operand)]

    def number(self, setting: str, default: float = 0.0) -> float:
        """A setting that is a number."""
        return float(self.settings.get(setting, default))  # type: ignore[arg-type]  # settings are plain values

    def text(self, setting: str) -> str:
        """A setting that is a name; "" where the kernel has none of this name."""
        return str(self.settings.get(setting, ""))
