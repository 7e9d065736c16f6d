"""Engines of cuDNN that give wrong results without an error, and for which convolutions: no plan has one of them.

Read off cuDNN 9.19.0 on an H100, where each engine was compared with float64. With unequal padding some read outside
their tensors. Other versions of the library are not known to be better, so the rows hold for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from singa_lite.kernels.cuda_kernels.libraries.cudnn_library import Graph
from singa_lite.kernels.cuda_kernels.libraries.cudnn_tensor import DTYPES
from singa_lite.kernels.cuda_kernels.source import HALVES


class WrongEngines(NamedTuple):
    """operation: the library's name; holds: for which nodes of a graph; dtypes: NumPy's names of the tensors' types."""

    operation: str
    holds: Callable[[Graph], bool]
    dtypes: Collection[str]
    engines: tuple[str, ...]


def _pads_unequally(node: Graph) -> bool:
    """Whether there is more padding on one side than on the other, such as Keras's "same" at stride 2."""
    return bool(node.params["pre_padding"] != node.params["post_padding"])


def _is_in_c_order(node: Graph) -> bool:
    """Whether channels of some tensor are not its innermost axis."""
    return any(tensor.stride[1] != 1 for tensor in (*node.inputs.values(), *node.outputs.values()))


WRONG_ENGINES = (
    WrongEngines("CONV_WGRAD", _pads_unequally, DTYPES, ("eng1", "eng18", "eng20")),
    WrongEngines("CONV_DGRAD", _pads_unequally, ("float32",), ("eng50",)),
    WrongEngines("CONV_DGRAD", _is_in_c_order, HALVES, ("eng78",)),
    WrongEngines("CONV_WGRAD", _is_in_c_order, HALVES, ("eng70",)),
)


def wrong_engines(graph: Graph, dtype: str) -> list[str]:
    """Those that a plan of this graph must not have. dtype: NumPy's name of the tensors' type."""
    return [
        engine
        for node in graph.nodes
        for row in WRONG_ENGINES
        if node.node_type.name == row.operation and dtype in row.dtypes and row.holds(node)
        for engine in row.engines
    ]
