"""NVIDIA's libraries with a GPU of NumPy's: products and convolutions over host memory, from what each library is told.

cuBLASLt keeps its own descriptors and cuDNN plans its own graphs, for a GPU that is described to it.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from host_loader import host_bytes
from singa_lite.kernels.cuda_kernels.libraries.cublaslt import CublasLt, CublasLtError, Object
from singa_lite.kernels.cuda_kernels.libraries.cublaslt_header import (
    NOT_SUPPORTED,
    Algorithm,
    DataType,
    Epilogue,
    LayoutAttribute,
    MatmulAttribute,
    PreferenceAttribute,
)
from singa_lite.kernels.cuda_kernels.libraries.cudnn_attention import Attention
from singa_lite.kernels.cuda_kernels.libraries.cudnn_call import Draw, EngineConditions, Plan
from singa_lite.kernels.cuda_kernels.libraries.cudnn_convolution import Convolutions
from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import CudnnNotFoundError, described, frontend
from singa_lite.kernels.cuda_kernels.libraries.cudnn_plan import Knobs, Planner
from singa_lite.kernels.cuda_kernels.libraries.lt import DATA_TYPES
from singa_lite.kernels.cuda_kernels.libraries.product import Layout, Product
from singa_lite.kernels.cuda_kernels.libraries.products import Products
from singa_lite.kernels.cuda_kernels.pointwise import PointwiseConvolutions
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.numpy_kernels import NUMPY

# ---- products

#: Products of so many summands get a workspace, as those that the library splits among blocks.
SPLIT_FROM = 16
WORKSPACE_LIMIT = 32 << 20


class HostMultiplier:
    """Stands in for the library: workspaces like its own, which it fills, and all epilogues."""

    def __init__(self) -> None:
        self.done: list[Product] = []

    def workspace_bytes(self, product: Product) -> int | None:
        partial = 4 * product.batch * product.m * product.n
        return partial if product.k >= SPLIT_FROM and partial <= WORKSPACE_LIMIT else 0

    def bind(self, product: Product, addresses: Sequence[int], workspace: int) -> Launch:
        a, b, d, bias = addresses
        assert a and b and d, "an operand is left out"
        assert bool(bias) == product.epilogue.has_bias, "a bias too few or too many"
        left = _matrices(a, product.inputs, product.a, product.batch)
        right = _matrices(b, product.inputs, product.b, product.batch)
        left = left.swapaxes(1, 2) if product.transpose_a else left
        right = right.swapaxes(1, 2) if product.transpose_b else right
        result = _matrices(d, product.output, product.d, product.batch)
        nbytes = product.m * np.dtype(product.output).itemsize
        vector = host_bytes(bias, nbytes).view(product.output) if bias else None
        work = host_bytes(workspace, self.workspace_bytes(product) or 0) if workspace else None

        def launch() -> None:
            if work is not None:
                work.fill(0xFF)
            held = result.copy() if product.accumulate else 0
            with np.errstate(all="ignore"):
                _multiply(left, right, result)
                if product.accumulate:
                    np.add(result, held, out=result)
                _finish(product, left, result, vector)
            self.done.append(product)

        return launch


def _matrices(address: int, dtype: str, layout: Layout, batch: int) -> np.ndarray:
    """(batch, rows, columns), column by column in memory."""
    size = np.dtype(dtype).itemsize
    elements = (batch - 1) * layout.stride + (layout.columns - 1) * layout.leading + layout.rows
    flat = host_bytes(address, elements * size).view(dtype)
    steps = (layout.stride * size, layout.leading * size, size)
    return as_strided(flat, (batch, layout.columns, layout.rows), steps).swapaxes(1, 2)


def _multiply(left: np.ndarray, right: np.ndarray, result: np.ndarray) -> None:
    if left.dtype.itemsize < 4:  # sums of halves are float32
        result[...] = left.astype(np.float32) @ right.astype(np.float32)
    else:
        np.matmul(right.swapaxes(1, 2), left.swapaxes(1, 2), out=result.swapaxes(1, 2))


def _finish(product: Product, left: np.ndarray, d: np.ndarray, vector: np.ndarray | None) -> None:
    epilogue = product.epilogue
    if epilogue.adds_bias:
        d += vector[:, None]
    if epilogue & Epilogue.RELU:
        np.maximum(d, 0, out=d)
    if epilogue.sums:
        vector[...] = left[0].sum(axis=1)


# ---- cuBLASLt


class LayoutRead(Enum):
    """CUBLASLT_MATRIX_LAYOUT_*: what a layout is made with."""

    TYPE = 0, c.c_uint32
    ROWS = 2, c.c_uint64
    COLS = 3, c.c_uint64
    LD = 4, c.c_int64


class MatmulRead(Enum):
    """CUBLASLT_MATMUL_DESC_*: what a product is made with."""

    COMPUTE_TYPE = 0, c.c_int32
    SCALE_TYPE = 1, c.c_int32


class LibraryOnHost:
    """In the place of `CublasLt`: its functions that want a GPU are those below. wants: bytes of workspace.

    asked: the preferences of each question to the heuristic; done: the products with their compute types; work: the
    workspace, its bytes and the stream of each.
    """

    def __init__(self, real: CublasLt, wants: int = 4096) -> None:
        self.real = real
        self.wants: int | None = wants
        self.asked: list[dict[str, int]] = []
        self.done: list[tuple[Product, int]] = []
        self.work: list[tuple[int, int, int]] = []

    def __getitem__(self, name: str) -> Any:
        """A function, of these or of the library."""
        return getattr(self, f"on_host_{name}", None) or self.real[name]

    def submit(self, launch: Launch, stream: int) -> None:
        """What a product does, on its stream: at once."""
        launch()

    def on_host_Create(self, made: Any) -> None:
        made._obj.value = 1

    def on_host_Destroy(self, made: Any) -> None:
        pass

    def on_host_MatmulAlgoGetHeuristic(self, handle: Object, described: Object, *rest: Any) -> None:
        *_, wish, most, found, count = rest
        self.asked.append({attribute.name: wish.get(attribute) for attribute in PreferenceAttribute})
        limit = wish.get(PreferenceAttribute.MAX_WORKSPACE_BYTES)
        if self.wants is None:
            raise CublasLtError("MatmulAlgoGetHeuristic", NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED")
        assert most == 1
        found._obj.workspaceSize = min(self.wants, limit)
        found._obj.algo.data[0] = len(self.asked)
        count._obj.value = 1

    def on_host_Matmul(self, handle: Object, described: Object, *given: Any) -> None:
        alpha, a, of_a, b, of_b, beta, before, of_c, d, of_d, algorithm, *work = given
        workspace, workspace_bytes, stream = work
        scale = {DataType.R_32F: c.c_float, DataType.R_64F: c.c_double}[DataType(described.get(MatmulRead.SCALE_TYPE))]
        assert (type(alpha._obj), alpha._obj.value, type(beta._obj)) == (scale, 1, scale)
        assert beta._obj.value in (0, 1)
        assert (before, of_c) == (d, of_d)
        assert isinstance(algorithm._obj, Algorithm)
        assert algorithm._obj.data[0] > 0
        product = replace(product_of(described, of_a, of_b, of_d), accumulate=bool(beta._obj.value))
        bias = described.get(MatmulAttribute.BIAS_POINTER)
        self.submit(HostMultiplier().bind(product, (a, b, d, bias), 0), stream)
        self.done.append((product, described.get(MatmulRead.COMPUTE_TYPE)))
        self.work.append((workspace, workspace_bytes, stream))


def product_of(described: Object, a: Object, b: Object, d: Object) -> Product:
    names = {number: name for name, number in DATA_TYPES.items()}
    types = [names[DataType(layout.get(LayoutRead.TYPE))] for layout in (a, b, d)]
    assert types[0] == types[1]
    return Product(
        types[0],
        types[2],
        *map(_layout, (a, b, d)),
        transpose_a=bool(described.get(MatmulAttribute.TRANSA)),
        transpose_b=bool(described.get(MatmulAttribute.TRANSB)),
        batch=d.get(LayoutAttribute.BATCH_COUNT),
        epilogue=Epilogue(described.get(MatmulAttribute.EPILOGUE)),
    )


def _layout(found: Object) -> Layout:
    extents = (found.get(attribute) for attribute in (LayoutRead.ROWS, LayoutRead.COLS, LayoutRead.LD))
    return Layout(*extents, found.get(LayoutAttribute.STRIDED_BATCH_OFFSET))


# ---- cuDNN

PROPERTIES = Path(__file__).with_name("h100_properties.json")
#: NumPy's types by the library's names.
TYPES = {"HALF": np.float16, "FLOAT": np.float32, "DOUBLE": np.float64}
if find_spec("ml_dtypes"):  # NumPy has no bfloat16 of its own
    TYPES["BFLOAT16"] = import_module("ml_dtypes").bfloat16


@cache
def missing() -> str:
    """What is wanted to plan here and not found; "" if all is there."""
    try:
        frontend()
    except CudnnNotFoundError as error:
        return str(error)
    return ""


def convolutions(trial: Any = None, **knobs: Any) -> Convolutions:
    """The builders, with plans for an H100, run by NumPy. trial: as of `Convolutions`."""
    return Convolutions(Planner(described(PROPERTIES.read_text()), HostExecutor(), Knobs(**knobs)), trial)


def attention(**knobs: Any) -> Attention:
    """The builders, with graphs that the library takes for an H100, run by NumPy."""
    return attending_by(Planner(described(PROPERTIES.read_text()), HostExecutor(), Knobs(**knobs)))


def attending_by(planner: Planner) -> Attention:
    """The builders over what another planner plans for, and has its graphs run by."""
    return Attention(GraphPlanner(planner.target, planner.executor, planner.knobs), planner.knobs.deterministic)


class GraphPlanner(Planner):
    """Plans whose engine is left open: those of attention are compiled and loaded by the driver, which is not here."""

    def plan(self, draw: Draw, dtype: str, wish: EngineConditions | None = None) -> Plan | None:
        """None where the library does not take the graph."""
        try:
            graph = self.graph(draw, dtype, {} if wish is None else wish.alignments)
        except frontend().cudnnGraphNotSupportedError:
            return None
        return Plan(graph, workspace_of(graph), 1, "")


#: Bytes of workspace of a graph without an engine.
OPEN = 512


def workspace_of(graph: Any) -> int:
    """Bytes that a run of the graph wants."""
    try:
        return graph.get_workspace_size()
    except RuntimeError:
        return OPEN


class HostExecutor:
    """Stands in for a GPU. done: the operations of each graph that ran; told: the settings of the last of each."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []
        self.told: list[dict[str, Any]] = []

    def bind(self, graph: Any, addresses: Mapping[int, int], workspace: int) -> Launch:
        """Each operation as the graph states it; the workspace is overwritten, as the library may."""
        needed = workspace_of(graph)
        assert bool(workspace) == bool(needed), "a workspace where none is wanted, or none where one is"
        tensors = {t.uid: t for node in graph.nodes for t in (*node.inputs.values(), *node.outputs.values())}
        assert {uid for uid, t in tensors.items() if not t.is_virtual} == set(addresses), (
            "other tensors than the graph's"
        )
        outside = {uid: shown(tensors[uid], address) for uid, address in addresses.items()}
        arithmetic = TYPES[graph.context.compute_data_type.name]
        inside = {uid: computed(tensor, outside.get(uid), arithmetic) for uid, tensor in tensors.items()}
        steps = [step(node, inside) for node in graph.nodes]
        work = host_bytes(workspace, needed) if needed else None
        written = [t.uid for node in graph.nodes for t in node.outputs.values() if t.uid in outside]
        at = {addresses[uid] for uid in written}
        assert at.isdisjoint(address for uid, address in addresses.items() if uid not in written), (
            "a result over an operand"
        )
        names = tuple(map(operation, graph.nodes))

        def launch() -> None:
            if work is not None:
                work.fill(0xFF)
            for uid in outside.keys() - set(written):
                move(outside[uid], inside[uid])
            for run in steps:
                run()
            for uid in written:
                move(inside[uid], outside[uid])
            self.done.append(names)
            self.told.append(dict(graph.nodes[-1].params))

        return launch


