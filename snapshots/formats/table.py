"""The table of formats: suffixes, modules, and what each format can hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from singa_lite.common import checks
from singa_lite.common.array_types import DType
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.tree import Tree

Path = str | os.PathLike[str]

#: Names of the dtypes that all formats hold.
_PLAIN = (
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64"),
)


#: `save(contents, path, **options)` of a format's module, one array at a time on the host. The old file stays until the
#: new one is whole. There is none in those that are only read.
Save = Callable[..., None]
#: `opened(path, wanted, **options)` of a format's module: the file's contents by the tree's paths. wanted: the tree
#: that is asked for, for formats with other names.
Opened = Callable[..., AbstractContextManager[Tree]]


@dataclass(frozen=True)
class Format:
    """suffixes: longest first; module: its name below this folder; options: of `save` and `opened`, beyond the usual.

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

    def can_hold(self, dtype: DType) -> bool:
        """Whether an array of that dtype is read as it was written: all readers give the machine's byte order."""
        return dtype.name in self.dtypes and dtype.isnative

    @property
    def save(self) -> Save:
        """Its module's `save`. The module is imported now; ImportError if a library is missing that it needs."""
        found: Save = self._module().save
        return found

    @property
    def opened(self) -> Opened:
        """Its module's `opened`; as for `save`."""
        found: Opened = self._module().opened
        return found

    def _module(self) -> ModuleType:
        return import_module(f"singa_lite.snapshots.formats.{self.module}")


FORMATS = (
    Format(
        *("Keras 3 weights", (".weights.h5",), "keras.weights"),
        converts_layouts=True,
        dtypes=(*_PLAIN, "bfloat16"),
    ),
    Format("singa_lite", (".h5", ".hdf5"), "native", has_optimizer=True),
    Format(
        *("safetensors", (".safetensors",), "safetensors.file"),
        has_optimizer=True,
        converts_layouts=True,
        options=("names",),
        dtypes=(*_PLAIN, "complex64"),
    ),
    Format("NumPy archive", (".npz",), "npz", has_optimizer=True),
    Format("SINGA 1.0 to 5.x", (".bin", ".model", ".desc"), "singa.records", is_written=False),
    Format("SINGA pickle", (".pickle", ".pkl"), "singa.arrays", is_written=False),
    Format("SINGA 3.1 and later", (".zip",), "singa.arrays", is_written=False),
)


def of_path(path: Path, options: Mapping[str, object] | None = None) -> Format:
    """The format of a file of that name. SnapshotError for another suffix, TypeError for options it does not have."""
    name = os.fsdecode(path if isinstance(path, bytes) else checks.path("a snapshot", path))
    for one in FORMATS:
        if name.lower().endswith(one.suffixes):
            strange = sorted(set(options or ()) - set(one.options))
            if strange:
                raise TypeError(f"{name}: wanted options of {one.name}, {list(one.options)}, received {strange}")
            return one
    suffixes = ", ".join(suffix for one in FORMATS for suffix in one.suffixes)
    raise SnapshotError(
        f"{name}: wanted a name that ends in one of {suffixes}; Keras takes .weights.h5, PyTorch .safetensors; of a "
        "language model net.save also writes .gguf, or a folder/, and models.load reads them"
    )
