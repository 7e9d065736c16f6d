"""cuDNN's graphs by NumPy over host memory: planned by the library for a described GPU, done from what it was told."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from host_loader import host_bytes
from singa_lite.kernels.cuda_kernels.cudnn_convolution import Convolutions
from singa_lite.kernels.cuda_kernels.cudnn_library import CudnnNotFoundError, described, frontend
from singa_lite.kernels.cuda_kernels.cudnn_plan import Knobs, Planner
from singa_lite.kernels.interface.window import Window
from singa_lite.kernels.kernel_set import Launch
from singa_lite.kernels.numpy_kernels import NUMPY

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


class HostExecutor:
    """Stands in for a GPU. done: the operations of each graph that ran."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []

    def bind(self, graph: Any, addresses: Mapping[int, int], workspace: int) -> Launch:
        """Each operation as the graph states it; the workspace is overwritten, as the library may."""
        needed = graph.get_workspace_size()
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
    inputs = [arrays[tensor.uid] for tensor in node.inputs.values()]
    (output,) = (arrays[tensor.uid] for tensor in node.outputs.values())
    name = operation(node)
    if name == "bias":
        return partial(np.add, *inputs, out=output)
    if name == "relu":
        return partial(np.maximum, *inputs, 0, out=output)
    return convolution(node, {port: arrays[t.uid] for port, t in (*node.inputs.items(), *node.outputs.items())})


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
    arrays = tuple(None if port is None else operands[port] for port in ports)
    scratch = np.empty(NUMPY.scratch_bytes(kernel, arrays, settings), np.uint8)
    return NUMPY.prepare(kernel, arrays, scratch, settings)
