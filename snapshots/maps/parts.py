"""Helpers of the maps: the layers of a net that have parameters, in their order, and where these lie in a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from singa_lite.common.errors import SnapshotError
from singa_lite.layer.layer import Layer
from singa_lite.layer.layer_graph import LayerGraph
from singa_lite.snapshots.torch_layout import Axes, TorchLayout

#: {our name: PyTorch's}, of a Linear and of a LayerNorm; and what the latter's are called in old files.
NORM = {"gamma": "weight", "beta": "bias"}
OLD = {"weight": "gamma", "bias": "beta"}

#: Axes of a Linear's weight: (out, in) in PyTorch.
LINEAR = (1, 0)

Places = dict[str, tuple[TorchLayout, ...]]


def parted(net: LayerGraph) -> list[Layer]:
    """The layers of a net that have parameters of their own, or whose layers have, in topological order."""
    if not isinstance(net, LayerGraph):
        raise TypeError(f"wanted a FeedForwardNet to make a map for, received {net!r:.100}")
    return [node.layer for node in net.ordered() if node.layer.parameters and node.layer.shared_with is None]


def kind(layer: Layer) -> str:
    """The class of a layer that has a form in such a file, by its name; "" for any other."""
    known = ("Embedding", "LearnedPositions", "TransformerBlock", "LayerNormalization", "Dense")
    return next((cls.__name__ for cls in type(layer).__mro__ if cls.__name__ in known), "")


def checked(model: str, net: LayerGraph, form: str, wanted: str) -> list[Layer]:
    """The layers of `parted`. SnapshotError unless their kinds, a space behind each, match the pattern `form`."""
    found = parted(net)
    kinds = "".join(f"{kind(layer) or type(layer).__name__} " for layer in found)
    if not re.fullmatch(form, kinds):
        raise SnapshotError(
            f"maps.{model}: wanted layers with parameters in this order: {wanted}; received {kinds.split()}"
        )
    return found


def linear(layer: Layer, name: str, axes: Axes | None = LINEAR) -> Places:
    """Weight and bias of a Dense in a module of this name. axes: of the weight, None where it is (in, out) as ours."""
    return {
        f"parameters/{layer.path}/{ours}": (TorchLayout(f"{name}.{ours}", axes if ours == "weight" else None),)
        for ours in layer.own_parameters
    }


def norm(layer: Layer, name: str, old: bool = False) -> Places:
    """Scale and shift of a LayerNormalization in a module of this name. old: whether files may say gamma and beta."""
    return {
        f"parameters/{layer.path}/{ours}": tuple(
            TorchLayout(f"{name}.{theirs}") for theirs in (NORM[ours], OLD[NORM[ours]])[: 2 if old else 1]
        )
        for ours in layer.own_parameters
    }


def table(layer: Layer, name: str) -> Places:
    """The weight of an Embedding or of LearnedPositions."""
    return {f"parameters/{layer.path}/weight": (TorchLayout(f"{name}.weight"),)}


def check_block(model: str, block: Layer, first: bool) -> None:
    """SnapshotError unless it is a block with such norms and biases. first: whether its norms stand before its parts.

    model: for messages.
    """
    order = [name for name in block.layers if block.layers[name].parameters]
    kinds = {name: kind(block.layers[name]) for name in order}
    parts = ["attention_norm", "attention", "hidden_norm", "hidden", "output"]
    wanted = parts if first else ["attention", "attention_norm", "hidden", "output", "hidden_norm"]
    if order != wanted or list(map(kinds.get, parts)) != [
        "LayerNormalization",
        "",
        "LayerNormalization",
        *["Dense"] * 2,
    ]:
        raise SnapshotError(
            f"maps.{model}: layer {block.path!r}: wanted layers {wanted} in it, LayerNormalization and Dense, received "
            f"{kinds}"
        )
    shapes = {name: tensor.shape for name, tensor in block.layers["attention"].parameters.items()}
    without = [path for path in ("attention/query", "hidden", "output") if f"{path}/bias" not in block.parameters]
    if without or len({shapes[f"{name}/weight"] for name in ("query", "key", "value")}) > 1:
        raise SnapshotError(
            f"maps.{model}: layer {block.path!r}: wanted biases, and queries, keys and values of one size, received "
            f"{shapes}"
        )


def prefixed(places: Mapping[str, Sequence[TorchLayout]], prefix: str, written: bool) -> Places:
    """The same where names may begin with the prefix. written: whether those that are written do."""
    found: Places = {}
    for path, layouts in places.items():
        longer = [layout._replace(name=f"{prefix}{layout.name}") for layout in layouts]
        found[path] = (*longer, *layouts) if written else (*layouts, *longer)
    return found


def ignored_pattern(model: str, modules: Iterable[str], beside: Sequence[str]) -> str:
    """A pattern of names of a file for which the net needs no place. modules: those of the file that a user names."""
    if isinstance(modules, str) or not all(isinstance(name, str) and name for name in modules):
        raise TypeError(f"maps.{model}: wanted leave_out to be names of modules, as ['cls'], received {modules!r}")
    return "|".join([*beside, *(rf"{re.escape(name)}(\..*)?" for name in modules)])
