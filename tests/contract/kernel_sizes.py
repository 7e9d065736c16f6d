"""The cases of the kernel tables in further sizes: single elements, whole packs, more than a warp or a block takes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np

import kernel_cases_pointwise as pointwise
import kernel_cases_spatial as spatial
from kernel_case import Case, Tensors


def for_both(small: Any) -> tuple[Any, Any]:
    """A small size in the place of a small and a big one."""
    return small, small


def _sizes(axes: tuple[int, int, int], image: tuple[int, ...], flat: tuple[int, int], row: int) -> dict[str, Any]:
    """What the tables of cases call their sizes. flat: (n, c); row: features of layer normalization."""
    return {
        "SMALL": axes,
        "IMAGES": for_both(image),
        "PARAMETERS": for_both(axes),
        "CHANNELS": {0: for_both(flat), 1: for_both(axes), 2: for_both(image)},
        "ROWS": {
            "": for_both(((3,), (row,))),
            ":images": for_both(((1,), (row, 1, 2))),
            ":single": for_both(((), (row, 1))),
        },
    }


#: The tables' own small sizes (all extents different, most of them primes), as little as there is, a little more than
#: a warp, a block or a tile has, and whole packs of elements. Images of at least 7 x 9, the kernel of a global pooling.
SIZES: dict[str, dict[str, Any]] = {
    "small": {},
    "ones": _sizes((1, 1, 2), (1, 1, 7, 9), (2, 1), 1),
    "over a warp": _sizes((1, 3, 33), (1, 33, 7, 9), (33, 3), 33),
    "over a block": _sizes((1, 2, 1031), (2, 3, 17, 16), (3, 257), 1031),
    "packs": _sizes((3, 16, 12), (2, 24, 7, 12), (9, 16), 128),
    "one value a channel": _sizes((1, 6, 1), (1, 12, 7, 9), (1, 6), 1021),
    "one channel": _sizes((5, 1, 37), (5, 1, 9, 11), (17, 1), 1030),
    "many channels": _sizes((2, 130, 3), (2, 130, 8, 9), (2, 130), 5001),
    "long rows": _sizes((1, 4, 257), (1, 3, 23, 29), (3, 20_000), 8200),
}


def build(case: Case, size: str, dtype: Any = np.float32) -> tuple[Tensors, dict[str, Any]]:
    """The case's tensors and settings in that size."""
    with ExitStack() as changed:
        for module in (pointwise, spatial):
            for name, value in SIZES[size].items():
                if hasattr(module, name):
                    changed.enter_context(patch.object(module, name, value))
        return case.build(np.random.default_rng(7), np.dtype(dtype), False)
