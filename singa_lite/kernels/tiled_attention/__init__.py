"""Attention by tiles, written once for all kernel sets that work on NumPy's arrays: they bring the arithmetic."""

from singa_lite.kernels.tiled_attention.backward import Backward as Backward
from singa_lite.kernels.tiled_attention.forward import Forward as Forward
from singa_lite.kernels.tiled_attention.passes import Arithmetic as Arithmetic
from singa_lite.kernels.tiled_attention.passes import Call as Call
from singa_lite.kernels.tiled_attention.passes import Drop as Drop
from singa_lite.kernels.tiled_attention.tiles import BufferSpecs as BufferSpecs
from singa_lite.kernels.tiled_attention.tiles import Tiling as Tiling
from singa_lite.kernels.tiled_attention.tiles import tiling as tiling
