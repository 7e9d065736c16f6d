"""Boundaries of the chunks of a set on disk, which are best read whole."""

from __future__ import annotations

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.tensor import Shape


def chunk_starts(given: object, shape: Shape) -> Array | None:
    """The number of the first sample of each chunk, int64 rising from 0; None for what does not say how it is stored.

    given: an HDF5 or zarr set, which has `chunks`, None for one in one piece; or any object with `starts`, these
    numbers themselves.
    """
    starts = getattr(given, "starts", None)
    if starts is not None:
        return np.asarray(starts, np.int64)
    if not hasattr(given, "chunks"):
        return None
    chunks = given.chunks
    step = chunks[0] if isinstance(chunks, tuple) and chunks else shape[0]
    return np.arange(0, shape[0], max(1, int(step)), dtype=np.int64)
