"""The steps of `simple_rnn` and `simple_rnn_derivative`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from singa_lite.kernels.numpy_kernels.recurrence.activations import SLOPES
from singa_lite.kernels.numpy_kernels.recurrence.passes import BackwardPass, ForwardPass, StepCall, apply


class SimpleRnnForward(ForwardPass):
    """hidden."""

    matrices = ()

    def bind(self) -> Sequence[StepCall]:
        """The product of a step is its state."""
        call = self.call
        self.h, self.given = list(call["hidden"]), list(call["gates_in"])
        before, behind = ([self.h[at] for at in places] for places in (self.before, self.behind))
        self.activate = apply(str(call.settings["activation"]), behind, behind)
        return [self.product(before, call["weight"], behind, True)]

    def begin(self) -> None:
        """The first state."""
        self.first("hidden", "hidden0")

    def step(self, index: int) -> None:
        """hidden; that of masked samples stays."""
        h = self.h[self.behind[index]]
        np.copyto(h, self.given[index], casting="same_kind")
        self.products[0](index)
        self.activate(index)
        dead = self.dead(index)
        if dead is not None:
            np.copyto(h, self.h[self.before[index]], where=dead)


class SimpleRnnBackward(BackwardPass):
    """dgates, which may lie over dy."""

    matrices = ("dh", "part")
    held = ("dh",)

    def bind(self) -> Sequence[StepCall]:
        """dh of the step before."""
        call = self.call
        self.slopes = SLOPES[str(call.settings["activation"])]
        self.h, self.dgates = list(call["hidden"]), list(call["dgates"])
        return [self.product(self.dgates, call["weight"].T, [call["dh"]] * self.steps)]

    def step(self, index: int) -> None:
        """The derivative by the gate, then by the state before."""
        call, dead = self.call, self.dead(index)
        self.receive(index)
        dh, dgates = call["dh"], self.dgates[index]
        if dead is not None:
            np.copyto(call["dh_before"], dh)
        self.slopes(self.h[self.behind[index]], call["part"])
        np.multiply(dh, call["part"], out=dgates)
        if dead is not None:
            np.copyto(dgates, 0, where=dead)
        self.products[0](index)
        if dead is not None:
            np.copyto(dh, call["dh_before"], where=dead)
