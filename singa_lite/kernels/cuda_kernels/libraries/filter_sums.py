"""Gradients by filters in two stages: few results of many pixels, which are split so that a whole GPU has work."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from singa_lite.kernels.cuda_kernels.images import images, positions
from singa_lite.kernels.cuda_kernels.routine import Routine, blocks
from singa_lite.kernels.cuda_kernels.source import computed
from singa_lite.kernels.kernel_set import TensorSpec
from singa_lite.kernels.routine import Temporary

#: Blocks that keep a GPU busy.
BLOCKS = 512
#: Fewest pixels of a split, of which each has a multiple of `STEP`.
LEAST_PIXELS = 128
STEP = 16
MOST_SPLITS = 256
#: Most bytes of the splits' sums, unless one split has more.
MOST_BYTES = 16 << 20


class Splits(NamedTuple):
    """`number` of them, `each` pixels in a row."""

    number: int
    each: int

    def temporary(self, routine: Routine, dweight: TensorSpec) -> Temporary:
        """The sums of the splits: (number, k, kh, kw, c / groups) in the type of sums."""
        return routine.temporary((self.number, *dweight.shape), computed(dweight.dtype))


def splits_for(pixels: int, tiles: int, dweight: TensorSpec) -> Splits:
    """By shapes alone, so that sums are the same for all strides. tiles: blocks that work on one split."""
    bytes_of_one = dweight.size * computed(dweight.dtype).itemsize
    wanted = min(-(-BLOCKS // tiles), pixels // LEAST_PIXELS, MOST_BYTES // bytes_of_one, MOST_SPLITS)
    each = -(-pixels // max(wanted, 1))
    each = -(-each // STEP) * STEP
    return Splits(-(-pixels // each), each)


def sum_of_splits(routine: Routine, splits: Splits, partials: Temporary, dweight: TensorSpec) -> Routine:
    """Adds the second stage."""
    order = positions(dweight, inside=True)
    operands = images(dweight), order, np.int32(splits.number), partials, dweight
    grid = blocks(dweight.size)
    return routine.launch("filter_sums.cu", "filter_sums", *operands, types={"T": dweight.dtype}, grid=grid)
