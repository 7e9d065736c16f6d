"""Where the chunks of a set on disk begin, which are best read whole."""

from __future__ import annotations

import numpy as np

from singa_lite.array_types import Array
from singa_lite.tensor import Shape

#: Bytes of samples that are read in one go where a set has no chunks.
_BLOCK = 2**20


def chunk_starts(given: object, shape: Shape, sample_bytes: int) -> Array | None:
    """The number of the first sample of each chunk, int64 rising from 0; None for what does not say how it is stored.

    given: an HDF5 or zarr set, which has `chunks`; or any object with `starts`, these numbers themselves.
    """
    starts = getattr(given, "starts", None)
    if starts is not None:
        return np.asarray(starts, np.int64)
    if not hasattr(given, "chunks"):
        return None
    chunks = given.chunks
    step = chunks[0] if isinstance(chunks, tuple) and chunks else _BLOCK // max(1, sample_bytes)
    return np.arange(0, shape[0], max(1, int(step)), dtype=np.int64)
