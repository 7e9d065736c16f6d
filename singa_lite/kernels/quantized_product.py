"""Products with quantised weights, by the kernels of a set: numbers of some rows or columns at a time, then a product.

The numbers of a tile lie in the scratch, so that they are in a cache when the product reads them, and a weight never
exists whole. Tiles are cut by shapes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from singa_lite.common.array_types import Array
from singa_lite.common.checks import is_bfloat16
from singa_lite.kernels.carving import aligned, carved, unread
from singa_lite.kernels.interface.quantized import FORMATS
from singa_lite.kernels.kernel_set import DeviceArray, Kernel, KernelSet, Launch, Settings, TensorSpec, TensorSpecs
from singa_lite.kernels.routine import in_order

#: What the numbers of a tile take at most, but that a tile has a row, or the columns of a block, at least.
TILE_BYTES = 4 << 20
#: Rows of x from which on numbers in bfloat16 are multiplied as such: with fewer rows it saves no time.
LEAST_NARROW = 128
#: Of a call, None for one that is left out.
Arrays = tuple[DeviceArray, ...]
#: A call of another kernel of the set.
Call = tuple[str, Arrays, Mapping[str, object]]


class QuantizedProduct:
    """A product with quantised weights. name: of the kernel; kernels: the set whose kernels it is made of."""

    def __init__(self, name: str, kernels: KernelSet) -> None:
        self.name, self.kernels = name, kernels

    def supports(self, specs: TensorSpecs, settings: Settings) -> bool:
        """Whether it takes the operands as they are: those in bfloat16 where the set multiplies such, as it
        does of many rows. Numbers of the weight are then rounded to bfloat16, as those of a parameter are.

        A call that a loop does, as of few rows, is left to it. NumPy, the last of the sets, has no loops.
        """
        below = self.kernels.fallback
        has_loops = below is not None and below.fallback is not None and self.name in below.kernels
        if below is not None and has_loops and below.kernels[self.name].serves(specs, settings):
            return False
        if not any(spec is not None and is_bfloat16(spec.dtype) for spec in specs):
            return True
        return self.kernels.has_bfloat16 and specs[0] is not None and specs[0].shape[0] >= LEAST_NARROW

    serves = supports

    def scratch_bytes(self, specs: TensorSpecs, settings: Settings) -> int:
        """Of a tile, and of the call that needs most."""
        calls = _Tiles(
            self.name, tuple(None if spec is None else unread(spec) for spec in specs), None, str(settings["format"])
        )
        seen = {_form(call): call for call in calls.all()}
        most = [self.kernels.scratch_bytes(name, arrays, given) for name, arrays, given in seen.values()]
        return calls.nbytes + max(most, default=0)

    def prepare(self, arrays: Arrays, scratch: Array | None, settings: Settings) -> Launch:
        """Bind all calls."""
        calls = _Tiles(self.name, arrays, scratch, str(settings["format"]))
        rest = None if scratch is None else scratch[calls.nbytes :]
        return in_order([self.kernels.prepare(name, given, rest, also) for name, given, also in calls.all()])


class _Tiles:
    """The calls of one product. nbytes: of scratch that all of them use."""

    def __init__(self, name: str, arrays: Arrays, scratch: Array | None, format: str) -> None:
        self.format, (self.x, self.blocks, *beside, self.y) = format, arrays
        self.bias = beside[0] if beside else None
        blocks = self.blocks
        self.is_back = name == "quantized_linear_derivative"
        self.numbers, self.block_bytes = FORMATS[format]
        rows, columns = blocks.shape[0], FORMATS[format].columns(blocks.shape[1])
        dtype = next((a.dtype for a in (self.x, self.y) if is_bfloat16(a.dtype)), self.y.dtype)
        limit = TILE_BYTES // dtype.itemsize
        self.by_columns = self.is_back and rows * self.numbers <= limit
        if self.by_columns:
            each = self.numbers * _piece_extent(columns // self.numbers, limit // rows // self.numbers)
            self.starts, shape = range(0, columns, each), (rows, each)
        else:
            each = _piece_extent(rows, limit // columns)
            self.starts, shape = range(0, rows, each), (each, columns)
        self.tile = carved(scratch, 0, _by_rows(shape, dtype))
        self.nbytes = aligned(self.tile.nbytes)
        self.total = self.y
        if self.is_back and not self.by_columns and len(self.starts) > 1 and is_bfloat16(self.y.dtype):
            self.total = carved(scratch, self.nbytes, _by_rows(self.y.shape, np.dtype(np.float32)))
            self.nbytes += aligned(self.total.nbytes)

    def all(self) -> Iterator[Call]:
        """In their order."""
        for start in self.starts:
            stop = min(start + self.starts.step, self.starts.stop)
            yield from (self._by_columns if self.by_columns else self._by_rows)(start, stop)
        if self.total is not self.y:
            yield "copy", (self.total, self.y), {}

    def _by_columns(self, start: int, stop: int) -> Iterator[Call]:
        first, last = (place // self.numbers * self.block_bytes for place in (start, stop))
        tile = self.tile.reshape(-1)[: self.blocks.shape[0] * (stop - start)].reshape(-1, stop - start)
        yield "dequantize", (self.blocks[:, first:last], tile), {"format": self.format}
        yield "matmul", (self.x, tile, self.y[:, start:stop]), {"transpose_a": False, "transpose_b": False}

    def _by_rows(self, start: int, stop: int) -> Iterator[Call]:
        tile = self.tile[: stop - start]
        yield "dequantize", (self.blocks[start:stop], tile), {"format": self.format}
        if not self.is_back:
            bias = None if self.bias is None else self.bias[start:stop]
            yield "linear", (self.x, tile.T, bias, self.y[:, start:stop]), {}
            return
        product = "matmul_add" if start else "matmul"
        yield product, (self.x[:, start:stop], tile, self.total), {"transpose_a": False, "transpose_b": False}


def _piece_extent(extent: int, most: int) -> int:
    """The extent of equal pieces of an extent, at most `most` but at least 1; the last piece may be smaller."""
    return -(-extent // -(-extent // max(most, 1)))


def products(kernels: KernelSet) -> dict[str, Kernel]:
    """The products with quantised weights by the kernels of a set."""
    return {name: QuantizedProduct(name, kernels) for name in ("quantized_linear", "quantized_linear_derivative")}


def _by_rows(shape: tuple[int, ...], dtype: np.dtype) -> TensorSpec:
    """The spec of a matrix in C order."""
    return TensorSpec(shape, dtype, (shape[1] * dtype.itemsize, dtype.itemsize))


def _form(call: Call) -> tuple[object, ...]:
    """All that the scratch of a call goes by."""
    return call[0], *(None if a is None else (a.shape, a.dtype, a.strides) for a in call[1])
