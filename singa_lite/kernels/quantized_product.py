"""Products with weights in quantised blocks: numbers of some rows or columns at a time, then a product with these.

The numbers of a tile lie in the scratch, so that they are in a cache when the product reads them, and a weight never
exists whole. Tiles are cut by shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from singa_lite.common.array_types import DType
from singa_lite.kernels.composed import Calls, ComposedKernel, InnerCall, Temporaries, product
from singa_lite.kernels.interface.quantized import FORMATS
from singa_lite.kernels.kernel_set import Kernel, KernelSet, Settings, TensorSpecs

#: What the numbers of a tile take at most on a CPU, but that a tile has some rows, or the columns of a block, at least.
TILE_BYTES = 4 << 20
#: Tiles are cut at multiples of it, so that products begin at addresses that libraries have their fast code for.
ALIGNED = 8


def products(
    kernels: KernelSet,
    tile_bytes: int = TILE_BYTES,
    supports: Callable[[str, TensorSpecs, Settings], bool] = lambda *_: True,
) -> dict[str, Kernel]:
    """The products with quantised weights by the kernels of a set. supports: whether a call can be done so."""
    calls: dict[str, Calls] = {"quantized_linear": _linear, "quantized_linear_derivative": _derivative}
    return {
        name: ComposedKernel(partial(made_of, tile_bytes), kernels, partial(supports, name))
        for name, made_of in calls.items()
    }


def _linear(
    tile_bytes: int, temporaries: Temporaries, x: Any, blocks: Any, bias: Any, y: Any, *, format: str
) -> Iterator[InnerCall]:
    """By rows of the weight, each an output."""
    for rows, tile in _row_tiles(tile_bytes, temporaries, blocks, _narrower(x, y), x.shape[1]):
        yield InnerCall("dequantize", (blocks[rows], tile), {"format": format})
        yield InnerCall("linear", (x, tile.T, None if bias is None else bias[rows], y[:, rows]))


def _derivative(
    tile_bytes: int, temporaries: Temporaries, dy: Any, blocks: Any, dx: Any, *, format: str
) -> Iterator[InnerCall]:
    """By columns, whose results are whole; by rows, whose products are added up, where a block of all rows is large."""
    dtype, (numbers, nbytes) = _narrower(dy, dx), FORMATS[format]
    (rows, columns), most = (dy.shape[1], dx.shape[1]), tile_bytes // dtype.itemsize // dy.shape[1]
    if most < numbers:
        yield from _added_up(tile_bytes, temporaries, dy, blocks, dx, format)
        return
    each = _piece_extent(columns, most, max(numbers, ALIGNED))
    memory = temporaries.array((rows * each,), dtype)
    for start in range(0, columns, each):
        some = slice(start, min(start + each, columns))
        tile = memory[: rows * (some.stop - start)].reshape(rows, -1)
        of_blocks = slice(start // numbers * nbytes, some.stop // numbers * nbytes)
        yield InnerCall("dequantize", (blocks[:, of_blocks], tile), {"format": format})
        yield product(dy, tile, dx[:, some])


def _added_up(
    tile_bytes: int, temporaries: Temporaries, dy: Any, blocks: Any, dx: Any, format: str
) -> Iterator[InnerCall]:
    """The sum of several products of 16 bits is one of float32, which is rounded once."""
    tiles = [*_row_tiles(tile_bytes, temporaries, blocks, _narrower(dy, dx), dx.shape[1])]
    is_rounded = len(tiles) > 1 and dx.dtype.itemsize == 2
    total = temporaries.array(dx.shape, "float32") if is_rounded else dx
    for rows, tile in tiles:
        yield InnerCall("dequantize", (blocks[rows], tile), {"format": format})
        yield product(dy[:, rows], tile, total, "matmul_add" if rows.start else "matmul")
    if is_rounded:
        yield InnerCall("copy", (total, dx))


def _row_tiles(
    tile_bytes: int, temporaries: Temporaries, blocks: Any, dtype: DType, columns: int
) -> Iterator[tuple[slice, Any]]:
    """Rows of the weight, and memory for their numbers, which all tiles share."""
    rows = blocks.shape[0]
    each = _piece_extent(rows, tile_bytes // dtype.itemsize // columns, ALIGNED)
    tile = temporaries.array((each, columns), dtype)
    for start in range(0, rows, each):
        stop = min(start + each, rows)
        yield slice(start, stop), tile[: stop - start]


def _narrower(a: Any, b: Any) -> DType:
    """Of activations: numbers of the weight are rounded to it, as those of a parameter are."""
    return min(a.dtype, b.dtype, key=lambda dtype: dtype.itemsize)


def _piece_extent(extent: int, most: int, unit: int) -> int:
    """The extent of equal pieces, in whole units, of which a piece has one at least; the last piece may be smaller."""
    pieces = -(-extent // max(most // unit * unit, unit))
    return min(-(-extent // (pieces * unit)) * unit, extent)
