"""Past: what the layers of a net keep of the positions of a text that come before those at hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from singa_lite.common.array_types import DType
from singa_lite.common.sizes import tensor_bytes
from singa_lite.common.unique import Unique
from singa_lite.device import Device
from singa_lite.tensor import Shape, Tensor

#: {path of a layer: {name of a tensor that it keeps: its shape}}.
Kept = Mapping[str, Mapping[str, Shape]]


class Past(Unique):
    """The tensors that layers keep of texts, each made when it is first asked for, of zeros.

    kept: which there may be, all of dtype; batch: how many texts; length: of how many positions at most. planned: they
    get no bytes, as a step is only to be planned over them.
    """

    def __init__(
        self, device: Device, dtype: DType, kept: Kept, batch: int, length: int, planned: bool = False
    ) -> None:
        self.device, self.dtype, self.kept, self.planned = device, dtype, kept, planned
        self.batch, self.length = batch, length
        self._tensors: dict[tuple[str, str], Tensor] = {}

    def serves(self, batch: int, length: int) -> bool:
        """Whether so many texts of that length may be written over it."""
        return self.batch == batch and self.length >= length

    @property
    def nbytes(self) -> int:
        """Of all tensors that there may be."""
        return sum(tensor_bytes(shape, self.dtype) for kept in self.kept.values() for shape in kept.values())

    def begin(self) -> None:
        """Zeros in all of them, for the first position of new texts."""
        for tensor in self._tensors.values():
            self.device.run("fill", tensor, value=0.0)

    def tensor(self, path: str, name: str) -> Tensor:
        """What the layer of this path keeps by this name. KeyError for what it did not say that it would keep."""
        found = self._tensors.get((path, name))
        return self._made(path, name) if found is None else found

    def _made(self, path: str, name: str) -> Tensor:
        """The block gets its bytes now, within a recording too, so that it is state of the step."""
        made = self.device.unbound(self.kept[path][name], self.dtype)
        made.name = f"{path}/{name}"
        if not self.planned:
            self.device.bind(made.block)
            self.device.copy_in(made, np.broadcast_to(np.zeros((), self.dtype), made.shape))
        self._tensors[path, name] = made
        return made


class LayerPast(Mapping[str, Tensor]):
    """What one layer keeps, by the names of its `kept_of_past`. position: int64 (1,), how many positions came before.

    A layer reads its tensors, and writes what the positions at hand add by operations of its device.
    """

    def __init__(self, past: Past, path: str, position: Tensor) -> None:
        self.position = position
        self._past, self._path = past, path

    def __getitem__(self, name: str) -> Tensor:
        return self._past.tensor(self._path, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._past.kept.get(self._path, ()))

    def __len__(self) -> int:
        return len(self._past.kept.get(self._path, ()))
