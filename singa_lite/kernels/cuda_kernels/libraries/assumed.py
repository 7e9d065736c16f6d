"""cuBLASLt and cuDNN as they are assumed where they cannot be asked: each call that they are known for is theirs.

What the libraries would answer is known only beside the GPU: whether they have an engine for a call, and how much
workspace it wants. Assumed is that they have one, and that it wants all that it may. Where they have none for a call,
kernels of ours serve, whose scratch is another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

from singa_lite.kernels.built import CallBuilder
from singa_lite.kernels.cuda_kernels.libraries.cudnn_attention import Attention
from singa_lite.kernels.cuda_kernels.libraries.cudnn_call import Draw
from singa_lite.kernels.cuda_kernels.libraries.cudnn_convolution import Convolutions
from singa_lite.kernels.cuda_kernels.libraries.product import Multiplier, Product
from singa_lite.kernels.cuda_kernels.libraries.products import Products
from singa_lite.kernels.cuda_kernels.pointwise import PointwiseConvolutions
from singa_lite.kernels.cuda_kernels.routine import LibraryCall, Routine
from singa_lite.kernels.kernel_set import Launch

#: Bytes that cuBLASLt is allowed for a product; `device/cuda_libraries.py` has the same.
PRODUCTS = 64 << 20
#: Bytes that an engine of cuDNN wants beside copies of the tensors, and as what share of these: for few channels, which
#: are rounded up.
FURTHER, SHARE = 1 << 20, 1 / 16
#: By kernel.
Builders = Mapping[str, CallBuilder[Routine]]


def assumed(workspace: int) -> tuple[list[Builders], Collection[tuple[str, str]]]:
    """(builders, what they do in one go) of both libraries. workspace: bytes that each call wants."""
    products = Products(AssumedProducts(min(workspace, PRODUCTS)))
    pixels, planner = PointwiseConvolutions(products), AssumedPlanner(workspace)
    convolutions, attention = Convolutions(planner), Attention(planner)
    fusions = {*products.FUSIONS, *pixels.FUSIONS, *convolutions.FUSIONS}
    return [products.builders, pixels.builders, convolutions.builders, attention.builders], fusions


class AssumedProducts(Multiplier):
    """A multiplier that has every product, and does none. workspace: bytes that each wants."""

    def __init__(self, workspace: int) -> None:
        self._workspace = workspace

    def workspace_bytes(self, product: Product) -> int:
        """The same for all."""
        return self._workspace

    def bind(self, product: Product, addresses: Sequence[int], workspace: int) -> Launch:
        """RuntimeError."""
        _no_gpu()


class AssumedPlanner:
    """Has a call for each graph, and runs none. workspace: bytes that each wants at most."""

    def __init__(self, workspace: int) -> None:
        self._workspace = workspace

    def call(self, draw: Draw, dtype: str, nbytes: int) -> AssumedCall:
        """Nothing is drawn. Engines want at most a copy of each tensor in the order of axes that they are made for."""
        return AssumedCall(min(self._workspace, wanted_at_most(nbytes)))

    def call_within(self, draw: Draw, dtype: str, limit: int) -> AssumedCall:
        """Nothing is drawn."""
        return AssumedCall(min(self._workspace, limit))


def wanted_at_most(nbytes: int) -> int:
    """Bytes of workspace of an engine for tensors of so many bytes; what the nets of the benchmarks want is less."""
    return nbytes + int(SHARE * nbytes) + FURTHER


class AssumedCall(LibraryCall):
    """A call of a library that is not there."""

    def __init__(self, scratch_bytes: int) -> None:
        self.scratch_bytes = scratch_bytes

    def bind(self, addresses: Sequence[int], scratch: int, nbytes: int) -> Launch:
        """RuntimeError."""
        _no_gpu()


class NoCompiler:
    """Compiles nothing, as nothing is to be run."""

    def function(self, file: str, kernel: str, types: tuple[tuple[str, str], ...]) -> NoReturn:
        """RuntimeError."""
        _no_gpu()


def _no_gpu() -> NoReturn:
    raise RuntimeError("running a kernel: wanted a GPU, received the kernels of one that is not there, made for plans")
