"""Unchanged: that what a bare record was made by is, before each run, as it was then."""

from __future__ import annotations

from weakref import ref

from singa_lite.autograd.watching.reached import counted_by
from singa_lite.autograd.watching.watch import Watch
from singa_lite.common.described import Described, is_ours
from singa_lite.common.errors import GraphError


class Unchanged:
    """Called before a record is run: GraphError where the object that it was recorded by has other options by then.

    Options of this package's objects are what their constructors take (`Described`), and what functions among it read
    from outside. Those of other classes may be any attribute, so all are watched but for bookkeeping; layers within a
    layer are asked for themselves.
    """

    def __init__(self, made: object) -> None:
        self._made = ref(made)
        self._given = getattr(made, "_given", None)
        self._watch: Watch | None = None
        if not is_ours(type(made)):
            bookkeeping = made.bookkeeping() if isinstance(made, Described) else ()
            self._watch = Watch([made], {0: bookkeeping}, apart=(Described,))
        elif isinstance(made, Described) and any(map(callable, made.given_arguments.values())):
            self._watch = Watch([tuple(made.given_arguments.values())], apart=(Described,))

    def settle(self) -> None:
        """The recording is over: what it changed itself is no option."""
        if self._watch is not None:
            self._watch.settle([], [])

    def __call__(self) -> None:
        made = self._made()
        if made is None:
            return
        kind: type = type(made)
        counted = () if is_ours(kind) else counted_by(kind)
        if counted:
            raise GraphError(
                f"run: wanted {made!r:.100} to do the same at each call, as a record keeps those of one, received a "
                f"class whose calls change {min(counted)}, and go by it; keep it in a tensor"
            )
        if getattr(made, "_given", None) is not self._given or not (self._watch is None or self._watch.holds()):
            raise GraphError(
                f"run: wanted {made!r:.100} with the options that it had when the expression was recorded, received "
                "others; record it again"
            )
