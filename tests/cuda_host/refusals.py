"""Stand-ins for NVIDIA's libraries that refuse what those may refuse, at random by a seed, and note what then served.

cuBLASLt has no algorithm for an epilogue of some types, for a product, or within the workspace that it is allowed, and
wants more or less of that by how operands are aligned; its ReLU loses NaN. cuDNN has no plan for a graph, or an engine
breaks.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from host_convolutions import PROPERTIES, HostExecutor
from host_kernels import _over_numpy
from host_loader import HostLoader
from host_lt import LibraryOnHost, product_of
from singa_lite.kernels.cuda_kernels import cublaslt, cuda
from singa_lite.kernels.cuda_kernels.cublaslt import CublasLt, CublasLtError, Object
from singa_lite.kernels.cuda_kernels.cublaslt_header import NOT_SUPPORTED, PreferenceAttribute
from singa_lite.kernels.cuda_kernels.cudnn_call import Draw, Plan, Wish
from singa_lite.kernels.cuda_kernels.cudnn_convolution import Convolutions
from singa_lite.kernels.cuda_kernels.cudnn_library import described, frontend
from singa_lite.kernels.cuda_kernels.cudnn_plan import Knobs, Planner
from singa_lite.kernels.cuda_kernels.lt import ALIGNMENT, Lt
from singa_lite.kernels.cuda_kernels.pointwise import PointwiseConvolutions
from singa_lite.kernels.cuda_kernels.products import Products
from singa_lite.kernels.cuda_kernels.routine import CudaKernel, Routine
from singa_lite.kernels.kernel_set import KernelSet, specs_of

#: How often each thing is refused.
SHARE = 0.25
#: Bytes that algorithms want, and that they are allowed by a seed: short, and enough. So are the engines of cuDNN.
WANTED = (0, 4096, 1 << 20)
ALLOWED = (4096, 0, 1 << 30)


class Refusals:
    """What is refused, the same for equal questions of a seed, and what happened instead: `ran`."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.ran: set[str] = set()

    def refuses(self, *question: object) -> bool:
        return self.drawn(*question).random() < SHARE

    def drawn(self, *question: object) -> random.Random:
        return random.Random(repr((self.seed, *question)))


