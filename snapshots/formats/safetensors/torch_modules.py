"""Layers that hold others where PyTorch has one module: attention, and a recurrent layer of two directions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from singa_lite.snapshots.torch_layout import AxisSlice, TorchLayout
from singa_lite.snapshots.tree import ArraySpec
from singa_lite.tensor import Shape

#: The products of a MultiHeadAttention that PyTorch has side by side, in its order.
_PACKED = ("query", "key", "value")


def in_one_module(
    path: str, specs: Mapping[str, ArraySpec], kinds: Mapping[str, str], named: Collection[str]
) -> TorchLayout | None:
    """The layout of an array in the module of the layer that holds its layer; its name has no module yet.

    None where PyTorch has no such module. specs: of all arrays; kinds: {layer: class}; named: the layers and paths
    that a user has names for: a name for a layer within says that it is a module of its own.
    """
    branch, _, rest = path.partition("/")
    holder, _, inner = rest.rpartition("/")[0].rpartition("/")
    own = [each for each in named if each.removeprefix("parameters/").startswith(f"{holder}/")]
    if branch != "parameters" or not holder or own:
        return None
    name = path.rpartition("/")[2]
    if kinds.get(holder) == "MultiHeadAttention":
        return _of_attention(f"parameters/{holder}", inner, name, specs)
    if kinds.get(holder) == "Bidirectional" and f"parameters/{holder}/{inner}/weight_ih_l1" not in specs:
        axes = (1, 0) if len(specs[path].shape) == 2 else None
        return TorchLayout(f"{name}_reverse" if inner == "backward" else name, axes)
    return None


def _of_attention(holder: str, inner: str, name: str, specs: Mapping[str, ArraySpec]) -> TorchLayout | None:
    """Of nn.MultiheadAttention, whose heads together are as wide as its queries."""
    paths = [f"{holder}/{each}/weight" for each in (*_PACKED, "output")]
    shapes: list[Shape] = [specs[path].shape for path in paths if path in specs]
    width = shapes[0][-1] if shapes and shapes[0] else 0
    if len(shapes) != len(paths) or {shapes[0], shapes[-1]} != {(width, width)}:
        return None
    if any(len(shape) != 2 or shape[1] != width for shape in shapes):
        return None
    axes = (1, 0) if name == "weight" else None
    if inner not in _PACKED:
        return TorchLayout(f"out_proj.{name}", axes)
    if name == "weight" and {shape[0] for shape in shapes} != {width}:  # a memory of another width
        return TorchLayout(f"{inner[0]}_proj_weight", axes)
    begin = _PACKED.index(inner) * width
    return TorchLayout(f"in_proj_{name}", axes, AxisSlice(0, begin, begin + width, len(_PACKED) * width))
