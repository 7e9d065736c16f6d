"""OpenForward: the forward by hand that waits for its backward, and a walk back that was left before its end."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator, Mapping

from singa_lite.autograd.ops.op import Op
from singa_lite.common.errors import GraphError
from singa_lite.layer.run import LayerGradients, Run
from singa_lite.tensor import Tensor


class OpenForward:
    """What `net.forward(True, x)` leaves for `net.backward(dy)`: its run, until the walk back is asked for."""

    def __init__(self) -> None:
        self._run: Run | None = None
        self._walked: Run | None = None
        self._passed_over: list[weakref.ref[Op]] = []

    @property
    def stopped_at(self) -> str:
        """The layer at which the last walk back was left, or stands; "" before and after whole ones."""
        return self._walked.stopped_at if self._walked is not None else ""

    @property
    def is_forgotten(self) -> bool:
        """Whether no forward waits, and no walk back was begun, since the last `forget`."""
        return self._run is None and self._walked is None and not self._passed_over

    def pass_over(self) -> None:
        """Another forward begins. If one still waits for its backward, remember its outputs while they are held."""
        self._passed_over = [end for end in self._passed_over if _is_open(end)]
        if self._run is not None:
            self._passed_over += self._run.open_ends()
        self._run = None

    def keep(self, run: Run) -> None:
        """A run whose forward is done waits for its backward."""
        self._run = run

    def check(self) -> None:
        """GraphError where no forward waits, or the derivative may be meant for an earlier one: its output is held."""
        self._waiting()
        if any(map(_is_open, self._passed_over)):
            raise GraphError(
                "backward: wanted one forward(True, x) before it, received several whose outputs are still held; call "
                "autograd.backward(y, dy) for a y computed from all of them, or let go of those that don't count"
            )

    def walk(
        self, dys: Mapping[str, list[Tensor]], wanted: Collection[str], freeze: str | None
    ) -> Iterator[LayerGradients]:
        """Walk back, see `Run.backward`. GraphError where no forward waits for it."""
        run = self._waiting()
        walk = run.backward(dys, frozenset(wanted), freeze)
        self._run, self._walked = None, run
        return walk

    def _waiting(self) -> Run:
        if self._run is None:
            raise GraphError("backward: wanted forward(True, x) before it, once for each backward")
        return self._run

    def forget(self) -> None:
        """Forget the last forwards and backward."""
        self._run = self._walked = None
        self._passed_over.clear()


def _is_open(end: weakref.ref[Op]) -> bool:
    """Whether somebody holds what this operation made, and its tape was not walked."""
    op = end()
    return op is not None and bool(op.edges)