class RefusingLibrary(LibraryOnHost):
    """cuBLASLt that has no algorithm for some products."""

    def __init__(self, real: CublasLt, refusals: Refusals) -> None:
        super().__init__(real)
        self.refusals = refusals

    def on_host_MatmulAlgoGetHeuristic(self, handle: Object, described: Object, *rest: Any) -> None:
        """Two ways to have none: a status, and a list of none."""
        of_a, of_b, _, of_d, wish, most, found, count = rest
        product = product_of(described, of_a, of_b, of_d)
        kind = product.epilogue, product.inputs, product.output
        least = min(wish.get(one) for one in PreferenceAttribute if "ALIGNMENT" in one.name)
        if self.refusals.refuses("epilogue", *kind):
            self.refusals.ran.add("a status: not supported")
            raise CublasLtError("MatmulAlgoGetHeuristic", NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED")
        if self.refusals.refuses("product", *kind, product.m, product.n, product.k):
            self.refusals.ran.add("a list of no algorithms")
            count._obj.value = 0
            return
        limit = wish.get(PreferenceAttribute.MAX_WORKSPACE_BYTES)
        wanted = self.refusals.drawn("workspace", *kind, product.k, least).choice(WANTED)
        if least < ALIGNMENT:  # there is no way around a refusal of such, see the test of that
            self.refusals.ran.add("another algorithm for operands that are aligned less")
        elif wanted > limit:
            self.refusals.ran.add("no algorithm within a short workspace")
            count._obj.value = 0
            return
        self.wants = min(wanted, limit)
        super().on_host_MatmulAlgoGetHeuristic(handle, described, of_a, of_b, of_d, of_d, wish, most, found, count)

    def on_host_Matmul(self, *given: Any) -> None:
        """Writes to all of the workspace that it is told of, as an algorithm may."""
        workspace, nbytes = given[13:15]
        ctypes.memset(workspace, 0x5A, nbytes)
        super().on_host_Matmul(*given)


class RefusingPlanner(Planner):
    """cuDNN that has no plan for some graphs, and engines that cannot be built."""

    def __init__(self, refusals: Refusals) -> None:
        allowed = ALLOWED[refusals.seed % len(ALLOWED)]
        super().__init__(described(PROPERTIES.read_text()), HostExecutor(), Knobs(workspace_limit=allowed))
        self.refusals = refusals

    def plan(self, draw: Draw, dtype: str, wish: Wish | None = None) -> Plan | None:
        """None for a graph that is refused, by its operations."""

        def drawn(graph: Any) -> None:
            draw(graph)
            made = [node.node_type.name + str(node.params.get("mode", "")) for node in graph.nodes]
            if self.refusals.refuses("graph", dtype, *made):
                self.refusals.ran.add("a graph without a plan")
                raise _Refused

        try:
            found = super().plan(drawn, dtype, wish)
        except _Refused:
            return None
        if found is not None and wish is not None and wish.alignments:
            self.refusals.ran.add("another plan for tensors that are aligned less")
        if found is not None and wish is None:
            self.refusals.ran.add("the generic engine, as no other does with a short workspace")
        return found


class _Refused(Exception):
    """A graph that there is no plan for."""


@contextmanager
def broken_engines(refusals: Refusals) -> Iterator[None]:
    """Engines that are first in a list break at random."""
    graphs = frontend().pygraph
    real, broken = graphs.build_plan_at_index, set[int]()

    def build(graph: Any, number: int) -> Any:
        result = real(graph, number)
        if id(graph) not in broken and refusals.refuses("engine", number, graph.get_workspace_size()):
            broken.add(id(graph))
            raise RuntimeError("CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED")
        if id(graph) in broken:
            refusals.ran.add("the next engine where one breaks")
            broken.discard(id(graph))
        return result

    with patch.object(graphs, "build_plan_at_index", build):
        yield


def refusing(seed: int, libraries: bool = True) -> tuple[KernelSet, Refusals]:
    """The CUDA kernels on the host over libraries that refuse. libraries: with cuDNN."""
    refusals = Refusals(seed)
    lossy = refusals.refuses("NaN")

    def trial(routine: Routine, specs: Any, values: Any) -> Any:
        """A ReLU that makes 0 of NaN."""
        return np.array([0.0, 0.0, 1.0])

    asked = trial if lossy else None
    lt = Lt(0, ALLOWED[seed % len(ALLOWED)], RefusingLibrary(cublaslt.load(), refusals))
    products = Products(lt, trial=asked)
    pixels = PointwiseConvolutions(products)
    given: list[Mapping[str, Any]] = [products.builders, pixels.builders]
    fusions = [*products.FUSIONS, *pixels.FUSIONS]
    if libraries:
        made = Convolutions(RefusingPlanner(refusals), asked)
        given.append(made.builders)
        fusions += made.FUSIONS
    return _over_numpy("refusing", cuda(HostLoader(), None, given, fusions)), refusals


def note_what_serves(kernels: KernelSet, name: str, tensors: Any, settings: Any, refusals: Refusals) -> None:
    """Whether a library serves the call, with a kernel of ours behind it, or a kernel of ours alone; by dtype."""
    specs = specs_of(tensors)
    kernel = kernels.choose(name, specs, settings)
    assert isinstance(kernel, CudaKernel)
    routine = kernel.attempt(specs, settings)
    assert routine is not None
    is_library = len(routine.launches) < len(routine.steps)
    refusals.ran |= {f"{what}: {'the library' if is_library else 'ours'}" for what in (name, tensors[0].dtype.name)}
    if is_library and any(step.file == "activation.cu" for step in routine.launches):
        refusals.ran.add(f"{name}: ReLU of ours behind the library")


def placed(tensor: Any, shift: int) -> Any:
    """A copy that begins so many elements behind a multiple of 512 bytes."""
    if tensor is None:
        return None
    whole = np.zeros(tensor.nbytes + 1024, np.uint8)
    start = -whole.ctypes.data % 512 + shift * tensor.itemsize
    made = np.ndarray(tensor.shape, tensor.dtype, whole, start)
    made[...] = tensor
    return made
