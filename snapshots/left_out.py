"""LeftOut: what of a net and of a file `net.load` did not bring together."""

from __future__ import annotations

from typing import NamedTuple


class LeftOut(NamedTuple):
    """Names of what `load` did not read. missing: tensors of the net, of the layers asked for, that the file lacks;
    differing: those that it has in another shape or dtype; unused: entries of the file that have no place there, by the
    file's own names where they are no layer's, the optimizer's state aside.
    """

    missing: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
