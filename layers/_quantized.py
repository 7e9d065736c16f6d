"""Weights in quantised blocks: the formats that layers take, and the frozen tensors for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from singa_lite.common.described import Arguments
from singa_lite.common.errors import ShapeError
from singa_lite.kernels.interface.quantized import FORMATS
from singa_lite.layer.layer import Layer
from singa_lite.layers._checks import check_choice, label
from singa_lite.tensor import Tensor

#: A weight that is a parameter.
FLOAT = "float"
#: A format for all weights of a layer, or {layer within it: its own}, where those that are not named are parameters.
WeightFormat: TypeAlias = "str | Mapping[str, WeightFormat]"


def checked_format(layer: Layer, given: object) -> str:
    """The name of a format, or "float". ValueError for another one."""
    return check_choice(layer, "weight_format", given, (FLOAT, *FORMATS))


def checked_formats(layer: Layer, given: object, parts: Collection[str]) -> WeightFormat:
    """The format, or those of layers within the layer, as plain values. ValueError for an unknown name."""
    if not isinstance(given, Mapping):
        return checked_format(layer, given)
    for name in given:
        check_choice(layer, "the names in weight_format", name, parts)
    return dict(given)


def format_of(given: WeightFormat, part: str) -> WeightFormat:
    """What a layer within the layer is given."""
    return given if isinstance(given, str) else given.get(part, FLOAT)


def add_quantized(layer: Layer, name: str, rows: int, columns: int, format: str) -> Tensor:
    """For `setup`: a frozen tensor for a weight of this format. ShapeError where its rows are no whole blocks."""
    try:
        return layer.add_frozen(name, (rows, FORMATS[format].row_bytes(columns)))
    except ValueError as error:
        raise ShapeError(f"{label(layer)}: weight_format {format!r}: {error}") from None


def forget_format(layer: Layer) -> None:
    """Sets the format of the layer's weight to "float", in the options of layers that hold it too."""
    formats: WeightFormat = FLOAT
    name = layer.name
    for holder in layer._holders():
        given = getattr(holder, "weight_format", None)
        if given is None:
            break
        if holder is not layer:
            known = given if isinstance(given, Mapping) else dict.fromkeys(getattr(holder, "parts"), given)  # noqa: B009
            formats = {**known, name: formats}
        object.__setattr__(holder, "weight_format", formats)
        holder._given = Arguments({**holder.given_arguments, "weight_format": formats}, True)
        name = holder.name
