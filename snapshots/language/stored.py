"""Weights as files store them: raw blocks of a format, the numbers that they stand for, and those of a net."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from singa_lite.common.array_types import Array
from singa_lite.common.checks import is_bfloat16
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.adapter_base import frozen_bytes
from singa_lite.snapshots.language.config import LanguageConfig
from singa_lite.snapshots.language.names import Place, places
from singa_lite.snapshots.language.tokenizer import Tokenizer
from singa_lite.snapshots.readers.gguf import BLOCKS
from singa_lite.snapshots.readers.raw import ByteArray
from singa_lite.tensor import Shape, to_numpy
from singa_lite.training.trained_net import TrainedNet

#: Numbers that are made at once.
AT_ONCE = 1 << 20
#: Formats of which a net has frozen weights.
FROZEN = ("q4_0", "q4_1", "q8_0", "q4_k", "q5_k", "q6_k", "f16", "bf16")
#: Formats that `quantized` makes.
WRITTEN = ("f32", "f16", "bf16", "q4_0", "q4_1", "q8_0")


class StoredWeight(NamedTuple):
    """A matrix or a vector of a file. blocks: its bytes, (rows, bytes of a row); a vector has one row.

    format: by the names of the package `gguf`, lower case; shape: (outputs, inputs), or (n,).
    """

    format: str
    shape: Shape
    blocks: ByteArray

    def pieces(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yields (its first row, float32 (rows, columns)) of one piece after the other."""
        step = max(1, AT_ONCE // self.shape[-1])
        for row in range(0, len(self.blocks), step):
            yield row, dequantized(self.blocks[row : row + step], self.format)

    def numbers(self) -> NDArray[np.float32]:
        """Returns all of it."""
        return np.concatenate([piece for _, piece in self.pieces()]).reshape(self.shape)


class StoredModel(NamedTuple):
    """A language model in a file or a folder. weights: by our names of parameters, rows of queries and keys in halves.

    tokenizer: None where the model has none.
    """

    config: LanguageConfig
    weights: dict[str, StoredWeight]
    tokenizer: Tokenizer | None


def dequantized(blocks: ByteArray, form: str) -> NDArray[np.float32]:
    """Returns the numbers of rows of blocks, float32 (rows, columns)."""
    blocks = np.ascontiguousarray(blocks)
    if form == "bf16":
        return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)
    if form in ("f16", "f32"):
        return blocks.view(f"<f{int(form[1:]) // 8}").astype(np.float32)
    from gguf import GGMLQuantizationType, dequantize

    with np.errstate(all="ignore"):  # scales may be infinite or NaN, as any number of a file
        return dequantize(blocks, GGMLQuantizationType[form.upper()]).astype(np.float32, copy=False)


def quantized(numbers: Array, form: str) -> ByteArray:
    """Returns rows of float32 as blocks of a format of `WRITTEN`. SnapshotError for rows that are no whole blocks."""
    numbers = np.ascontiguousarray(numbers, np.float32)
    if form in ("f32", "f16"):
        with np.errstate(over="ignore"):  # as every cast to float16
            return numbers.astype(f"<f{int(form[1:]) // 8}").view(np.uint8)
    if form.startswith("q") and numbers.shape[1] % 32:
        raise SnapshotError(f"wanted rows of a multiple of 32 numbers for {form}, received {numbers.shape[1]}")
    from gguf import GGMLQuantizationType, quantize

    return np.ascontiguousarray(quantize(numbers, GGMLQuantizationType[form.upper()])).view(np.uint8)


def halves(blocks: ByteArray, heads: int) -> ByteArray:
    """Returns a copy of rows in Hugging Face's order: GGUF files of Llamas have pairs where it has halves of a head."""
    return np.ascontiguousarray(blocks.reshape(heads, -1, 2, blocks.shape[1]).swapaxes(1, 2)).reshape(blocks.shape)


def pairs(blocks: ByteArray, heads: int) -> ByteArray:
    """Returns a copy of rows in the order of GGUF files of Llamas: what `halves` undoes."""
    return np.ascontiguousarray(blocks.reshape(heads, 2, -1, blocks.shape[1]).swapaxes(1, 2)).reshape(blocks.shape)


def check_shape(path: str, name: str, wanted: Shape, found: Shape | None) -> None:
    """SnapshotError unless a tensor of a file has the shape that its configuration wants. found: None: it has none."""
    if found != wanted:
        received = "none of that name" if found is None else str(found)[:100]
        raise SnapshotError(f"{path}: wanted a tensor {name!r} of shape {wanted}, received {received}")


# ---- of nets


class NetWeight(NamedTuple):
    """A weight of a net that is to be written. fetch(): its numbers, or the bytes of one that is frozen.

    frozen: the net's format of it, "" for a parameter; format: of the file.
    """

    name: str
    place: Place
    fetch: Callable[[], Array]
    frozen: str
    format: str

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        numbers, size = BLOCKS[self.format]
        return prod(self.place.shape) // numbers * size

    def rows(self) -> Iterator[ByteArray]:
        """Yields all blocks of the file, some rows at a time."""
        array = self.fetch()
        if not self.frozen:  # products are (inputs, outputs) in a net
            array = array.reshape(1, -1) if array.ndim == 1 else array if self.name == "tokens/weight" else array.T
        step = max(1, AT_ONCE // self.place.shape[-1])
        for row in range(0, len(array), step):
            part = np.asarray(array[row : row + step])
            if self.format != self.frozen:
                part = quantized(dequantized(part, self.frozen) if self.frozen else part, self.format)
            yield part


def weights(
    net: TrainedNet, config: LanguageConfig, path: str, quantization: str | None, formats: Collection[str]
) -> list[NetWeight]:
    """Returns all weights of a net, in the order of `places`.

    quantization: the format of matrices that are parameters of the net, None for that of the net; formats: that the
    file may have: frozen weights in these go out as they came, others in `quantization`. SnapshotError for a net with
    other parameters.
    """
    where, choices = f"{path}: quantization", [each for each in WRITTEN if each in formats]
    if quantization is not None and quantization not in choices:
        raise SnapshotError(f"{where}: wanted None or one of {', '.join(choices)}, received {quantization!r:.100}")
    tensors, frozen, found = dict(net.parameters()) | net.frozen(), frozen_formats(net), list[NetWeight]()
    for name, place in places(config):
        tensor, kind = tensors.pop(name, None), frozen.get(name, "")
        if tensor is None:
            raise SnapshotError(f"{path}: wanted a parameter {name!r} in the net, received none of that name")
        own = "bf16" if is_bfloat16(tensor.dtype) else "f32"
        form = kind if kind in formats else (quantization or own) if len(place.shape) > 1 else "f32"
        if place.shape[-1] % BLOCKS[form][0]:
            raise SnapshotError(f"{where}: {name}: wanted rows of whole blocks of {form}, received {place.shape}")
        fetch = partial(frozen_bytes if kind else to_numpy, tensor)
        found.append(NetWeight(name, place, fetch, kind, form))
    if tensors:
        text = "merge_lora() makes them part of the others, and save_adapter() writes those of LoRA alone"
        raise SnapshotError(f"{path}: wanted parameters of such a file, received {sorted(tensors)[:8]}; {text}")
    return found


def frozen_formats(net: TrainedNet) -> dict[str, str]:
    """Returns {name of a frozen tensor: its format}."""
    return {
        f"{path}/{name}": str(getattr(layer, "weight_format", ""))
        for path, layer in net.all_layers().items()
        if not layer.layers
        for name in layer.frozen
    }