def shown(tensor: Any, address: int) -> np.ndarray:
    dtype = np.dtype(TYPES[tensor.data_type.name])
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.dim, tensor.stride, strict=True))
    flat = host_bytes(address, (last + 1) * dtype.itemsize).view(dtype)
    return as_strided(flat, tensor.dim, [stride * dtype.itemsize for stride in tensor.stride])


def computed(tensor: Any, outside: np.ndarray | None, arithmetic: Any) -> np.ndarray:
    """The array that arithmetic is done on: the tensor itself where it is of that type, or one for conversions."""
    if outside is not None and outside.dtype == arithmetic:
        return outside
    return np.empty(tensor.dim, TYPES[tensor.data_type.name] if outside is None else arithmetic)


def move(source: np.ndarray, target: np.ndarray) -> None:
    """Copy and convert, unless both are one."""
    if source is not target:
        np.copyto(target, source, casting="unsafe")  # bfloat16 is of no kind that NumPy knows


def operation(node: Any) -> str:
    """Such as "conv_fprop" or "bias"."""
    return str(node.params["mode"] if node.node_type.name == "POINTWISE" else node.node_type.name.lower())


def step(node: Any, arrays: Mapping[int, np.ndarray]) -> Launch:
    name = operation(node)
    operands = {port: arrays[t.uid] for port, t in (*node.inputs.items(), *node.outputs.items())}
    if name in ATTENTION:
        return attending(node, operands)
    inputs = [arrays[tensor.uid] for tensor in node.inputs.values()]
    (output,) = (arrays[tensor.uid] for tensor in node.outputs.values())
    if name == "bias":
        return partial(np.add, *inputs, out=output)
    if name == "relu":
        return partial(np.maximum, *inputs, 0, out=output)
    return convolution(node, operands)


