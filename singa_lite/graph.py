"""Operation: one kernel call, stating what it reads and writes, its phase and its layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from singa_lite.kernels.interface import SIGNATURES
from singa_lite.tensor import Tensor


class Phase(StrEnum):
    """The part of a training step that an operation belongs to (nntrainer's execution order)."""

    FORWARD = "forward"
    DERIVATIVE = "derivative"
    GRADIENT = "gradient"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Operation:
    """One kernel call.

    kernel: a name of the kernel interface; tensors: its arguments in the interface's order, None where optional;
    settings: its plain values; phase, layer: where in the step it stands ("" outside any layer);
    scratch_bytes: what it needs beside its tensors while it runs.
    """

    kernel: str
    tensors: tuple[Tensor | None, ...]
    settings: Mapping[str, Any]
    phase: Phase
    layer: str
    scratch_bytes: int

    @property
    def reads(self) -> tuple[Tensor, ...]:
        """Tensors whose values it needs, those that it updates included."""
        return self._with_role("Read", "Update")

    @property
    def writes(self) -> tuple[Tensor, ...]:
        """Tensors whose values it sets, those that it updates included."""
        return self._with_role("Write", "Update")

    def _with_role(self, *wanted: str) -> tuple[Tensor, ...]:
        roles = SIGNATURES[self.kernel].roles
        pairs = zip(self.tensors, roles, strict=True)
        return tuple(tensor for tensor, role in pairs if tensor is not None and role in wanted)
