"""Which format a file has, by its suffix, and what each can do. One module a format, all over the same tree."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from singa_lite.errors import SnapshotError
from singa_lite.net import FeedForwardNet
from singa_lite.snapshots import foreign, tree
from singa_lite.snapshots.tree import Source, Tree

Path = str | os.PathLike[str]

#: What the arrays of all formats may hold.
_PLAIN = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64"),
)


class Module(Protocol):
    """What a format's module has. `save` may be missing in those that are only read."""

    def save(self, contents: Tree, path: Path, **options: Any) -> None:
        """Write the tree, one array at a time on the host; the old file stands until the new one is whole."""

    def opened(self, path: Path, like: Tree | None, **options: Any) -> AbstractContextManager[Source]:
        """The file's contents by the tree's paths. like: the tree that is wanted, for formats with other names."""


@dataclass(frozen=True)
class Format:
    """suffixes: longest first; module: of this package; options: of its own (`names` of safetensors).

    has_optimizer: whether it keeps the optimizer's state; is_written: whether there is a writer; converts_layouts:
    whether axes are in another order there; dtypes: names of those that its reader takes.
    """

    name: str
    suffixes: tuple[str, ...]
    module: str
    has_optimizer: bool = False
    is_written: bool = True
    converts_layouts: bool = False
    options: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = _PLAIN

    def takes(self, dtype: np.dtype[Any]) -> bool:
        """Whether an array of that dtype is read as it was written: all readers give the machine's byte order."""
        return dtype.name in self.dtypes and dtype.isnative

    def load_module(self) -> Any:
        """The module, as `Module` has it; ImportError of a library that it wants comes out."""
        return import_module(f"singa_lite.snapshots.{self.module}")


FORMATS = (
    Format(
        *("Keras 3 weights", (".weights.h5",), "keras.weights"),
        converts_layouts=True,
        dtypes=(*_PLAIN, "bfloat16"),
    ),
    Format("singa_lite", (".h5", ".hdf5"), "hdf5.native", has_optimizer=True),
    Format(
        *("safetensors", (".safetensors",), "tensors.file"),
        has_optimizer=True,
        converts_layouts=True,
        options=("names",),
        dtypes=(*_PLAIN, "complex64"),
    ),
    Format("NumPy archive", (".npz",), "npz", has_optimizer=True),
    Format("SINGA 1.0 to 5.x", (".bin", ".model", ".desc"), "singa.records", is_written=False),
    Format("SINGA pickle", (".pickle", ".pkl"), "singa.pickles", is_written=False),
    Format("SINGA 3.1 and later", (".zip",), "singa.zips", is_written=False),
)


def of_path(path: Path, options: Mapping[str, Any] | None = None) -> Format:
    """The format of a file of that name; SnapshotError names the suffixes there are, TypeError foreign options."""
    name = os.fsdecode(path)
    for one in FORMATS:
        if name.lower().endswith(one.suffixes):
            strange = sorted(set(options or ()) - set(one.options))
            if strange:
                raise TypeError(f"{name}: wanted options of {one.name}, {list(one.options)}, received {strange}")
            return one
    suffixes = ", ".join(suffix for one in FORMATS for suffix in one.suffixes)
    raise SnapshotError(f"{name}: wanted a name that ends in one of {suffixes}")


def save(net: FeedForwardNet, path: Path, *, weights_only: bool = False, **options: Any) -> None:
    """Write the net, in the format of the path's suffix. SnapshotError after an unfinished step, and as `write`.

    weights_only: parameters and running statistics alone; PyTorch's `load_state_dict` takes such a .safetensors file.
    """
    contents = tree.of_net(net)
    write(foreign.weights(contents) if weights_only else contents, path, **options)


def write(contents: Tree, path: Path, **options: Any) -> None:
    """Write a tree. SnapshotError for a format that is only read, and for what cannot be written, or read again."""
    chosen = of_path(path, options)
    if not chosen.is_written:
        raise SnapshotError(f"{os.fsdecode(path)}: {chosen.name} files are only read; write .h5, .safetensors or .npz")
    for entry, lazy in contents.arrays.items():
        if not chosen.takes(lazy.dtype):
            where, wanted = f"{os.fsdecode(path)}: entry {entry!r}", ", ".join(chosen.dtypes)
            raise SnapshotError(f"{where}: wanted one of {wanted}, in the machine's byte order, received {lazy.dtype}")
    chosen.load_module().save(contents, path, **options)


def load(net: FeedForwardNet, path: Path, optimizer: bool | None = None, **options: Any) -> None:
    """Read the net, as `tree.restore` says. optimizer: None: if the net has one, and files of the kind have its state.

    Those of other programs, and of weights alone, have none; it then stays as it is.
    """
    chosen = of_path(path, options)
    with opened(path, tree.of_net(net, whole_step=False), **options) as source:
        if optimizer is None and (not chosen.has_optimizer or foreign.is_marked(source.attributes)):
            optimizer = False
        tree.restore(net, source, optimizer)


@contextmanager
def opened(path: Path, like: Tree | None = None, **options: Any) -> Iterator[Source]:
    """A file's contents by the tree's paths, read as they are asked for.

    like: the tree that is wanted; where the file is not ours, its random state stands for what the file lacks.
    """
    with of_path(path, options).load_module().opened(path, like, **options) as source:
        yield source if like is None else foreign.completed(source, like)


def suffixes() -> Iterator[str]:
    """All that are known."""
    return (suffix for one in FORMATS for suffix in one.suffixes)
