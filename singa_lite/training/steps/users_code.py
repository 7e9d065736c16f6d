"""Code of the user's that a built-in step runs, of layers, losses, metrics and optimizers: whether it does the same at
each call.

A record is replayed without Python, so that what such code draws from NumPy, or counts, would be frozen silently.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack

from singa_lite.autograd.watching.counting import Counting
from singa_lite.autograd.watching.outside import OutsideReads
from singa_lite.common.described import is_ours
from singa_lite.device import Device
from singa_lite.graph.graph import Graph
from singa_lite.layer.layer import Layer
from singa_lite.optimizer import Optimizer
from singa_lite.training import own_optimizer
from singa_lite.training.steps.same_twice import check_same, refuse

INSTEAD = (
    "draw by an operation such as autograd.normal, keep what changes in a tensor, as add_state() makes it, or "
    "compile(graph=False)"
)


class UsersCode:
    """Flags of the parts of a step that are the user's own.

    layers: those in them count too; criteria: losses and metrics; optimizers: with what their rules hold.
    """

    def __init__(
        self, layers: Iterable[Layer], criteria: Iterable[object] = (), optimizers: Iterable[Optimizer] = ()
    ) -> None:
        self._optimizers = list(optimizers)
        of_optimizers = (owner for each in self._optimizers for owner in own_optimizer.owners(each))
        self._owners = [*_owners(layers, criteria), *of_optimizers]

    def __bool__(self) -> bool:
        return bool(self._owners)

    def outside(self) -> Callable[[], Hashable] | None:
        """What tells the plain values that such code reads from outside, as they are when it is called; None: there is
        no such code.
        """
        rates = [read for each in self._optimizers if (read := own_optimizer.rate_read_by(each)) is not None]
        return OutsideReads(self._owners, rates) if self._owners else None

    def check_again(
        self,
        graph: Graph,
        call: Callable[[], object],
        device: Device,
        where: str,
        instead: str = INSTEAD,
        roots: Iterable[object] = (),
    ) -> None:
        """GraphError unless the call, recorded once more, does what was recorded, and goes by nothing that it counts.

        Nothing of it is run or kept. where: what was recorded; instead: what to do in the place of what differs;
        roots: further objects and functions whose numbers it may go by.
        """
        for each in self._optimizers:
            own_optimizer.check(each, where)
        counting = Counting(self._owners, roots)
        try:
            with ExitStack() as steps, device.recording() as again:
                for each in self._optimizers:
                    steps.enter_context(each.gone_over_again())
                call()
            try:
                check_same(graph, again, device, where, instead)
            finally:
                again.let_go()
            found = counting.found()
        finally:
            counting.undo()
        if found:
            refuse(found, where, instead)

    def check_repeats(self, forward: Callable[[], object], device: Device) -> None:
        """As `check_again`, of two recordings of a forward, with its losses and metrics."""
        with device.recording() as one:
            forward()
        try:
            self.check_again(one, forward, device, "forward")
        finally:
            one.let_go()


def _owners(layers: Iterable[Layer], criteria: Iterable[object]) -> Iterator[object]:
    for layer in layers:
        yield from (each for each in layer.with_sublayers() if each.runs_users_code)
    yield from (each for each in criteria if not is_ours(type(each)))
