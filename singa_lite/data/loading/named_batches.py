"""Ready-made batches that are dicts, as a PyTorch DataLoader makes them of samples that are dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from singa_lite.common.errors import GraphError

#: Names of a net's input layers, and of the output layers that have targets.
Names: TypeAlias = tuple[Sequence[str], Sequence[str]]
#: What inputs, targets and weights of samples are called where no layer's name stands.
_X = ("x", "input", "inputs")
_Y = ("y", "target", "targets", "label", "labels")
_WEIGHTS = ("sample_weight", "sample_weights", "weight", "weights")


def parts_of(where: str, batch: Mapping[object, object], names: Names) -> tuple[object, object, object]:
    """(x, y, weights of samples) of a batch, None for what it has not.

    Its entries have names of input and output layers, or one of the usual names. GraphError for any other entry, and
    for a batch without inputs.
    """
    left, (inputs, outputs) = dict(batch), names
    x, y, weights = _pop_entry(left, inputs, _X), _pop_entry(left, outputs, _Y), _pop_entry(left, (), _WEIGHTS)
    if left or x is None:
        raise GraphError(
            f"{where}: wanted batches with the inputs {list(inputs)}, or one of {_X}, the targets "
            f"{list(outputs)}, or one of {_Y}, and perhaps {_WEIGHTS[0]!r}, received entries {list(batch)}"
        )
    return x, y, weights


def _pop_entry(left: dict[object, object], layers: Sequence[str], usual: Sequence[str]) -> object:
    """{layer: array} of these layers, or the entry of a usual name, taken out of what is left; None for neither."""
    named = {name: left.pop(name) for name in layers if name in left}
    return named or next((left.pop(name) for name in usual if name in left), None)