#: NumPy's kernels and their operands by the library's names; the images and the filters among these.
CONVOLUTIONS = {
    "conv_fprop": ("conv2d", ("image", "weight", None, "Y"), "image", "weight"),
    "conv_dgrad": ("conv2d_derivative", ("loss", "filter", "DX"), "DX", "filter"),
    "conv_wgrad": ("conv2d_gradient", ("image", "loss", "DW"), "image", "DW"),
}


def convolution(node: Any, operands: Mapping[str, np.ndarray]) -> Launch:
    """By NumPy's kernel; extents tell the groups."""
    kernel, ports, image, filters = CONVOLUTIONS[operation(node)]
    pads = zip(node.params["pre_padding"], node.params["post_padding"], strict=True)
    window = Window(
        operands[filters].shape[2:],
        tuple(node.params["stride"]),
        tuple(extent for pair in pads for extent in pair),
        tuple(node.params["dilation"]),
    )
    settings = {"window": window, "groups": operands[image].shape[1] // operands[filters].shape[1]}
    return numpy_call(kernel, [None if port is None else operands[port] for port in ports], settings)


#: NumPy's kernels and their operands by the library's names.
ATTENTION = {
    "sdpa": ("attention", ("q", "k", "v", None, None, None, "O", "Stats")),
    "sdpa_bwd": (
        "attention_derivative",
        ("dO", "q", "k", "v", None, None, None, "o", "stats", "dQ", "dK", "dV"),
    ),
}


def attending(node: Any, operands: Mapping[str, np.ndarray]) -> Launch:
    """By NumPy's kernel, from all that the library is told."""
    kernel, ports = ATTENTION[operation(node)]
    told = dict(node.params)
    causal = "diagonal_band_right_bound" in told
    settings = {"causal": causal, "scale": told.pop("attn_scale")}
    if causal:
        assert told.pop("diagonal_band_right_bound") == 0
        assert told.pop("diagonal_alignment").name == "TOP_LEFT"
    assert told.popitem() in (
        ("generate_stats", True),
        *(("use_deterministic_algorithm", one) for one in (False, True)),
    )
    assert not told, "what is not done here"
    assert operands.keys() == set(ports) - {None}
    shown = {p: a[..., 0] if p.lower() == "stats" else a.transpose(0, 2, 1, 3) for p, a in operands.items()}
    return numpy_call(kernel, [None if port is None else shown[port] for port in ports], settings)


def numpy_call(kernel: str, arrays: Sequence[np.ndarray | None], settings: Mapping[str, Any]) -> Launch:
    scratch = np.empty(NUMPY.scratch_bytes(kernel, tuple(arrays), settings), np.uint8)
    return NUMPY.prepare(kernel, tuple(arrays), scratch, settings)


# ---- both


def served(products: Products, made: Convolutions | None) -> tuple[list[Mapping[str, Any]], list[tuple[str, str]]]:
    """The builders and fusions of the libraries, as `cuda` takes them. made: those of cuDNN, where it is there."""
    families = [products, PointwiseConvolutions(products), *([] if made is None else [made])]
    builders = [one.builders for one in families]
    if made is not None:
        builders.append(attending_by(made.planner).builders)
    return builders, [pair for one in families for pair in one.FUSIONS]
