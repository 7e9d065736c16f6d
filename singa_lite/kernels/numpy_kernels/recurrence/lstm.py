"""The steps of `lstm` and `lstm_derivative`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_lite.kernels.numpy_kernels.recurrence.activations import SLOPES, tanh_slopes
from singa_lite.kernels.numpy_kernels.recurrence.passes import (
    BackwardPass,
    ForwardPass,
    StepCall,
    apply,
    apply_to_gates,
)


class LstmForward(ForwardPass):
    """gates, hidden and cell."""

    matrices = ("part",)

    def bind(self) -> Sequence[StepCall]:
        """One product of all gates."""
        call, kind = self.call, str(self.call.settings["recurrent_activation"])
        self.h, self.c, gates = list(call["hidden"]), list(call["cell"]), list(call["gates"])
        self.copied = self.copies_of("gates_in", "gates")
        self.i, self.f, self.g, self.o = (self.columns("gates", at, at + 1) for at in range(4))
        self.activate = apply_to_gates(gates, (kind, kind, "tanh", kind))
        self.tanh = apply("tanh", [self.c[at] for at in self.behind], [call["part"]] * self.steps)
        return [self.product([self.h[at] for at in self.before], call["weight"], gates, True)]

    def begin(self) -> None:
        """The first states."""
        self.first("hidden", "hidden0")
        self.first("cell", "cell0")

    def step(self, index: int) -> None:
        """Gates, cell, hidden; those of masked samples stay."""
        part = self.call["part"]
        if self.copied:
            np.copyto(self.copied[index][1], self.copied[index][0])
        self.products[0](index)
        self.activate(index)
        before, behind = self.before[index], self.behind[index]
        c, h, dead = self.c[behind], self.h[behind], self.dead(index)
        np.multiply(self.i[index], self.g[index], out=part)
        np.multiply(self.f[index], self.c[before], out=c)
        np.add(c, part, out=c)
        if dead is not None:
            np.copyto(c, self.c[before], where=dead)
        self.tanh(index)
        np.multiply(self.o[index], part, out=h)
        if dead is not None:
            np.copyto(h, self.h[before], where=dead)


class LstmBackward(BackwardPass):
    """dgates, which may lie over gates. dc: the derivative by the cell; tanh(c) is made again.

    The derivatives by the gates' results and the slopes of their activations are made in matrices of all gates, as one
    call over four of them takes less than four calls.
    """

    matrices = ("dh", "dc", "a", "b", "part")
    wide = ("results", "slopes")
    held = ("dh", "dc")

    def bind(self) -> Sequence[StepCall]:
        """dh of the step before."""
        call = self.call
        self.slopes = SLOPES[str(call.settings["recurrent_activation"])]
        self.c, self.gates, self.dgates = list(call["cell"]), list(call["gates"]), list(call["dgates"])
        self.tanh = apply("tanh", [self.c[at] for at in self.behind], [call["a"]] * self.steps)
        self.i, self.f, self.g, self.o = (self.columns("gates", at, at + 1) for at in range(4))
        columns = [slice(at * self.size, (at + 1) * self.size) for at in range(4)]
        self.di, self.df, self.dg, self.do = (call["results"][:, at] for at in columns)
        self.slope_of_g = call["slopes"][:, columns[2]]
        return [self.product(self.dgates, call["weight"].T, [call["dh"]] * self.steps)]

    def begin(self) -> None:
        """Nothing comes from behind the last step."""
        super().begin()
        self.call["dc"].fill(0)

    def step(self, index: int) -> None:
        """The derivatives by the gates, then by the states before."""
        call, dead = self.call, self.dead(index)
        self.receive(index)
        dh, dc = call["dh"], call["dc"]
        if dead is not None:
            np.copyto(call["dh_before"], dh)
            np.copyto(call["dc_before"], dc)
        self._by_results(index)
        results, slopes, gates = call["results"], call["slopes"], self.gates[index]
        self.slopes(gates, slopes)
        tanh_slopes(self.g[index], self.slope_of_g)
        np.multiply(dc, self.f[index], out=dc)
        np.multiply(results, slopes, out=self.dgates[index])
        if dead is not None:
            np.copyto(self.dgates[index], 0, where=dead)
            np.copyto(dc, call["dc_before"], where=dead)
        self.products[0](index)
        if dead is not None:
            np.copyto(dh, call["dh_before"], where=dead)

    def _by_results(self, index: int) -> None:
        """By what the gates gave; dc gets what comes by tanh(c)."""
        call = self.call
        dh, dc, a, b, part = (call[name] for name in ("dh", "dc", "a", "b", "part"))
        self.tanh(index)
        np.multiply(dh, self.o[index], out=b)
        tanh_slopes(a, part)
        np.multiply(b, part, out=b)
        np.add(dc, b, out=dc)
        np.multiply(dc, self.g[index], out=self.di)
        np.multiply(dc, self.c[self.before[index]], out=self.df)
        np.multiply(dc, self.i[index], out=self.dg)
        np.multiply(dh, a, out=self.do)
