"""Weights of a net of a language model as files store them: frozen ones as they came, floats in a format."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.language.config import LanguageConfig
from singa_lite.snapshots.language.names import Place, places
from singa_lite.snapshots.language.stored import AT_ONCE, WRITTEN, dequantized, quantized
from singa_lite.snapshots.language.values import ARCHITECTURES
from singa_lite.snapshots.readers.gguf import BLOCKS
from singa_lite.snapshots.readers.raw import ByteArray
from singa_lite.tensor import Tensor, to_numpy
from singa_lite.training.trained_net import TrainedNet


class NetWeight(NamedTuple):
    """A weight of a net that is to be written. format: of the file; frozen: the net's format, "" for a parameter."""

    name: str
    place: Place
    tensor: Tensor
    frozen: str
    format: str

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        numbers, size = BLOCKS[self.format]
        return prod(self.place.shape) // numbers * size

    def rows(self) -> Iterator[ByteArray]:
        """Yields all blocks of the file, some rows at a time."""
        array = self.tensor.array if self.frozen else to_numpy(self.tensor)
        if not self.frozen:  # products are (inputs, outputs) in a net
            array = array.reshape(1, -1) if array.ndim == 1 else array if self.name == "tokens/weight" else array.T
        step = max(1, AT_ONCE // self.place.shape[-1])
        for row in range(0, len(array), step):
            part = np.asarray(array[row : row + step])
            if self.format != self.frozen:
                part = quantized(dequantized(part, self.frozen) if self.frozen else part, self.format)
            yield part


def config_of(net: TrainedNet, path: str) -> LanguageConfig:
    """Returns the configuration that `models.language_model` made the net of. SnapshotError for another net."""
    found = getattr(net, "language", None)
    if not isinstance(found, LanguageConfig):
        raise SnapshotError(f"{path}: wanted a net of models.language_model or models.load, received another")
    if found.architecture not in ARCHITECTURES:
        raise SnapshotError(
            f"{path}: wanted one of {', '.join(ARCHITECTURES)}, received {found.architecture}, whose files "
            "snapshots.maps has"
        )
    return found


def weights(net: TrainedNet, path: str, quantization: str | None, narrow: Collection[str]) -> list[NetWeight]:
    """Returns all weights of a net, in the order of `places`.

    quantization: the format of matrices that are parameters of the net, None for float32; narrow: formats in which
    frozen weights go out as they came, others in `quantization`. SnapshotError for a net with other parameters.
    """
    where = f"{path}: quantization"
    if quantization is not None and quantization not in WRITTEN:
        raise SnapshotError(f"{where}: wanted None or one of {', '.join(WRITTEN)}, received {quantization!r:.100}")
    parameters, frozen, formats, found = dict(net.parameters()), net.frozen(), frozen_formats(net), []
    for name, place in places(config_of(net, path)):
        tensor = frozen.get(name)
        kind = formats[name] if tensor is not None else ""
        tensor = parameters.pop(name, None) if tensor is None else tensor
        if tensor is None:
            raise SnapshotError(f"{path}: wanted a parameter {name!r} in the net, received none of that name")
        form = kind if kind in narrow else (quantization or "f32") if len(place.shape) > 1 else "f32"
        if place.shape[-1] % BLOCKS[form][0]:
            raise SnapshotError(f"{where}: {name}: wanted rows of whole blocks of {form}, received {place.shape}")
        found.append(NetWeight(name, place, tensor, kind, form))
    if parameters:
        text = "merge_lora() makes them part of the others, and save_adapter() writes those of LoRA alone"
        raise SnapshotError(f"{path}: wanted parameters of such a file, received {sorted(parameters)[:8]}; {text}")
    return found


def frozen_formats(net: TrainedNet) -> dict[str, str]:
    """Returns {name of a frozen tensor: its format}."""
    return {
        f"{path}/{name}": str(getattr(layer, "weight_format", ""))
        for path, layer in net.all_layers().items()
        if not layer.layers
        for name in layer.frozen
    }
