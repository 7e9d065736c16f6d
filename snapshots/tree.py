"""A net and its optimizer as a tree of arrays by path, and back, strictly. Every format writes and reads this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from singa_lite.errors import SnapshotError
from singa_lite.net import FeedForwardNet
from singa_lite.tensor import Shape, Tensor

#: Of the tree's form; a reader refuses a number above its own.
VERSION = 1


@dataclass
class Tree:
    """What a snapshot holds.

    tensors: {"parameters/<layer>/weight": tensor, "state/<layer>/running_mean": ...,
    "optimizer/<layer>/weight/velocity": ...}; attributes: plain values about the whole.
    """

    tensors: dict[str, Tensor]
    attributes: dict[str, str | int] = field(default_factory=dict)


class Source(Protocol):
    """A snapshot file being read. shapes: {path: (shape, dtype)} of all that it holds."""

    path: str
    attributes: Mapping[str, Any]
    shapes: Mapping[str, tuple[Shape, np.dtype[Any]]]

    def read(self, path: str) -> NDArray[Any]: ...


def of_net(net: FeedForwardNet) -> Tree:
    """The tree of a net as it stands. SnapshotError after an unfinished step."""
    if net.unfinished_at:
        raise SnapshotError(
            f"save: wanted a whole step, but the last backward() was left at layer {net.unfinished_at!r}"
        )
    tensors = {f"parameters/{name}": tensor for name, tensor in net.parameters().items()}
    tensors |= {f"state/{name}": tensor for name, tensor in net.states().items()}
    attributes: dict[str, str | int] = {"format": "singa_lite", "version": VERSION}
    if net.optimizer is not None:
        attributes |= {"optimizer": type(net.optimizer).__name__, "step": net.optimizer.step}
        for name, slots in net.optimizer.state.items():
            tensors |= {f"optimizer/{name}/{slot}": tensor for slot, tensor in slots.items()}
    return Tree(tensors, attributes)


def restore(net: FeedForwardNet, source: Source, optimizer: bool | None) -> None:
    """Put what a snapshot holds into the net. optimizer: whether its state too; None: if the net is compiled.

    SnapshotError names the first entry that is missing, extra, or of another shape or dtype; all entries are read
    once before the first is put in place, so an unreadable one changes nothing.
    """
    _check_format(source)
    with_optimizer = net.optimizer is not None if optimizer is None else optimizer
    _check_entries(net, source)
    if with_optimizer:
        _check_optimizer(net, source)
    for path in source.shapes:
        if with_optimizer or not path.startswith("optimizer/"):
            source.read(path)
    for name, tensor in net.parameters().items():
        tensor.copy_from_numpy(source.read(f"parameters/{name}"))
    for name, tensor in net.states().items():
        tensor.copy_from_numpy(source.read(f"state/{name}"))
    if with_optimizer:
        _restore_optimizer(net, source)
    net.discard_step()


def _check_format(source: Source) -> None:
    form, version = source.attributes.get("format"), source.attributes.get("version", 0)
    if form != "singa_lite":
        raise SnapshotError(f"{source.path}: wanted a snapshot of singa_lite, received format {form!r}")
    if not 1 <= version <= VERSION:
        raise SnapshotError(f"{source.path}: wanted a snapshot of version 1 to {VERSION}, received {version}")


def _check_entries(net: FeedForwardNet, source: Source) -> None:
    wanted = {f"parameters/{name}": tensor for name, tensor in net.parameters().items()}
    wanted |= {f"state/{name}": tensor for name, tensor in net.states().items()}
    for path, tensor in wanted.items():
        if path not in source.shapes:
            raise SnapshotError(f"{source.path}: wanted an entry {path!r}, received none of that name")
        _check_entry(source, path, tensor.shape, tensor.dtype)
    for path in source.shapes:
        if path not in wanted and not path.startswith("optimizer/"):
            raise SnapshotError(f"{source.path}: received an entry {path!r}, which the net does not have")


def _check_entry(source: Source, path: str, shape: Shape, dtype: np.dtype[Any]) -> None:
    found_shape, found_dtype = source.shapes[path]
    if found_shape != shape:
        raise SnapshotError(f"{source.path}: entry {path!r}: wanted shape {shape}, received {found_shape}")
    if found_dtype != dtype:
        raise SnapshotError(f"{source.path}: entry {path!r}: wanted {dtype}, received {found_dtype}")


def _check_optimizer(net: FeedForwardNet, source: Source) -> None:
    if net.optimizer is None:
        raise SnapshotError(f"{source.path}: wanted a compiled net to put the optimizer's state into")
    kind, found = type(net.optimizer).__name__, source.attributes.get("optimizer")
    if found != kind:
        raise SnapshotError(
            f"{source.path}: wanted the state of optimizer {kind}, received {found}; "
            "load(path, optimizer=False) takes parameters and state only"
        )
    parameters = net.parameters()
    for path in source.shapes:
        if not path.startswith("optimizer/"):
            continue
        name, _, slot = path.removeprefix("optimizer/").rpartition("/")
        if name not in parameters or slot not in net.optimizer.slots:
            raise SnapshotError(f"{source.path}: received an entry {path!r}, which the optimizer does not have")
    for name in _optimizer_names(source):
        for slot in net.optimizer.slots:
            path = f"optimizer/{name}/{slot}"
            if path not in source.shapes:
                raise SnapshotError(f"{source.path}: wanted an entry {path!r}, received none of that name")
            shape, dtype = net.optimizer.slot_form(slot, parameters[name])
            _check_entry(source, path, shape, dtype)


def _optimizer_names(source: Source) -> list[str]:
    """Parameters that the optimizer has state of, in the file's order."""
    paths = [path for path in source.shapes if path.startswith("optimizer/")]
    return list(dict.fromkeys(path.removeprefix("optimizer/").rpartition("/")[0] for path in paths))


def _restore_optimizer(net: FeedForwardNet, source: Source) -> None:
    optimizer, parameters = net.optimizer, net.parameters()
    if optimizer is None:
        return
    optimizer.state.clear()  # a parameter without an entry had not been updated yet
    for name in _optimizer_names(source):
        for slot, tensor in optimizer.state_for(name, parameters[name]).items():
            tensor.copy_from_numpy(source.read(f"optimizer/{name}/{slot}"))
    optimizer.restore_step(int(source.attributes["step"]))
