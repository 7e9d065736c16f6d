"""Makes the header of a safetensors file of its entries."""

from __future__ import annotations

import json
from collections.abc import Mapping

from singa_lite.common.array_types import DType
from singa_lite.common.errors import SnapshotError
from singa_lite.snapshots.readers.safetensors import DTYPES, LONGEST, METADATA, TensorInfo, encoded

_CODES = {name: code for code, name in DTYPES.items() if code != "BF16"}


def code_of(dtype: DType) -> str:
    """The format's name of a dtype that the format has."""
    return _CODES[dtype.name]


def to_bytes(where: str, entries: Mapping[str, TensorInfo], metadata: Mapping[str, str]) -> bytes:
    """Length and header, as a file begins. SnapshotError for a name that is no Unicode, and for a header too long."""
    contents: dict[str, object] = {METADATA: dict(metadata)}
    for name, entry in entries.items():
        contents[name] = {"dtype": entry.code, "shape": entry.shape, "data_offsets": (entry.begin, entry.end)}
    text = encoded(where, json.dumps(contents, ensure_ascii=False, separators=(",", ":")))
    text += b" " * (-len(text) % 8)
    if METADATA in entries or len(text) > LONGEST:
        raise SnapshotError(f"{where}: wanted at most {LONGEST} bytes of header and no entry {METADATA!r}")
    return len(text).to_bytes(8, "little") + text
