"""The steps of `gru` and `gru_derivative`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.kernels.numpy_kernels.recurrence.activations import SLOPES, tanh_slopes
from singa_lite.kernels.numpy_kernels.recurrence.passes import (
    BackwardPass,
    ForwardPass,
    StepCall,
    apply,
    apply_to_gates,
)


class GruForward(ForwardPass):
    """gates r, z, n, products and hidden."""

    matrices = ("part",)

    def bind(self) -> Sequence[StepCall]:
        """Of r and z, and of n."""
        call, size = self.call, self.size
        weight, kind = call["weight"], str(call.settings["recurrent_activation"])
        self.h, self.p = list(call["hidden"]), list(call["products"])
        self.copied = self.copies_of("gates_in", "gates")
        self.r, self.z, self.n = (self.columns("gates", at, at + 1) for at in range(3))
        self.rz, self.after = self.columns("gates", 0, 2), bool(call.settings["reset_after"])
        bias = call.tensors["bias"]
        self.bias = None if bias is None else (bias[: 2 * size], bias[2 * size :])
        states = [self.h[at] for at in self.before]
        self.activate = apply_to_gates(self.rz, (kind, kind))
        self.tanh = apply("tanh", [call["part"]] * self.steps, self.n)
        both = self.product(states, weight[:, : 2 * size], self.rz, True)
        of_n = weight[:, 2 * size :]
        if self.after:
            return both, self.product(states, of_n, self.p)
        return both, self.product(self.p, of_n, self.n, True)

    def begin(self) -> None:
        """The first state."""
        self.first("hidden", "hidden0")

    def step(self, index: int) -> None:
        """Gates and hidden; that of masked samples stays."""
        if self.copied:
            np.copyto(self.copied[index][1], self.copied[index][0])
        if self.bias is not None:
            np.add(self.rz[index], self.bias[0], out=self.rz[index])
        both, of_n = self.products
        both(index)
        self.activate(index)
        before, behind = self.before[index], self.behind[index]
        h, n, part, dead = self.h[before], self.n[index], self.call["part"], self.dead(index)
        if self.after:
            self._product(index, of_n)
            np.multiply(self.r[index], self.p[index], out=part)
            np.add(n, part, out=part)
        else:
            np.multiply(self.r[index], h, out=self.p[index])
            if dead is not None:  # the gradient of the weight has it as a factor
                np.copyto(self.p[index], 0, where=dead)
            self._biased(index, n)
            of_n(index)
            np.copyto(part, n)
        self.tanh(index)
        np.subtract(h, n, out=part)
        np.multiply(part, self.z[index], out=part)
        np.add(n, part, out=self.h[behind])
        if dead is not None:
            np.copyto(self.h[behind], h, where=dead)

    def _product(self, index: int, of_n: StepCall) -> None:
        of_n(index)
        self._biased(index, self.p[index])

    def _biased(self, index: int, target: Array) -> None:
        if self.bias is not None:
            np.add(target, self.bias[1], out=target)


class GruBackward(BackwardPass):
    """dgates and dproducts, which may lie over gates and products."""

    matrices = ("dh", "a", "b", "part")
    held = ("dh",)

    def bind(self) -> Sequence[StepCall]:
        """By r and z, and by n."""
        call, size = self.call, self.size
        self.slopes, self.after = SLOPES[str(call.settings["recurrent_activation"])], bool(call.settings["reset_after"])
        self.h, self.p = list(call["hidden"]), list(call["products"])
        self.r, self.z, self.n = (self.columns("gates", at, at + 1) for at in range(3))
        self.dr, self.dz, self.dn = (self.columns("dgates", at, at + 1) for at in range(3))
        self.dgates = list(call["dgates"])
        self.dp = list(call["dproducts"]) if self.after else []
        weight, dh = call["weight"], [call["dh"]] * self.steps
        both = self.product(self.columns("dgates", 0, 2), weight[:, : 2 * size].T, dh, True)
        of_n = weight[:, 2 * size :].T
        if self.after:
            return both, self.product(self.dp, of_n, dh, True)
        return both, self.product(self.dn, of_n, [call["b"]] * self.steps)

    def step(self, index: int) -> None:
        """The derivatives by the gates, then by the state before."""
        call, dead = self.call, self.dead(index)
        self.receive(index)
        dh = call["dh"]
        if dead is not None:
            np.copyto(call["dh_before"], dh)
        self._update_gate(index)
        both, of_n = self.products
        if self.after:
            self._reset_after(index, dead)
            of_n(index)
        else:
            self._first(index, of_n, dead)
        both(index)
        if dead is not None:
            np.copyto(dh, call["dh_before"], where=dead)

    def _update_gate(self, index: int) -> None:
        """dz; a = dn before the reset gate, dh = what goes to the state before by z."""
        call, z, n, h = self.call, self.z[index], self.n[index], self.h[self.before[index]]
        dh, a, b, part = (call[name] for name in ("dh", "a", "b", "part"))
        np.subtract(h, n, out=b)
        np.multiply(b, dh, out=b)
        np.multiply(dh, z, out=part)
        np.subtract(dh, part, out=a)
        np.copyto(dh, part)
        self.slopes(z, part)
        np.multiply(b, part, out=self.dz[index])
        tanh_slopes(n, part)
        np.multiply(a, part, out=a)
        np.copyto(self.dn[index], a, casting="same_kind")

    def _reset_after(self, index: int, dead: Array | None) -> None:
        """dr and dproducts."""
        call, r, p = self.call, self.r[index], self.p[index]
        a, b, part = (call[name] for name in ("a", "b", "part"))
        np.multiply(a, p, out=b)
        np.multiply(a, r, out=self.dp[index])
        self.slopes(r, part)
        np.multiply(b, part, out=self.dr[index])
        if dead is not None:
            np.copyto(self.dp[index], 0, where=dead)
            np.copyto(self.dgates[index], 0, where=dead)

    def _first(self, index: int, of_n: StepCall, dead: Array | None) -> None:
        """b = the derivative by r * h; dr, and what goes to the state by it."""
        call, r, h = self.call, self.r[index], self.h[self.before[index]]
        dh, a, b, part = (call[name] for name in ("dh", "a", "b", "part"))
        of_n(index)
        np.multiply(b, r, out=a)
        np.add(dh, a, out=dh)
        np.multiply(b, h, out=b)
        self.slopes(r, part)
        np.multiply(b, part, out=self.dr[index])
        if dead is not None:
            np.copyto(self.dgates[index], 0, where=dead)
